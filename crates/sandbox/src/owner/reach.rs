//! How an owner's sandbox reaches what it may: opened with its machine, and changed while that runs.

use std::sync::Arc;

use egress::{EgressGuard, EgressPolicy, EgressSink, Rules, RulesInForce};
use machine::Running;
use tokio::time::timeout;

use super::Owner;
use crate::limits::EGRESS_OPEN_DEADLINE;
use crate::secrets::again;
use crate::{Event, SandboxError, State, trust};

impl Owner {
    /// Opens a new machine's egress. Without rules there is none.
    pub(super) async fn open_egress(
        &mut self,
        running: &Arc<dyn Running>,
    ) -> Result<Option<EgressGuard>, SandboxError> {
        let rules = Rules::parse(&self.stored.record.egress)?;
        let Some(guest) = running.guest().filter(|_| !rules.is_empty()) else { return Ok(None) };
        let directory = &self.place.directories.state;
        let sink = self.egress_sink();
        let secrets = std::mem::take(&mut self.injections);
        let shares_trust = self.shares_trust();
        let carried = self.place.telemetry.carried();
        let allowed = EgressPolicy { rules: rules.into(), secrets, shares_trust, carried };
        let opened =
            EgressGuard::open(guest, allowed, &self.place.egress, Some(directory), sink).await;
        Ok(Some(opened?))
    }

    /// Reopens the egress of a machine that an earlier bridge had. If that fails, the machine continues: then
    /// it reaches nothing.
    pub(super) fn reopen_egress(&self, running: &Arc<dyn Running>) -> Option<EgressGuard> {
        let (which, events) = (self.stored.record.which(), Arc::clone(&self.place.events));
        let trouble =
            move |what: String| events(&Event::Trouble { which: Some(which.clone()), what });
        let rules = match Rules::parse(&self.stored.record.egress) {
            Ok(rules) => rules,
            Err(error) => {
                trouble(format!("it has no egress: {error}"));
                return None;
            }
        };
        let guest = running.guest().filter(|_| !rules.is_empty())?;
        let (settings, sink) = (Arc::clone(&self.place.egress), self.egress_sink());
        let directory = self.place.directories.state.clone();
        let (known, record) = (self.place.secrets.clone(), &self.stored.record);
        let (namespace, names) = (record.namespace.to_string(), record.secrets.clone());
        let warning = trouble.clone();
        let (shares_trust, carried) = (self.shares_trust(), self.place.telemetry.carried());
        let rules = RulesInForce::from(rules);
        let in_force = rules.clone();
        let opening = async move {
            let secrets = again(&known, &namespace, &names, warning).await;
            let allowed = EgressPolicy { rules, secrets, shares_trust, carried };
            EgressGuard::open(guest, allowed, &settings, Some(&directory), sink).await
        };
        let lost = move |error| trouble(format!("it has no egress: {error}"));
        Some(EgressGuard::later(in_force, opening, lost))
    }

    /// Whether its programs get the authorities that this host trusts.
    fn shares_trust(&self) -> bool {
        let record = &self.stored.record;
        trust::is_shared(record.machine, record.image.as_deref(), &self.place.egress)
    }

    fn egress_sink(&self) -> EgressSink {
        let (of, events) = (self.stored.record.subject(), Arc::clone(&self.place.events));
        Arc::new(move |event| events(&Event::Egress { of: Arc::clone(&of), event }))
    }

    /// Has the machine reach what the record says now.
    pub(super) async fn change_egress(&mut self) -> Result<(), SandboxError> {
        let rules = Rules::parse(&self.stored.record.egress)?;
        let Some(life) = &self.life else { return Ok(()) };
        if let Some(egress) = &life.egress {
            egress.replace(rules);
            return Ok(());
        }
        if rules.is_empty() {
            return Ok(());
        }
        // Its agent opens the gates.
        let which = || self.stored.record.which();
        if matches!(self.stored.record.state, State::Paused { .. }) {
            return Err(SandboxError::Paused { which: which() });
        }
        if life.errand.is_some() {
            return Err(SandboxError::Busy { which: which() });
        }
        let running = Arc::clone(&life.running);
        let opened = timeout(EGRESS_OPEN_DEADLINE, self.open_egress(&running)).await;
        let opened = opened.unwrap_or_else(|_| {
            let reason = "it did not open its way out in time".to_owned();
            Err(SandboxError::Lost { which: self.stored.record.which(), reason })
        })?;
        if let Some(life) = &mut self.life {
            life.egress = opened;
        }
        Ok(())
    }
}
