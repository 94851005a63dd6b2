//! The target of an archive: stdout, an existing special file, or a regular file that appears only
//! when it is complete and synced. Until then the file has no name, if the file system supports
//! that, so nothing is left behind however the program ends; otherwise it has a temporary name,
//! which is removed at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::failure::CliError;
use host::paths::PRIVATE_FILE;

const STANDARD: &str = "-";
/// The suffix of a temporary file's name.
const NEW: &str = "new";

/// The target of an archive.
pub enum Target {
    /// A pipe, a device or stdout.
    Stream(File),
    File(NewFile),
}

/// A file that appears when it is complete.
pub struct NewFile {
    file: File,
    path: PathBuf,
    /// Its temporary name, if it has one.
    own: TemporaryFile,
}

struct TemporaryFile {
    path: PathBuf,
    is_there: bool,
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if self.is_there {
            // Nobody is left to report to.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Target {
    pub fn of(path: &Path) -> Result<Self> {
        if path == Path::new(STANDARD) {
            let stdout = io::stdout();
            if stdout.is_terminal() {
                return Err(CliError::ArchiveToTerminal.into());
            }
            return Ok(Self::Stream(File::from(stdout.as_fd().try_clone_to_owned()?)));
        }
        let opened = Self::open(path);
        Ok(opened.map_err(|source| CliError::Unwritable { path: path.to_owned(), source })?)
    }

    fn open(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => {
                // A link's target is replaced, not the link.
                NewFile::create(&fs::canonicalize(path)?).map(Self::File)
            }
            Ok(_) => Ok(Self::Stream(OpenOptions::new().write(true).open(path)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                NewFile::create(path).map(Self::File)
            }
            Err(error) => Err(error),
        }
    }

    pub fn out(&mut self) -> impl Write + '_ {
        match self {
            Self::Stream(file) | Self::File(NewFile { file, .. }) => file,
        }
    }

    /// Syncs a file and gives it its name.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::Stream(_) => Ok(()),
            Self::File(file) => file.finish(),
        }
    }
}

impl NewFile {
    fn create(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).to_owned();
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(&name);
        hidden.push(format!(".{}.{NEW}", std::process::id()));
        let mut own = TemporaryFile { path: parent.join(hidden), is_there: false };
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(PRIVATE_FILE);
        let file = match rustix::fs::openat(CWD, &parent, flags, mode) {
            Ok(file) => File::from(file),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let mut options = OpenOptions::new();
                let file =
                    options.write(true).create_new(true).mode(PRIVATE_FILE).open(&own.path)?;
                own.is_there = true;
                file
            }
            Err(errno) => return Err(errno.into()),
        };
        Ok(Self { file, path: parent.join(name), own })
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if !self.own.is_there {
            let held = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, held, CWD, &self.own.path, AtFlags::SYMLINK_FOLLOW)?;
            self.own.is_there = true;
        }
        fs::rename(&self.own.path, &self.path)?;
        self.own.is_there = false;
        let parent = self.path.parent().unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()
    }
}
