//! A context's directory, in which languages that cannot receive descriptors find their outputs and
//! orders.
//!
//! It belongs to the agent and has a name that cannot be guessed. The files in it belong to the user that
//! the interpreter runs as. So no file in it can be replaced, and only that user can open them.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::channel::{Token, hex};
use crate::sys::entropy;
use crate::sys::spawn::Identity;

/// Where such directories are made: in the first of these that is writable. `/dev/shm` is first because
/// a commit to an image leaves it out.
const PLACES: [&str; 3] = ["/dev/shm", "/run", "/tmp"];

/// What is in it.
pub const DRIVER: &str = "driver";
pub const CODE: &str = "code";
pub const RUN: &str = "run";
pub const STDOUT: &str = "out";
pub const STDERR: &str = "err";
const ALL: [&str; 5] = [DRIVER, CODE, RUN, STDOUT, STDERR];

/// See the module's description. It is removed with its value.
pub struct Directory {
    path: PathBuf,
    owner: Option<Identity>,
}

impl Directory {
    pub fn make(owner: Option<Identity>) -> io::Result<Self> {
        let mut name = Token::default();
        entropy::fill(&mut name)?;
        let name = hex(&name);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in PLACES {
            let path = Path::new(place).join(format!("burrow-repl-{name}"));
            match fs::DirBuilder::new().mode(0o711).create(&path) {
                Ok(()) => return Ok(Self { path, owner }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub fn path(&self) -> &str {
        self.path.to_str().expect("made of ASCII")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file that the interpreter may read.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.file(name);
        remove(&path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        self.give(&file)?;
        file.write_all(content)
    }

    /// Makes a FIFO that the interpreter may write to, and opens it for reading.
    pub fn fifo(&self, name: &str) -> io::Result<OwnedFd> {
        let path = self.file(name);
        remove(&path)?;
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        // Root in the sandbox can replace any file.
        if !file.metadata()?.file_type().is_fifo() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.give(&file)?;
        Ok(file.into())
    }

    /// Removes a FIFO's name. Processes that have it open keep it.
    pub fn forget(&self, name: &str) {
        // If this fails, the next run replaces it.
        remove(&self.file(name)).ok();
    }

    fn give(&self, file: &File) -> io::Result<()> {
        let Some(owner) = &self.owner else { return Ok(()) };
        fchown(file.as_fd(), Some(owner.uid), Some(owner.gid))?;
        file.set_permissions(Permissions::from_mode(0o600))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        for name in ALL {
            self.forget(name);
        }
        fs::remove_dir(&self.path).ok();
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
