//! The one way to run a program in a sandbox: [`Program`] → [`Running`] → [`Ended`].
//!
//! ```text
//!  Program   what is started, who reads it, and what happens when its reader is dropped
//!     │ begin: the start, the outputs, the input and the wait go out in one write
//!     ▼
//!  Running   events in their order; `collect` takes them to the end and into a Sink
//!     │ the exit record, and every byte that was written before it
//!     ▼
//!  Ended     the cause, the shell's code, the usage, and how many bytes came or were lost
//! ```
//!
//! The HTTP API, JSON-RPC, MCP, the CLI, image builds and the library call it. It limits what it
//! keeps and counts the rest. It never decides what a client sees: each caller has its own words
//! and shapes.

mod characters;
mod ended;
mod head;
mod leash;
mod outputs;
mod running;
mod tail;

use protocol::requests::{GroupLimits, SpoolSpec, Start, Stdio};
use protocol::{SessionId, requests};

pub use characters::{Characters, whole_characters};
pub use ended::{Ended, ran_out_of_memory};
pub use head::{Head, Memory, Unlimited};
pub use leash::{Leash, OnDrop};
pub use outputs::{Outputs, Sink};
pub use running::{Event, Running};
pub use tail::Tail;

use crate::guest::{Guest, GuestError};
use host::id::RandomId;

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    /// The request to the agent: the command, its environment, user, directory, outputs and input,
    /// its deadline and its limits.
    pub start: Start,
    /// The holder that its outputs are read as: the first one of the start unless another is named.
    /// A holder that the start does not name keeps the outputs as long as it reads them.
    pub reader: Option<String>,
    /// What happens to the program when its [`Running`] is dropped.
    pub on_drop: OnDrop,
    /// The deadline that [`Ended`] reports, when the start's is a little earlier so that the caller can
    /// still answer.
    pub reported_deadline_ms: Option<u64>,
}

impl Program {
    /// A program that only its caller uses: on pipes and without input, with the sandbox's own
    /// environment, directory and user, and killed when its [`Running`] is dropped.
    pub fn new(session: SessionId, command: requests::Program) -> Self {
        let start = Start {
            session,
            program: command,
            cwd: None,
            env: Vec::new(),
            user: None,
            stdio: Stdio::Pipes { stdin: false },
            deadline_ms: None,
            spool: SpoolSpec::default(),
            holders: Vec::new(),
            tied: true,
            limits: GroupLimits::default(),
        };
        Self { start, reader: None, on_drop: OnDrop::Kill, reported_deadline_ms: None }
    }

    /// Queues everything at once and waits for nothing.
    pub fn begin(self, guest: &Guest) -> Result<Running, GuestError> {
        Running::begin(guest, self)
    }
}

/// A start that others have made: nothing happens to it when its [`Running`] is dropped.
impl From<Start> for Program {
    fn from(start: Start) -> Self {
        Self { start, reader: None, on_drop: OnDrop::Leave, reported_deadline_ms: None }
    }
}

/// Runs a program to its end: feeds it `input`, hands its output on as it comes (a terminal's to
/// `stdout`), and releases the session unless its start names holders. Dropping the future leaves
/// the program running.
pub async fn collect(
    guest: &Guest,
    start: &Start,
    input: &[u8],
    stdout: impl FnMut(&[u8]),
    stderr: impl FnMut(&[u8]),
) -> Result<Ended, GuestError> {
    let on_drop = if start.holders.is_empty() { OnDrop::Release } else { OnDrop::Leave };
    let program = Program { on_drop, ..Program::from(start.clone()) };
    program.begin(guest)?.collect(input, &mut (stdout, stderr)).await
}

/// A name that no other session has.
pub fn draw_session() -> Result<SessionId, GuestError> {
    let id = RandomId::draw().map_err(|_| GuestError::NoEntropy)?;
    Ok(id.as_str().parse().expect("hexadecimal digits are a name"))
}

#[cfg(test)]
mod tests;
