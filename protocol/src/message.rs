//! The request and the reply: everything that an agent can be asked and can answer.

use serde::{Deserialize, Serialize};

use crate::exit::ExitRecord;
use crate::fault::Fault;
use crate::hello::AgentInfo;
use crate::ids::{AgentId, ContextName, RequestId, SessionId, StreamId, Token};
use crate::metrics;
use crate::repl;
use crate::requests as ask;
use crate::text::Text;
use crate::{decode_enum, decode_struct};

/// The body of a request frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestBody {
    /// Requests whose answers have arrived since the last request: the agent may forget them.
    #[serde(default)]
    pub done: Vec<RequestId>,
    pub request: Request,
}

decode_struct!(RequestBody: request; done);

/// A host's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Info {},
    Start(ask::Start),
    /// Answered when the session list is newer than `since`; 0 answers at once. A list of `lasting`
    /// sessions leaves out those that are tied to their client and never had a holder.
    Sessions {
        since: u64,
        #[serde(default)]
        lasting: bool,
    },
    /// Answered when the session's leader has ended.
    Wait {
        session: SessionId,
    },
    Signal(ask::Signal),
    Resize(ask::Resize),
    Subscribe(ask::Subscribe),
    Input(ask::Input),
    Release(ask::Release),
    ReadFile(ask::ReadFile),
    WriteFile(ask::WriteFile),
    Stat {
        path: Text,
        follow: bool,
    },
    List(ask::List),
    MakeDirectory(ask::MakeDirectory),
    Move(ask::Move),
    Remove(ask::Remove),
    TarGet(ask::TarGet),
    TarPut(ask::TarPut),
    LayerGet(ask::LayerGet),
    LayerPut(ask::LayerPut),
    Watch(ask::Watch),
    Forward(ask::Forward),
    OpenContext(repl::OpenContext),
    Contexts {},
    Run(repl::Run),
    Interrupt(repl::Interrupt),
    AnswerInput(repl::AnswerInput),
    Complete(repl::Complete),
    /// Whether some code is complete or needs more lines.
    CheckCode {
        context: ContextName,
        code: String,
    },
    /// Opens a stream of everything that happens in a context. It never delays anybody.
    WatchContext {
        context: ContextName,
        stream: StreamId,
    },
    /// A new interpreter for a context, answered when it is ready. What runs is killed.
    RestartContext {
        context: ContextName,
    },
    /// The end of a context and of all that it has started.
    CloseContext {
        context: ContextName,
    },
    Metrics(metrics::AskMetrics),
    Usage(metrics::AskUsage),
    Shutdown(ask::Shutdown),
    /// Freezes every process of sessions and contexts, and answers when all are frozen and everything
    /// that they have written is on disk. After `watchdog_ms` the agent thaws them by itself.
    Freeze {
        watchdog_ms: u64,
    },
    /// Thaws them. A machine that was paused is given the time, to which it sets its clock.
    Thaw {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time_us: Option<u64>,
    },
    Adopt(ask::Adopt),
    /// A request that this version does not know. It is only ever read, and is answered with the fault
    /// `unsupported`.
    #[serde(skip)]
    Unknown {
        name: String,
    },
}

decode_enum! {
    Request or Unknown:
    Info {}, Start(), Sessions { since; lasting }, Wait { session }, Signal(), Resize(), Subscribe(),
    Input(), Release(), ReadFile(), WriteFile(), Stat { path, follow }, List(), MakeDirectory(),
    Move(), Remove(), TarGet(), TarPut(), LayerGet(), LayerPut(), Watch(), Forward(), OpenContext(),
    Contexts {}, Run(), Interrupt(), AnswerInput(), Complete(), CheckCode { context, code },
    WatchContext { context, stream }, RestartContext { context }, CloseContext { context },
    Metrics(), Usage(), Shutdown(), Freeze { watchdog_ms }, Thaw { ; time_us }, Adopt()
}

/// The body of a reply frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Ok(Reply),
    Fault(Fault),
}

decode_enum!(Answer: Ok(), Fault());

/// An agent's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Done {},
    Info(AgentInfo),
    Started(Started),
    Sessions(SessionList),
    Exited(ExitRecord),
    Subscribed(Subscribed),
    Input(InputOpened),
    /// A file stream is open; `bytes` is its length, if that is known.
    Reading {
        bytes: Option<u64>,
        info: FileInfo,
    },
    /// A write or an unpacking is complete.
    Written {
        bytes: u64,
        entries: u64,
    },
    /// A layer's stream is open. Its sandbox gives its programs these variables.
    Layer {
        env: Vec<(Text, Text)>,
    },
    Stat(FileInfo),
    Entries(Entries),
    Context(repl::ContextInfo),
    Contexts {
        contexts: Vec<repl::ContextInfo>,
    },
    /// The run has its number and its place, `ahead` others before it.
    Queued {
        run: u64,
        ahead: u32,
    },
    /// The ladder has begun for this run; none when nothing ran.
    Interrupting {
        run: Option<u64>,
    },
    Completions(repl::Completions),
    Completeness(repl::Completeness),
    Metrics(metrics::MetricsPage),
    Usage(metrics::TreeUsage),
    /// How many control groups are frozen, and how long that took.
    Frozen {
        groups: u32,
        took_us: u64,
    },
    /// For how long they were frozen; 0 if they were not.
    Thawed {
        frozen_ms: u64,
        /// How far the wall clock was ahead of the host's before it was set; absent if it was not set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drift_us: Option<i64>,
    },
    Adopted(Adopted),
}

decode_enum! {
    Reply:
    Done {}, Info(), Started(), Sessions(), Exited(), Subscribed(), Input(), Reading { info; bytes
    }, Written { bytes, entries }, Layer { env }, Stat(), Entries(), Context(), Contexts { contexts }, Queued {
    run, ahead }, Interrupting { ; run }, Completions(), Completeness(), Metrics(), Usage(),
    Frozen { groups, took_us }, Thawed { frozen_ms; drift_us }, Adopted()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub pid: u32,
    /// Whether this start found the session running (or ended) already.
    pub repeated: bool,
    /// What of the request was not possible here, and why.
    #[serde(default)]
    pub warnings: Vec<String>,
}

decode_struct!(Started: pid, repeated; warnings);

/// An agent's identity after its adoption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// How far the guest's wall clock was ahead of the host's, before it was set.
    pub drift_us: i64,
    /// Whether it was stepped; only an agent that has a machine to itself may.
    pub stepped: bool,
    /// The agent's new id.
    pub agent: AgentId,
    /// The token of the client that asked; every other is void.
    pub token: Token,
    /// How long the workload had been frozen; it is thawed now.
    #[serde(default)]
    pub frozen_ms: u64,
    /// What of the request was not possible here, and why.
    #[serde(default)]
    pub warnings: Vec<String>,
}

decode_struct!(Adopted: drift_us, stepped, agent, token; frozen_ms, warnings);

/// One output of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Stdout,
    Stderr,
    /// A terminal has one output for both.
    Terminal,
}

decode_enum!(Channel: Stdout, Stderr, Terminal);

impl Channel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Terminal => "terminal",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// The offset of the first byte that will come (or of the gap that will).
    pub from: u64,
    /// The oldest byte that the spool still has.
    pub oldest: u64,
    /// The current offset of the output.
    pub end: u64,
}

decode_struct!(Subscribed: from, oldest, end);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputOpened {
    /// The offset of the next byte that the session takes.
    pub at: u64,
}

decode_struct!(InputOpened: at);

/// The sessions of an agent at one version of its registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionList {
    pub version: u64,
    pub sessions: Vec<SessionInfo>,
}

decode_struct!(SessionList: version, sessions);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    pub session: SessionId,
    pub pid: u32,
    /// The argument vector as one line for people, cut.
    pub command: String,
    pub terminal: bool,
    pub started_at_ms: u64,
    /// Present once the leader has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitRecord>,
    /// Holders that have not released it.
    pub holders: Vec<String>,
    /// Subscriptions at the moment.
    pub viewers: u32,
    /// The owner of the keyboard, by the name in its hello.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyboard: Option<String>,
    /// Whether the program has not executed yet; until then, `pid` may be 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starting: bool,
    /// How large its terminal is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ask::TerminalSize>,
}

decode_struct! {
    SessionInfo:
    session, pid, command, terminal, started_at_ms, holders, viewers; exit, keyboard, starting, size
}

/// Metadata of a file, from `lstat` or `stat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// The last component of its path.
    pub name: Text,
    pub kind: FileKind,
    pub bytes: u64,
    /// Permission bits with setuid, setgid and sticky.
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified_ms: i64,
    /// The target of a symlink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Text>,
}

decode_struct!(FileInfo: name, kind, bytes, permissions, uid, gid, modified_ms; target);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    BlockDevice,
    CharDevice,
}

decode_enum!(FileKind: File, Directory, Symlink, Fifo, Socket, BlockDevice, CharDevice);

/// One page of a directory, in byte order of the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    pub entries: Vec<FileInfo>,
    /// Whether names follow that are not on this page.
    pub more: bool,
}

decode_struct!(Entries: entries, more);

/// One record of a watch stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEvent {
    pub change: Change,
    /// Relative to the watched path; empty for the path itself.
    pub path: Text,
    /// The old path, for a move within the watched tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Text>,
}

decode_struct!(WatchEvent: change, path; from);

/// What happened to a watched path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Created,
    /// Written to; reported when the writer closes it.
    Modified,
    Attributes,
    Removed,
    Moved,
    /// Events were lost: look at everything again.
    Overflow,
}

decode_enum!(Change: Created, Modified, Attributes, Removed, Moved, Overflow);

impl Request {
    /// The word on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Info {} => "info",
            Self::Start(_) => "start",
            Self::Sessions { .. } => "sessions",
            Self::Wait { .. } => "wait",
            Self::Signal(_) => "signal",
            Self::Resize(_) => "resize",
            Self::Subscribe(_) => "subscribe",
            Self::Input(_) => "input",
            Self::Release(_) => "release",
            Self::ReadFile(_) => "read_file",
            Self::WriteFile(_) => "write_file",
            Self::Stat { .. } => "stat",
            Self::List(_) => "list",
            Self::MakeDirectory(_) => "make_directory",
            Self::Move(_) => "move",
            Self::Remove(_) => "remove",
            Self::TarGet(_) => "tar_get",
            Self::TarPut(_) => "tar_put",
            Self::LayerGet(_) => "layer_get",
            Self::LayerPut(_) => "layer_put",
            Self::Watch(_) => "watch",
            Self::Forward(_) => "forward",
            Self::OpenContext(_) => "open_context",
            Self::Contexts {} => "contexts",
            Self::Run(_) => "run",
            Self::Interrupt(_) => "interrupt",
            Self::AnswerInput(_) => "answer_input",
            Self::Complete(_) => "complete",
            Self::CheckCode { .. } => "check_code",
            Self::WatchContext { .. } => "watch_context",
            Self::RestartContext { .. } => "restart_context",
            Self::CloseContext { .. } => "close_context",
            Self::Metrics(_) => "metrics",
            Self::Usage(_) => "usage",
            Self::Shutdown(_) => "shutdown",
            Self::Freeze { .. } => "freeze",
            Self::Thaw { .. } => "thaw",
            Self::Adopt(_) => "adopt",
            Self::Unknown { .. } => "unknown",
        }
    }
}

impl Reply {
    /// The word on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done {} => "done",
            Self::Info(_) => "info",
            Self::Started(_) => "started",
            Self::Sessions(_) => "sessions",
            Self::Exited(_) => "exited",
            Self::Subscribed(_) => "subscribed",
            Self::Input(_) => "input",
            Self::Reading { .. } => "reading",
            Self::Written { .. } => "written",
            Self::Layer { .. } => "layer",
            Self::Stat(_) => "stat",
            Self::Entries(_) => "entries",
            Self::Context(_) => "context",
            Self::Contexts { .. } => "contexts",
            Self::Queued { .. } => "queued",
            Self::Interrupting { .. } => "interrupting",
            Self::Completions(_) => "completions",
            Self::Completeness(_) => "completeness",
            Self::Metrics(_) => "metrics",
            Self::Usage(_) => "usage",
            Self::Frozen { .. } => "frozen",
            Self::Thawed { .. } => "thawed",
            Self::Adopted(_) => "adopted",
        }
    }
}
