//! Paths as requests bring them.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use protocol::limits::PATH_BYTES_MAX;
use protocol::{Fault, FaultCode, Text};

use super::refusal::{refused, unfit};
use crate::lookup::{self, DIRECTORY, Way};

/// A path that the kernel can be asked about; it never depends on where the agent stands.
pub fn absolute(path: Text) -> Result<PathBuf, Fault> {
    let bytes = path.into_bytes();
    let problem = if bytes.is_empty() {
        "is no path"
    } else if bytes.len() > PATH_BYTES_MAX {
        "is longer than a path can be"
    } else if bytes.contains(&0) {
        "contains a NUL byte"
    } else if !bytes.starts_with(b"/") {
        "is not absolute"
    } else {
        return Ok(PathBuf::from(OsString::from_vec(bytes)));
    };
    Err(unfit(FaultCode::Invalid, bytes.as_slice(), problem))
}

/// The directory that contains `path`, and its name there. `None` for the root and for paths that
/// end in `..`: they have no name that could be made, replaced or removed.
pub fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

/// The same, with a fault that says what cannot be done with such a path.
pub fn split_to<'a>(what: &str, path: &'a Path) -> Result<(&'a Path, &'a OsStr), Fault> {
    let why = format!("cannot be {what}: it has no name of its own");
    split(path).ok_or_else(|| unfit(FaultCode::Invalid, path, &why))
}

/// Opens the directory in which something has the last name of `path`, and gives the name.
pub fn place<'a>(what: &str, path: &'a Path) -> Result<(OwnedFd, &'a OsStr), Fault> {
    let (parent, name) = split_to(what, path)?;
    let directory =
        lookup::open(parent, DIRECTORY, Way::Follow).map_err(|why| refused("open", parent, why))?;
    Ok((directory, name))
}

/// The readable form of the last component of `path`.
pub fn name(path: &Path) -> &[u8] {
    match path.components().next_back() {
        Some(Component::Normal(name)) => name.as_bytes(),
        Some(Component::ParentDir) => b"..",
        _ => b"/",
    }
}

/// `directory/name`, where an empty directory is the one that all is relative to.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    [directory, b"/", name].concat()
}
