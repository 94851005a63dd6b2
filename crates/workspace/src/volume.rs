//! Volumes: named directories of a namespace that the bridge keeps, and that outlive sandboxes.
//!
//! ```text
//!  state directory/volumes/
//!    ID/volume.json   its name, its namespace, the token of its content
//!    ID/files/        what sandboxes have at their paths, and clients at `volumecontent`
//!    ID/incoming/     uploads that are not whole
//!    new-ID, gone-ID  half-made and half-removed; the next bridge removes them
//! ```
//!
//! [`Volumes`] is the table, [`files`] the one way to what is in a volume from outside of a sandbox. Programs of a
//! sandbox write in `files/` themselves, so whatever is there is hostile. This knows no sandbox: who mounts a
//! volume, and whether it may be removed, is the business of `sandbox`.

mod content;
pub mod limits;
mod mount;
mod removal;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

pub use content::{Attributes, EntryKind, Files, Incoming, VolumeEntry};
pub use mount::{InvalidMount, VolumeMount};

use host::hex::digits;
use host::id::{RandomId, random_bytes};
use host::instant::now_ms;
use host::paths::{make_private_directory, write_durably};
use limits::{
    NAME_CHARS_MAX, RECORD_BYTES_MAX, TOKEN_BYTES, VOLUMES_MAX, VOLUMES_PER_NAMESPACE_MAX,
};

const RECORD: &str = "volume.json";
const FILES: &str = "files";
const INCOMING: &str = "incoming";
/// The prefixes of directories that are no volume yet, or no longer.
const NEW: &str = "new-";
const GONE: &str = "gone-";

/// What is known of a volume.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub id: String,
    pub namespace: String,
    pub name: String,
    /// Lets in to the content, and to nothing else.
    pub token: String,
    /// The id of the key that has made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub created_at_ms: u64,
}

/// Without the token.
impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Volume({} {}/{})", self.id, self.namespace, self.name)
    }
}

/// Why something of a volume was not done. Paths are those in the volume.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("there is no volume {name:?} in the namespace {namespace}")]
    Unknown { name: String, namespace: String },
    #[error("there is no volume with the id {id:?}")]
    UnknownId { id: String },
    #[error("the namespace {namespace} has a volume {name:?} already")]
    Taken { name: String, namespace: String },
    #[error(
        "{name:?} cannot be the name of a volume: use 1 to {NAME_CHARS_MAX} letters, digits, '_' and '-'"
    )]
    Name { name: String },
    #[error(
        "the namespace {namespace} has {VOLUMES_PER_NAMESPACE_MAX} volumes or all namespaces have {VOLUMES_MAX}, \
         which is the limit; remove some"
    )]
    TooMany { namespace: String },
    #[error("the volume {name:?} is mounted in {by}: end that sandbox first")]
    InUse { name: String, by: String },
    #[error("could not {action} the volume: {source}")]
    Files { action: &'static str, source: io::Error },
    #[error("{path:?} cannot be a path in a volume: {why}")]
    Path { path: String, why: &'static str },
    #[error("there is no {path:?} in the volume")]
    NoPath { path: String },
    #[error("there is {path:?} in the volume already")]
    PathTaken { path: String },
    #[error("{path:?} is {what}")]
    Kind { path: String, what: &'static str },
    #[error("{what} is more than {max}")]
    TooLarge { what: &'static str, max: u64 },
    #[error("{what} must be at most {max}, not {value}")]
    OutOfRange { what: &'static str, max: u64, value: u64 },
    #[error("{path:?}: {source}")]
    File { path: String, source: io::Error },
}

/// A volume of the table.
#[derive(Debug)]
struct Entry {
    volume: Arc<Volume>,
    /// What its files took on disk when they were measured last.
    bytes: AtomicU64,
}

/// All volumes of one bridge.
#[derive(Debug)]
pub struct Volumes {
    directory: PathBuf,
    table: Mutex<BTreeMap<String, Arc<Entry>>>,
}

impl Volumes {
    /// Reads what is there, and removes what a killed bridge has left half-made. Says of each record that cannot be
    /// read why.
    pub fn open(directory: PathBuf) -> (Self, Vec<String>) {
        let (mut table, mut unread) = (BTreeMap::new(), Vec::new());
        for id in names_in(&directory) {
            if id.starts_with(NEW) {
                // Nobody makes one yet.
                let _ = removal::remove_directory(&directory.join(&id));
            }
            if id.parse::<RandomId>().is_err() {
                continue;
            }
            let place = directory.join(&id);
            match read(&place) {
                Ok(volume) if volume.id == id => {
                    for upload in names_in(&place.join(INCOMING)) {
                        let _ = fs::remove_file(place.join(INCOMING).join(upload));
                    }
                    let entry = Entry { volume: Arc::new(volume), bytes: AtomicU64::new(0) };
                    table.insert(id, Arc::new(entry));
                }
                Ok(_) => {
                    unread.push(format!("the volume {id} is not used: its record is another's"));
                }
                Err(error) => unread.push(format!("the volume {id} is not used: {error}")),
            }
        }
        (Self { directory, table: Mutex::new(table) }, unread)
    }

    /// Removes what earlier bridges have left half-removed, and measures the rest. Takes as long as the disk does.
    pub fn sweep(&self) {
        for name in names_in(&self.directory) {
            if name.starts_with(GONE) {
                let _ = removal::remove_directory(&self.directory.join(name));
            }
        }
        for volume in self.list(None) {
            if let Ok(files) = self.files(&volume) {
                files.sweep();
            }
            self.measure(&volume);
        }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Entry>>> {
        // The table follows what is on disk.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, volume: &Volume) -> PathBuf {
        self.directory.join(&volume.id)
    }

    /// The directory that sandboxes mount.
    pub fn directory_of(&self, volume: &Volume) -> PathBuf {
        self.place(volume).join(FILES)
    }

    /// Makes one. It is on disk before this returns, whole or not at all.
    pub fn create(
        &self,
        namespace: &str,
        name: &str,
        key: Option<String>,
    ) -> Result<Arc<Volume>, VolumeError> {
        if !is_name(name) {
            let name = name.chars().take(NAME_CHARS_MAX + 1).collect();
            return Err(VolumeError::Name { name });
        }
        let failed = |source| VolumeError::Files { action: "make", source };
        let id = RandomId::draw().map_err(failed)?.to_string();
        let token = format!("vol_{}", digits(&random_bytes::<TOKEN_BYTES>().map_err(failed)?));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        // Held to the end, so that of two creations of one name one finds the other.
        let mut table = self.table();
        let own = table.values().filter(|entry| entry.volume.namespace == namespace);
        if own.clone().any(|entry| entry.volume.name == name) {
            return Err(VolumeError::Taken { name, namespace });
        }
        if own.count() >= VOLUMES_PER_NAMESPACE_MAX || table.len() >= VOLUMES_MAX {
            return Err(VolumeError::TooMany { namespace });
        }
        let volume = Volume { id, namespace, name, token, key, created_at_ms: now_ms() };
        let new = self.directory.join(format!("{NEW}{}", volume.id));
        let made = write(&new, &volume).and_then(|()| {
            fs::rename(&new, self.place(&volume))?;
            fs::File::open(&self.directory)?.sync_all()
        });
        if let Err(source) = made {
            let _ = fs::remove_dir_all(&new);
            return Err(failed(source));
        }
        let volume = Arc::new(volume);
        let entry = Entry { volume: Arc::clone(&volume), bytes: AtomicU64::new(0) };
        table.insert(volume.id.clone(), Arc::new(entry));
        Ok(volume)
    }

    /// Those of one namespace or of all, by namespace and name.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<Volume>> {
        let all = self.table();
        let mut listed: Vec<_> = all.values().map(|entry| Arc::clone(&entry.volume)).collect();
        drop(all);
        listed.retain(|volume| namespace.is_none_or(|namespace| volume.namespace == namespace));
        listed.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        listed
    }

    /// The volume with an id.
    pub fn get(&self, id: &str) -> Result<Arc<Volume>, VolumeError> {
        let found = self.table().get(id).map(|entry| Arc::clone(&entry.volume));
        found.ok_or_else(|| {
            let id = id.chars().take(NAME_CHARS_MAX).collect();
            VolumeError::UnknownId { id }
        })
    }

    /// The volume of a namespace with a name.
    pub fn find(&self, namespace: &str, name: &str) -> Result<Arc<Volume>, VolumeError> {
        let table = self.table();
        let mut all = table.values().map(|entry| &entry.volume);
        let found = all.find(|volume| volume.namespace == namespace && volume.name == name);
        found.cloned().ok_or_else(|| VolumeError::Unknown {
            name: name.chars().take(NAME_CHARS_MAX).collect(),
            namespace: namespace.to_owned(),
        })
    }

    /// Its content.
    pub fn files(&self, volume: &Volume) -> Result<Files, VolumeError> {
        let place = self.place(volume);
        Files::open(&place.join(FILES), &place.join(INCOMING))
            .map_err(|source| VolumeError::Files { action: "open", source })
    }

    /// Removes one with all its files, unless `user` names somebody who has it: from the moment at which that is
    /// asked, nobody finds the volume any more.
    pub fn remove(
        &self,
        volume: &Volume,
        user: impl FnOnce() -> Option<String>,
    ) -> Result<(), VolumeError> {
        let id = volume.id.clone();
        let taken = self.table().remove(&id);
        let taken = taken.ok_or_else(|| VolumeError::UnknownId { id: id.clone() })?;
        let gone = self.directory.join(format!("{GONE}{id}"));
        let removed = match user() {
            Some(by) => Err(VolumeError::InUse { name: volume.name.clone(), by }),
            None => fs::rename(self.place(volume), &gone)
                .and_then(|()| fs::File::open(&self.directory)?.sync_all())
                .map_err(|source| VolumeError::Files { action: "remove", source }),
        };
        if let Err(error) = removed {
            self.table().insert(id, taken);
            return Err(error);
        }
        // What is left of it goes when the next bridge starts.
        let _ = removal::remove_directory(&gone);
        Ok(())
    }

    /// Looks at what the files of a volume take on disk. Takes as long as the disk does.
    pub fn measure(&self, volume: &Volume) -> u64 {
        let bytes = self.files(volume).map_or(0, |files| files.disk_bytes());
        if let Some(entry) = self.table().get(&volume.id) {
            entry.bytes.store(bytes, Ordering::Relaxed);
        }
        bytes
    }

    /// Counts bytes that were written since.
    pub fn count(&self, volume: &Volume, bytes: u64) {
        if let Some(entry) = self.table().get(&volume.id) {
            let add = |before: u64| Some(before.saturating_add(bytes));
            let _ = entry.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// Whether a text is the token of a volume. It takes a time that says nothing of where the two differ.
    pub fn is_token(volume: &Volume, text: &str) -> bool {
        let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        digest(&volume.token).as_ref() == digest(text).as_ref()
    }

    /// What each takes on disk, as it was measured last.
    pub fn measured(&self) -> Vec<(Arc<Volume>, u64)> {
        let table = self.table();
        let each = table.values();
        each.map(|entry| (Arc::clone(&entry.volume), entry.bytes.load(Ordering::Relaxed))).collect()
    }
}

/// Whether a volume may be called that.
pub fn is_name(text: &str) -> bool {
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_char)
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Makes the directories of a volume, and its record.
fn write(place: &Path, volume: &Volume) -> io::Result<()> {
    for name in [FILES, INCOMING] {
        make_private_directory(&place.join(name))?;
    }
    // Programs of any user may look into it, as into a disk that is mounted.
    let files = fs::File::open(place.join(FILES))?;
    rustix::fs::fchmod(&files, rustix::fs::Mode::from_raw_mode(limits::DIRECTORY_MODE))?;
    write_durably(place, RECORD, &serde_json::to_vec_pretty(volume)?)
}

fn read(place: &Path) -> io::Result<Volume> {
    let mut text = Vec::new();
    fs::File::open(place.join(RECORD))?.take(RECORD_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests;
