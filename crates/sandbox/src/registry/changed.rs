//! Tells which files have changed in a fork since it was made.

use std::io;

use protocol::message::FileKind;

use super::Registry;
use super::fork::read_layer;
use crate::changes::{self, ChangeKind, Changes, Difference, FileChange, Mark};
use crate::commit::CommitError;
use crate::limits::CHANGES_MAX;
use crate::{Record, SandboxError, SandboxRef};
use agent_client::guest::Guest;

impl Registry {
    /// The files of a fork that differ from those that it began with, in the order of their paths. Only of a fork
    /// that was made for it.
    pub async fn changes(&self, which: &SandboxRef) -> Result<Changes, SandboxError> {
        let visit = self.visit(which).await?;
        let record = self.get(which)?;
        let failed = |source| SandboxError::Fork { which: which.clone(), source: Box::new(source) };
        let state = self.0.directories(&record.id).state;
        let reading = tokio::task::spawn_blocking(move || changes::read_index(&state));
        let before = joined(reading.await).map_err(|error| failed(CommitError::Disk(error)))?;
        let before = before.ok_or(SandboxError::Unsupported {
            what: "a list of what has changed in this sandbox",
            why: "no index of its files was kept when it was made",
            hint: "`host-bridge try` makes forks that have one",
        })?;
        let layer = visit.guest.layer_get().await;
        let (output, _) = layer.map_err(|error| failed(CommitError::Read(error)))?;
        let contents = read_layer(self, &record, &visit.guest, output).await?.contents;
        let indexing = tokio::task::spawn_blocking(move || {
            Ok(changes::compare(&before, &changes::index(contents.reader())?))
        });
        let differences =
            joined(indexing.await).map_err(|error| failed(CommitError::Disk(error)))?;
        let original = self.original(&record).await;
        let mut found = Changes::default();
        for (path, difference) in differences {
            if found.changes.len() == CHANGES_MAX {
                found.more += 1;
                continue;
            }
            let path = [b"/", path.as_slice()].concat();
            let change = match difference {
                Difference::Is(change) => Some(change),
                Difference::Below(mark) => below(original.as_ref(), &path, &mark).await,
            };
            let path = String::from_utf8_lossy(&path).into_owned();
            found.changes.extend(change.map(|change| FileChange { path, change }));
        }
        Ok(found)
    }

    /// The agent of the sandbox that one was forked from, if that still runs.
    async fn original(&self, record: &Record) -> Option<Guest> {
        let which = self.find(&record.ancestors.first()?.id)?;
        Some(self.visit(&which).await.ok()?.guest)
    }
}

/// What a path is that only the fork's layer has.
async fn below(original: Option<&Guest>, path: &[u8], mark: &Mark) -> Option<ChangeKind> {
    let Some(original) = original else { return Some(ChangeKind::Added) };
    let Ok(info) = original.stat(path.to_vec(), false).await else {
        return Some(ChangeKind::Added);
    };
    let is_entered = mark.is_directory
        && info.kind == FileKind::Directory
        && (info.permissions, info.uid, info.gid) == (mark.mode, mark.uid, mark.gid);
    (!is_entered).then_some(ChangeKind::Modified)
}

fn joined<T>(done: Result<io::Result<T>, tokio::task::JoinError>) -> io::Result<T> {
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}
