//! The messages of the control socket: the table of what can be asked of the daemon.
//!
//! A request is a variant of [`Request`], with a row in the matches of this module: how it is recorded
//! ([`about`](Request::about)), and what carries it out ([`carry_out`](Request::carry_out)). Its answer is
//! a [`Reply`]. Nothing else knows a single request, but for the verb that sends it and for the few that
//! the daemon answers itself: about the connection and about the daemon.

mod about;
mod carry_out;
mod elsewhere;
mod events;
mod reply;

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::apps::AppOrder;
use node::Readiness;
use protocol::{ContextName, SessionId};
use sandbox::Preset;
use sandbox::{Name, SandboxRef, Selector, Spec, TemplateOptions, TemplateRef};

pub use about::About;
pub use carry_out::Parts;
pub use elsewhere::{Answered, Elsewhere};
pub use events::{EventBatch, EventsQuery};
pub use reply::{
    Answer, CapUsage, CapUsageRow, Dialled, ErrorCode, ErrorReply, InputRecord, LogPage, LostPage,
    NamespaceCost, NodeReplies, NodeReply, PlayPage, PreviewLink, Reply, UnansweredNode, Version,
};

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    Version {},
    /// Starts a sandbox; answered when its agent has answered.
    Start(Box<Spec>),
    List(List),
    /// Asks all nodes of the fleet the same, which must only look.
    AllNodes(Box<Request>),
    /// Asks for the next events of a namespace.
    Events(EventsQuery),
    Inspect {
        sandbox: SandboxRef,
    },
    /// Asks for the address of a running sandbox's agent.
    Dial {
        sandbox: SandboxRef,
        /// What the client is about to do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        purpose: Option<Purpose>,
    },
    /// Reports that a client is at work in a sandbox, through its agent alone: it is not idle until
    /// this connection ends.
    Work {
        sandbox: SandboxRef,
    },
    /// Stops a sandbox in order; answered when it is gone.
    Stop {
        sandbox: SandboxRef,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_ms: Option<u64>,
    },
    /// Stops a sandbox, and starts it again as it was asked for; answered when its agent has answered.
    Restart {
        sandbox: SandboxRef,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_ms: Option<u64>,
        /// The values of its environment, which are kept nowhere.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        env: Vec<(String, String)>,
    },
    /// Waits until a sandbox has stopped, for some time; answered with its record either way.
    Wait {
        sandbox: SandboxRef,
    },
    /// Ends a sandbox at once; answered when it is gone.
    Kill {
        sandbox: SandboxRef,
    },
    /// Removes a stopped sandbox and its logs; with `force`, kills it first. With `moves` it is made again at another node, if
    /// it is one that is made again when it is lost.
    Remove {
        sandbox: SandboxRef,
        #[serde(default)]
        force: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        moves: bool,
    },
    /// Pauses or resumes a sandbox; answered when that is done.
    Pause {
        sandbox: SandboxRef,
    },
    Resume {
        sandbox: SandboxRef,
    },
    /// Changes how long a living sandbox lives and what it may reach; what is absent stays.
    Update {
        sandbox: SandboxRef,
        /// The time to live from now on; as the next, 0 for no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle_ttl_ms: Option<u64>,
        /// Instead of its rules; an empty list allows nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        egress: Option<Vec<String>>,
    },
    /// Saves a running sandbox as a snapshot in its namespace.
    Snapshot {
        sandbox: SandboxRef,
        name: Name,
    },
    /// Makes copies of a running sandbox.
    Fork {
        sandbox: SandboxRef,
        /// How many, where there are no names.
        count: usize,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        names: Vec<Name>,
        /// For `try`: with an index of files, and without notebooks.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_trial: bool,
    },
    /// Asks which files have changed in a fork that was made for `try`.
    Changes {
        sandbox: SandboxRef,
    },
    /// Creates an image from a running sandbox.
    Commit {
        sandbox: SandboxRef,
        /// The name of the image.
        image: String,
    },
    /// Reads what the fleet's log has of a sandbox that is gone with its node, after a place in it.
    ReadLost {
        sandbox: SandboxRef,
        #[serde(default)]
        after: u64,
    },
    /// Reads a part of a sandbox's log.
    ReadLog(LogQuery),
    /// Asks for the sessions that a sandbox's log knows.
    LogSessions {
        sandbox: SandboxRef,
    },
    /// Compares the log of a sandbox with the digests that its agent has given.
    Verify {
        sandbox: SandboxRef,
        /// Only this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
    },
    /// Asks for the receipt of a session.
    Receipt {
        sandbox: SandboxRef,
        session: SessionId,
    },
    /// Asks for the receipt of a run of a context.
    RunReceipt {
        sandbox: SandboxRef,
        context: ContextName,
        /// The last that has ended if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<u64>,
    },
    /// Reads a part of what a replay plays.
    Play(PlayQuery),
    Snapshots {},
    /// Keeps a template, in the place of one with its name.
    PutTemplate {
        template: TemplateRef,
        options: Box<TemplateOptions>,
    },
    Templates {},
    GetTemplate {
        template: TemplateRef,
    },
    /// Removes a template, but no sandboxes.
    RemoveTemplate {
        template: TemplateRef,
    },
    /// Copies workspace changes of a sandbox back to the host.
    Sync {
        sandbox: SandboxRef,
    },
    RemoveSnapshot {
        snapshot: SandboxRef,
    },
    /// Removes the snapshots that the policy does not keep, or only lists them.
    PruneSnapshots {
        dry_run: bool,
    },
    /// Writes a snapshot as an archive: to an object of a bucket, or else to this connection, which ends with
    /// the archive.
    ExportSnapshot {
        snapshot: SandboxRef,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// Reads a snapshot from an archive: from an object of a bucket, or else from this connection after the
    /// first answer, until its client ends it; a second answer follows.
    ImportSnapshot {
        /// Its name, if that is not the one that it had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot: Option<SandboxRef>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
    },
    /// Removes an artifact of a run.
    RemoveArtifact {
        id: String,
    },
    /// Makes a link to a port of a sandbox, for the operator.
    CreatePreview {
        sandbox: SandboxRef,
        port: NonZeroU16,
        /// An hour if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl_ms: Option<u64>,
    },
    /// Lists the links to ports of a sandbox.
    Previews {
        sandbox: SandboxRef,
    },
    /// Takes a link back.
    RemovePreview {
        sandbox: SandboxRef,
        id: String,
    },
    /// Starts, stops or lists apps, or reads the log of one.
    App(AppOrder),
    /// Asks for the state of the pool.
    Pool {},
    /// Asks for the nodes of the fleet.
    Nodes {},
    /// Says whether a node of the fleet takes sandboxes.
    MarkNode {
        node: String,
        readiness: Readiness,
    },
    /// Asks for the usage and the caps of a namespace and a key.
    Caps {
        namespace: Name,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// Asks for what namespaces have used, in whole hours.
    Usage {
        /// All namespaces if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<Name>,
        from_ms: u64,
        to_ms: u64,
    },
    /// Asks for what programs, runs and apps have cost, by whole days.
    ProgramUsage {
        /// All namespaces if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<Name>,
        from_ms: u64,
        to_ms: u64,
    },
    /// Ends the daemon; answered before it does.
    End {
        /// Stops the running sandboxes too, instead of leaving them to the next daemon.
        #[serde(default)]
        stop_sandboxes: bool,
    },
    /// Turns this connection into an MCP session: after the answer, both ends send lines of MCP.
    Mcp(Preset),
}

/// What a client is about to do over an agent's own socket, which the bridge does not see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purpose {
    /// The verb of the command line.
    pub verb: String,
    /// It only looks: a sandbox that is asleep is not woken, and refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub looks: bool,
    /// The program that is started, and its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

/// Which part of a log is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    pub sandbox: SandboxRef,
    /// Only so many of the last lines. As the next, not with `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Only this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Only stderr, or only the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_stderr: Option<bool>,
    /// Where an earlier part has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The answer comes when there is an entry, or after some time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

/// Which part of what a sandbox did is played.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlayQuery {
    pub sandbox: SandboxRef,
    /// Only this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// With what happened beside the sessions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_events: bool,
    /// With what was typed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_input: bool,
    /// Where an earlier part has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Which sandboxes are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// All namespaces if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Name>,
    /// Includes stopped sandboxes.
    #[serde(default)]
    pub all: bool,
    /// All of these must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Selector>,
}
