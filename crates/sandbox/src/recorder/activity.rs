//! Whether any session runs, as the agent's lists of sessions show it. The recorder has each list; a sandbox in which
//! nothing runs is idle.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

use protocol::SessionId;
use protocol::message::SessionInfo;

use crate::log::Run;
use crate::presence::{Activity, Presence};

/// A run of a session, for one may be run again under its name.
pub type Key = (SessionId, Run);

pub fn key_of(info: &SessionInfo) -> Key {
    (info.session.clone(), run_of(info))
}

pub fn run_of(info: &SessionInfo) -> Run {
    Run { pid: info.pid, started_at_ms: info.started_at_ms }
}

/// What the newest list says, beside the one before it.
#[derive(Default)]
pub struct SessionActivity {
    /// Held while any session runs.
    held: Option<Activity>,
    running: HashSet<Key>,
    exited: HashSet<Key>,
    has_list: bool,
}

impl SessionActivity {
    /// Takes a list. What had ended before the first one does not count.
    pub fn update(&mut self, sessions: &[SessionInfo], presence: &Arc<Presence>) {
        let (exited, running): (Vec<_>, Vec<_>) =
            sessions.iter().partition(|info| info.exit.is_some());
        self.held =
            if running.is_empty() { None } else { self.held.take().or_else(|| presence.begin()) };
        let running: HashSet<_> = running.into_iter().map(key_of).collect();
        let exited: HashSet<_> = exited.into_iter().map(key_of).collect();
        // A new session is no end; any other change may be one, because a session may have come and gone
        // between two lists.
        let has_begun = running.is_superset(&self.running) && running.len() > self.running.len();
        self.running = running;
        // The list is also new when a client leaves, who may only have looked.
        let has_worked = !exited.is_subset(&self.exited);
        self.exited = exited;
        if !mem::replace(&mut self.has_list, true) {
            return;
        }
        if self.held.is_none() && has_worked {
            presence.touch();
        } else if !has_begun {
            presence.may_have_ended();
        }
    }
}
