//! Pause, resume, snapshot and restore of a virtual machine: what the bridge asks of the agent and does to
//! its link before and after the monitor's part.
//!
//! ```text
//! pause      hold the link ── processors stop
//! resume     processors continue ── link continues, or is made ── wake: the clock is set
//! snapshot   freeze ── hold ── the monitor saves ── the agent calls, or is dialled ── link again ── wake
//! restore    the monitor loads ── the agent calls, or is dialled ── a new client ── adopt
//! ```

use std::path::Path;
use std::sync::atomic::Ordering;

use tokio::time::timeout;

use super::awaited::Awaited;
use super::made::{MANIFEST, MachineInputs, Manifest};
use super::{Halt, Saving, Standing, Virtual, plan};
use crate::limits::{
    RECONNECT_CALL_DEADLINE, RESUME_PATIENCE, SNAPSHOT_CALL_DEADLINE, SNAPSHOT_WATCHDOG,
    UNCUT_PATIENCE, WAKE_DEADLINE,
};
use crate::{BoxFuture, Capability, MachineError, MachineSpec, Resumed, Suspend};
use agent_client::guest::{Adoption, Guest, GuestError, now_us};
use agent_client::link::Timing;
use host::paths::write_durably;

impl Virtual {
    fn halt(&self) -> Result<&dyn Halt, MachineError> {
        let lacks = || MachineError::lacks(self.monitor.kind(), Capability::Pause, "be paused");
        self.monitor.halt().ok_or_else(lacks)
    }

    async fn pause_machine(&self) -> Result<(), MachineError> {
        let halt = self.halt()?;
        self.disturbed.store(true, Ordering::Relaxed);
        let guest = self.known_guest();
        if let Some(guest) = &guest {
            guest.machine_paused();
        }
        let paused = halt.pause(&self.directory).await;
        if paused.is_err()
            && let Some(guest) = &guest
        {
            guest.machine_resumed(false);
        }
        self.paused.store(paused.is_ok(), Ordering::Relaxed);
        self.disturbed.store(false, Ordering::Relaxed);
        paused
    }

    async fn resume_machine(&self) -> Result<Resumed, MachineError> {
        let halt = self.halt()?;
        halt.resume(&self.directory).await?;
        self.paused.store(false, Ordering::Relaxed);
        let woken = timeout(RESUME_PATIENCE, self.wake_again(halt.pause_cuts())).await;
        if let Ok(Ok(resumed)) = woken {
            return Ok(resumed);
        }
        self.reconnect().await?;
        self.wake_again(true).await
    }

    async fn wake_again(&self, reconnects: bool) -> Result<Resumed, MachineError> {
        let guest = match self.known_guest() {
            Some(guest) => {
                guest.machine_resumed(reconnects);
                guest
            }
            // Another bridge paused it; this one has no link to its agent yet.
            None => self.meet().await?,
        };
        wake(&guest).await
    }

    /// Makes the connection to the agent again. The link is held meanwhile: an agent that this end dials as soon
    /// as the connection is there has a link, and does not call, and a relay may not survive a dial before the
    /// guest has its vsock.
    async fn reconnect(&self) -> Result<(), MachineError> {
        let halt = self.halt()?;
        let awaited = self.await_call()?;
        let guest = self.known_guest();
        if let Some(guest) = &guest {
            guest.machine_paused();
        }
        let made = halt.reconnect(&self.directory).await;
        if made.is_ok() && halt.calls_first() {
            let _ = timeout(RECONNECT_CALL_DEADLINE, awaited.called()).await;
        }
        if made.is_err()
            && let Some(guest) = &guest
        {
            guest.machine_resumed(true);
        }
        made
    }

    fn await_call(&self) -> Result<Awaited, MachineError> {
        let bound = Awaited::bind(&plan::calls(&self.directory));
        let action = "bind the socket that the agent calls";
        bound.map_err(|source| MachineError::Host { action, source })
    }

    pub(super) async fn resume_if_paused(&self) {
        self.resume_if_disturbed().await;
        if self.paused.load(Ordering::Relaxed) {
            // A machine that does not resume is killed when it must end.
            let _ = self.resume_machine().await;
        }
    }

    async fn resume_if_disturbed(&self) {
        if !self.disturbed.swap(false, Ordering::Relaxed) {
            return;
        }
        let Ok(halt) = self.halt() else { return };
        mend(halt, &self.directory, false).await;
        self.paused.store(false, Ordering::Relaxed);
        let _ = self.wake_again(true).await;
    }

    async fn meet(&self) -> Result<Guest, MachineError> {
        let met = match self.address.clone() {
            Some(address) => self.supervisor.return_to(address, Timing::REMOTE).await,
            None => None,
        };
        let deadline = WAKE_DEADLINE;
        let guest = met.ok_or(MachineError::Silent { deadline, console: String::new() })?;
        *self.guest_slot() = Some(guest.clone());
        Ok(guest)
    }

    async fn write_down(&self, into: &Path, then: Then) -> Result<(), MachineError> {
        let halt = self.halt()?;
        // Refuse what is impossible before anything is paused for it.
        halt.check(&self.directory)?;
        let host = |action| move |source| MachineError::Host { action, source };
        let made = MachineInputs::noted(&self.directory)
            .map_err(host("read what the machine is made of"))?;
        let guest = self
            .known_guest()
            .ok_or(MachineError::Silent { deadline: WAKE_DEADLINE, console: String::new() })?;
        let version = halt.version().await?;
        let agent = guest.agent_id().to_string();
        let manifest = digested(made.clone(), version, agent).await?;
        // If the machine ends meanwhile, nothing is lost: the files are useless without the description,
        // which is written last.
        let awaited = self.await_call()?;
        // An agent that never answers must not hold the snapshot's name forever.
        match timeout(WAKE_DEADLINE, guest.freeze(SNAPSHOT_WATCHDOG)).await {
            Ok(Ok(_)) => {}
            // Nothing can be frozen in a guest without control groups; its processors stop anyway.
            Ok(Err(GuestError::Fault(fault)))
                if fault.code == protocol::FaultCode::Unsupported && then == Then::GoesOn => {}
            Ok(Err(source)) => {
                return Err(MachineError::Guest { action: "freeze the programs", source });
            }
            Err(_) => {
                let deadline = WAKE_DEADLINE;
                return Err(MachineError::Silent { deadline, console: String::new() });
            }
        }
        self.disturbed.store(true, Ordering::Relaxed);
        guest.machine_paused();
        let saving = Saving {
            directory: self.directory.clone(),
            into: into.to_owned(),
            memory_bytes: made.memory_bytes,
            scratch: made.scratch,
        };
        let saved = halt.save(&saving).await;
        if halt.calls_first() {
            // The agent calls when it notices that its links are gone, and can be dialled then. If it does
            // not call, the bridge dials anyway, because a failed snapshot may have cut no link.
            let patience = if saved.is_ok() { SNAPSHOT_CALL_DEADLINE } else { UNCUT_PATIENCE };
            let _ = timeout(patience, awaited.called()).await;
        }
        drop(awaited);
        if then == Then::StaysFrozen && saved.is_ok() {
            // The link stays held: what would be said to its agent now is not in the snapshot.
            return describe(into, &manifest);
        }
        guest.machine_resumed(true);
        let woken = wake(&guest).await;
        self.disturbed.store(false, Ordering::Relaxed);
        saved?;
        woken?;
        describe(into, &manifest)
    }
}

/// What a machine does when its snapshot is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    GoesOn,
    /// Its programs stay frozen until it is set right or ended.
    StaysFrozen,
}

/// Writes the description that makes a snapshot whole.
fn describe(into: &Path, manifest: &Manifest) -> Result<(), MachineError> {
    let written = serde_json::to_vec_pretty(manifest).map_err(std::io::Error::from);
    let written = written.and_then(|bytes| write_durably(into, MANIFEST, &bytes));
    let action = "write the snapshot's description";
    written.map_err(|source| MachineError::Host { action, source })
}

/// Repairs a machine, and waits for its agent if that must not be dialled before it calls.
pub(super) async fn mend(halt: &dyn Halt, directory: &Path, paused: bool) -> Standing {
    // Listen before the agent can call: after a failed call it waits before it tries again.
    let awaited = Awaited::bind(&plan::calls(directory));
    let standing = halt.mend(directory, paused).await;
    if let (Standing::RunsAnew, Ok(awaited)) = (standing, awaited) {
        let _ = timeout(SNAPSHOT_CALL_DEADLINE, awaited.called()).await;
    }
    standing
}

/// Computing digests of some hundred megabytes would block a thread that others need.
async fn digested(
    made: MachineInputs,
    version: String,
    agent: String,
) -> Result<Manifest, MachineError> {
    let now_ms = now_us() / 1000;
    let digested = tokio::task::spawn_blocking(move || made.manifest(version, agent, now_ms));
    digested.await.unwrap_or_else(|error| {
        let source = std::io::Error::other(error);
        Err(MachineError::Host { action: "count digests", source })
    })
}

/// Tells the agent of a machine that was paused the time, and thaws its programs.
async fn wake(guest: &Guest) -> Result<Resumed, MachineError> {
    match timeout(WAKE_DEADLINE, guest.wake()).await {
        Ok(Ok(thawed)) => Ok(Resumed { drift_us: thawed.drift_us }),
        Ok(Err(source)) => Err(MachineError::Guest { action: "wake the agent", source }),
        Err(_) => Err(MachineError::Silent { deadline: WAKE_DEADLINE, console: String::new() }),
    }
}

/// Gives a restored machine the identity of this sandbox: clock, name, id, and random numbers.
pub(super) async fn adopt(guest: &Guest, spec: &MachineSpec) -> Result<Vec<String>, MachineError> {
    let text = |text: &str| protocol::Text::from(text);
    let plain = spec.env.iter().map(|(name, value)| (text(name), text(value)));
    let secrets = spec.secrets.iter().map(|(name, value)| (text(name), text(value.expose())));
    let adoption = Adoption {
        hostname: Some(spec.hostname.clone()),
        env: plain.chain(secrets).collect(),
        restored: true,
    };
    let failed = |source| MachineError::Guest { action: "take over the restored machine", source };
    Ok(guest.adopt(adoption).await.map_err(failed)?.warnings)
}

impl Suspend for Virtual {
    fn pause(&self) -> BoxFuture<'_, Result<(), MachineError>> {
        Box::pin(self.pause_machine())
    }

    fn resume(&self) -> BoxFuture<'_, Result<Resumed, MachineError>> {
        Box::pin(self.resume_machine())
    }

    fn set_right(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.resume_if_disturbed())
    }

    fn snapshot<'a>(&'a self, into: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(self.write_down(into, Then::GoesOn))
    }

    fn may_snapshot(&self) -> Result<(), MachineError> {
        self.halt()?.check(&self.directory)
    }

    fn put_down<'a>(&'a self, into: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(self.write_down(into, Then::StaysFrozen))
    }
}
