//! The report of an exchange: what was written, deleted, in conflict or refused.

use serde::{Deserialize, Serialize};

use super::error::shown;
use super::limits::PATHS_TOLD_MAX;

/// A file that both sides have changed: the host's stays, and the sandbox's is kept beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    pub path: String,
    /// Where the sandbox's version is; absent if the sandbox removed the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<String>,
}

/// A change that was not made on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedPath {
    pub path: String,
    pub why: String,
}

/// Lists of at most [`PATHS_TOLD_MAX`] paths; `untold` counts those that they have no room for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub written: Vec<String>,
    pub deleted: Vec<String>,
    pub conflicts: Vec<Conflict>,
    pub refused: Vec<RefusedPath>,
    pub untold: u64,
}

impl Report {
    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What remains true if the reported changes got only half-way.
    pub(super) fn without_changes(self) -> Self {
        let is_full = [&self.written, &self.deleted].iter().any(|all| all.len() >= PATHS_TOLD_MAX);
        // If the list of changes is full, the uncounted ones are those that did not fit.
        let untold = if is_full { 0 } else { self.untold };
        Self { written: Vec::new(), deleted: Vec::new(), untold, ..self }
    }

    /// Appends another report.
    pub(super) fn extend(&mut self, other: Self) {
        other.written.iter().for_each(|path| self.write(path.as_bytes()));
        other.deleted.iter().for_each(|path| self.delete(path.as_bytes()));
        for Conflict { path, kept_as } in &other.conflicts {
            self.conflict(path.as_bytes(), kept_as.as_ref().map(String::as_bytes));
        }
        for RefusedPath { path, why } in other.refused {
            self.refuse(path.as_bytes(), why);
        }
        self.untold += other.untold;
    }

    pub(super) fn write(&mut self, path: &[u8]) {
        let is_listed = push(&mut self.written, shown(path));
        self.untold += u64::from(!is_listed);
    }

    pub(super) fn delete(&mut self, path: &[u8]) {
        let is_listed = push(&mut self.deleted, shown(path));
        self.untold += u64::from(!is_listed);
    }

    pub(super) fn conflict(&mut self, path: &[u8], kept_as: Option<&[u8]>) {
        let conflict = Conflict { path: shown(path), kept_as: kept_as.map(shown) };
        let is_listed = push(&mut self.conflicts, conflict);
        self.untold += u64::from(!is_listed);
    }

    pub(super) fn refuse(&mut self, path: &[u8], why: impl Into<String>) {
        let is_listed = push(&mut self.refused, RefusedPath { path: shown(path), why: why.into() });
        self.untold += u64::from(!is_listed);
    }

    /// One sentence for each conflict and refusal.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        let conflicts = self.conflicts.iter().map(|conflict| match &conflict.kept_as {
            Some(kept_as) => format!(
                "workspace: {:?} was changed on the host too; the sandbox's version is kept as {kept_as:?}",
                conflict.path
            ),
            None => format!(
                "workspace: {:?} was removed in the sandbox but changed on the host; the host's version is kept",
                conflict.path
            ),
        });
        let refused = self.refused.iter().map(|refused| {
            format!("workspace: {:?} was not copied: {}", refused.path, refused.why)
        });
        conflicts.chain(refused)
    }
}

fn push<T>(list: &mut Vec<T>, item: T) -> bool {
    let has_room = list.len() < PATHS_TOLD_MAX;
    if has_room {
        list.push(item);
    }
    has_room
}
