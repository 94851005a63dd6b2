//! What a sandbox that is there can be asked for, besides its end: another time to live, a pause, its
//! workspace's changes.

use host::instant::now_ms;
use workspace::Report;

use super::Registry;
use crate::owner::Order;
use crate::spec::check_lifetime;
use crate::{Record, SandboxError, SandboxRef, State};

impl Registry {
    /// Changes a living sandbox's times to live, counted from now; what is absent stays, 0 means no
    /// limit. The call counts as activity.
    pub async fn extend(
        &self,
        which: &SandboxRef,
        ttl_ms: Option<u64>,
        idle_ttl_ms: Option<u64>,
    ) -> Result<Record, SandboxError> {
        check_lifetime("ttl_ms", ttl_ms.filter(|ms| *ms > 0))?;
        check_lifetime("idle_ttl_ms", idle_ttl_ms.filter(|ms| *ms > 0))?;
        if let Some(ttl_ms) = ttl_ms {
            self.bound_life(&self.get(which)?, ttl_ms, now_ms())?;
        }
        self.order(which, |reply| Order::Extend { ttl_ms, idle_ttl_ms, reply }).await
    }

    /// Pauses a sandbox; does nothing if it is paused. Time in a pause counts for its absolute time
    /// to live, and not for the idle one.
    pub async fn pause(&self, which: &SandboxRef) -> Result<Record, SandboxError> {
        self.order(which, |reply| Order::Pause { reply }).await
    }

    /// Resumes a paused sandbox, with its clock corrected.
    pub async fn resume(&self, which: &SandboxRef) -> Result<Record, SandboxError> {
        let record = self.get(which)?;
        if record.state.is_asleep() {
            // Others may be waking it already.
            self.wake(which).await?;
            return self.get(which);
        }
        if matches!(record.state, State::Paused { .. }) {
            self.room_to_go_on(&record)?;
        }
        self.order(which, |reply| Order::Resume { reply }).await
    }

    /// Copies changes in a running sandbox's workspace back, and returns the report.
    pub async fn sync(&self, which: &SandboxRef) -> Result<Report, SandboxError> {
        let _activity = self.keep_awake(which).await?;
        self.order(which, |reply| Order::Sync { reply }).await
    }
}
