//! Who learns of an agent's programs and runs, beside those who wait for them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use protocol::exit::ExitRecord;
use protocol::repl::Finished;
use protocol::{ContextName, SessionId};

/// What this client of an agent hears of.
#[derive(Clone, Copy, Debug)]
pub enum Observed<'a> {
    ProgramBegun {
        session: &'a SessionId,
    },
    /// Comes several times for one that several wait for.
    ProgramEnded {
        session: &'a SessionId,
        record: &'a ExitRecord,
    },
    /// It has its number, and may wait for others.
    RunQueued {
        context: &'a ContextName,
        run: u64,
    },
    RunEnded {
        context: &'a ContextName,
        run: u64,
        end: &'a Finished,
    },
}

/// It must not block.
type Observe = Box<dyn Fn(Observed<'_>) + Send + Sync>;

/// One place for an observer. Clones share it.
#[derive(Clone, Default)]
pub struct Observer(Arc<OnceLock<Observe>>);

impl Observer {
    /// Sets the observer. Only the first one counts.
    pub fn set(&self, observe: Observe) {
        let _ = self.0.set(observe);
    }

    pub(crate) fn tell(&self, observed: Observed<'_>) {
        if let Some(observe) = self.0.get() {
            observe(observed);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.0.get().is_some()).finish()
    }
}
