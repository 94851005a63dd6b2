//! The sessions that were started under ids that clients chose.
//!
//! An agent forgets a session that has ended and been recorded. A client that repeats its start
//! because it did not get the answer must not start it a second time, so starts are remembered
//! here. Their number is bounded, and they end with the bridge.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use protocol::SessionId;
use protocol::requests::Start;

use machine::SandboxId;

/// Starts that are remembered; what is forgotten is the oldest, and a client that repeats that one
/// has waited for hours.
const STARTS_MAX: usize = 4096;

/// See the module's description. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Starts(Arc<Mutex<Table>>);

type Place = (SandboxId, SessionId);

#[derive(Debug, Default)]
struct Table {
    /// Digests, because what is started may hold secrets.
    known: HashMap<Place, u64>,
    /// The oldest first.
    order: VecDeque<Place>,
}

/// Whether a start is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    No,
    Same,
    /// The name means something else.
    Other,
}

impl Starts {
    pub fn look(&self, machine: &SandboxId, start: &Start) -> Known {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match table.known.get(&(machine.clone(), start.session.clone())) {
            None => Known::No,
            Some(known) if *known == digest(start) => Known::Same,
            Some(_) => Known::Other,
        }
    }

    pub fn note(&self, machine: SandboxId, start: &Start) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (machine, start.session.clone());
        if table.known.insert(place.clone(), digest(start)).is_none() {
            table.order.push_back(place);
        }
        while table.order.len() > STARTS_MAX {
            if let Some(oldest) = table.order.pop_front() {
                table.known.remove(&oldest);
            }
        }
    }
}

/// The content of a start, in one number.
fn digest(start: &Start) -> u64 {
    let mut hasher = DefaultHasher::new();
    start.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use protocol::requests::{GroupLimits, Program, SpoolSpec, Stdio};

    use super::*;

    fn start(session: &str, word: &str) -> Start {
        Start {
            session: session.parse().unwrap(),
            program: Program::Argv { argv: vec![word.into()] },
            cwd: None,
            env: Vec::new(),
            user: None,
            stdio: Stdio::Pipes { stdin: false },
            deadline_ms: None,
            spool: SpoolSpec::default(),
            holders: Vec::new(),
            tied: false,
            limits: GroupLimits::default(),
        }
    }

    #[test]
    fn a_start_is_known_by_its_machine_its_name_and_its_content() {
        let starts = Starts::default();
        let machine: SandboxId = "0123456789ab".parse().unwrap();
        starts.note(machine.clone(), &start("a", "true"));
        assert_eq!(starts.look(&machine, &start("a", "true")), Known::Same);
        assert_eq!(starts.look(&machine, &start("a", "false")), Known::Other);
        assert_eq!(starts.look(&machine, &start("b", "true")), Known::No);
        let other: SandboxId = "ba9876543210".parse().unwrap();
        assert_eq!(starts.look(&other, &start("a", "true")), Known::No);
    }

    #[test]
    fn the_oldest_start_is_forgotten_first() {
        let starts = Starts::default();
        let machine: SandboxId = "0123456789ab".parse().unwrap();
        for number in 0..=STARTS_MAX {
            starts.note(machine.clone(), &start(&format!("s{number}"), "true"));
        }
        assert_eq!(starts.look(&machine, &start("s0", "true")), Known::No);
        assert_eq!(starts.look(&machine, &start("s1", "true")), Known::Same);
    }
}
