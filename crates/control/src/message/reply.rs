//! The answers of the control socket.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::EventBatch;
use crate::apps::AppRow;
use crate::audit::described;
use access::audit;
use access::preview::Link;
use access::receipt::Receipt;
use agent_client::link::Address;
use image::digest::Digest;
use node::NodeRow;
use protocol::SessionId;
use sandbox::caps::Scope;
use sandbox::costs::{Cost, ProgramUse};
use sandbox::log::{Comparison, Entry};
use sandbox::pool::ShelfStatus;
use sandbox::{Changes, Durability, Forked, ListedSnapshot, Record, Snapshot, State, TemplateInfo};
use services::store::artifacts::ArtifactRow;
use services::timeline::Moment;
use workspace::Report;

/// One line from the bridge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Ok(Reply),
    Error(ErrorReply),
}

impl From<Result<Reply, ErrorReply>> for Answer {
    fn from(result: Result<Reply, ErrorReply>) -> Self {
        match result {
            Ok(reply) => Self::Ok(reply),
            Err(refusal) => Self::Error(refusal),
        }
    }
}

/// What all nodes answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReplies {
    /// By name.
    pub nodes: Vec<NodeReply>,
    /// Nodes whose answers are missing.
    pub unanswered: Vec<UnansweredNode>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReply {
    pub node: String,
    /// Where its bridge is reached.
    pub address: String,
    pub reply: Reply,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnansweredNode {
    pub node: String,
    pub why: String,
}

/// Generates the answers from their table, and takes out of each what a client wants. A row is the variant and
/// its content, in the section of its form on the wire; a large content is boxed.
macro_rules! replies {
    (empty { $($empty:ident;)* }
     plain { $($name:ident($content:ty);)* }
     boxed { $($boxed:ident($large:ty);)* }
     named { $($named:ident { $field:ident: $value:ty };)* }) => {
        /// An answer of the bridge.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Reply {
            $($empty {},)*
            $($name($content),)*
            $($boxed(Box<$large>),)*
            $($named { $field: $value },)*
        }

        replies!(@take (), $(Reply::$empty {})|* => ());
        $(replies!(@take $content, Reply::$name(content) => content);)*
        $(replies!(@take $large, Reply::$boxed(content) => *content);)*
        $(replies!(@take $value, Reply::$named { $field } => $field);)*
    };
    (@take $content:ty, $pattern:pat => $taken:expr) => {
        impl TryFrom<Reply> for $content {
            type Error = Reply;

            fn try_from(reply: Reply) -> Result<Self, Reply> {
                match reply {
                    $pattern => Ok($taken),
                    other => Err(other),
                }
            }
        }
    };
}

replies! {
    empty {
        Ending;
        Mcp;
        Importing;
    }
    plain {
        Version(Version);
        Sandboxes(Vec<Record>);
        AllNodes(NodeReplies);
        Events(EventBatch);
        Dialled(Dialled);
        LostLog(LostPage);
        Log(LogPage);
        LogSessions(Vec<SessionId>);
        Verified(Vec<Comparison>);
        Played(PlayPage);
        Pool(Vec<ShelfStatus>);
        Nodes(Vec<NodeRow>);
        Caps(Vec<CapUsage>);
        Usage(Vec<NamespaceCost>);
        ProgramUsage(Vec<ProgramUse>);
        Snapshots(Vec<ListedSnapshot>);
        Templates(Vec<TemplateInfo>);
        Apps(Vec<AppRow>);
        Previews(Vec<Link>);
    }
    boxed {
        Sandbox(Record);
        Snapshot(Snapshot);
        Template(TemplateInfo);
        Forked(Forked);
        Changes(Changes);
        Artifact(ArtifactRow);
        App(AppRow);
        Preview(Link);
        PreviewLink(PreviewLink);
        Receipt(Receipt);
        Synced(Report);
    }
    named {
        Committed { digest: Digest };
        AppLog { log: String };
        Exported { bytes: u64 };
    }
}

impl Reply {
    /// The word on the wire.
    pub fn name(&self) -> String {
        let written = serde_json::to_value(self).ok();
        let word = written.and_then(|written| written.as_object()?.keys().next().cloned());
        word.unwrap_or_default()
    }

    /// Adds what the audit log says of it to its entry.
    pub fn facts(&self, entry: audit::Entry) -> audit::Entry {
        match self {
            Self::Sandbox(record) => described(entry, (**record).clone()),
            Self::PreviewLink(made) => entry.fact("preview", made.link.id.as_str()),
            Self::Exported { bytes } => entry.fact("bytes", *bytes),
            Self::Committed { digest } => entry.fact("committed", digest.to_string()),
            _ => entry,
        }
    }
}

/// A link to a port that was made, with what opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewLink {
    pub link: Link,
    pub url: String,
    /// Whether the port has a host name of its own, which browsers need.
    pub has_host_name: bool,
}

/// Which bridge this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub release: String,
    /// The newest version of the agents' protocol that it speaks.
    pub protocol: u32,
    pub pid: u32,
    /// Whether a verb started it by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
}

/// The usage and the caps of a namespace or a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapUsage {
    #[serde(flatten)]
    pub scope: Scope,
    pub caps: Vec<CapUsageRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapUsageRow {
    pub cap: String,
    pub used: u64,
    /// Absent if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u64>,
}

/// What the sandboxes of a namespace have used together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceCost {
    pub namespace: String,
    #[serde(flatten)]
    pub cost: Cost,
}

/// A part of a sandbox's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    pub entries: Vec<Entry>,
    /// Where the next part begins; absent while the log has nothing at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// There was no more.
    pub is_at_end: bool,
    /// Nothing will follow.
    pub is_over: bool,
}

/// A part of what a replay plays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlayPage {
    pub moments: Vec<Moment>,
    /// Where the next part begins; absent after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A part of the log of a sandbox that is gone with its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostPage {
    pub node: String,
    /// When it was declared lost.
    pub at_ms: u64,
    pub entries: Vec<Entry>,
    /// Where the next part begins; absent after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The sandbox had ended before its node was gone. Known after the last part.
    #[serde(default)]
    pub is_closed: bool,
    /// Where the outputs end of the sessions whose end is not known, after the last part.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub last_durable_offset: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The address of a sandbox's agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialled {
    pub address: Address,
    /// The default user of its programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The default working directory of its programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(flatten)]
    pub state: State,
    /// How long the bridge waited for it, if it was asleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woke_ms: Option<u64>,
    /// Whether what its programs write outlives the host.
    #[serde(default, skip_serializing_if = "Durability::is_off")]
    pub durability: Durability,
    /// Where what is typed is recorded.
    #[serde(default, skip_serializing_if = "InputRecord::is_nowhere")]
    pub input: InputRecord,
    /// The log where the client records what it puts in and runs; absent where it cannot write to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<PathBuf>,
}

/// Where what is typed into a sandbox by a client of its agent is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputRecord {
    #[default]
    Nowhere,
    /// In the log of this directory, by the client.
    Log(PathBuf),
    /// At the node that has the sandbox, which this client cannot write to.
    Elsewhere,
}

impl InputRecord {
    /// The same for a client of another node.
    pub(super) fn elsewhere(self) -> Self {
        match self {
            Self::Nowhere => Self::Nowhere,
            Self::Log(_) | Self::Elsewhere => Self::Elsewhere,
        }
    }

    fn is_nowhere(&self) -> bool {
        *self == Self::Nowhere
    }
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ErrorReply {
    pub code: ErrorCode,
    /// One sentence that names the request and why it was refused.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The kinds of refusal that a program may want to distinguish. Codes are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request contradicts itself or breaks a rule; asking again will not help.
    Invalid,
    NameTaken,
    NotFound,
    /// It must be stopped first.
    StillRunning,
    /// It has stopped.
    NotRunning,
    /// The machine did not start.
    StartFailed,
    /// A named limit is reached.
    Limit,
    /// Too many connections; asking again later helps.
    Busy,
    /// The host refused.
    Io,
    /// The bridge is stopping.
    Stopping,
    /// This bridge cannot do that here.
    Unsupported,
    /// It is paused and must be resumed first.
    Paused,
    /// The machine could not be killed.
    Stuck,
    /// It would exceed a cap of its namespace.
    CapExceeded,
    /// There is no such secret for that namespace.
    UnknownSecret,
    /// A secret's provider failed.
    SecretFailed,
    /// No registry delivered the image.
    PullFailed,
    /// There is no such workspace for that namespace.
    UnknownWorkspace,
    /// A workspace cannot be used, or its changes cannot be copied back.
    WorkspaceFailed,
}
