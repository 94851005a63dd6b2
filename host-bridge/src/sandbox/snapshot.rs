//! Snapshots: machines that were written down, and can be gone on from as often as one likes.
//!
//! Each has a directory below the bridge's state, `<namespace>/<name>`, with a description of what it
//! is of, and in `machine/` what its machine has written. It is made under another name and renamed
//! when all of it is on disk: a bridge that is killed leaves a whole one or none. It holds the memory
//! of programs, with their secrets, so it is for its owner alone, as all that is kept of sandboxes.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::record::{now_ms, write_durably};
use super::{MachineKind, Name, Record, SandboxError, SandboxRef, Spec};
use crate::config::make_private_directory;
use crate::limits::{
    RECORD_BYTES_MAX, SNAPSHOT_MARGIN_BYTES, SNAPSHOTS_BYTES_MAX, SNAPSHOTS_MAX,
    VIRTUAL_MEMORY_BYTES_DEFAULT,
};
use crate::machine::BoxId;

const DESCRIPTION: &str = "snapshot.json";
const MACHINE: &str = "machine";
/// No name begins so, and what is called so is not whole.
const DRAFT_PREFIX: &str = ".new-";
/// What a snapshot is called while it is removed.
const GONE_PREFIX: &str = ".old-";

/// What a snapshot is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub namespace: Name,
    pub name: Name,
    /// The sandbox that it was taken of.
    pub sandbox: Name,
    pub id: BoxId,
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
    pub created_at_ms: u64,
    /// What it takes of the disk.
    pub bytes: u64,
}

impl Snapshot {
    pub fn which(&self) -> SandboxRef {
        SandboxRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    fn of(record: &Record, name: Name) -> Self {
        Self {
            namespace: record.namespace.clone(),
            name,
            sandbox: record.name.clone(),
            id: record.id.clone(),
            machine: record.machine,
            image: record.image.clone(),
            memory_mib: record.memory_mib,
            cpu_millis: record.cpu_millis,
            scratch_bytes: record.scratch_bytes,
            workdir: record.workdir.clone(),
            created_at_ms: now_ms(),
            bytes: 0,
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
            return Err(fixed("share of processors"));
        }
        if spec.scratch_bytes.is_some_and(|bytes| self.scratch_bytes != bytes) {
            return Err(fixed("writable layer"));
        }
        spec.machine = self.machine;
        spec.image.clone_from(&self.image);
        (spec.memory_mib, spec.cpu_millis) = (self.memory_mib, self.cpu_millis);
        spec.scratch_bytes = Some(self.scratch_bytes);
        spec.workdir = spec.workdir.take().or_else(|| self.workdir.clone());
        Ok(())
    }
}

/// All snapshots of one bridge. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Snapshots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    /// What those may come to take that are being written: their number, and their bytes.
    drafts: Mutex<(usize, u64)>,
}

/// A snapshot that is being written. It is gone with this, unless it was finished.
#[derive(Debug)]
pub(super) struct Draft {
    all: Snapshots,
    snapshot: Snapshot,
    path: PathBuf,
    bytes_max: u64,
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
                fs::remove_dir_all(&path).map_err(files("remove", &path))?;
            }
        }
        Ok(Self(Arc::new(Inner { directory, drafts: Mutex::default() })))
    }

    /// Those of one namespace or of all, by name. What cannot be read is no snapshot.
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

    pub(super) fn get(&self, which: &SandboxRef) -> Result<Snapshot, SandboxError> {
        let path = self.path(which);
        match read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(SandboxError::NoSnapshot { snapshot: which.clone() })
            }
            read => read.map_err(files("read", &path)),
        }
    }

    /// Removes one. Machines that were made of it do not need it.
    pub(super) fn remove(&self, which: &SandboxRef) -> Result<Snapshot, SandboxError> {
        let snapshot = self.get(which)?;
        let path = self.path(which);
        // Renamed first, so that nobody begins with one that is going.
        let gone =
            self.0.directory.join(format!("{GONE_PREFIX}{}-{}", which.namespace, which.name));
        fs::rename(&path, &gone).map_err(files("remove", &path))?;
        fs::remove_dir_all(&gone).map_err(files("remove", &gone))?;
        Ok(snapshot)
    }

    /// Begins one of a sandbox, if there is room for it.
    pub(super) fn begin(&self, record: &Record, name: Name) -> Result<Draft, SandboxError> {
        let snapshot = Snapshot::of(record, name);
        let which = snapshot.which();
        if self.path(&which).exists() {
            return Err(SandboxError::SnapshotTaken { snapshot: which });
        }
        let memory = snapshot.memory_mib.map_or(VIRTUAL_MEMORY_BYTES_DEFAULT, |mib| mib << 20);
        let bytes_max = memory + SNAPSHOT_MARGIN_BYTES + snapshot.scratch_bytes;
        let path =
            self.0.directory.join(format!("{DRAFT_PREFIX}{}-{}", which.namespace, which.name));
        let kept = self.list(None);
        let kept_bytes: u64 = kept.iter().map(|snapshot| snapshot.bytes).sum();
        let mut drafts = self.0.drafts.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() + drafts.0 >= SNAPSHOTS_MAX {
            return Err(SandboxError::TooManySnapshots);
        }
        if kept_bytes + drafts.1 + bytes_max > SNAPSHOTS_BYTES_MAX {
            return Err(SandboxError::SnapshotsTooLarge { bytes: kept_bytes });
        }
        match fs::create_dir(&path) {
            // Somebody is writing one of this name.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(SandboxError::SnapshotTaken { snapshot: which });
            }
            made => made.map_err(files("make", &path))?,
        }
        *drafts = (drafts.0 + 1, drafts.1 + bytes_max);
        drop(drafts);
        let draft = Draft { all: self.clone(), snapshot, path, bytes_max };
        let machine = draft.machine();
        make_private_directory(&machine).map_err(files("make", &machine))?;
        Ok(draft)
    }

    fn path(&self, which: &SandboxRef) -> PathBuf {
        self.0.directory.join(which.namespace.as_str()).join(which.name.as_str())
    }
}

impl Draft {
    /// Where the machine is to be written.
    pub(super) fn machine(&self) -> PathBuf {
        self.path.join(MACHINE)
    }

    /// Gives it its name. The machine has been written.
    pub(super) fn finish(mut self) -> Result<Snapshot, SandboxError> {
        let path = self.path.clone();
        self.snapshot.bytes = bytes_of(&self.machine());
        let which = self.snapshot.which();
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
        // A finished one is called otherwise by now.
        let _ = fs::remove_dir_all(&self.path);
        let mut drafts = self.all.0.drafts.lock().unwrap_or_else(PoisonError::into_inner);
        *drafts = (drafts.0.saturating_sub(1), drafts.1.saturating_sub(self.bytes_max));
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

/// What the files of a directory take of the disk.
fn bytes_of(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.blocks() * 512).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str) -> (PathBuf, Snapshots) {
        let path = std::env::temp_dir().join(format!("burrow-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        (path.clone(), Snapshots::open(path).unwrap())
    }

    fn record() -> Record {
        let mut spec = Spec::new("team/web".parse().unwrap());
        (spec.memory_mib, spec.scratch_bytes) = (Some(128), Some(1 << 20));
        Record::new("0123456789ab".parse().unwrap(), &spec, 7)
    }

    #[test]
    fn a_snapshot_is_there_when_it_is_whole_and_not_before() {
        let (path, snapshots) = at("snapshots");
        let which: SandboxRef = "team/base".parse().unwrap();
        let draft = snapshots.begin(&record(), which.name.clone()).unwrap();
        fs::write(draft.machine().join("memory"), b"x").unwrap();
        assert!(snapshots.list(None).is_empty());
        let again = snapshots.begin(&record(), which.name.clone());
        assert!(matches!(again, Err(SandboxError::SnapshotTaken { .. })));
        let made = draft.finish().unwrap();
        assert_eq!(snapshots.get(&which).unwrap(), made);
        assert!(snapshots.path(&which).join(MACHINE).join("memory").exists());
        assert_eq!(snapshots.list(Some(&which.namespace)), [made]);
        let taken = snapshots.begin(&record(), which.name.clone());
        assert!(matches!(taken, Err(SandboxError::SnapshotTaken { .. })));
        snapshots.remove(&which).unwrap();
        assert!(matches!(snapshots.get(&which), Err(SandboxError::NoSnapshot { .. })));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_a_killed_bridge_has_begun_is_gone_at_the_next_start() {
        let (path, snapshots) = at("snapshots-cut");
        let draft = snapshots.begin(&record(), "base".parse().unwrap()).unwrap();
        let begun = draft.machine();
        std::mem::forget(draft);
        assert!(begun.exists());
        let snapshots = Snapshots::open(path.clone()).unwrap();
        assert!(!begun.exists() && snapshots.list(None).is_empty());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_clone_is_what_the_snapshot_is_of() {
        let snapshot = Snapshot::of(&record(), "base".parse().unwrap());
        let mut spec = Spec::new("team/clone".parse().unwrap());
        snapshot.fill(&mut spec).unwrap();
        assert_eq!((spec.memory_mib, spec.scratch_bytes), (Some(128), Some(1 << 20)));
        spec.memory_mib = Some(256);
        let refused = snapshot.fill(&mut spec).unwrap_err().to_string();
        assert!(refused.contains("memory") && refused.contains("team/base"), "{refused}");
    }

    #[test]
    fn there_are_only_so_many_bytes_of_snapshots() {
        let (path, snapshots) = at("snapshots-full");
        let mut large = record();
        large.scratch_bytes = SNAPSHOTS_BYTES_MAX;
        let refused = snapshots.begin(&large, "base".parse().unwrap());
        assert!(matches!(refused, Err(SandboxError::SnapshotsTooLarge { .. })));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        fs::remove_dir_all(path).unwrap();
    }
}
