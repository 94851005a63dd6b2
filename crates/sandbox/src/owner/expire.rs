//! How an owner handles times to live: checks for activity, ends what has expired. `expiry`
//! decides when.

use std::sync::Arc;
use std::time::Duration;

use protocol::repl::ContextInfo;

use super::{NextStep, Owner};
use crate::expiry::ExpiryAction;
use crate::limits::{IDLE_LOOK_DEADLINE, STOP_GRACE_DEFAULT};
use crate::{ExpiryKind, State, StopReason};

impl Owner {
    pub(super) async fn act_on(&mut self, due: ExpiryAction) -> NextStep {
        match due {
            ExpiryAction::Removal => return NextStep::Remove,
            ExpiryAction::Age => {
                let why = StopReason::Expired { kind: ExpiryKind::Age };
                self.begin_stop(STOP_GRACE_DEFAULT, why).await;
            }
            ExpiryAction::Look => self.look().await,
        }
        NextStep::GoOn
    }

    /// Ends a sandbox whose daily limit is reached. One that has written too much gets no grace to write
    /// more.
    pub(super) async fn end_spent(&mut self, kind: ExpiryKind) {
        if self.life.is_none() || self.why.is_some() {
            return;
        }
        let grace = match kind {
            ExpiryKind::Output => Duration::ZERO,
            ExpiryKind::Idle | ExpiryKind::Age | ExpiryKind::RunTime => STOP_GRACE_DEFAULT,
        };
        self.begin_stop(grace, StopReason::Expired { kind }).await;
    }

    /// Asks the agent about activity that we do not know of.
    async fn look(&mut self) {
        if self.place.presence.idle_for().is_none() {
            self.expiry.look_again(None);
            return;
        }
        self.expiry.looking();
        let answers = self.stored.record.state == State::Running;
        let guest = self.place.presence.guest().filter(|_| answers);
        match (guest, &mut self.life) {
            (Some(guest), Some(life)) => {
                life.look = Some(Box::pin(async move {
                    let contexts = tokio::time::timeout(IDLE_LOOK_DEADLINE, guest.contexts()).await;
                    contexts.ok().and_then(Result::ok)
                }));
            }
            // Nobody can be active with an agent that is lost.
            _ => self.judge(Some(Vec::new())).await,
        }
    }

    /// Ends the sandbox if nothing has been at work in it for its idle time.
    pub(super) async fn judge(&mut self, contexts: Option<Vec<ContextInfo>>) {
        if let Some(life) = &mut self.life {
            life.look = None;
        }
        if matches!(self.stored.record.state, State::Paused { .. }) {
            return;
        }
        // A stop may have begun while the agent was asked.
        let Some(idle_ttl) = self.expiry.idle_ttl().filter(|_| self.why.is_none()) else { return };
        let presence = Arc::clone(&self.place.presence);
        match contexts {
            Some(contexts) if self.expiry.has_worked(&contexts) => presence.touch(),
            Some(_) if presence.close_if_idle(idle_ttl, self.stored.record.on_idle) => {
                if !self.stored.record.on_idle.is_stop() {
                    return self.doze_off();
                }
                let why = StopReason::Expired { kind: ExpiryKind::Idle };
                return self.begin_stop(STOP_GRACE_DEFAULT, why).await;
            }
            Some(_) => {}
            // An agent that does not answer in time may be at work.
            None => return self.expiry.look_again(None),
        }
        self.expiry.look_again(presence.idle_for());
    }

    /// Sets the deadlines of a sandbox that lives.
    pub(super) fn expire_as_recorded(&mut self) {
        self.expiry.lives(&self.stored);
        if matches!(self.stored.record.state, State::Paused { .. }) {
            self.expiry.pauses();
        }
        self.place.presence.set_expiry(self.expiry.age());
    }
}
