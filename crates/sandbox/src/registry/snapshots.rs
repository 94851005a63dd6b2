//! Snapshots by name: taken, listed and removed; exported as archives and imported from them; and the task that
//! removes those that the policy does not keep.

use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Registry;
use crate::limits::{
    SNAPSHOT_ARCHIVE_BYTES_MAX, SNAPSHOT_PIECE_BYTES, SNAPSHOT_PIECES_WAITING_MAX,
    SNAPSHOT_SWEEP_PAUSE,
};
use crate::owner::Order;
use crate::snapshot::archive::ArchiveManifest;
use crate::snapshot::{ArchiveReader, Draft, Snapshots, Spool};
use crate::{
    Event, Export, Name, OnLost, Record, Removal, Retention, SandboxError, SandboxId, SandboxRef,
    Snapshot, Spec,
};
use host::instant::now_ms;
use host::room::free_bytes;
use workspace::s3::{ObjectUrl, begun_uploads};

/// A snapshot in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSnapshot {
    #[serde(flatten)]
    pub snapshot: Snapshot,
    /// When the policy removes it; absent for one that it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<Removal>,
}

/// A snapshot that is being imported. Without [`Import::finish`] nothing of it stays.
pub struct Import {
    pieces: mpsc::Sender<Bytes>,
    done: JoinHandle<Result<Snapshot, SandboxError>>,
}

impl Import {
    /// Takes the next bytes of the archive; `false` if no more are wanted, because it is refused already.
    pub async fn push(&self, piece: impl Into<Bytes>) -> bool {
        self.pieces.send(piece.into()).await.is_ok()
    }

    /// Returns when it was refused. What it says then, [`Import::finish`] returns.
    pub async fn refused(&self) {
        self.pieces.closed().await;
    }

    /// Ends the archive. The snapshot is there when this returns it.
    pub async fn finish(self) -> Result<Snapshot, SandboxError> {
        drop(self.pieces);
        self.done.await.unwrap_or(Err(SandboxError::Stopping))
    }
}

impl Registry {
    /// Takes a snapshot of a running sandbox, with a name in its namespace. The sandbox continues.
    pub async fn snapshot(&self, which: &SandboxRef, name: Name) -> Result<Snapshot, SandboxError> {
        let _activity = self.keep_awake(which).await?;
        let record = self.get(which)?;
        if !record.secrets.is_empty() {
            return Err(SandboxError::HoldsSecrets { which: which.clone() });
        }
        let state = self.0.directories(&record.id).state;
        let draft = Box::new(self.begin_snapshot(&record, &state, name)?);
        self.order(which, |reply| Order::Snapshot { draft, reply }).await
    }

    /// The snapshots of one namespace or of all, by name.
    pub fn snapshots(&self, namespace: Option<&Name>) -> Vec<Snapshot> {
        self.0.snapshots.list(namespace)
    }

    /// The same, each with what the policy does with it.
    pub fn listed_snapshots(&self, namespace: Option<&Name>) -> Vec<ListedSnapshot> {
        let all = self.0.snapshots.list(None);
        let removals = self.0.retention.removals(&all, &self.0.snapshots.held(), now_ms());
        let listed =
            all.into_iter().filter(|one| namespace.is_none_or(|own| one.namespace == *own));
        listed
            .map(|snapshot| {
                let removal = removals.get(&snapshot.which()).copied();
                ListedSnapshot { snapshot, removal }
            })
            .collect()
    }

    pub fn get_snapshot(&self, which: &SandboxRef) -> Result<Snapshot, SandboxError> {
        self.0.snapshots.get(which)
    }

    /// Removes a snapshot. Sandboxes that were made from it do not need it.
    pub async fn remove_snapshot(&self, which: &SandboxRef) -> Result<Snapshot, SandboxError> {
        let which = which.clone();
        self.blocking(move |snapshots| snapshots.remove(&which)).await
    }

    /// Opens a snapshot to be written as an archive.
    pub async fn export_snapshot(&self, which: &SandboxRef) -> Result<Export, SandboxError> {
        let which = which.clone();
        self.blocking(move |snapshots| snapshots.export(&which)).await
    }

    /// Writes a snapshot as an object of a bucket that the configuration gives to its namespace. An object that is
    /// there already is not replaced. Returns the size.
    pub async fn export_to_bucket(
        &self,
        which: &SandboxRef,
        to: &ObjectUrl,
    ) -> Result<u64, SandboxError> {
        let bucket = self.0.workspaces.bucket_to_write(which.namespace.as_str(), to)?;
        let export = self.export_snapshot(which).await?;
        let spooling = self.blocking(move |snapshots| {
            let mut spool = snapshots.spool()?;
            room_for(&spool.path, export.bytes())?;
            let written = export.write(&mut spool.file);
            let failed = |source| spool_failed("write", &spool.path, source);
            written.map_err(failed)?;
            Ok((spool, export.bytes()))
        });
        let (spool, bytes) = spooling.await?;
        let records = self.0.paths.snapshot_uploads();
        bucket.upload(&to.key, &spool.path, bytes, &records).await?;
        self.tell_of_export(which, to).await?;
        Ok(bytes)
    }

    /// A sandbox that is restored when it is lost begins with what was exported of it last.
    async fn tell_of_export(&self, which: &SandboxRef, to: &ObjectUrl) -> Result<(), SandboxError> {
        let Some(names) = &self.0.names else { return Ok(()) };
        let of = self.0.snapshots.get(which)?.id;
        let Some(record) = self.find(&of).and_then(|which| self.get(&which).ok()) else {
            return Ok(());
        };
        if record.on_lost != OnLost::Restore {
            return Ok(());
        }
        let told = names.changed(&record, Some(&to.to_string())).await;
        told.map_err(|refused| SandboxError::NameRefused { which: record.which(), refused })
    }

    /// Imports a snapshot under this name, or under the one that it had. It counts for the caps of `key`.
    pub fn import_snapshot(&self, which: Option<SandboxRef>, key: Option<String>) -> Import {
        let (pieces, arriving) = mpsc::channel(SNAPSHOT_PIECES_WAITING_MAX);
        let (registry, runtime) = (self.clone(), Handle::current());
        let done = tokio::task::spawn_blocking(move || {
            let mut reader = ArchiveReader::new(arriving);
            let manifest = reader.manifest()?;
            let which = which.unwrap_or_else(|| manifest.snapshot.which());
            // Before anything is taken of it.
            let draft = runtime.block_on(registry.begin_import(&which, key, &manifest))?;
            draft.receive(&mut reader, &manifest)
        });
        Import { pieces, done }
    }

    /// Imports a snapshot from an object of a bucket that the configuration gives to this namespace.
    pub async fn import_from_bucket(
        &self,
        which: Option<SandboxRef>,
        namespace: &Name,
        key: Option<String>,
        from: &ObjectUrl,
    ) -> Result<Snapshot, SandboxError> {
        let bucket = self.0.workspaces.bucket_to_read(namespace.as_str(), from)?;
        let Spool { file, path } = &self.0.snapshots.spool()?;
        let mut file = tokio::fs::File::from_std(file.try_clone().map_err(SandboxError::Draw)?);
        let bytes = bucket.size(&from.key).await?;
        room_for(path, bytes)?;
        bucket.download(&from.key, &mut file, SNAPSHOT_ARCHIVE_BYTES_MAX).await?;
        let import = self.import_snapshot(which, key);
        let mut file = tokio::fs::File::open(path)
            .await
            .map_err(|source| spool_failed("read", path, source))?;
        loop {
            let mut piece = vec![0; SNAPSHOT_PIECE_BYTES];
            let read = tokio::io::AsyncReadExt::read(&mut file, &mut piece).await;
            let count = read.map_err(|source| spool_failed("read", path, source))?;
            piece.truncate(count);
            if count == 0 || !import.push(piece).await {
                return import.finish().await;
            }
        }
    }

    /// Begins to import what has this manifest, if the machine fits this host and there is room.
    async fn begin_import(
        &self,
        which: &SandboxRef,
        key: Option<String>,
        manifest: &ArchiveManifest,
    ) -> Result<Draft, SandboxError> {
        let mut spec = Spec { key: key.clone(), ..Spec::new(which.clone()) };
        manifest.snapshot.fill(&mut spec)?;
        spec.check()?;
        let id = SandboxId::draw().map_err(SandboxError::Draw)?;
        let record = Record::new(id.clone(), &spec, now_ms());
        let bytes = Snapshots::expected_import(manifest);
        let snapshots = &self.0.snapshots;
        let draft =
            self.with_room_for(&record, bytes, || snapshots.begin_import(which, key, manifest))?;
        room_for(&draft.machine(), bytes)?;
        let mut machine_spec = spec.machine_spec(id, &self.0.paths, &self.0.files, None);
        spec.pull = Some(image::Pull::Never);
        let held = match self.wanted_image(&spec) {
            Some(wanted) => wanted.furnish(&mut machine_spec).await?,
            None => None,
        };
        let machine = self.0.machines.get(draft.snapshot().machine);
        machine.check_fit(machine_spec, draft.machine()).await?;
        drop(held);
        Ok(draft)
    }

    /// Removes the snapshots that the policy does not keep, or only says which they are.
    pub async fn prune_snapshots(
        &self,
        dry_run: bool,
    ) -> Result<Vec<ListedSnapshot>, SandboxError> {
        let registry = self.clone();
        self.blocking(move |snapshots| {
            let mut pruned = registry.listed_snapshots(None);
            let now_ms = now_ms();
            let held = snapshots.held();
            pruned.retain(|ListedSnapshot { snapshot, removal }| {
                removal.is_some_and(|removal| removal.at_ms <= now_ms)
                    && !held.contains(&snapshot.which())
            });
            if dry_run {
                return Ok(pruned);
            }
            let mut removed = Vec::with_capacity(pruned.len());
            for listed in pruned {
                let which = listed.snapshot.which();
                match snapshots.remove_unused(&which) {
                    Ok(true) => {
                        registry.tell_pruned(&listed);
                        removed.push(listed);
                    }
                    // Somebody has begun to read it, or has removed it.
                    Ok(false) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(removed)
        })
        .await
    }

    fn tell_pruned(&self, ListedSnapshot { snapshot, removal }: &ListedSnapshot) {
        let option = removal.map_or("", |removal| removal.why.option());
        let id = format!("the snapshot {}", snapshot.which());
        let why = format!("{option} in [snapshots] of the configuration");
        (self.0.events)(&Event::Cleaned { id, why });
    }

    /// The policy.
    pub fn retention(&self) -> &Retention {
        &self.0.retention
    }

    /// Begins to remove what the policy does not keep, and gives up uploads that an earlier bridge has left.
    pub(super) fn begin_sweeping(&self) {
        // Before this bridge begins one.
        let begun = begun_uploads(&self.0.paths.snapshot_uploads());
        let workspaces = self.0.workspaces.clone();
        tokio::spawn(async move { workspaces.give_up_uploads(begun).await });
        if !self.0.retention.is_any() {
            return;
        }
        let inner = std::sync::Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                // It ends with the registry.
                let Some(inner) = inner.upgrade() else { return };
                let registry = Self(inner);
                if let Err(error) = registry.prune_snapshots(false).await {
                    registry
                        .0
                        .trouble(None, format!("old snapshots could not be removed: {error}"));
                }
                drop(registry);
                sleep(SNAPSHOT_SWEEP_PAUSE).await;
            }
        });
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Snapshots) -> Result<T, SandboxError> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let snapshots = self.0.snapshots.clone();
        let working = tokio::task::spawn_blocking(move || work(&snapshots));
        working.await.unwrap_or(Err(SandboxError::Stopping))
    }
}

/// Refuses what does not fit the disk before it is written.
fn room_for(path: &std::path::Path, bytes: u64) -> Result<(), SandboxError> {
    let free =
        free_bytes(path).map_err(|source| spool_failed("look at the room of", path, source))?;
    if bytes > free {
        let source = std::io::Error::new(
            std::io::ErrorKind::StorageFull,
            format!("it takes {bytes} bytes, and {free} are free"),
        );
        return Err(spool_failed("write", path, source));
    }
    Ok(())
}

fn spool_failed(
    action: &'static str,
    path: &std::path::Path,
    source: std::io::Error,
) -> SandboxError {
    SandboxError::Files { action, path: PathBuf::from(path), source }
}
