//! The messages of the control socket.

use serde::{Deserialize, Serialize};

use super::apps::{AppOrder, AppRow};
use agent_client::link::Address;
use image::digest::Digest;
use sandbox::Preset;
use sandbox::caps::Scope;
use sandbox::pool::ShelfStatus;
use sandbox::{Name, Record, SandboxRef, Selector, Snapshot, Spec, State};
use services::store::artifacts::ArtifactRow;
use workspace::Report;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    Version {},
    /// Starts a sandbox; answered when its agent has answered.
    Start(Box<Spec>),
    List(List),
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
    /// Says that somebody is at work in a sandbox, through its agent alone: it is not idle until
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
    /// Ends a sandbox at once; answered when it is gone.
    Kill {
        sandbox: SandboxRef,
    },
    /// Removes a stopped sandbox and its logs; with `force`, kills it first.
    Remove {
        sandbox: SandboxRef,
        #[serde(default)]
        force: bool,
    },
    /// Pauses or resumes a sandbox; answered when that is done.
    Pause {
        sandbox: SandboxRef,
    },
    Resume {
        sandbox: SandboxRef,
    },
    /// Saves a running sandbox as a snapshot in its namespace.
    Snapshot {
        sandbox: SandboxRef,
        name: Name,
    },
    /// Creates an image from a running sandbox.
    Commit {
        sandbox: SandboxRef,
        /// The name of the image.
        image: String,
    },
    Snapshots {},
    /// Copies workspace changes of a sandbox back to the host.
    Sync {
        sandbox: SandboxRef,
    },
    RemoveSnapshot {
        snapshot: SandboxRef,
    },
    /// Removes an artifact of a run.
    RemoveArtifact {
        id: String,
    },
    /// Starts, stops or lists apps, or reads the log of one.
    App(AppOrder),
    /// Asks for the state of the pool.
    Pool {},
    /// Asks for the usage and the caps of a namespace and a key.
    Caps {
        namespace: Name,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
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
    /// The program that is started, and its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
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

/// One line from the bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Ok(Reply),
    Error(Refusal),
}

impl From<Result<Reply, Refusal>> for Answer {
    fn from(result: Result<Reply, Refusal>) -> Self {
        match result {
            Ok(reply) => Self::Ok(reply),
            Err(refusal) => Self::Error(refusal),
        }
    }
}

/// An answer of the bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Version(Version),
    Sandbox(Box<Record>),
    Sandboxes(Vec<Record>),
    Dialled(Dialled),
    Pool(Vec<ShelfStatus>),
    Caps(Vec<CapUsage>),
    Committed { digest: Digest },
    Snapshot(Box<Snapshot>),
    Snapshots(Vec<Snapshot>),
    Artifact(Box<ArtifactRow>),
    App(Box<AppRow>),
    Apps(Vec<AppRow>),
    AppLog { log: String },
    Synced(Box<Report>),
    Mcp {},
}

impl Reply {
    /// The word on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Version(_) => "version",
            Self::Sandbox(_) => "sandbox",
            Self::Sandboxes(_) => "sandboxes",
            Self::Dialled(_) => "dialled",
            Self::Pool(_) => "pool",
            Self::Caps(_) => "caps",
            Self::Committed { .. } => "committed",
            Self::Snapshot(_) => "snapshot",
            Self::Snapshots(_) => "snapshots",
            Self::Artifact(_) => "artifact",
            Self::App(_) => "app",
            Self::Apps(_) => "apps",
            Self::AppLog { .. } => "app_log",
            Self::Synced(_) => "synced",
            Self::Mcp {} => "mcp",
        }
    }
}

/// Which bridge this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub release: String,
    /// The newest version of the agents' protocol that it speaks.
    pub protocol: u32,
    pub pid: u32,
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
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: Code,
    /// One sentence that names the request and why it was refused.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The kinds of refusal that a program may want to tell apart. Codes are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
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
