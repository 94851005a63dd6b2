//! The messages between the agent and a driver. docs/reference/drivers.md has them as a table.
//!
//! Pure: [`channel`](super::channel) carries it, [`actor`](super::actor) means it.

use protocol::Text;
use protocol::repl::{CodeState, Datum, DisplayRole, TraceFrame};
use protocol::{decode_enum, decode_struct};
use serde::{Serialize, Serializer};

/// From the agent.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToDriver<'a> {
    Open { token: Binary<'a>, context: &'a str, directory: Option<&'a str> },
    Outputs {},
    Run { run: u64, code: Binary<'a>, name: &'a str, input: bool, aside: bool },
    Input { request: u64, line: Option<Binary<'a>> },
    Seen {},
    Interrupt { run: u64, firm: bool },
    Complete { ask: u64, code: &'a str, cursor: u64 },
    Check { ask: u64, code: &'a str },
    Close {},
}

/// Raw bytes.
pub struct Binary<'a>(pub &'a [u8]);

impl Serialize for Binary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// From a driver. It shares its process with the code that it runs, so each of these may be a lie
/// about that context.
#[derive(Debug)]
pub enum FromDriver {
    Ready(DriverMessage),
    Display(DriverMessage),
    Artifact(DriverMessage),
    Error(DriverMessage),
    Input(DriverMessage),
    Late(DriverMessage),
    Done(DriverMessage),
    Completions(DriverMessage),
    Checked(DriverMessage),
}

decode_enum! {
    FromDriver:
    Ready(), Display(), Artifact(), Error(), Input(), Late(), Done(), Completions(), Checked()
}

/// The fields of all driver messages; those that a message lacks are empty. One type for all,
/// because each type that is decoded costs code size.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of another message")]
pub struct DriverMessage {
    pub run: u64,
    pub id: Option<String>,
    /// Wait for `seen` before more is written.
    pub sync: bool,

    pub version: String,
    pub program: String,

    pub role: Option<DisplayRole>,
    pub data: Vec<Datum>,
    pub metadata: Option<String>,

    pub path: Text,
    pub name: Option<String>,
    pub mime: Option<String>,
    pub size: u64,

    pub kind: String,
    pub message: String,
    pub traceback: String,
    pub frames: Vec<TraceFrame>,

    pub request: u64,
    pub prompt: Text,
    pub secret: bool,

    pub stderr: bool,
    pub bytes: Text,

    pub status: Status,
    pub code: Option<i32>,
    pub cpu_us: Option<u64>,
    pub memory_bytes_peak: Option<u64>,
    pub cached: Option<bool>,
    /// Nothing but the interpreter's main thread can write into the run's pipes.
    pub alone: bool,

    pub ask: u64,
    pub start: u64,
    pub end: u64,
    pub matches: Vec<String>,

    pub state: Option<CodeState>,
    pub indent: String,
}

decode_struct! {
    DriverMessage: ;
    run, id, sync, version, program, role, data, metadata, path, name, mime, size, kind, message,
    traceback, frames, request, prompt, secret, stderr, bytes, status, code, cpu_us,
    memory_bytes_peak, cached, alone, ask, start, end, matches, state, indent
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Ok,
    Error,
    Exit,
}

decode_enum!(Status: Ok, Error, Exit);
