//! Saves images and other rich output that a terminal cannot show as numbered files in a private
//! directory of this host, `$TMPDIR/burrow-<sandbox>-<context>/01.png`.
//!
//! The guest chooses the contents of the files, but not their paths or names.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files that one conversation may leave, and their size. Code can display pictures without end,
/// and the directory may be in memory.
const FILES_MAX: usize = 1000;
const BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Displays whose updates find their file again.
const NAMED_MAX: usize = 256;
/// Files of earlier conversations that are read to find the next number.
const EARLIER_MAX: usize = 100_000;
/// How much of a sandbox's and a context's name is in a directory's name.
const NAME_CHARS_MAX: usize = 100;

const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Why something was not saved.
#[derive(Debug, thiserror::Error)]
pub(super) enum GalleryError {
    #[error("not saved: this prompt has saved {FILES_MAX} files already")]
    Files,
    #[error("not saved: the files of this prompt would exceed {} MiB", BYTES_MAX >> 20)]
    Bytes,
    #[error("not saved: cannot write {path:?}: {source}")]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("not saved: {0:?} is not a private directory of this user")]
    Directory(PathBuf),
}

/// The files of one conversation.
pub(super) struct Gallery {
    wanted: PathBuf,
    /// Created with the first file.
    directory: Option<PathBuf>,
    next: u32,
    files: usize,
    bytes: u64,
    /// The file of a display, by its id and form.
    named: BTreeMap<(String, String), PathBuf>,
}

impl Gallery {
    /// In the directory for temporary files.
    pub(super) fn new(place: &str, context: &str) -> Self {
        Self::below(&std::env::temp_dir(), place, context)
    }

    fn below(parent: &Path, place: &str, context: &str) -> Self {
        let wanted = parent.join(directory_name(place, context));
        Self { wanted, directory: None, next: 1, files: 0, bytes: 0, named: BTreeMap::new() }
    }

    /// Saves one form of a display in its own file.
    pub(super) fn keep(
        &mut self,
        id: Option<&str>,
        mime: &str,
        data: &[u8],
    ) -> Result<PathBuf, GalleryError> {
        if self.files == FILES_MAX {
            return Err(GalleryError::Files);
        }
        self.afford(data)?;
        let directory = self.directory()?;
        let (path, number) = loop {
            let path = directory.join(format!("{:02}.{}", self.next, extension(mime)));
            match write_new(&path, data) {
                Ok(()) => break (path, self.next),
                // Another conversation has it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.next += 1,
                Err(source) => return Err(GalleryError::Unwritable { path, source }),
            }
        };
        self.next = number + 1;
        self.files += 1;
        if let Some(id) = id
            && self.named.len() < NAMED_MAX
        {
            self.named.insert((id.to_owned(), mime.to_owned()), path.clone());
        }
        Ok(path)
    }

    /// Writes a new state of a display to the file of the old one, so that a viewer can show it; to
    /// a new file if there is none.
    pub(super) fn update(
        &mut self,
        id: &str,
        mime: &str,
        data: &[u8],
    ) -> Result<PathBuf, GalleryError> {
        let Some(path) = self.named.get(&(id.to_owned(), mime.to_owned())).cloned() else {
            return self.keep(Some(id), mime, data);
        };
        self.afford(data)?;
        let fresh = path.with_extension(format!("new-{}", std::process::id()));
        write_new(&fresh, data)
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|source| GalleryError::Unwritable { path: path.clone(), source })?;
        Ok(path)
    }

    fn afford(&mut self, data: &[u8]) -> Result<(), GalleryError> {
        let bytes = self.bytes + data.len() as u64;
        if bytes > BYTES_MAX {
            return Err(GalleryError::Bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    fn directory(&mut self) -> Result<PathBuf, GalleryError> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        // In a shared directory anybody may have created the name.
        let mut other = self.wanted.clone().into_os_string();
        other.push(format!("-{}", std::process::id()));
        let mut refused = GalleryError::Directory(self.wanted.clone());
        for path in [self.wanted.clone(), other.into()] {
            match make_private(&path) {
                Ok(true) => {
                    self.next = last_number(&path).saturating_add(1);
                    self.directory = Some(path.clone());
                    return Ok(path);
                }
                Ok(false) => {}
                Err(source) => refused = GalleryError::Unwritable { path, source },
            }
        }
        Err(refused)
    }
}

/// Whether `path` is a private directory of this user.
fn make_private(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(path) {
        Ok(()) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(path)?;
    let me = nix::unistd::geteuid().as_raw();
    Ok(found.is_dir() && found.uid() == me && found.mode() & 0o777 == PRIVATE_DIRECTORY)
}

fn write_new(path: &Path, data: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)?.write_all(data)
}

/// The highest number that a file there begins with.
fn last_number(directory: &Path) -> u32 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let numbers = entries.take(EARLIER_MAX).filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.split('.').next()?.parse::<u32>().ok()
    });
    // One that leaves room for those to come.
    numbers.filter(|number| *number < u32::MAX / 2).max().unwrap_or(0)
}

fn directory_name(place: &str, context: &str) -> String {
    let name = format!("{place}-{context}");
    let safe =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' });
    format!("burrow-{}", safe.take(NAME_CHARS_MAX).collect::<String>())
}

/// The file extension for a form.
fn extension(mime: &str) -> &'static str {
    let bare = mime.split(';').next().unwrap_or_default().trim();
    match bare {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "application/pdf" => "pdf",
        "application/javascript" | "text/javascript" => "js",
        "audio/wav" | "audio/x-wav" => "wav",
        "audio/mpeg" => "mp3",
        "video/mp4" => "mp4",
        "text/html" => "html",
        "text/markdown" => "md",
        "text/latex" => "tex",
        "text/csv" => "csv",
        _ if bare.starts_with("text/") => "txt",
        _ if bare.ends_with("json") => "json",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests;
