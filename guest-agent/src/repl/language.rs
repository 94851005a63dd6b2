//! What the agent has to know of a language. Each language has a file with its row, and
//! [`languages`](super::languages) lists them.

use std::time::Duration;

use protocol::repl::Rung;

/// What the agent has to know of a language.
pub struct Language {
    /// Its name, and the usual name of its first context.
    pub name: &'static str,
    /// What else clients call it.
    pub aliases: &'static [&'static str],
    /// The interpreters that are looked for, the best first.
    pub programs: &'static [&'static str],
    /// Between the interpreter and, for a driver in a file, the driver's path.
    pub arguments: &'static [&'static str],
    pub driver: Driver,
    pub outputs: Outputs,
    pub polite: Press,
    pub firm: Press,
}

/// How the driver comes into the interpreter, and how it takes its orders.
#[derive(Clone, Copy)]
pub enum Driver {
    /// Compressed, as the channel's first message; orders are messages.
    Channel(&'static [u8]),
    /// As a file in the context's directory; an order is a byte, the rest of it lies in files.
    File(&'static [u8]),
}

/// How a run comes to pipes of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    /// Descriptors, sent over the channel.
    Passed,
    /// Two FIFOs in the context's directory.
    Named,
}

/// How a rung of the ladder is pressed.
pub struct Press {
    pub acts: &'static [Act],
    /// How often it is pressed again until the run is over.
    pub repeat: Option<Duration>,
}

#[derive(Clone, Copy)]
pub enum Act {
    /// A signal to the interpreter's process group, as ctrl-c on a terminal.
    Group(i32),
    /// A signal to the interpreter alone.
    Interpreter(i32),
    /// A signal to all that the interpreter has started and that lives.
    Others(i32),
    /// The driver's message `interrupt`.
    Message,
}

impl Language {
    /// The rung's press. The last rung is a kill, which is the same for all.
    pub fn press(&self, rung: Rung) -> Option<&Press> {
        match rung {
            Rung::Polite => Some(&self.polite),
            Rung::Firm => Some(&self.firm),
            Rung::Killed => None,
        }
    }
}
