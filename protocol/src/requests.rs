//! Requests of a host: the bodies of those that have more than one field.

use serde::{Deserialize, Serialize};

use crate::ids::{SessionId, StreamId};
use crate::text::Text;
use crate::{decode_enum, decode_struct};

/// Starts a process as a session. Repeated with the same session id and the same content it is the
/// same process; with other content it is a `conflict`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Start {
    pub session: SessionId,
    pub program: Program,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// Merged over the sandbox's environment.
    #[serde(default)]
    pub env: Vec<(Text, Text)>,
    /// `name`, `name:group`, `uid` or `uid:gid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub stdio: Stdio,
    /// From the start to a kill of the whole tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    #[serde(default)]
    pub spool: SpoolSpec,
    /// Holders that exist from the first byte on and outlive any link.
    #[serde(default)]
    pub holders: Vec<String>,
    /// Kill the tree when the client that started it is gone past its resume window.
    #[serde(default)]
    pub tied: bool,
    /// Bounds of the session's control group; ignored with a word in `started` where there is none.
    #[serde(default)]
    pub limits: GroupLimits,
}

decode_struct! {
    Start:
    session, program, stdio; cwd, env, user, deadline_ms, spool, holders, tied, limits
}

/// What is executed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// An argument vector; no shell sees it.
    Argv { argv: Vec<Text> },
    /// A script for `shell -c`; the shell defaults to `/bin/sh`.
    Script {
        script: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shell: Option<Text>,
    },
    /// The user's login shell.
    LoginShell {},
}

impl Program {
    /// A program and its arguments, which no shell sees.
    pub fn argv(words: impl IntoIterator<Item = impl Into<Text>>) -> Self {
        Self::Argv { argv: words.into_iter().map(Into::into).collect() }
    }

    /// A script for the usual shell.
    pub fn script(script: impl Into<Text>) -> Self {
        Self::Script { script: script.into(), shell: None }
    }
}

decode_enum!(Program: Argv { argv }, Script { script; shell }, LoginShell {});

/// The program's descriptors 0 to 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    /// Pipes, stdout and stderr separate; without `stdin` the program reads an empty file.
    Pipes { stdin: bool },
    /// A separate terminal.
    Pty { size: TerminalSize },
}

decode_enum!(Stdio: Pipes { stdin }, Pty { size });

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

decode_struct!(TerminalSize: rows, columns);

/// How much output waits for readers, and what happens when it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpoolSpec {
    /// [`crate::limits::SPOOL_BYTES_DEFAULT`] when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default)]
    pub policy: SpoolPolicy,
}

decode_struct!(SpoolSpec: ; bytes, policy);

/// What a full spool does with the program that fills it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpoolPolicy {
    /// Stops reading, so that the kernel stops the program, until every holder has caught up.
    #[default]
    Block,
    /// Discards the oldest bytes and reports them to each reader.
    DropOldest,
}

decode_enum!(SpoolPolicy: Block, DropOldest);

/// Bounds of a session's control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Thousandths of a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
}

decode_struct!(GroupLimits: ; memory_bytes, processes, cpu_millis);

/// Which processes of a session a signal reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Leader,
    /// The leader's process group; on a terminal, the foreground group.
    Group,
    /// Everything the session ever started that still lives.
    Tree,
}

decode_enum!(Target: Leader, Group, Tree);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub session: SessionId,
    pub signal: i32,
    pub target: Target,
}

decode_struct!(Signal: session, signal, target);

/// Opens a stream of a session's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribe {
    pub session: SessionId,
    pub channel: crate::message::Channel,
    pub stream: StreamId,
    pub from: Origin,
    pub role: Role,
}

decode_struct!(Subscribe: session, channel, stream, from, role);

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The oldest byte that still exists, without a gap for earlier ones.
    Oldest {},
    /// At most this many of the newest bytes, then live output.
    Tail { bytes: u64 },
    /// This byte; what no longer exists is reported as a gap.
    Offset { offset: u64 },
}

decode_enum!(Origin: Oldest {}, Tail { bytes }, Offset { offset });

/// How a subscription affects the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Lossless: the spool keeps what this holder has not acknowledged. A holder named in the start
    /// outlives the subscription; any other ends with it.
    Holder { name: String },
    /// Never delays the program; gets gaps.
    Observer {},
}

decode_enum!(Role: Holder { name }, Observer {});

/// Opens the stream into a session's stdin or terminal. A session has one writer at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    pub session: SessionId,
    pub stream: StreamId,
    /// The offset at which the client wants to continue; a `conflict` if the session is elsewhere.
    /// Absent: at the current offset, which the answer contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Take the keyboard from its owner, whose stream is then reset with `gone`.
    #[serde(default)]
    pub take: bool,
}

decode_struct!(Input: session, stream; from, take);

/// Says how large this client's view of a terminal is. The terminal gets the smallest of all
/// views whose clients may type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    pub session: SessionId,
    pub size: TerminalSize,
    /// Ask the program to draw itself again (`SIGWINCH`) even when the size stays.
    #[serde(default)]
    pub redraw: bool,
}

decode_struct!(Resize: session, size; redraw);

/// Drops a holder of a session; an ended session without holders is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub session: SessionId,
    /// The holder that is done; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Kill the processes that the session has left behind, instead of leaving them unread.
    #[serde(default)]
    pub kill_survivors: bool,
}

decode_struct!(Release: session; holder, kill_survivors);

/// Opens a stream of a file's bytes; the stream's offsets are the file's, counted from `offset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    pub path: Text,
    pub stream: StreamId,
    #[serde(default)]
    pub offset: u64,
    /// To the end of the file when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

decode_struct!(ReadFile: path, stream; offset, length);

/// Opens a stream into a file. The answer comes when the stream has ended and the file is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFile {
    pub path: Text,
    pub stream: StreamId,
    pub mode: WriteMode,
    /// Permission bits; if absent, an existing file keeps its own, and a new one gets 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Make missing parent directories.
    #[serde(default)]
    pub parents: bool,
}

decode_struct!(WriteFile: path, stream, mode; permissions, uid, gid, parents);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// The whole content: written beside, synced, renamed over; readers see the old or the new.
    Replace {},
    /// The same, and a fault if the file exists already.
    Create {},
    /// Bytes within the file from this offset on, in place.
    At {
        offset: u64,
    },
    Append {},
}

decode_enum!(WriteMode: Replace {}, Create {}, At { offset }, Append {});

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    pub path: Text,
    /// Continue after this name of the last page; names are sorted by bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Text>,
}

decode_struct!(List: path; after);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeDirectory {
    pub path: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<u32>,
    /// Make missing parents too, and be content with one that is there.
    #[serde(default)]
    pub parents: bool,
}

decode_struct!(MakeDirectory: path; permissions, parents);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    pub from: Text,
    pub to: Text,
    /// Replace an existing `to`.
    #[serde(default)]
    pub replace: bool,
}

decode_struct!(Move: from, to; replace);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remove {
    pub path: Text,
    /// Directories with all that is in them; never across a mount, never through a symlink.
    #[serde(default)]
    pub recursive: bool,
}

decode_struct!(Remove: path; recursive);

/// Opens a stream of a tar archive of `path`; its entries are named from the last component on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TarGet {
    pub path: Text,
    pub stream: StreamId,
    /// Follow symlinks on the way to `path` and at `path` itself.
    #[serde(default)]
    pub follow: bool,
}

decode_struct!(TarGet: path, stream; follow);

/// Opens a stream of a tar archive that is unpacked into the directory `path`. The answer comes
/// when all of it is there. Nothing is ever written outside `path`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TarPut {
    pub path: Text,
    pub stream: StreamId,
    /// Give entries the owners that the archive names instead of the agent's.
    #[serde(default)]
    pub owners: bool,
    /// Make `path` when it is missing.
    #[serde(default)]
    pub parents: bool,
}

decode_struct!(TarPut: path, stream; owners, parents);

/// Opens a stream of a tar archive of the writable layer: what programs have added and changed since the
/// boot, and in the place of what they have removed a character device with the numbers 0 and 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerGet {
    pub stream: StreamId,
}

decode_struct!(LayerGet: stream);

/// Opens a stream of such an archive, which is repeated over the same root in this sandbox. The answer
/// comes when all of it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerPut {
    pub stream: StreamId,
}

decode_struct!(LayerPut: stream);

/// Opens a stream of [`crate::message::WatchEvent`]s, each a MessagePack map with a `u32` length
/// before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    pub path: Text,
    pub stream: StreamId,
    #[serde(default)]
    pub recursive: bool,
}

decode_struct!(Watch: path, stream; recursive);

/// Opens a two-way stream to a TCP port inside the sandbox, or from an arrival at one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    pub stream: StreamId,
    /// An address of the sandbox; `127.0.0.1` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub port: u16,
    /// Instead of connecting, accept what arrives at the address, which becomes the sandbox's own: one of
    /// [`crate::egress::EGRESS_ADDRESS`]'s range. The latest request gets it, and without requests nothing
    /// listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<Arrival>,
}

decode_struct!(Forward: stream, port; address, accept);

/// What is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// The next connection.
    Connection,
    /// DNS queries in datagrams, while this is requested: each is answered that it must use TCP. Nothing is
    /// ever accepted.
    Question,
}

decode_enum!(Arrival: Connection, Question);

/// Stops the agent and all that it runs: TERM, a grace, KILL, reap, sync, end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shutdown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

decode_struct!(Shutdown: ; grace_ms);

/// A host's message to a machine that it has restored from a snapshot or taken from a pool: that it
/// is the host now, the time, and what distinguishes this machine from its clones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// The host's wall clock, microseconds since 1970.
    pub time_us: u64,
    /// Random bytes that no other machine is given: [`crate::limits::ENTROPY_BYTES_MIN`] to
    /// [`crate::limits::ENTROPY_BYTES_MAX`].
    pub entropy: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Extends the sandbox's environment; a start's own variables take precedence.
    #[serde(default)]
    pub env: Vec<(Text, Text)>,
    /// The machine is a clone of a snapshot: an unused interpreter is replaced, because every other
    /// clone has the same source of random numbers.
    #[serde(default)]
    pub restored: bool,
}

decode_struct!(Adopt: time_us, entropy; hostname, env, restored);
