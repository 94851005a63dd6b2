//! Freezes a workload for a snapshot, and takes over a machine from another host.
//!
//! `machine` and `sandbox` call it. After an adoption the link continues unchanged: it takes the agent's new
//! id, and the token for its next dial, from the answer.

use std::time::{Duration, SystemTime};

use protocol::Text;
use protocol::limits::{ARGUMENTS_BYTES_MAX, ARGUMENTS_MAX, ENTROPY_BYTES_MAX, NAME_BYTES_MAX};
use protocol::message::{Adopted, Reply, Request};
use protocol::requests::Adopt;
use ring::rand::{SecureRandom, SystemRandom};

use super::fit::{check, variables_bytes};
use super::limits::{ADOPTION_ENTROPY_BYTES, WARNINGS_MAX};
use super::requests::pick;
use super::{Guest, GuestError};

/// A frozen workload with flushed file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// How many control groups are frozen.
    pub groups: u32,
    /// How long that took.
    pub took: Duration,
}

/// A thawed workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thawed {
    /// How long it had been frozen, in the guest's time.
    pub frozen: Duration,
    /// How far the guest's clock was ahead before it was set; behind after a pause, so negative.
    pub drift_us: Option<i64>,
}

/// A machine's new identity. The time and the random numbers come from its
/// host with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adoption {
    pub hostname: Option<String>,
    /// Goes over the sandbox's environment.
    pub env: Vec<(Text, Text)>,
    /// The machine is a clone of a snapshot: interpreters that have run nothing yet are exchanged.
    pub restored: bool,
}

impl Guest {
    /// Freezes all processes of sessions and contexts, and flushes file systems. After `watchdog` of the
    /// guest's time they thaw by themselves.
    pub async fn freeze(&self, watchdog: Duration) -> Result<Frozen, GuestError> {
        let watchdog_ms = u64::try_from(watchdog.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Freeze { watchdog_ms };
        let picked = pick!(Reply::Frozen { groups, took_us } => (groups, took_us));
        let (groups, took_us) = self.ask(request, "frozen", picked)?.await?;
        Ok(Frozen { groups, took: Duration::from_micros(took_us) })
    }

    /// Thaws everything, and returns how long it had been frozen.
    pub async fn thaw(&self) -> Result<Duration, GuestError> {
        Ok(self.ask_thaw(None).await?.frozen)
    }

    /// Thaws after the machine itself was paused: its clock is set to the host's.
    pub async fn wake(&self) -> Result<Thawed, GuestError> {
        self.ask_thaw(Some(now_us())).await
    }

    async fn ask_thaw(&self, time_us: Option<u64>) -> Result<Thawed, GuestError> {
        let picked = pick!(Reply::Thawed { frozen_ms, drift_us } => (frozen_ms, drift_us));
        let request = Request::Thaw { time_us };
        let (frozen_ms, drift_us) = self.ask(request, "thawed", picked)?.await?;
        Ok(Thawed { frozen: Duration::from_millis(frozen_ms), drift_us })
    }

    /// Becomes the machine's only host: the agent forgets every other client.
    pub async fn adopt(&self, adoption: Adoption) -> Result<Adopted, GuestError> {
        let Adoption { hostname, env, restored } = adoption;
        check("the bytes of the name", hostname.as_ref().map_or(0, String::len), NAME_BYTES_MAX)?;
        check("the number of variables", env.len(), ARGUMENTS_MAX)?;
        check("the bytes of the environment", variables_bytes(&env), ARGUMENTS_BYTES_MAX)?;
        let mut entropy = vec![0; ADOPTION_ENTROPY_BYTES];
        SystemRandom::new().fill(&mut entropy).map_err(|_| GuestError::NoEntropy)?;
        let ask = Adopt { time_us: now_us(), entropy: entropy.into(), hostname, env, restored };
        let picked = pick!(Reply::Adopted(adopted) => adopted);
        let mut adopted = self.ask(Request::Adopt(ask), "adopted", picked)?.await?;
        adopted.warnings.truncate(WARNINGS_MAX);
        Ok(adopted)
    }
}

const _: () = assert!(ADOPTION_ENTROPY_BYTES <= ENTROPY_BYTES_MAX);

/// Microseconds since 1970; zero on a host whose clock stands before that.
pub fn now_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.map_or(0, |since| since.as_micros() as u64)
}
