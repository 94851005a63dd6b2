//! Volumes as far as sandboxes have to do with them: who mounts one, what the caps say of their bytes, and the task
//! that measures those that are written to.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::sleep;

use super::Registry;
use crate::{Name, SandboxError, Spec};
use workspace::volume::limits::MEASURE_PAUSE;
use workspace::volume::{Volume, Volumes};

impl Registry {
    /// All volumes. They are made and removed by the registry; their content is reached through them.
    pub fn volumes(&self) -> &Arc<Volumes> {
        &self.0.volumes
    }

    /// Makes a volume of a namespace. It counts for the caps of the key that makes it.
    pub async fn create_volume(
        &self,
        namespace: &Name,
        name: &str,
        key: Option<String>,
    ) -> Result<Arc<Volume>, SandboxError> {
        let (volumes, namespace, name) =
            (Arc::clone(&self.0.volumes), namespace.to_string(), name.to_owned());
        blocking(move || volumes.create(&namespace, &name, key)).await
    }

    /// Removes a volume with all its files, unless a sandbox has it.
    pub async fn remove_volume(&self, volume: Arc<Volume>) -> Result<(), SandboxError> {
        let registry = self.clone();
        blocking(move || registry.0.volumes.remove(&volume, || registry.user_of(&volume))).await
    }

    /// A sandbox that is not over and has a volume.
    fn user_of(&self, volume: &Volume) -> Option<String> {
        let seats = self.0.seats();
        let found = seats.taken.values().find(|seat| {
            let record = seat.shown.borrow();
            let is_named = record.volumes.iter().any(|mount| mount.name == volume.name);
            is_named && record.namespace.as_str() == volume.namespace && !record.state.is_over()
        });
        found.map(|seat| seat.shown.borrow().which().to_string())
    }

    /// Refuses a sandbox with a volume that is not there, or whose namespace or key has no room left on disk.
    pub(super) fn find_volumes(&self, spec: &Spec) -> Result<(), SandboxError> {
        for mount in &spec.volumes {
            let volume = self.0.volumes.find(spec.namespace.as_str(), &mount.name)?;
            self.room_in(&volume)?;
        }
        Ok(())
    }

    /// Begins to remove what earlier bridges have left of volumes, and to measure those that sandboxes write to.
    pub(super) fn begin_measuring(&self) {
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let mut is_swept = false;
            loop {
                // It ends with the registry.
                let Some(inner) = inner.upgrade() else { return };
                let registry = Self(inner);
                let measuring = tokio::task::spawn_blocking(move || {
                    if is_swept {
                        registry.measure_mounted();
                    } else {
                        registry.0.volumes.sweep();
                    }
                });
                let _ = measuring.await;
                is_swept = true;
                sleep(MEASURE_PAUSE).await;
            }
        });
    }

    fn measure_mounted(&self) {
        let mounted: BTreeSet<(String, String)> = {
            let seats = self.0.seats();
            let records = seats.taken.values().map(|seat| seat.shown.borrow());
            let living = records.filter(|record| !record.state.is_over());
            let mounts = living.flat_map(|record| {
                let namespace = record.namespace.to_string();
                let names = record.volumes.iter().map(|mount| mount.name.clone());
                names.map(|name| (namespace.clone(), name)).collect::<Vec<_>>()
            });
            mounts.collect()
        };
        for (namespace, name) in mounted {
            if let Ok(volume) = self.0.volumes.find(&namespace, &name) {
                self.0.volumes.measure(&volume);
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, workspace::volume::VolumeError> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| SandboxError::Stopping)??)
}
