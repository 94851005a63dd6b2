//! The writable layer of a process machine on the host's disk: whether it can be there, and a new one.
//!
//! Of each size there is a template in the bridge's state directory, a sparse file with an empty ext4 file
//! system. A sandbox gets a copy that has no name, mounted through a loop device that goes with the mount
//! ([`mounted`]). One is mounted ahead for the next start ([`spares`]). The kernel frees all of it when the
//! sandbox has ended, however that and the bridge end.
//!
//! `sandbox` asks before it takes a name, and makes the template then; [`super::ProcessMachine`] takes
//! the layer. Nothing here decides who gets what.

mod mounted;
pub(super) mod spares;
mod template;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use host::agent::Agent;
use host::room::free_bytes;
use host::units::human_bytes;
use nix::unistd::geteuid;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::limits::{
    SCRATCH_DISK_BYTES_DEFAULT, SCRATCH_DISK_BYTES_LEAST, SCRATCH_DISK_PART_OF_FREE,
    SCRATCH_DISK_RESERVE_BYTES,
};
use crate::process::sealed::Sealed;
use crate::vmm::{copy, find_program};

/// Where the writable layer of a process machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScratchPlace {
    Memory,
    Disk,
}

impl ScratchPlace {
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// Where the operator wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScratchPolicy {
    /// On disk for a sandbox that has little memory for it, where the host can.
    #[default]
    Auto,
    /// On disk, or the sandbox is refused.
    Disk,
    Memory,
}

/// The device that makes devices of files.
const LOOP_CONTROL: &str = "/dev/loop-control";
const MOUNTS: &str = "/proc/self/mounts";
const MKFS: &str = "mkfs.ext4";

/// Why no writable layer can be on disk here.
#[derive(Debug, thiserror::Error)]
pub enum NoDisk {
    #[error("the configuration says `scratch = \"memory\"` in [process]")]
    NotWanted,
    #[error("only root can mount it, and the bridge is an ordinary user's")]
    NotRoot,
    #[error("{MKFS} is missing: `apt-get install e2fsprogs` brings it")]
    NoProgram,
    #[error("there are no loop devices: {LOOP_CONTROL}: {0}")]
    NoLoop(io::Error),
    #[error("/dev is not the kernel's, so new loop devices would not appear in it")]
    OtherDevices,
    #[error("{} takes no files without a name: {source}", path.display())]
    NoNameless { path: PathBuf, source: io::Error },
    #[error("{} is free in {}, and {} are needed", human_bytes(*free), path.display(), human_bytes(*needed))]
    NoRoom { path: PathBuf, free: u64, needed: u64 },
    #[error("could not {action} {}: {source}", path.display())]
    Files { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{program} failed: {reason}")]
    Failed { program: &'static str, reason: String },
    #[error("a layer cannot be mounted: {0}")]
    Mount(io::Error),
    /// It was tried once; the next bridge tries again.
    #[error("{0}")]
    TriedBefore(String),
}

/// The size of a new layer: what was asked for, or what suits the free room.
pub fn size(state: &Path, requested: Option<u64>) -> Result<u64, NoDisk> {
    check(state)?;
    let free = free_bytes(state).map_err(|source| NoDisk::Files {
        action: "look at",
        path: state.to_owned(),
        source,
    })?;
    fitting(free, requested).map_err(|needed| NoDisk::NoRoom {
        path: state.to_owned(),
        free,
        needed,
    })
}

/// The same without looking at the host; the error is the room that would be needed.
fn fitting(free: u64, requested: Option<u64>) -> Result<u64, u64> {
    let (bytes, needed) = if let Some(bytes) = requested {
        (bytes, bytes.saturating_add(SCRATCH_DISK_RESERVE_BYTES))
    } else {
        let mut bytes = SCRATCH_DISK_BYTES_DEFAULT;
        // Halves, so that there are few templates.
        while bytes > SCRATCH_DISK_BYTES_LEAST && bytes > free / SCRATCH_DISK_PART_OF_FREE {
            bytes /= 2;
        }
        (bytes, bytes * SCRATCH_DISK_PART_OF_FREE)
    };
    if free < needed { Err(needed) } else { Ok(bytes) }
}

/// Whether layers of any size can be on disk, without making one.
pub fn check(state: &Path) -> Result<(), NoDisk> {
    match known().get(state) {
        Some(Ok(())) => return Ok(()),
        Some(Err(reason)) => return Err(NoDisk::TriedBefore(reason.clone())),
        None => {}
    }
    if !geteuid().is_root() {
        return Err(NoDisk::NotRoot);
    }
    if find_program(MKFS).is_none() {
        return Err(NoDisk::NoProgram);
    }
    let control = File::options().read(true).write(true).open(LOOP_CONTROL);
    control.map_err(NoDisk::NoLoop)?;
    // That of a container is a copy, made when the container was.
    let mounts = fs::read_to_string(MOUNTS).unwrap_or_default();
    if !has_kernels_devices(&mounts) {
        return Err(NoDisk::OtherDevices);
    }
    nameless(state)?;
    known().insert(state.to_owned(), Ok(()));
    Ok(())
}

fn has_kernels_devices(mounts: &str) -> bool {
    let at_dev = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/dev"));
    at_dev.is_some_and(|line| line.split(' ').nth(2) == Some("devtmpfs"))
}

/// Whether [`prepare`] has nothing to do.
pub fn is_prepared(state: &Path, bytes: u64) -> bool {
    template::exists(state, bytes)
}

/// Makes the template of a size where there is none, and tries whether it can be mounted. If it cannot, no
/// other is tried as long as this bridge lives.
pub fn prepare(state: &Path, bytes: u64) -> Result<(), NoDisk> {
    template::find(state, bytes).map(drop).inspect_err(|error| {
        if let NoDisk::Mount(_) = error {
            known().insert(state.to_owned(), Err(error.to_string()));
        }
    })
}

/// Makes a layer.
fn make(state: &Path, bytes: u64, sealed: &Sealed, agent: &Agent) -> Result<OwnedFd, NoDisk> {
    mounted::mount(sealed, agent, copy_of(&template::find(state, bytes)?, state)?)
}

/// A copy of a template. It is there as long as somebody has it open.
fn copy_of(template: &File, state: &Path) -> Result<File, NoDisk> {
    let layer = nameless(state)?;
    copy::into(template, &layer).map_err(|source| NoDisk::Files {
        action: "copy the template of writable layers in",
        path: state.to_owned(),
        source,
    })?;
    Ok(layer)
}

fn nameless(state: &Path) -> Result<File, NoDisk> {
    let opened =
        rustix::fs::open(state, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, PRIVATE_MODE);
    match opened {
        Ok(file) => Ok(file.into()),
        Err(errno) => Err(NoDisk::NoNameless { path: state.to_owned(), source: errno.into() }),
    }
}

const PRIVATE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// What is known of state directories: that layers can be in them, or why they cannot be mounted.
fn known() -> MutexGuard<'static, HashMap<PathBuf, Result<(), String>>> {
    static KNOWN: LazyLock<Mutex<HashMap<PathBuf, Result<(), String>>>> =
        LazyLock::new(Mutex::default);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SCRATCH_DISK_BYTES_MIN;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_layer_is_as_large_as_the_free_room_allows() {
        assert_eq!(fitting(100 * GIB, None), Ok(SCRATCH_DISK_BYTES_DEFAULT));
        assert_eq!(fitting(15 * GIB, None), Ok(2 * GIB));
        assert_eq!(fitting(4 * GIB, None), Ok(GIB));
        assert_eq!(fitting(4 * GIB - 1, None), Err(4 * GIB));
    }

    #[test]
    fn what_is_asked_for_leaves_the_host_some_room() {
        let needed = 10 * GIB + SCRATCH_DISK_RESERVE_BYTES;
        assert_eq!(fitting(needed, Some(10 * GIB)), Ok(10 * GIB));
        assert_eq!(fitting(needed - 1, Some(10 * GIB)), Err(needed));
        assert_eq!(fitting(u64::MAX, Some(u64::MAX)), Ok(u64::MAX));
    }

    #[test]
    fn devices_of_a_container_are_not_the_kernels() {
        let host = "proc /proc proc rw 0 0\ndevtmpfs /dev devtmpfs rw 0 0\n";
        assert!(has_kernels_devices(host));
        assert!(!has_kernels_devices("tmpfs /dev tmpfs rw 0 0\ndevpts /dev/pts devpts rw 0 0\n"));
        assert!(!has_kernels_devices(&format!("{host}tmpfs /dev tmpfs rw 0 0\n")));
        assert!(!has_kernels_devices(""));
    }

    #[test]
    fn a_layer_has_no_name_and_takes_little_of_the_disk() {
        use std::os::unix::fs::MetadataExt;

        let state = std::env::temp_dir().join(format!("burrow-layers-{}", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        if find_program(MKFS).is_none() || nameless(&state).is_err() {
            return;
        }
        let made = template::format(&state, SCRATCH_DISK_BYTES_MIN);
        let template = File::open(made.unwrap()).unwrap();
        let layer = copy_of(&template, &state).unwrap();
        let found = layer.metadata().unwrap();
        assert_eq!((found.len(), found.nlink()), (SCRATCH_DISK_BYTES_MIN, 0));
        assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
        fs::remove_dir_all(state).unwrap();
    }
}
