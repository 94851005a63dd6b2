//! A root file system made of several mounts, for a user namespace in which it cannot be one overlay.
//!
//! Only `root` calls it. Each directory at the top of the lower layer becomes a separate overlay. If the
//! kernel refuses it, the directory is bound read-only with everything that is mounted in it. Files that
//! programs make at the top itself are kept in the scratch file system.

use std::fs::{DirEntry, FileType};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::overlay::{UPPER, WORK, make_directory, make_file, overlay};
use super::{BootError, Stage};
use crate::sys::mount;

/// Directories whose content comes from later steps.
const FURNISHED_LATER: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];

/// Entries at the top of a root; one with more is no root.
const ENTRIES_MAX: usize = 256;

pub(super) fn mount(stage: &Stage) -> Result<(), BootError> {
    // A separate mount, so that it can become the root.
    mount::bind(&stage.root, &stage.root).map_err(BootError::path("mounting", &stage.root))?;
    let entries =
        stage.lower_path.read_dir().map_err(BootError::path("listing", &stage.lower_path))?;
    for entry in entries.take(ENTRIES_MAX) {
        let entry = entry.map_err(BootError::path("listing", &stage.lower_path))?;
        let kind = entry.file_type().map_err(BootError::path("looking at", entry.path()))?;
        mount_entry(stage, &entry, kind)?;
    }
    Ok(())
}

fn mount_entry(stage: &Stage, entry: &DirEntry, kind: FileType) -> Result<(), BootError> {
    let (source, name) = (entry.path(), entry.file_name());
    let target = stage.root.join(&name);
    if kind.is_symlink() {
        let points_to = source.read_link().map_err(BootError::path("reading", &source))?;
        symlink(points_to, &target).map_err(BootError::path("making", &target))
    } else if kind.is_file() {
        make_file(&target)?;
        bind_sealed(&source, &target)
    } else if kind.is_dir() {
        make_directory(&target, 0o755)?;
        if FURNISHED_LATER.iter().any(|later| name == *later) {
            return Ok(());
        }
        // A directory that this user cannot read, such as root's home, begins empty.
        if source.read_dir().is_err() {
            return Ok(());
        }
        let (upper, work) = (Path::new(UPPER).join(&name), Path::new(WORK).join(&name));
        make_directory(&upper, 0o755)?;
        make_directory(&work, 0o755)?;
        match overlay_of(stage, &source, &upper, &work, &target) {
            // Something is mounted inside, so the directory is bound with it.
            Err(_) => bind_sealed(&source, &target),
            Ok(()) => Ok(()),
        }
    } else {
        // No program needs a socket or device at the top of a root.
        Ok(())
    }
}

fn overlay_of(
    stage: &Stage,
    source: &Path,
    upper: &Path,
    work: &Path,
    target: &Path,
) -> io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let lower = open(source, flags, Mode::empty())?;
    // An overlay shows its upper layer's mode at the top, which has to equal the lower's.
    std::fs::set_permissions(upper, source.metadata()?.permissions())?;
    overlay(&lower, upper, work, target, stage)
}

fn bind_sealed(source: &Path, target: &Path) -> Result<(), BootError> {
    mount::bind_tree(source, target).map_err(BootError::path("binding", source))?;
    mount::seal(target).map_err(BootError::path("making read-only", target))
}
