//! The handshake: the version, the identity of both ends, and the streams that are resumed.
//!
//! ```text
//! host                          agent
//!  │── hello ───────────────────▶│   versions, client, streams I still hold and how far I came
//!  │◀─────────────────── welcome ─│   version, agent, token, streams I still hold and how far
//!  │◀═══════ everything else ═══▶│
//!  │── goodbye / ◀── goodbye ────│   why it ends; the streams are given up at once
//! ```

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::ids::{AgentId, ClientId, RequestId, StreamId, Token};
use crate::{decode_enum, decode_struct};

/// The oldest and the newest version of the messages that this code speaks.
pub const VERSION_MIN: u32 = 1;
pub const VERSION_MAX: u32 = 1;

/// The first frame from the host on every link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version_min: u32,
    pub version_max: u32,
    pub client: ClientId,
    /// For logs, and for a client whose keyboard is taken over: `burrow 0.1.0 attach`.
    pub name: String,
    /// Counts this client's links. A hello may be read after that of a newer link, because nothing
    /// orders two connections; the agent knows by this number that the host has given its link up,
    /// and refuses it as `replaced`.
    #[serde(default)]
    pub dial: u64,
    /// Absent on the first link of a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// How long the agent keeps this client's streams after a cut; at most
    /// [`crate::limits::RESUME_WINDOW`]. Zero for clients that do not come back.
    #[serde(default)]
    pub resume_window_ms: u64,
}

decode_struct!(Hello: version_min, version_max, client, name; dial, resume, resume_window_ms);

/// What a client still has from an earlier link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    pub token: Token,
    pub streams: Vec<StreamPosition>,
    /// Requests that still want their answers; the agent forgets all others.
    pub unanswered: Vec<RequestId>,
}

decode_struct!(Resume: token, streams, unanswered);

/// How far the receiver of a stream has come, when a link begins again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    pub stream: StreamId,
    /// The next byte that this end expects.
    pub next: u64,
    /// How far the other end may send.
    pub up_to: u64,
    /// Whether this end has seen the stream's `fin`.
    pub finished: bool,
    /// Why this end has reset the stream, if it did and the other may not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<Fault>,
}

decode_struct!(StreamPosition: stream, next, up_to, finished; gone);

/// The agent's answer to a hello that it accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub version: u32,
    pub agent: AgentId,
    /// For the next hello of the same client.
    pub token: Token,
    /// Whether the client's streams and pending requests were taken up again. When not, everything
    /// of an earlier link is gone, and `streams` is empty.
    pub resumed: bool,
    pub streams: Vec<StreamPosition>,
    /// Which of the hello's unanswered requests the agent has taken on; the others never arrived,
    /// and the host sends them again.
    #[serde(default)]
    pub taken: Vec<RequestId>,
    pub info: AgentInfo,
}

decode_struct!(Welcome: version, agent, token, resumed, streams, info; taken);

/// An agent's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// The agent's release, for people.
    pub release: String,
    pub pid: u32,
    /// Whether it is the init of its machine or PID namespace.
    pub init: bool,
    pub hostname: String,
    /// Wall clock of the guest, milliseconds since 1970.
    pub time_ms: u64,
    pub uptime_ms: u64,
    /// From the entry of `main` to the first accepted hello, CPU time of the agent alone.
    pub ready_cpu_us: u64,
    /// The same by the wall clock.
    pub ready_us: u64,
    pub memory_bytes: u64,
    pub cpus: u32,
    /// Why sessions have no control groups, when they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_missing: Option<String>,
    /// The controllers that sessions' control groups have.
    #[serde(default)]
    pub controllers: Vec<String>,
    /// Processes that ended and were collected, orphans included.
    #[serde(default)]
    pub processes_reaped: u64,
    /// The steps of the boot, in order.
    #[serde(default)]
    pub boot: Vec<BootStep>,
    /// Whether it has a whole machine to itself, kernel and clock included.
    #[serde(default)]
    pub machine: bool,
    /// From the kernel's start to the entry of `main`; of machines alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_us: Option<u64>,
}

decode_struct! {
    AgentInfo:
    release, pid, init, hostname, time_ms, uptime_ms, ready_cpu_us, ready_us, memory_bytes, cpus;
    cgroup_missing, controllers, processes_reaped, boot, machine, kernel_us
}

/// One step of a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootStep {
    pub name: String,
    pub micros: u64,
    /// Why it was left undone, when it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

decode_struct!(BootStep: name, micros; problem);

/// The last frame of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goodbye {
    pub reason: GoodbyeReason,
    pub message: String,
}

decode_struct!(Goodbye: reason, message);

/// Why an end closes the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoodbyeReason {
    /// Done; nothing will be resumed.
    Finished,
    /// The agent or its machine is stopping.
    Stopping,
    /// No common version; the message names both ranges.
    Version,
    /// The peer sent what the protocol does not allow.
    Protocol,
    /// The peer did not read, or asked for more than a limit allows.
    Limit,
    /// The same client has dialled again; this is the older link.
    Replaced,
    /// The sandbox could not be set up.
    BootFailed,
}

decode_enum!(GoodbyeReason: Finished, Stopping, Version, Protocol, Limit, Replaced, BootFailed);

/// The highest version that both ranges contain.
pub fn common_version(ours: (u32, u32), theirs: (u32, u32)) -> Option<u32> {
    let version = ours.1.min(theirs.1);
    (version >= ours.0 && version >= theirs.0).then_some(version)
}
