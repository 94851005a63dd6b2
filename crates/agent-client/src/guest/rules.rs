//! What the owner of a sandbox has decided about the output of its programs, for all who use this client.
//!
//! The owner sets it once, before anybody uses the guest. A client that has no rule does as it is asked.

use std::sync::{Arc, OnceLock};

use protocol::SessionId;
use protocol::exit::RECORDER;
use protocol::message::Channel;
use protocol::requests::{Role, Start};

use super::horizon::{Horizon, Horizons};
use super::{Guest, GuestError};

/// See the module's description.
#[derive(Clone, Debug)]
pub enum OutputRule {
    /// Every program is recorded, at every door.
    Recorded,
    /// The same, and nobody reads what is beyond the horizons.
    Durable(Horizons),
    /// The same, and this client knows no horizons, so it reads nothing and starts nothing.
    ElsewhereDurable,
}

/// A place for a rule. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct OutputRules(Arc<OnceLock<OutputRule>>);

const UNSEEN: &str = "under durability \"sync\" a program's output is shown only when the fleet's log has it, and this \
    way reads it at the agent: use `start_session` or `exec` of the HTTP API, and `logs`";
const CONTEXTS: &str =
    "the output of contexts is not durable: make a sandbox with durability \"off\" for them";

pub(crate) fn is_recorded(start: &Start) -> bool {
    start.holders.iter().any(|holder| holder == RECORDER)
}

impl OutputRules {
    /// Sets the rule. Only the first one counts.
    pub fn set(&self, rule: OutputRule) {
        let _ = self.0.set(rule);
    }

    /// Whether every program is recorded, and its recorder releases its session.
    pub fn record_all(&self) -> bool {
        self.0.get().is_some()
    }

    fn get(&self) -> Option<&OutputRule> {
        self.0.get()
    }
}

impl Guest {
    /// What holds for the output of this guest's programs.
    pub fn output_rules(&self) -> &OutputRules {
        &self.output_rules
    }

    /// Has a program recorded where all must be.
    pub(super) fn record(&self, start: &mut Start) -> Result<(), GuestError> {
        match self.output_rules.get() {
            None => return Ok(()),
            // One that is recorded is not for this client to read.
            Some(OutputRule::ElsewhereDurable) if !is_recorded(start) => {
                return Err(GuestError::NotDurable(UNSEEN));
            }
            Some(_) => {}
        }
        if !is_recorded(start) {
            start.holders.push(RECORDER.to_owned());
        }
        Ok(())
    }

    /// How far a reader may see. The recorder sees everything.
    pub(super) fn horizon(
        &self,
        session: &SessionId,
        channel: Channel,
        role: &Role,
    ) -> Result<Option<Arc<Horizon>>, GuestError> {
        match (self.output_rules.get(), role) {
            (_, Role::Holder { name }) if name == RECORDER => Ok(None),
            (None | Some(OutputRule::Recorded), _) => Ok(None),
            (Some(OutputRule::Durable(horizons)), _) => Ok(Some(horizons.of(session, channel))),
            (Some(OutputRule::ElsewhereDurable), _) => Err(GuestError::NotDurable(UNSEEN)),
        }
    }

    /// Refuses what writes output that no log can have.
    pub(super) fn allow_context(&self) -> Result<(), GuestError> {
        match self.output_rules.get() {
            None => Ok(()),
            Some(_) => Err(GuestError::NotDurable(CONTEXTS)),
        }
    }
}
