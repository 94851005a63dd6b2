//! An app's note beside its sandbox's record, for the next bridge. The host writes it, not the
//! guest, so that no sandbox chooses a port of this host.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use protocol::SessionId;
use serde::{Deserialize, Serialize};

use super::limits::NOTE_BYTES_MAX;
use super::{AppError, AppName, Kind};

/// The directory of the notes in a sandbox's own directory.
const DIRECTORY: &str = "apps";
const ENDING: &str = "json";

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub name: AppName,
    pub kind: Kind,
    pub session: SessionId,
    pub port: u16,
    pub host_port: u16,
    pub started_at_ms: u64,
    /// Whether it has answered. One that has not when its bridge ends is given up.
    pub is_ready: bool,
}

impl Note {
    /// Writes it down, in place of an older one.
    pub fn write(&self, state: &Path) -> Result<(), AppError> {
        let path = path(state, &self.session);
        self.write_to(&path).map_err(|source| AppError::Note { path, source })
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let beside = path.with_extension("new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(&beside, path)
    }

    /// All notes of a sandbox. Unreadable ones are skipped.
    pub fn read_all(state: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(state.join(DIRECTORY)) else { return Vec::new() };
        let paths = entries.flatten().map(|entry| entry.path());
        let notes = paths.filter(|path| path.extension().is_some_and(|kind| kind == ENDING));
        notes.filter_map(|path| read(&path).ok()).collect()
    }
}

/// Removes a note; a missing one is fine.
pub fn forget(state: &Path, session: &SessionId) {
    let _ = fs::remove_file(path(state, session));
}

fn path(state: &Path, session: &SessionId) -> PathBuf {
    state.join(DIRECTORY).join(format!("{session}.{ENDING}"))
}

fn read(path: &Path) -> io::Result<Note> {
    let mut text = Vec::new();
    File::open(path)?.take(NOTE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written_and_forgotten_once() {
        let state = std::env::temp_dir().join(format!("burrow-notes-{}", std::process::id()));
        let mut note = Note {
            name: "web".parse().unwrap(),
            kind: Kind::Flask,
            session: "app.web.1".parse().unwrap(),
            port: 5000,
            host_port: 40_000,
            started_at_ms: 1,
            is_ready: false,
        };
        assert!(Note::read_all(&state).is_empty());
        note.write(&state).unwrap();
        note.is_ready = true;
        note.write(&state).unwrap();
        fs::write(state.join("apps/torn.json"), b"{").unwrap();
        assert_eq!(Note::read_all(&state), [note.clone()]);
        forget(&state, &note.session);
        forget(&state, &note.session);
        assert!(Note::read_all(&state).is_empty());
        fs::remove_dir_all(&state).unwrap();
    }
}
