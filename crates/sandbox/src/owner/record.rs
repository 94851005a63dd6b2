//! How an owner keeps its record: each state is on disk before it is answered, is written again after a
//! failure, and is removed with everything else in the end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::Instant;

use super::{Owner, remove_directory};
use crate::event::{Facts, Kind};
use crate::limits::RECORD_RETRY_PAUSE;
use crate::log::log_directory;
use crate::record::sync_soon;
use crate::{Event, SandboxError, State};

/// Shown with a sandbox for as long as it is so.
const NOT_ON_DISK: &str = "its record could not be written to disk, and is written again when there is room: a bridge that is \
     started before that finds it as it was";

impl Owner {
    /// Changes the state: on disk, for those who look, and for those who watch.
    pub(super) async fn enter(&mut self, state: State) {
        self.stored.record.state = state.clone();
        self.stored.note_due();
        // A record that is about to be removed need not be written.
        if self.removing.is_empty() {
            let _ = self.save().await;
        }
        self.show(state);
    }

    /// Writes the record. One that cannot be written is tried again until it can, so that the next
    /// bridge finds this sandbox as it is.
    pub(super) async fn save(&mut self) -> Result<(), SandboxError> {
        let Err(source) = self.stored.save(&self.place.directories.state).await else {
            self.syncing = None;
            if self.save_again.take().is_some() {
                self.display();
            }
            return Ok(());
        };
        self.begin_to_save_again(&source);
        let (which, state) = (self.stored.record.which(), self.stored.record.state.clone());
        Err(SandboxError::NotRecorded { which, state, source })
    }

    /// Syncs the record of a new sandbox to disk. A power cut that loses it also ends the sandbox, so nobody
    /// waits for this.
    pub(super) fn sync_record_soon(&mut self) {
        self.syncing = Some(sync_soon(&self.place.directories.state));
    }

    /// Ends that. A record that could not be synced is written again, like one that could not be written.
    pub(super) fn record_synced(&mut self, synced: io::Result<()>) {
        self.syncing = None;
        if let Err(error) = synced {
            self.begin_to_save_again(&error);
        }
    }

    fn begin_to_save_again(&mut self, error: &io::Error) {
        let is_first = self.save_again.is_none();
        self.save_again = Some(Instant::now() + RECORD_RETRY_PAUSE);
        if is_first {
            self.trouble(format!("its record could not be written, and is tried again: {error}"));
            self.display();
        }
    }

    /// Shows the record, with a warning if the one on disk is older.
    pub(super) fn display(&self) {
        let mut record = self.stored.record.clone();
        if self.save_again.is_some() {
            record.warnings.push(NOT_ON_DISK.to_owned());
        }
        self.shown.send_replace(record);
    }

    /// An answered state is on disk, or the answer says that it is not.
    pub(super) async fn ensure_saved(&mut self) -> Result<(), SandboxError> {
        if self.save_again.is_some() { self.save().await } else { Ok(()) }
    }

    /// Removes everything, then frees the name, then answers. The next bridge would find what
    /// cannot be removed, so the record stays then, and the callers get the error.
    pub(super) async fn remove(mut self) -> Option<Self> {
        let replies = std::mem::take(&mut self.removing);
        let (record, events) = (self.stored.record.clone(), Arc::clone(&self.place.events));
        self.log = None;
        let erased = self.erase().await;
        if let Err((path, error)) = erased {
            self.expiry.removal_failed();
            for reply in replies {
                let source = io::Error::new(error.kind(), error.to_string());
                let path = path.clone();
                let _ = reply.send(Err(SandboxError::Files { action: "remove", path, source }));
            }
            return Some(self);
        }
        // Before the name is free: what another sandbox of that name does follows in the stream.
        self.happened(Kind::Removed, Facts::none());
        self.release_name().await;
        drop(self);
        events(&Event::Removed { of: record.subject() });
        for reply in replies {
            let _ = reply.send(Ok(record.clone()));
        }
        None
    }

    /// Gives the name back where others have a say about it: nothing of the sandbox is left.
    pub(super) fn release_name(&self) -> impl Future<Output = ()> + use<> {
        let names = self.place.names.clone();
        let named = names.zip(self.stored.record.incarnation.clone());
        let durable = self.durable_log();
        async move {
            if let Some(durable) = durable {
                durable.remove().await;
            }
            if let Some((names, incarnation)) = named {
                names.release(&incarnation).await;
            }
        }
    }

    /// What has stopped is not made again when its node is lost.
    pub(super) fn tell_names_of_stop(&self) {
        let record = &self.stored.record;
        let named = self.place.names.as_ref().zip(record.incarnation.as_ref());
        if let Some((names, incarnation)) = named.filter(|_| !record.on_lost.is_lose()) {
            names.stopped(incarnation);
        }
    }

    /// Removes the sandbox's machine and directories, as far as they exist.
    pub(super) async fn erase(&mut self) -> Result<(), (PathBuf, io::Error)> {
        if let Some(delivery) = self.delivery.take() {
            delivery.end().await;
        }
        self.clean().await;
        // The record is removed last, so that a crash in between leaves nothing that cannot be
        // found.
        let state = self.place.directories.state.clone();
        self.place.telemetry.forget().await;
        for path in [log_directory(&state), state] {
            if let Err(error) = remove_directory(&path).await {
                self.trouble(format!("{} could not be removed: {error}", path.display()));
                return Err((path, error));
            }
        }
        Ok(())
    }
}
