//! One overlay, and the directories and files to mount on. `root` and `patchwork` use it.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use nix::mount::MsFlags;
use nix::unistd::{chdir, fchdir};

use super::{BootError, Stage};
use crate::sys::mount;

/// The layers of the overlay.
pub(super) const UPPER: &str = "/upper";
pub(super) const WORK: &str = "/work";

/// Mounts one overlay. The lower layer is given as the current directory, so that no character of
/// its path has to be escaped.
pub(super) fn overlay(
    lower: &OwnedFd,
    upper: &Path,
    work: &Path,
    target: &Path,
    stage: &Stage,
) -> io::Result<()> {
    fchdir(lower)?;
    let options = format!(
        "lowerdir=.,upperdir={},workdir={}{}",
        upper.display(),
        work.display(),
        // An ordinary user's overlay can only record deletions in this way.
        if stage.in_user_namespace { ",userxattr" } else { "" },
    );
    let mounted = mount::fresh("overlay", target, MsFlags::MS_NODEV, &options);
    // The directory must not be kept in use.
    chdir("/")?;
    mounted
}

/// Makes a directory of exactly this mode, or finds it there.
pub(super) fn make_directory(path: &Path, mode: u32) -> Result<(), BootError> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        result => result.map_err(BootError::path("making", path))?,
    }
    // Sets the bits that the caller's umask removed.
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(BootError::path("making", path))
}

/// Makes an empty file to mount on.
pub(super) fn make_file(path: &Path) -> Result<(), BootError> {
    File::create(path).map(drop).map_err(BootError::path("making", path))
}
