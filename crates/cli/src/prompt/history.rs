//! The history of typed input, one file per language in the state directory, readable by its owner
//! only.
//!
//! Each entry is one line with a JSON string, since an input may have several lines. It is appended
//! when it is entered, so a crash loses nothing. A line that begins with a space is not saved, as
//! in a shell.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use host::paths::{Paths, make_private_directory};

/// The maximum number of entries.
pub(super) const ENTRIES_MAX: usize = 2000;
/// A longer input is a pasted file: nobody looks for it with the arrow keys.
const ENTRY_BYTES_MAX: usize = 16 * 1024;
/// A file that has grown beyond this is cut to its last entries when it is opened.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The maximum number of bytes that are read from a file.
const READ_BYTES_MAX: u64 = 4 * FILE_BYTES_MAX;

const PRIVATE_FILE: u32 = 0o600;

/// The history of one language.
pub(super) struct History {
    path: PathBuf,
    file: Option<File>,
    last: Option<String>,
}

impl History {
    /// Opens the file, or makes it, and returns its entries, the oldest first. `language` names the
    /// file, so it must be a name.
    pub(super) fn open(paths: &Paths, language: &str) -> io::Result<(Self, Vec<String>)> {
        let directory = paths.state.join("history");
        make_private_directory(&directory)?;
        let mut history =
            Self { path: directory.join(file_name(language)), file: None, last: None };
        let (entries, is_long) = history.read()?;
        if is_long {
            history.rewrite(&entries)?;
        }
        history.file = Some(history.append()?);
        history.last = entries.last().cloned();
        Ok((history, entries))
    }

    /// Adds an input; returns whether it is one that is saved.
    pub(super) fn add(&mut self, entry: &str) -> io::Result<bool> {
        if !is_kept(entry) || self.last.as_deref() == Some(entry) {
            return Ok(false);
        }
        if let Some(file) = &mut self.file {
            // One write, so that two conversations at once do not mix their lines.
            file.write_all(line_of(entry).as_bytes())?;
        }
        self.last = Some(entry.to_owned());
        Ok(true)
    }

    fn append(&self) -> io::Result<File> {
        let file =
            OpenOptions::new().append(true).create(true).mode(PRIVATE_FILE).open(&self.path)?;
        // It may be older than this rule.
        file.set_permissions(fs::Permissions::from_mode(PRIVATE_FILE))?;
        Ok(file)
    }

    /// The last entries, and whether the file has more than it should.
    fn read(&self) -> io::Result<(Vec<String>, bool)> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((vec![], false)),
            Err(error) => return Err(error),
        };
        let mut is_long = file.metadata()?.len() > FILE_BYTES_MAX;
        let mut entries = VecDeque::new();
        let mut reader = BufReader::new(file.take(READ_BYTES_MAX));
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            // An invalid line was cut by a full disk, or written by another program.
            if let Ok(entry) = serde_json::from_slice::<String>(&line) {
                if entries.len() == ENTRIES_MAX {
                    entries.pop_front();
                    is_long = true;
                }
                entries.push_back(entry);
            }
            line.clear();
        }
        Ok((entries.into(), is_long))
    }

    fn rewrite(&self, entries: &[String]) -> io::Result<()> {
        let fresh = self.path.with_extension(format!("new-{}", std::process::id()));
        let text: String = entries.iter().map(|entry| line_of(entry)).collect();
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&fresh, &self.path)
    }
}

fn is_kept(entry: &str) -> bool {
    !entry.trim().is_empty()
        && !entry.starts_with(char::is_whitespace)
        && entry.len() <= ENTRY_BYTES_MAX
}

fn line_of(entry: &str) -> String {
    let mut line = serde_json::Value::from(entry).to_string();
    line.push('\n');
    line
}

/// The agent names the language, and a name from a guest is no path.
fn file_name(language: &str) -> String {
    let safe: String =
        language.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(32).collect();
    if safe.is_empty() { "other".to_owned() } else { safe }
}

#[cfg(test)]
mod tests;
