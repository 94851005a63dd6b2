//! A hook's files: its place in the log of each namespace, and the events that could not be delivered.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::DEAD_BYTES_MAX;
use host::paths::{PRIVATE_FILE, make_private_directory, write_unsynced};
use sandbox::Name;

const PLACE: &str = "place.json";
const DEAD: &str = "dead.jsonl";
const DEAD_BEFORE: &str = "dead.1.jsonl";

/// An event that could not be delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub hook: String,
    /// When it was given up, in milliseconds since 1970.
    pub at_ms: u64,
    pub attempts: u32,
    /// Why the last attempt has failed.
    pub error: String,
    pub event: Value,
}

pub struct Place {
    directory: PathBuf,
    /// The offset of the next event, by namespace.
    next: BTreeMap<Name, u64>,
}

impl Place {
    /// Reads the place of a hook. A new one is at the end of every namespace.
    pub fn open(directory: &Path, ends: &HashMap<Name, u64>) -> io::Result<Self> {
        make_private_directory(directory)?;
        let next = match fs::read(directory.join(PLACE)) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let place = Self {
                    directory: directory.to_owned(),
                    next: ends.iter().map(|(name, end)| (name.clone(), *end)).collect(),
                };
                place.write()?;
                return Ok(place);
            }
            Err(error) => return Err(error),
        };
        Ok(Self { directory: directory.to_owned(), next })
    }

    pub fn next(&self, namespace: &Name) -> Option<u64> {
        self.next.get(namespace).copied()
    }

    /// Forgets the namespaces that have no log.
    pub fn retain(&mut self, ends: &HashMap<Name, u64>) {
        self.next.retain(|namespace, _| ends.contains_key(namespace));
    }

    pub fn keep(&mut self, namespace: &Name, next: u64) -> io::Result<()> {
        self.next.insert(namespace.clone(), next);
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        write_unsynced(&self.directory, PLACE, &serde_json::to_vec(&self.next)?)
    }

    /// Keeps an event that could not be delivered.
    pub fn bury(&self, letter: &DeadLetter) -> io::Result<()> {
        let path = self.directory.join(DEAD);
        if fs::metadata(&path).is_ok_and(|found| found.len() >= DEAD_BYTES_MAX) {
            fs::rename(&path, self.directory.join(DEAD_BEFORE))?;
        }
        let mut line = serde_json::to_vec(letter)?;
        line.push(b'\n');
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).mode(PRIVATE_FILE).open(&path)?;
        let before = file.metadata()?.len();
        let written = file.write_all(&line);
        if written.is_err() {
            // The next one is not to begin in the midst of a line.
            file.set_len(before)?;
        }
        written
    }
}

/// The dead letters of all hooks, by hook and time.
pub fn dead_letters(directory: &Path) -> io::Result<Vec<DeadLetter>> {
    let hooks = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        hooks => hooks?,
    };
    let mut hooks =
        hooks.map(|hook| hook.map(|hook| hook.path())).collect::<io::Result<Vec<_>>>()?;
    hooks.sort();
    let mut found = Vec::new();
    for path in hooks.iter().flat_map(|hook| [hook.join(DEAD_BEFORE), hook.join(DEAD)]) {
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text?,
        };
        found.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
    }
    Ok(found)
}
