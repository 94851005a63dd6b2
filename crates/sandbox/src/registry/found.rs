//! What earlier bridges have left in the directories: sandboxes that live or have ended, unreadable
//! records, and what is half-made.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use super::Registry;
use crate::owner::Owner;
use crate::pool;
use crate::record::{self, RECORD_FILE, StoredRecord};
use crate::{Event, Name, Record, SandboxError, SandboxRef};
use machine::{MachineKind, SandboxId};

impl Registry {
    /// Adopts machines that live, marks those that ended, holds what is damaged, and removes what is
    /// half-made.
    pub(super) async fn take_up(&self) -> Result<(), SandboxError> {
        let mut adoptions = JoinSet::new();
        let mut damaged = Vec::new();
        let inner = &self.0;
        for directory in subdirectories(&inner.paths.state_boxes())? {
            let Some(id) = id_of(&directory) else { continue };
            let place = directory.join(RECORD_FILE);
            let place = place.display();
            match StoredRecord::read(&directory) {
                Ok(stored) if stored.record.id == id => {
                    pool::record::forget(&directory);
                    if let Some(owner) = self.seat_found(stored) {
                        adoptions.spawn(owner.adopt());
                    }
                }
                Ok(stored) => {
                    let reason = format!("the record {place} belongs to {}", stored.record.id);
                    damaged.push((id, directory, reason));
                }
                Err(_) if !directory.join(RECORD_FILE).exists() => {
                    let registry = self.clone();
                    adoptions.spawn(async move {
                        if !registry.0.pool.recover(&id, &directory).await {
                            registry.clean(id, pool::record::explain(&directory)).await;
                        }
                    });
                }
                Err(error) => {
                    let reason = format!("the record {place} cannot be read: {error}");
                    damaged.push((id, directory, reason));
                }
            }
        }
        // After those whose names are certain.
        for (id, directory, reason) in damaged {
            self.hold_damaged(&id, &directory, &reason);
        }
        while adoptions.join_next().await.is_some() {}
        for directory in subdirectories(&inner.paths.runtime_boxes())? {
            let Some(id) = id_of(&directory) else { continue };
            if !inner.directories(&id).state.exists() {
                self.clean(id, "its record is missing").await;
            }
        }
        Ok(())
    }

    /// Takes the name of a sandbox that an earlier bridge had.
    fn seat_found(&self, stored: StoredRecord) -> Option<Owner> {
        let which = stored.record.which();
        let seated = self.seat(stored, false);
        if let Err(error) = &seated {
            self.0.trouble(Some(which), format!("it could not be adopted: {error}"));
        }
        seated.ok()
    }

    /// Lists a sandbox whose record cannot be read, under the name if that can be read or else under its id,
    /// so that it can be removed, and its name stays taken until then.
    fn hold_damaged(&self, id: &SandboxId, directory: &Path, reason: &str) {
        let by_id = id.as_str().parse().ok();
        let by_id = by_id.map(|name| SandboxRef { namespace: Name::default_namespace(), name });
        for which in record::salvage_name(directory).into_iter().chain(by_id) {
            let record = Record::damaged(id.clone(), which.clone(), directory, reason);
            let stored = StoredRecord::new(record);
            match self.seat(stored, false) {
                Ok(owner) => return owner.hold(),
                Err(SandboxError::NameTaken { .. }) => {}
                Err(error) => {
                    self.0.trouble(Some(which), format!("{reason}; it is not listed: {error}"));
                }
            }
        }
    }

    /// Removes the remains of a sandbox without a record, so its machine may be of any kind.
    async fn clean(&self, id: SandboxId, why: &str) {
        let directories = self.0.directories(&id);
        for kind in MachineKind::ALL {
            let machine = self.0.machines.get(kind);
            machine.clean(id.clone(), Some(directories.clone())).await;
        }
        let _ = fs::remove_dir_all(directories.runtime);
        let _ = fs::remove_dir_all(directories.state);
        (self.0.events)(&Event::Cleaned { id: id.to_string(), why: why.to_owned() });
    }
}

fn id_of(directory: &Path) -> Option<SandboxId> {
    directory.file_name()?.to_str()?.parse().ok()
}

/// The directories in `path`; none when it is not there.
pub(super) fn subdirectories(path: &Path) -> Result<Vec<PathBuf>, SandboxError> {
    let failed =
        |source| SandboxError::Files { action: "look through", path: path.to_owned(), source };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut directories = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}
