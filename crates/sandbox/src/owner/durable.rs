//! What is recorded of a sandbox, as its owner has part in it: what its machine's users must keep to, so that what is
//! typed and put in is recorded and output outlives the host, and the end of its history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Owner;
use crate::durable::{DurableLog, Line};
use crate::limits::{DURABLE_END_MAX, RECORDER_END_MAX};
use crate::log::{InputLog, ProvenanceLog, log_directory};
use crate::recorder::Durable;
use crate::{Durability, Event, StopReason};
use agent_client::guest::{Horizons, InputRule, OutputRule};
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

    /// Has what is typed into its sessions recorded, if that is its policy.
    pub(super) fn rule_input(&self, running: &Arc<dyn Running>) {
        let (true, Some(guest)) = (self.stored.record.record.has_input(), running.guest()) else {
            return;
        };
        let log = InputLog::new(&log_directory(&self.place.directories.state));
        let (which, events) = (self.stored.record.which(), Arc::clone(&self.place.events));
        let is_reported = AtomicBool::new(false);
        guest.input_rules().set(InputRule::Recorded(Box::new(move |session, at_ms, bytes| {
            if let Err(error) = log.append(session, at_ms, bytes)
                && !is_reported.swap(true, Ordering::Relaxed)
            {
                let what = format!("what is typed is not recorded: {error}");
                events(&Event::Trouble { which: Some(which.clone()), what });
            }
        })));
    }

    /// Has what is put into it, and how its programs and runs end, recorded.
    pub(super) fn keep_provenance(&self, running: &Arc<dyn Running>, log: &Arc<ProvenanceLog>) {
        let Some(guest) = running.guest() else { return };
        let (log, telemetry) = (Arc::clone(log), self.place.telemetry.clone());
        telemetry.expect_ends(&log);
        let (which, events) = (self.stored.record.which(), Arc::clone(&self.place.events));
        let is_reported = AtomicBool::new(false);
        guest.provenance().set(Box::new(move |what| {
            let is_end = what.is_end();
            let appended = log.append(what);
            if is_end {
                telemetry.note_end();
            }
            if let Err(error) = appended
                && !is_reported.swap(true, Ordering::Relaxed)
            {
                let what = format!("what is put in and what ends cannot be recorded: {error}");
                events(&Event::Trouble { which: Some(which.clone()), what });
            }
        }));
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
