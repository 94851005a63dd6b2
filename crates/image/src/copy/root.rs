//! A directory that files are copied from, or that a layer is put on: every path is resolved within it, where a link can
//! lead nowhere else. It writes nothing.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::CopyError;
use crate::compose::names;
use crate::dockerfile::pattern;
use crate::layer::limits::{DEPTH_MAX, LAYER_ENTRIES_MAX};
use crate::layer::{hold, open_at};
use host::byte_path::{components, join};
use host::excerpt::path_excerpt;

/// A directory out of which nothing leads.
#[derive(Debug)]
pub struct Root {
    pub(super) held: OwnedFd,
    real: PathBuf,
}

/// The resolution of a path within a root.
pub(super) struct ResolvedPath {
    /// Without links, as far as it exists.
    pub path: Vec<u8>,
    pub kind: Option<FileType>,
}

impl Root {
    pub fn open(path: &Path) -> Result<Self, CopyError> {
        let failed = |errno: Errno| CopyError::Read {
            path: path_excerpt(path.as_os_str().as_bytes()),
            source: errno.into(),
        };
        let held = hold(path).map_err(failed)?;
        let real = real(&held).map_err(CopyError::Write)?;
        Ok(Self { held, real })
    }

    /// Whether a path is a directory there.
    pub fn has_directory(&self, path: &str) -> Result<bool, CopyError> {
        let found = self.find(&components(path.as_bytes()))?;
        Ok(found.kind.is_some_and(FileType::is_dir))
    }

    /// A small file within the root, if it is there.
    pub fn read(&self, path: &str, max: u64) -> Option<String> {
        let found = self.find(&components(path.as_bytes())).ok()?;
        found.kind.filter(|kind| kind.is_file())?;
        let mut text = String::new();
        self.file(&found.path).ok()?.take(max).read_to_string(&mut text).ok()?;
        Some(text)
    }

    pub(super) fn find(&self, components: &[Vec<u8>]) -> Result<ResolvedPath, CopyError> {
        let mut found = ResolvedPath { path: Vec::new(), kind: Some(FileType::Directory) };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        if components.len() > DEPTH_MAX {
            let path = path_excerpt(&components.join(&b'/'));
            return Err(CopyError::TooDeep { path, max: DEPTH_MAX });
        }
        for component in components {
            let path = join(&found.path, component);
            let failed = |source| CopyError::Read { path: path_excerpt(&path), source };
            match found.kind {
                Some(kind) if !kind.is_dir() => {
                    return Err(CopyError::NotDirectory { path: path_excerpt(&found.path) });
                }
                None => found.path = path,
                Some(_) => {
                    let name = OsStr::from_bytes(&path);
                    match rustix::fs::openat2(&self.held, name, flags, Mode::empty(), within) {
                        Ok(at) => {
                            let stat = rustix::fs::fstat(&at).map_err(|e| failed(e.into()))?;
                            let real = real(&at).map_err(&failed)?;
                            let below = real.strip_prefix(&self.real);
                            let below = below
                                .map_err(|_| CopyError::Outside { path: path_excerpt(&path) })?;
                            found.path = below.as_os_str().as_bytes().to_vec();
                            found.kind = Some(FileType::from_raw_mode(stat.st_mode));
                        }
                        Err(Errno::NOENT) => (found.path, found.kind) = (path, None),
                        Err(errno) => return Err(failed(errno.into())),
                    }
                }
            }
        }
        Ok(found)
    }

    pub(super) fn file(&self, path: &[u8]) -> io::Result<File> {
        // Opening a pipe must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let within =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let name = OsStr::from_bytes(path);
        let file = File::from(rustix::fs::openat2(&self.held, name, flags, Mode::empty(), within)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// The matches of a path with wildcards, sorted.
    pub(super) fn glob(&self, components: &[Vec<u8>]) -> Result<Vec<Vec<Vec<u8>>>, CopyError> {
        let mut found: Vec<Vec<Vec<u8>>> = vec![Vec::new()];
        for component in components {
            if !pattern::is_pattern(component) {
                for path in &mut found {
                    path.push(component.clone());
                }
                continue;
            }
            let mut next = Vec::new();
            for path in found {
                let at = self.find(&path)?;
                if !at.kind.is_some_and(FileType::is_dir) {
                    continue;
                }
                let failed = |errno: Errno| CopyError::Read {
                    path: path_excerpt(&at.path),
                    source: errno.into(),
                };
                let held = open_at(&self.held, &at.path).map_err(failed)?;
                for name in names(&held).map_err(failed)? {
                    if pattern::matches(component, &name) {
                        next.push([path.clone(), vec![name]].concat());
                    }
                }
                if next.len() as u64 > LAYER_ENTRIES_MAX {
                    return Err(CopyError::TooMany { max: LAYER_ENTRIES_MAX });
                }
            }
            found = next;
        }
        Ok(found)
    }
}

fn real(held: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd()))
}
