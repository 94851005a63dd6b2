//! How an owner has variables saved: the order to the keeper, and what is fetched of it.

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{Owner, Saved};
use crate::notebook::error::NotebookError;
use crate::notebook::keeper::SaveState;
use crate::notebook::limits::{BEGIN_DEADLINE, FETCH_DEADLINE, LOOK_PAUSE_MAX};
use crate::notebook::transfer::{self, FetchedSave};
use crate::notebook::vault::Stamp;
use host::id::RandomId;
use host::instant::now_ms;
use sandbox::{SandboxError, Visit};

/// A save that is under way.
pub(super) struct Saving {
    run: u64,
    version: u64,
    since: Instant,
    pub(super) task: JoinHandle<Result<FetchedSave, NotebookError>>,
}

impl Owner {
    /// Orders a save. [`Owner::end_save`] handles its result.
    pub(super) async fn begin_save(&mut self) -> Result<(), NotebookError> {
        // If it fails, the next run or request tries again. Retrying by itself would fail forever,
        // unless the disk was full.
        self.dirty = None;
        let ordered = self.order_save().await;
        if let Err(error) = &ordered {
            self.fail(error);
        }
        ordered
    }

    /// Of an interpreter that is gone there is nothing to save.
    pub(super) async fn order_save(&mut self) -> Result<(), NotebookError> {
        let Some(seat) = self.seat.clone() else { return Ok(()) };
        let registry = &self.inner.registry;
        let Ok(record) = registry.get(&seat.sandbox) else { return Ok(()) };
        if record.id != seat.id || record.state.is_over() {
            return Ok(());
        }
        let since = Instant::now();
        // A sandbox must not end for want of work while this is under way.
        let Visit { guest, activity, .. } = registry.visit(&seat.sandbox).await?;
        let context = self.context(&seat.sandbox);
        let directory = seat.directory();
        let orders = self.orders(&guest, &context, &seat.token);
        let mark = RandomId::draw().map_err(SandboxError::Draw)?.to_string();
        let mut state = orders.save(&directory, &mark).await?;
        if state == SaveState::Bare {
            orders.install().await?;
            state = orders.save(&directory, &mark).await?;
        }
        // What a bridge before this one has ordered may still be under way.
        let give_up_at = Instant::now() + BEGIN_DEADLINE;
        while state == SaveState::Again && Instant::now() < give_up_at {
            sleep(LOOK_PAUSE_MAX).await;
            state = orders.save(&directory, &mark).await?;
        }
        match state {
            SaveState::Started | SaveState::Done => {}
            SaveState::Foreign => return Ok(()),
            SaveState::Again | SaveState::Bare => {
                return Err(NotebookError::NotSaved {
                    what: "an earlier save is still running".to_owned(),
                });
            }
        }
        let (run, vault) = (self.row.totals.runs, self.vault.clone());
        let version = self.saved.as_ref().map_or(0, |saved| saved.version) + 1;
        let stamp = Stamp { version, run };
        let task = tokio::spawn(async move {
            let _activity = activity;
            let fetching = transfer::fetch(&guest, &directory, &mark, &vault, stamp);
            timeout(FETCH_DEADLINE, fetching).await.unwrap_or_else(|_| {
                let seconds = FETCH_DEADLINE.as_secs();
                let what = format!("the guest did not send them within {seconds} s");
                Err(NotebookError::NotSaved { what })
            })
        });
        self.saving = Some(Saving { run, version, since, task });
        Ok(())
    }

    pub(super) async fn end_save(
        &mut self,
        fetched: Result<FetchedSave, NotebookError>,
    ) -> Result<(), NotebookError> {
        let Some(Saving { run, version, since, .. }) = self.saving.take() else { return Ok(()) };
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                self.fail(&error);
                return Err(error);
            }
        };
        let bytes = fetched.bytes;
        let saved = Saved {
            version,
            run,
            saved_ms: now_ms(),
            bytes: fetched.bytes,
            is_none: false,
            variables: fetched.variables,
        };
        if let Err(error) = self.write_saved(saved).await {
            self.fail(&error);
            return Err(error);
        }
        self.inner.counts.saved(since.elapsed(), bytes);
        Ok(())
    }

    fn fail(&mut self, error: &NotebookError) {
        self.inner.counts.failed();
        self.trouble(&format!("its variables: {error}"));
        self.try_later(error);
    }

    /// Waits for a save that is under way.
    pub(super) async fn settle(&mut self) {
        if self.saving.is_some() {
            let fetched = joined(&mut self.saving).await;
            let _ = self.end_save(fetched).await;
        }
    }

    /// Saves what is not saved, and waits for it.
    pub(super) async fn save(&mut self) -> Result<Saved, NotebookError> {
        self.settle().await;
        self.write_unwritten().await?;
        if self.dirty.is_some() || self.owes().await? {
            self.begin_save().await?;
            if self.saving.is_some() {
                let fetched = joined(&mut self.saving).await;
                self.end_save(fetched).await?;
            } else {
                return Err(NotebookError::InterpreterEnded);
            }
        }
        Ok(self.saved.clone().unwrap_or_default())
    }

    pub(super) async fn write_saved(&mut self, saved: Saved) -> Result<(), NotebookError> {
        let (text, run) = (serde_json::to_string(&saved).unwrap_or_default(), saved.run);
        self.saved = Some(saved);
        self.inner.store.set_saved(&self.row.namespace, &self.row.id, text, run).await?;
        Ok(())
    }
}

/// The end of a save; never without one.
pub(super) async fn joined(saving: &mut Option<Saving>) -> Result<FetchedSave, NotebookError> {
    match saving {
        Some(saving) => (&mut saving.task).await.unwrap_or_else(|error| {
            Err(NotebookError::NotSaved { what: format!("the bridge gave up on it: {error}") })
        }),
        None => std::future::pending().await,
    }
}
