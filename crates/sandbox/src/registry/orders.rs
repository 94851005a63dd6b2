//! What a sandbox that is there can be asked for, besides its end: another time to live, a pause, its
//! workspace's changes.

use host::instant::now_ms;
use workspace::Report;

use egress::Rules;
use machine::Capability;

use super::Registry;
use crate::owner::Order;
use crate::spec::check_lifetime;
use crate::spec::unsupported::check_capability;
use crate::{Name, Record, SandboxError, SandboxRef, State};

/// What is changed of a living sandbox; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// The time to live from now on; 0 for no limit.
    pub ttl_ms: Option<u64>,
    pub idle_ttl_ms: Option<u64>,
    /// What it may reach instead of what it could; an empty list allows nothing.
    pub egress: Option<Vec<String>>,
}

impl Update {
    /// Of what it may reach: these rules, or those of a sandbox of its namespace that asks for none.
    pub fn egress_or(egress: Option<Vec<String>>, registry: &Registry, namespace: &Name) -> Self {
        let egress = egress.unwrap_or_else(|| registry.egress_default(namespace).to_vec());
        Self { egress: Some(egress), ..Self::default() }
    }
}

impl Registry {
    /// Changes a living sandbox. Rules of egress hold from the answer on, also for connections that are open. The
    /// call counts as activity.
    pub async fn update(
        &self,
        which: &SandboxRef,
        mut update: Update,
    ) -> Result<Record, SandboxError> {
        check_lifetime("ttl_ms", update.ttl_ms.filter(|ms| *ms > 0))?;
        check_lifetime("idle_ttl_ms", update.idle_ttl_ms.filter(|ms| *ms > 0))?;
        if let Some(ttl_ms) = update.ttl_ms {
            self.bound_life(&self.get(which)?, ttl_ms, now_ms())?;
        }
        if let Some(egress) = &mut update.egress {
            if Rules::parse(egress)?.is_empty() {
                egress.clear();
            }
            let record = self.get(which)?;
            if !egress.is_empty() {
                check_capability(record.machine, "egress", Capability::Egress)?;
            }
            // The gates of one that sleeps are opened by its agent.
            if record.state.is_asleep() {
                self.wake(which).await?;
            }
        }
        let record = self.order(which, |reply| Order::Update { update, reply }).await?;
        match &self.0.names {
            // A call that is refused here can be repeated: the sandbox itself has the change.
            Some(names) if !record.on_lost.is_lose() => {
                let kept = names.changed(&record, None).await;
                kept.map_err(|refused| SandboxError::NameRefused {
                    which: record.which(),
                    refused,
                })?;
            }
            _ => {}
        }
        Ok(record)
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
