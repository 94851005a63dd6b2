//! Snapshots: saved machines that can be restored any number of times.
//!
//! Each has a directory below the bridge's state, `<namespace>/<name>`, with a description, and in `machine/`
//! the machine's own files. It is made under another name and renamed when all of it is on disk, so a bridge
//! that is killed leaves a complete snapshot or none. It contains the memory of programs, with their secrets,
//! so only its owner can read it, like everything that is stored of sandboxes.
//!
//! [`archive`] is the form in which one travels, [`retention`] the policy by which they are kept.

pub mod archive;
mod export;
mod import;
pub mod retention;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::{Ancestor, MachineKind, Name, Record, SandboxError, SandboxRef, Spec};
use crate::limits::{SNAPSHOTS_BYTES_MAX, SNAPSHOTS_MAX};
use archive::ArchiveManifest;
use egress::copy_names;
use host::id::RandomId;
use host::instant::now_ms;
use host::paths::{PRIVATE_FILE, make_private_directory, write_durably};
use machine::SandboxId;
use machine::limits::RECORD_BYTES_MAX;
use machine::limits::{SNAPSHOT_MARGIN_BYTES, VIRTUAL_MEMORY_BYTES_DEFAULT};
use machine::vmm::{MANIFEST, SCRATCH};

pub use export::Export;
pub(super) use import::ArchiveReader;

const DESCRIPTION: &str = "snapshot.json";
const MACHINE: &str = "machine";
/// The prefix of incomplete snapshots, which no name has. A random id follows: names of two namespaces could
/// otherwise collide.
pub(super) const DRAFT_PREFIX: &str = ".new-";
/// The prefix of a snapshot that is being removed.
const GONE_PREFIX: &str = ".old-";
/// The unit in which the kernel counts the disk space of a file, on every file system.
const BLOCK_BYTES: u64 = 512;
const BYTES_PER_MIB: u64 = 1024 * 1024;

/// The description of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub namespace: Name,
    pub name: Name,
    /// The sandbox that it was taken of.
    pub sandbox: Name,
    pub id: SandboxId,
    pub machine: MachineKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    pub scratch_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub created_at_ms: u64,
    /// When it came from another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_at_ms: Option<u64>,
    /// What its sandbox was forked from, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<Ancestor>,
    /// The key that made the sandbox, whose caps this counts for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its size on disk.
    pub bytes: u64,
    /// It is for forks alone, and goes with them.
    #[serde(skip)]
    is_nameless: bool,
}

impl Snapshot {
    pub(super) fn is_nameless(&self) -> bool {
        self.is_nameless
    }

    pub fn which(&self) -> SandboxRef {
        SandboxRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Since when it has been on this host.
    pub fn here_since_ms(&self) -> u64 {
        self.imported_at_ms.unwrap_or(self.created_at_ms)
    }

    /// Reads the description in a directory, if it is a snapshot's.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        read(directory).ok()
    }

    fn of(record: &Record, name: Name) -> Self {
        Self {
            namespace: record.namespace.clone(),
            name,
            sandbox: record.name.clone(),
            id: record.id.clone(),
            machine: record.machine,
            // A name may mean another image by the time of a restore.
            image: record
                .image_digest
                .map(|digest| digest.to_string())
                .or_else(|| record.image.clone()),
            memory_mib: record.memory_mib,
            cpu_millis: record.cpu_millis,
            scratch_bytes: record.scratch_bytes,
            workdir: record.workdir.clone(),
            user: record.user.clone(),
            created_at_ms: now_ms(),
            imported_at_ms: None,
            ancestors: record.ancestors.clone(),
            key: record.key.clone(),
            bytes: 0,
            is_nameless: false,
        }
    }

    /// Makes a request for a sandbox one for a clone of this. What the snapshot decides may be left
    /// out, and must not be asked for otherwise.
    pub(super) fn fill(&self, spec: &mut Spec) -> Result<(), SandboxError> {
        let which = self.which();
        let fixed = |what| SandboxError::SnapshotFixes { snapshot: which.clone(), what };
        if spec.image.as_ref().is_some_and(|image| self.image.as_ref() != Some(image)) {
            return Err(fixed("image"));
        }
        if spec.memory_mib.is_some_and(|mib| self.memory_mib != Some(mib)) {
            return Err(fixed("memory"));
        }
        if spec.cpu_millis.is_some_and(|millis| self.cpu_millis != Some(millis)) {
            return Err(fixed("CPU share"));
        }
        if spec.scratch_bytes.is_some_and(|bytes| self.scratch_bytes != bytes) {
            return Err(fixed("writable layer"));
        }
        spec.machine = Some(self.machine);
        spec.image.clone_from(&self.image);
        (spec.memory_mib, spec.cpu_millis) = (self.memory_mib, self.cpu_millis);
        spec.scratch_bytes = Some(self.scratch_bytes);
        spec.workdir = spec.workdir.take().or_else(|| self.workdir.clone());
        spec.user = spec.user.take().or_else(|| self.user.clone());
        Ok(())
    }
}

/// All snapshots of one bridge. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Snapshots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    /// The expected sizes of snapshots that are being written.
    drafts: Mutex<HashMap<SandboxRef, Snapshot>>,
    /// How many starts and exports read each snapshot now.
    holds: Mutex<HashMap<SandboxRef, usize>>,
}

/// Somebody reads a snapshot: the policy does not remove it meanwhile.
#[derive(Debug)]
pub(super) struct Hold {
    all: Snapshots,
    which: SandboxRef,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut holds = self.all.holds();
        if let Some(count) = holds.get_mut(&self.which) {
            *count -= 1;
            if *count == 0 {
                holds.remove(&self.which);
            }
        }
    }
}

/// A snapshot that is being written. It is gone with this, unless it was finished.
#[derive(Debug)]
pub(super) struct Draft {
    all: Snapshots,
    snapshot: Snapshot,
    path: PathBuf,
    /// The directory of the sandbox that it is taken of; one that is imported has none.
    state: Option<PathBuf>,
    /// It never gets a name, and its directory belongs to a [`Nameless`].
    is_nameless: bool,
}

/// A snapshot without a name, for the forks that start from it. It is gone with this, or with the next bridge.
#[derive(Debug)]
pub(super) struct Nameless(PathBuf);

impl Nameless {
    /// Where the machine has written its files.
    pub(super) fn machine(&self) -> PathBuf {
        self.0.join(MACHINE)
    }
}

impl Drop for Nameless {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// See [`Snapshots::spool`].
#[derive(Debug)]
pub(super) struct Spool {
    pub file: File,
    pub path: PathBuf,
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Snapshots {
    /// Removes what an earlier bridge has left half-made.
    pub(super) fn open(directory: PathBuf) -> Result<Self, SandboxError> {
        let failed = files("make", &directory);
        make_private_directory(&directory).map_err(failed)?;
        for entry in fs::read_dir(&directory).map_err(files("look through", &directory))?.flatten()
        {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(DRAFT_PREFIX) || name.starts_with(GONE_PREFIX) {
                let path = entry.path();
                // The files of a fork that was cut off are no directory.
                let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
                let removed =
                    if is_file { fs::remove_file(&path) } else { fs::remove_dir_all(&path) };
                removed.map_err(files("remove", &path))?;
            }
        }
        let (drafts, holds) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Inner { directory, drafts, holds })))
    }

    /// Lists those of one namespace or of all, by name. Unreadable ones are skipped.
    pub(super) fn list(&self, namespace: Option<&Name>) -> Vec<Snapshot> {
        let spaces = match namespace {
            Some(namespace) => vec![self.0.directory.join(namespace.as_str())],
            None => subdirectories(&self.0.directory),
        };
        let all = spaces.iter().flat_map(|space| subdirectories(space));
        let mut found: Vec<_> = all.filter_map(|path| read(&path).ok()).collect();
        found.sort_by_cached_key(Snapshot::which);
        found
    }

    /// All snapshots, and unfinished ones with their expected size.
    pub(super) fn all(&self) -> Vec<Snapshot> {
        let drafts = self.drafts();
        let mut all = self.list(None);
        // A finished snapshot is renamed before its draft is forgotten.
        all.retain(|snapshot| !drafts.contains_key(&snapshot.which()));
        all.extend(drafts.values().cloned());
        all
    }

    /// The expected size of a sandbox's snapshot.
    pub(super) fn expected(record: &Record, state: &Path, name: Name) -> u64 {
        bytes_expected(&Snapshot::of(record, name), state)
    }

    pub(super) fn get(&self, which: &SandboxRef) -> Result<Snapshot, SandboxError> {
        let path = self.path(which);
        match read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(SandboxError::NoSnapshot { snapshot: which.clone() })
            }
            read => read.map_err(files("read", &path)),
        }
    }

    /// Removes one. Machines that were made from it do not need it.
    pub(super) fn remove(&self, which: &SandboxRef) -> Result<Snapshot, SandboxError> {
        let snapshot = self.get(which)?;
        let gone = self.set_aside(which)?;
        fs::remove_dir_all(&gone).map_err(files("remove", &gone))?;
        Ok(snapshot)
    }

    /// Removes one that nobody starts from and nobody exports. Whether it did.
    pub(super) fn remove_unused(&self, which: &SandboxRef) -> Result<bool, SandboxError> {
        let holds = self.holds();
        if holds.contains_key(which) || !self.path(which).exists() {
            return Ok(false);
        }
        let gone = self.set_aside(which)?;
        drop(holds);
        fs::remove_dir_all(&gone).map_err(files("remove", &gone))?;
        Ok(true)
    }

    /// Renames one that is about to be removed, so that nobody starts from it any more.
    fn set_aside(&self, which: &SandboxRef) -> Result<PathBuf, SandboxError> {
        let (path, gone) = (self.path(which), self.drawn(GONE_PREFIX)?);
        fs::rename(&path, &gone).map_err(files("remove", &path))?;
        Ok(gone)
    }

    /// Begins a snapshot of a sandbox, if there is room for it. `state` is the sandbox's own directory, which
    /// contains the disk of its writable layer.
    pub(super) fn begin(
        &self,
        record: &Record,
        state: &Path,
        name: Name,
    ) -> Result<Draft, SandboxError> {
        let snapshot = Snapshot::of(record, name);
        let bytes_max = bytes_expected(&snapshot, state);
        self.reserve(snapshot, bytes_max, Some(state.to_owned()))
    }

    /// Begins a snapshot that comes as an archive with this manifest, if there is room for it.
    pub(super) fn begin_import(
        &self,
        which: &SandboxRef,
        key: Option<String>,
        manifest: &ArchiveManifest,
    ) -> Result<Draft, SandboxError> {
        let SandboxRef { namespace, name } = which.clone();
        let snapshot = Snapshot {
            namespace,
            name,
            imported_at_ms: Some(now_ms()),
            key,
            bytes: 0,
            ..manifest.snapshot.clone()
        };
        let draft = self.reserve(snapshot, Self::expected_import(manifest), None)?;
        let written = serde_json::to_vec_pretty(&manifest.machine).map_err(io::Error::from);
        let machine = draft.machine();
        let written = written.and_then(|text| write_durably(&machine, MANIFEST, &text));
        written.map_err(files("write", &machine))?;
        Ok(draft)
    }

    /// The expected size of a snapshot that comes as an archive.
    pub(super) fn expected_import(manifest: &ArchiveManifest) -> u64 {
        manifest.data_bytes().saturating_add(RECORD_BYTES_MAX)
    }

    fn reserve(
        &self,
        snapshot: Snapshot,
        bytes_max: u64,
        state: Option<PathBuf>,
    ) -> Result<Draft, SandboxError> {
        let which = snapshot.which();
        let path = self.drawn(DRAFT_PREFIX)?;
        let reserved = Snapshot { bytes: bytes_max, ..snapshot.clone() };
        // A finished snapshot is renamed before its draft is forgotten: the lock is held until it is known
        // that this one is neither.
        let mut drafts = self.drafts();
        if drafts.contains_key(&which) || self.path(&which).exists() {
            return Err(SandboxError::SnapshotTaken { snapshot: which });
        }
        let snapshots = self.list(None);
        if snapshots.len() + drafts.len() >= SNAPSHOTS_MAX {
            return Err(SandboxError::TooManySnapshots);
        }
        let kept_bytes = sum(snapshots.iter().map(|snapshot| snapshot.bytes));
        let drafted_bytes = sum(drafts.values().map(|snapshot| snapshot.bytes));
        if sum([kept_bytes, drafted_bytes, bytes_max].into_iter()) > SNAPSHOTS_BYTES_MAX {
            return Err(SandboxError::SnapshotsTooLarge { bytes: kept_bytes });
        }
        fs::create_dir(&path).map_err(files("make", &path))?;
        drafts.insert(which, reserved);
        drop(drafts);
        let draft = Draft { all: self.clone(), snapshot, path, state, is_nameless: false };
        let machine = draft.machine();
        make_private_directory(&machine).map_err(files("make", &machine))?;
        Ok(draft)
    }

    fn drafts(&self) -> MutexGuard<'_, HashMap<SandboxRef, Snapshot>> {
        // Nothing in the map is ever half-changed.
        self.0.drafts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<SandboxRef, usize>> {
        // Nothing in the map is ever half-changed.
        self.0.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the policy from removing a snapshot.
    pub(super) fn hold(&self, which: &SandboxRef) -> Hold {
        *self.holds().entry(which.clone()).or_default() += 1;
        Hold { all: self.clone(), which: which.clone() }
    }

    /// The snapshots that somebody reads now.
    pub(super) fn held(&self) -> BTreeSet<SandboxRef> {
        self.holds().keys().cloned().collect()
    }

    /// Opens a snapshot to be written as an archive. Blocks while digests are computed.
    pub(super) fn export(&self, which: &SandboxRef) -> Result<Export, SandboxError> {
        let hold = self.hold(which);
        // What is true on this host alone does not travel.
        let snapshot = Snapshot { key: None, imported_at_ms: None, bytes: 0, ..self.get(which)? };
        Ok(Export::open(snapshot, &self.path(which), hold)?)
    }

    /// A file without a name of a snapshot, for an archive on its way to or from a bucket. The next bridge
    /// removes what this one leaves of it.
    pub(super) fn spool(&self) -> Result<Spool, SandboxError> {
        let path = self.drawn(DRAFT_PREFIX)?;
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(PRIVATE_FILE);
        let file = options.open(&path).map_err(files("make", &path))?;
        Ok(Spool { file, path })
    }

    fn path(&self, which: &SandboxRef) -> PathBuf {
        self.0.directory.join(which.namespace.as_str()).join(which.name.as_str())
    }

    /// A unique directory for something that is not a snapshot.
    fn drawn(&self, prefix: &str) -> Result<PathBuf, SandboxError> {
        let id = RandomId::draw().map_err(SandboxError::Draw)?;
        Ok(self.0.directory.join(format!("{prefix}{id}")))
    }
}

impl Draft {
    /// Leaves it without a name for as long as what comes back is kept.
    pub(super) fn nameless(&mut self) -> Nameless {
        self.is_nameless = true;
        self.snapshot.is_nameless = true;
        Nameless(self.path.clone())
    }

    /// Where the machine writes its files.
    pub(super) fn machine(&self) -> PathBuf {
        self.path.join(MACHINE)
    }

    /// Takes the parts of an archive, and gives the snapshot its name when all of them are right. Blocks.
    pub(super) fn receive(
        self,
        reader: &mut ArchiveReader,
        manifest: &ArchiveManifest,
    ) -> Result<Snapshot, SandboxError> {
        for part in &manifest.parts {
            reader.part(part, &self.path)?;
        }
        reader.end()?;
        self.finish()
    }

    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Gives it its name. The machine has been written; files that it wrote itself since the draft began may
    /// exceed the limit by now.
    pub(super) fn finish(mut self) -> Result<Snapshot, SandboxError> {
        let path = self.path.clone();
        // After the memory: names that were given meanwhile do no harm, and missing ones would.
        if let Some(state) = &self.state {
            copy_names(state, &path).map_err(files("write", &path))?;
        }
        self.snapshot.bytes = bytes_of(&self.machine());
        if self.is_nameless {
            return Ok(self.snapshot.clone());
        }
        let which = self.snapshot.which();
        let kept_bytes = sum(self.all.list(None).iter().map(|snapshot| snapshot.bytes));
        if kept_bytes.saturating_add(self.snapshot.bytes) > SNAPSHOTS_BYTES_MAX {
            return Err(SandboxError::SnapshotsTooLarge { bytes: kept_bytes });
        }
        let finished = || {
            let text = serde_json::to_vec_pretty(&self.snapshot)?;
            write_durably(&path, DESCRIPTION, &text)?;
            File::open(self.machine())?.sync_all()?;
            let named = self.all.path(&which);
            let space = named.parent().unwrap_or(&self.all.0.directory);
            make_private_directory(space)?;
            fs::rename(&path, &named)?;
            File::open(space)?.sync_all()
        };
        finished().map_err(files("write", &path))?;
        Ok(self.snapshot.clone())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_nameless {
            // A finished one is called otherwise by now.
            let _ = fs::remove_dir_all(&self.path);
        }
        self.all.drafts().remove(&self.snapshot.which());
    }
}

fn files(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SandboxError + use<> {
    let path = path.to_owned();
    move |source| SandboxError::Files { action, path, source }
}

fn read(path: &Path) -> io::Result<Snapshot> {
    let mut bytes = Vec::new();
    File::open(path.join(DESCRIPTION))?.take(RECORD_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Directories that have a name of ours.
fn subdirectories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let named =
        |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<Name>().is_ok());
    entries.filter(|entry| named(&entry.file_name())).map(|entry| entry.path()).collect()
}

/// The expected size of a snapshot on disk, as its machine is now: its memory, and what has been written to
/// the disk of its writable layer. A layer without a disk is in the memory.
fn bytes_expected(snapshot: &Snapshot, state: &Path) -> u64 {
    let memory = snapshot
        .memory_mib
        .map_or(VIRTUAL_MEMORY_BYTES_DEFAULT, |mib| mib.saturating_mul(BYTES_PER_MIB));
    let disk = match fs::metadata(state.join(SCRATCH)) {
        Ok(found) => taken(&found),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        // It may be all of it, for all that can be seen.
        Err(_) => snapshot.scratch_bytes,
    };
    sum([memory, SNAPSHOT_MARGIN_BYTES, disk].into_iter())
}

/// Numbers from files may be huge: the sum saturates instead of wrapping.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The disk space of a file.
pub(super) fn taken(found: &fs::Metadata) -> u64 {
    found.blocks().saturating_mul(BLOCK_BYTES)
}

/// The disk space of a directory's files.
pub(super) fn bytes_of(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    sum(entries.filter_map(|entry| entry.metadata().ok()).map(|found| taken(&found)))
}

#[cfg(test)]
mod tests;
