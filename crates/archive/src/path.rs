//! Names: the rule for paths that an extractor may use, and the bounds that every name keeps.
//!
//! Called by extractors on both sides, and by the codec. Never looks at a file system.

use super::TarError;
use crate::PATH_BYTES_MAX;

/// How much of a refused path an error shows; the rest is not helpful.
const SHOWN_BYTES_MAX: usize = 256;

/// The components of `path` below the directory that is extracted into, or why it must not be
/// used: it is empty, too long, absolute, has a `..` or a NUL in it.
///
/// `.` and doubled slashes are removed. Without components it is the directory itself, which every
/// `tar -c .` names first. What the components lead *through* is not known here: an extractor opens
/// each without following symbolic links.
pub fn safe_relative(path: &[u8]) -> Result<Vec<&[u8]>, TarError> {
    check_name("path", path)?;
    if path.starts_with(b"/") {
        return Err(TarError::AbsolutePath { path: shown(path) });
    }
    let mut components = Vec::new();
    for component in path.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err(TarError::ParentComponent { path: shown(path) }),
            name => components.push(name),
        }
    }
    Ok(components)
}

/// The rules for every path and link target, written or read.
pub(super) fn check_name(field: &'static str, name: &[u8]) -> Result<(), TarError> {
    if name.is_empty() {
        return Err(TarError::Empty { field });
    }
    if name.len() > PATH_BYTES_MAX {
        return Err(TarError::TooLong { field, bytes: name.len() as u64, limit: PATH_BYTES_MAX });
    }
    if name.contains(&0) {
        return Err(TarError::Nul { field });
    }
    Ok(())
}

/// A path without its final slashes; the root keeps one.
pub(super) fn without_final_slashes(path: &[u8]) -> &[u8] {
    let length = path.iter().rposition(|&byte| byte != b'/').map_or(1, |last| last + 1);
    &path[..length.min(path.len())]
}

/// A path of hostile origin as errors show it: escaped, so that no control character reaches a
/// terminal or a log, and short.
fn shown(path: &[u8]) -> String {
    path.escape_ascii().take(SHOWN_BYTES_MAX).map(char::from).collect()
}
