//! Output that outlives the host, as the owner of a sandbox has part in it: what its machine's users must keep to, and the
//! end of its history.

use std::sync::Arc;
use std::time::Duration;

use super::Owner;
use crate::durable::{DurableLog, Line};
use crate::limits::{DURABLE_END_MAX, RECORDER_END_MAX};
use crate::recorder::Durable;
use crate::{Durability, StopReason};
use agent_client::guest::{Horizons, OutputRule};
use machine::Running;

impl Owner {
    /// The log of this life in the fleet, if it has one.
    pub(super) fn durable_log(&self) -> Option<Arc<dyn DurableLog>> {
        let record = &self.stored.record;
        let logs = self.place.durable_logs.as_ref().filter(|_| !record.durability.is_off())?;
        Some(logs.open(&record.which(), record.incarnation.as_deref()?))
    }

    pub(super) fn open_durable(&mut self) {
        let horizons = self.stored.record.durability == Durability::Sync;
        let horizons = horizons.then(Horizons::default);
        self.durable = self.durable_log().map(|log| Durable { log, horizons });
    }

    /// Sets what holds for the output of its programs, before anybody else starts one.
    pub(super) fn rule_output(&self, running: &Arc<dyn Running>) {
        let (Some(durable), Some(guest)) = (&self.durable, running.guest()) else { return };
        guest.output_rules().set(match &durable.horizons {
            Some(horizons) => OutputRule::Durable(horizons.clone()),
            None => OutputRule::Recorded,
        });
    }

    /// How long the recorder may take for what came last.
    pub(super) fn recorder_end_max(&self) -> Duration {
        if self.durable.is_some() { DURABLE_END_MAX } else { RECORDER_END_MAX }
    }

    /// Adds the end of the sandbox to its history. If the log cannot be reached, nobody will read that it ended.
    pub(super) async fn end_durable(&mut self, why: &StopReason) {
        let Some(durable) = self.durable.take() else { return };
        if let Some(horizons) = &durable.horizons {
            horizons.fix();
        }
        let closed = durable.log.note(Line::Closed { why: why.to_string() });
        match tokio::time::timeout(DURABLE_END_MAX, closed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.trouble(error.to_string()),
            Err(_) => {
                let seconds = DURABLE_END_MAX.as_secs();
                self.trouble(format!(
                    "the fleet's log did not take its last output and its end within {seconds} s"
                ));
            }
        }
    }
}
