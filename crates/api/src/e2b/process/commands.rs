//! How programs were started, for the clients that list them: the agent has only one line about
//! each.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::SessionId;

use crate::e2b::limits::{COMMANDS_BYTES_MAX, COMMANDS_KNOWN_MAX};
use machine::SandboxId;

/// A program as its client described it.
#[derive(Clone, Debug, Default)]
pub struct Started {
    pub cmd: String,
    pub args: Vec<String>,
    pub envs: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub tag: Option<String>,
}

impl Started {
    /// One that another door has started.
    pub fn seen(command: &str) -> Self {
        let mut words = command.split_whitespace().map(str::to_owned);
        Self { cmd: words.next().unwrap_or_default(), args: words.collect(), ..Self::default() }
    }

    /// What it takes in memory, about.
    fn bytes(&self) -> usize {
        let envs = self.envs.iter().flat_map(|(name, value)| [name, value]);
        let texts = self.args.iter().chain(envs).chain(&self.cwd).chain(&self.tag);
        texts.chain([&self.cmd]).map(|text| text.len() + size_of::<String>()).sum()
    }
}

type Place = (SandboxId, SessionId);

/// See the module's description. The oldest are forgotten first.
#[derive(Default)]
pub struct Commands(Mutex<Table>);

#[derive(Default)]
struct Table {
    known: HashMap<Place, Started>,
    order: VecDeque<Place>,
    bytes: usize,
}

impl Commands {
    /// Notes a session that has just been started.
    pub fn note(&self, machine: &SandboxId, session: &SessionId, started: Started) {
        let mut table = self.lock();
        let place = (machine.clone(), session.clone());
        table.bytes += started.bytes();
        table.order.push_back(place.clone());
        table.known.insert(place, started);
        while table.order.len() > COMMANDS_KNOWN_MAX || table.bytes > COMMANDS_BYTES_MAX {
            let Some(oldest) = table.order.pop_front() else { return };
            table.bytes -= table.known.remove(&oldest).map_or(0, |started| started.bytes());
        }
    }

    pub fn get(&self, machine: &SandboxId, session: &SessionId) -> Option<Started> {
        self.lock().known.get(&(machine.clone(), session.clone())).cloned()
    }

    /// The last session that was started with a tag.
    pub fn tagged(&self, machine: &SandboxId, tag: &str) -> Option<SessionId> {
        let table = self.lock();
        let mut newest = table.order.iter().rev().filter(|(of, _)| of == machine);
        let has_tag = |place: &&Place| {
            table.known.get(*place).is_some_and(|known| known.tag.as_deref() == Some(tag))
        };
        newest.find(has_tag).map(|(_, session)| session.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ones_push_older_ones_out_and_the_last_with_a_tag_is_found() {
        let commands = Commands::default();
        let machine = SandboxId::draw().unwrap();
        let session = |number: usize| format!("s{number}").parse::<SessionId>().unwrap();
        let long = |number: usize| {
            let args = vec!["x".repeat(COMMANDS_BYTES_MAX / 4)];
            let tag = Some("t".to_owned());
            commands.note(&machine, &session(number), Started { args, tag, ..Started::default() });
        };
        (0..6).for_each(long);
        let is_known = |number: &usize| commands.get(&machine, &session(*number)).is_some();
        assert_eq!((0..6).filter(is_known).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(commands.tagged(&machine, "t"), Some(session(5)));
        assert!(commands.lock().bytes <= COMMANDS_BYTES_MAX);
    }
}
