//! How an owner counts runs: on disk before they begin. A run that a full disk kept out of the history is
//! added when there is room.

use host::room::lacks_room;
use tokio::time::Instant;

use super::Owner;
use crate::notebook::error::NotebookError;
use crate::notebook::limits::FULL_DISK_PAUSE;

impl Owner {
    /// Gives a run its number on disk, before it begins: a run whose end cannot be written is then known to
    /// be missing, and on a full disk nothing runs uncounted.
    pub(super) async fn count_run(&mut self, now_ms: u64) -> Result<u64, NotebookError> {
        self.write_unwritten().await?;
        let (space, id) = (self.row.namespace.clone(), self.row.id.clone());
        let number = self.inner.store.begin_run(&space, &id, now_ms).await?;
        let number = number.ok_or(NotebookError::Unknown { namespace: space, id })?;
        self.row.totals.runs = number;
        Ok(number)
    }

    /// Takes back the number of a run that was never asked for.
    pub(super) async fn abandon(&mut self) {
        let number = self.row.totals.runs;
        match self.inner.store.abandon_run(&self.row.namespace, &self.row.id, number).await {
            Ok(()) => self.row.totals.runs = number.saturating_sub(1),
            // It stays a run of which nothing is known.
            Err(error) => self.trouble(&format!("its history: {error}")),
        }
    }

    /// Writes the run that a full disk has kept out of the history.
    pub(super) async fn write_unwritten(&mut self) -> Result<(), NotebookError> {
        if let Some(row) = &self.unwritten {
            self.inner.store.add_run(row.clone()).await?;
            self.unwritten = None;
        }
        Ok(())
    }

    /// Tries again what failed because the disk was full.
    pub(super) async fn make_up(&mut self) {
        self.try_again = None;
        let saved = match self.owes().await {
            Ok(true) => self.save().await.map(drop),
            Ok(false) => self.write_unwritten().await,
            Err(error) => Err(error),
        };
        if let Err(error) = saved {
            self.try_later(&error);
        }
    }

    pub(super) fn try_later(&mut self, error: &NotebookError) {
        if lacks_room(error) {
            self.try_again = Some(Instant::now() + FULL_DISK_PAUSE);
        }
    }
}
