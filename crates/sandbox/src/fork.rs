//! Forks: copies of a sandbox, each with its own name, id, token and host name.
//!
//! Where the machine has memory snapshots, a fork is one that is never named, and sandboxes that start from
//! it. Elsewhere it is the writable layer: what programs have added, changed and removed since the boot is
//! read once, with the programs frozen, and repeated over the same root in each fork. What was running is
//! not carried then, and is listed by name.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Name, Record};
use crate::limits::ANCESTORS_MAX;
use crate::snapshot::Nameless;
use machine::SandboxId;
use schemars::JsonSchema;

/// A sandbox that another was forked from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    pub id: SandboxId,
    /// Its name at that moment.
    pub name: Name,
    /// When.
    pub at_ms: u64,
}

/// What is asked of a fork.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent wishes, each read in one place")]
pub struct ForkRequest {
    /// How many; as many as there are names, where there are some.
    pub count: usize,
    /// Their names. Without any, they are those of the sandbox with the first numbers that are free.
    pub names: Vec<Name>,
    /// The key that asks, whose caps they count for.
    pub key: Option<String>,
    /// Another time to live than that of the sandbox.
    pub ttl_ms: Option<u64>,
    /// Another time for which their records are kept after the end.
    pub keep_stopped_ms: Option<u64>,
    /// Whether the variables of its notebooks are carried.
    pub carries_notebooks: bool,
    /// Whether it is refused where the memory cannot be carried.
    pub needs_memory: bool,
    /// Whether each fork can say later which files have changed in it; see [`crate::Registry::changes`].
    pub keeps_index: bool,
    /// For the bridge's own user, whose machine this is.
    pub is_operator: bool,
}

/// The forks, and what they have of their original.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    pub forks: Vec<Record>,
    pub report: ForkReport,
}

/// What was carried into each fork, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkReport {
    /// Whether its memory was carried, with everything that runs in it. If not, files were, and what is in
    /// `left` was not.
    pub memory: bool,
    /// Whether its programs were frozen while their files were read.
    pub frozen: bool,
    /// Files and directories that were carried, removals included. 0 where its disk was carried as a whole.
    pub entries: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Notebooks whose variables were carried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notebooks: Vec<CarriedNotebook>,
    /// What was not carried.
    pub left: LeftBehind,
}

/// A notebook in a fork, with the variables of one in the original.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CarriedNotebook {
    /// The notebook of the original.
    pub from: String,
    /// The notebook of the fork.
    pub notebook: String,
    /// The fork.
    pub sandbox: String,
}

/// What of a sandbox its forks do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftBehind {
    /// Contexts whose interpreters and variables were not carried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<String>,
    /// Sessions that went on in the original alone, each with its command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// The workspace whose changes go back from the original alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// How a fork differs from one that is made from nothing.
pub(crate) struct Origin {
    pub ancestors: Vec<Ancestor>,
    /// Names of its environment, which a machine that is restored has in its memory.
    pub env_names: Vec<String>,
    /// What the machine starts from.
    pub snapshot: Option<Arc<Nameless>>,
}

impl Origin {
    pub(crate) fn of(record: &Record, at_ms: u64) -> Self {
        let parent = Ancestor { id: record.id.clone(), name: record.name.clone(), at_ms };
        let all = [parent].into_iter().chain(record.ancestors.iter().cloned());
        let ancestors = all.take(ANCESTORS_MAX).collect();
        Self { ancestors, env_names: record.env_names.clone(), snapshot: None }
    }

    /// Puts down in a fork's record where it comes from.
    pub(crate) fn mark(&self, record: &mut Record) {
        record.ancestors.clone_from(&self.ancestors);
        record.env_names.clone_from(&self.env_names);
    }

    /// The files of the snapshot.
    pub(crate) fn restore(&self) -> Option<PathBuf> {
        self.snapshot.as_ref().map(|snapshot| snapshot.machine())
    }
}
