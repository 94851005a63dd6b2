//! What is said on the control socket.

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

/// What a client asks.
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
    /// Asks where the agent of a running sandbox is reached.
    Dial {
        sandbox: SandboxRef,
        /// What for, in the word of whoever asks.
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
    /// Removes what is kept of a stopped sandbox; with `force`, kills it first.
    Remove {
        sandbox: SandboxRef,
        #[serde(default)]
        force: bool,
    },
    /// Lets a sandbox stand still, and go on; answered when it does.
    Pause {
        sandbox: SandboxRef,
    },
    Resume {
        sandbox: SandboxRef,
    },
    /// Writes a running sandbox down under a name of its namespace.
    Snapshot {
        sandbox: SandboxRef,
        name: Name,
    },
    /// Makes an image of what a running sandbox has become.
    Commit {
        sandbox: SandboxRef,
        /// What it is called.
        image: String,
    },
    Snapshots {},
    /// Brings back what a sandbox has changed in its workspace.
    Sync {
        sandbox: SandboxRef,
    },
    RemoveSnapshot {
        snapshot: SandboxRef,
    },
    /// Removes what a run has left.
    RemoveArtifact {
        id: String,
    },
    /// Starts an app in a sandbox, ends one, or asks about those that there are.
    App(AppOrder),
    /// Asks what is kept ready.
    Pool {},
    /// Asks what a namespace and a key have, and what they may have.
    Caps {
        namespace: Name,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// Turns this connection into a session of MCP: behind the answer, both ends say lines of it.
    Mcp(Preset),
}

/// What somebody is about to do over an agent's own socket, where the bridge does not see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purpose {
    /// The word of the command line.
    pub verb: String,
    /// The program that is started, and what it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

/// Which sandboxes are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Those of all namespaces when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Name>,
    /// The stopped ones too.
    #[serde(default)]
    pub all: bool,
    /// All of these must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Selector>,
}

/// One line of the bridge's.
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

/// What the bridge answers.
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

/// What a namespace or a key has, and what it may have of that.
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
    /// Absent where there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u64>,
}

/// Where a sandbox's agent is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialled {
    pub address: Address,
    /// Who its programs run as that name nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where they begin that name no directory.
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
    /// One sentence that names what was asked for and why it was refused.
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
    /// It has to be stopped first.
    StillRunning,
    /// It has stopped.
    NotRunning,
    /// The machine did not come up.
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
    /// It stands still; it has to be resumed first.
    Paused,
    /// The machine does not die.
    Stuck,
    /// It would exceed a cap of its namespace.
    CapExceeded,
    /// There is no such secret for that namespace.
    UnknownSecret,
    /// A secret's provider did not give it.
    SecretFailed,
    /// No registry gave the image.
    PullFailed,
    /// There is no such workspace for that namespace.
    UnknownWorkspace,
    /// A workspace cannot be used, or its changes do not come back.
    WorkspaceFailed,
}
