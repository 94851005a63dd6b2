//! The agent's description of a language. Each language has a file with its row, and
//! [`languages`](super::languages) lists them.

use std::time::Duration;

use protocol::repl::Rung;

/// The agent's description of a language.
pub struct Language {
    /// Its name, and the default name of its first context.
    pub name: &'static str,
    /// Other names that clients may use.
    pub aliases: &'static [&'static str],
    /// The interpreters to look for, the best first.
    pub programs: &'static [&'static str],
    /// The interpreter's arguments. The path of a driver in a file follows them.
    pub arguments: &'static [&'static str],
    pub driver: Driver,
    pub outputs: Outputs,
    pub polite: RungActions,
    pub firm: RungActions,
}

/// How the driver is loaded into the interpreter, and how it receives its orders.
#[derive(Clone, Copy)]
pub enum Driver {
    /// Compressed, as the channel's first message; orders are messages.
    Channel(&'static [u8]),
    /// As a file in the context's directory; an order is a byte, and files contain the rest of it.
    File(&'static [u8]),
}

/// How a run gets its own pipes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    /// Descriptors, sent over the channel.
    Passed,
    /// Two FIFOs in the context's directory.
    Named,
}

/// What a rung of the ladder does.
pub struct RungActions {
    pub actions: &'static [Action],
    /// What is done again until the run is over or the next rung is due, and how often.
    pub repeat: Option<(Duration, &'static [Action])>,
}

#[derive(Clone, Copy)]
pub enum Action {
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
    /// What a rung does. The last rung is a kill, which is the same for all languages.
    pub fn rung(&self, rung: Rung) -> Option<&RungActions> {
        match rung {
            Rung::Polite => Some(&self.polite),
            Rung::Firm => Some(&self.firm),
            Rung::Killed => None,
        }
    }
}
