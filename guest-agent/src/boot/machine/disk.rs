//! The two layers of a machine's root: an image on a device, read-only, and something to write to.
//!
//! The writable one becomes the root of the tree first, with the image below it, so that from then
//! on everything is as it is on the process machine.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::MsFlags;
use nix::sys::stat::Mode;
use nix::unistd::{chdir, chroot};

use super::super::overlay::make_directory;
use super::super::root::{
    self, DIRECTORIES, MOMENTARY_MOUNT_POINTS, RUN, SCRATCH_FLAGS, SHARED_MEMORY, TMP, relative,
};
use super::super::{BootError, Outcome, Stage};
use super::modules;
use crate::sys::mount;

/// Where the future root is assembled while the initramfs is the root.
const NEW: &str = "/newroot";
/// The image, seen from the scratch file system.
const LOWER: &str = "/lower";

/// File systems of an image, the usual one first.
const IMAGE_KINDS: [&str; 5] = ["erofs", "ext4", "squashfs", "xfs", "btrfs"];
/// File systems of a writable layer.
const SCRATCH_KINDS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// How long a disk may take to appear: its driver has been loaded, and asks it for its size.
const DEVICE_MAX: Duration = Duration::from_secs(10);
const DEVICE_PAUSE: Duration = Duration::from_millis(5);

/// Waits for a device to show.
pub(super) fn await_device(path: &str) -> io::Result<()> {
    let until = Instant::now() + DEVICE_MAX;
    while !fs::exists(path)? {
        if Instant::now() >= until {
            return Err(io::ErrorKind::NotFound.into());
        }
        std::thread::sleep(DEVICE_PAUSE);
    }
    Ok(())
}

/// Mounts a device with the first of these file systems that fits.
fn mount_any(device: &str, kinds: &[&str], target: &Path, flags: MsFlags) -> Result<(), BootError> {
    await_device(device).map_err(BootError::path("waiting for", device))?;
    let mut refusal = io::Error::from(Errno::ENODEV);
    for kind in kinds {
        match mount::device(device, kind, target, flags, None) {
            Ok(()) => return Ok(()),
            // It is not of this kind, or the kernel does not know the kind.
            Err(error) => {
                if error.raw_os_error() != Some(libc::ENODEV) {
                    refusal = error;
                }
            }
        }
    }
    Err(BootError::path("mounting", device)(refusal))
}

fn open_directory(path: &str) -> Result<OwnedFd, BootError> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(BootError::path("opening", path))
}

/// Mounts the writable layer, on the device that the line names or in memory, and enters it.
fn mount_writable(stage: &mut Stage, point: &'static str) -> Result<(), BootError> {
    let Some(device) = stage.facts().line.scratch.clone() else {
        root::mount_memory(stage.config.scratch_bytes, Path::new(point))
            .map_err(BootError::path("mounting", point))?;
        return chdir(point).map_err(BootError::path("entering", point));
    };
    mount_any(&device, &SCRATCH_KINDS, Path::new(point), SCRATCH_FLAGS)?;
    stage.facts().written = Some(open_directory(point)?);
    chdir(point).map_err(BootError::path("entering", point))?;
    // What a machine left there in an earlier life must not be visible in this one.
    for directory in [RUN, TMP, SHARED_MEMORY] {
        fs::remove_dir_all(relative(directory)).ok();
    }
    Ok(())
}

/// Over a root that the kernel has mounted and that nothing can be made in.
pub(super) fn mount_scratch_over_root(stage: &mut Stage) -> Result<Outcome, BootError> {
    let is_there = |point: &&str| Path::new(*point).is_dir();
    let point = MOMENTARY_MOUNT_POINTS.into_iter().find(is_there);
    mount_writable(stage, point.unwrap_or(MOMENTARY_MOUNT_POINTS[0]))?;
    root::enter_scratch(stage)
}

pub(super) fn mount_scratch(stage: &mut Stage) -> Result<Outcome, BootError> {
    make_directory(Path::new(NEW), 0o755)?;
    mount_writable(stage, NEW)?;
    for (directory, mode) in DIRECTORIES.into_iter().chain([(LOWER, 0o755)]) {
        make_directory(relative(directory), mode)?;
    }
    Ok(Outcome::Done)
}

pub(super) fn mount_image(stage: &mut Stage) -> Result<Outcome, BootError> {
    let Some(device) = stage.facts().line.root.clone() else {
        return Ok(Outcome::Skipped("the machine has no image and begins empty"));
    };
    mount_any(&device, &IMAGE_KINDS, relative(LOWER), MsFlags::MS_RDONLY)?;
    Ok(Outcome::Done)
}

/// Makes the scratch file system the root and gives the memory of the initramfs back.
pub(super) fn leave_initramfs(stage: &mut Stage) -> Result<Outcome, BootError> {
    for point in ["/dev", "/sys", "/proc"] {
        mount::detach(Path::new(point)).map_err(BootError::path("unmounting", point))?;
    }
    // Only known content: anything else belongs to somebody.
    fs::remove_dir_all(modules::DIRECTORY).ok();
    fs::remove_file("/init").ok();
    // The root of an initramfs cannot be pivoted away; it is covered.
    mount::move_to(Path::new("."), Path::new("/"))
        .map_err(BootError::call("making the scratch file system the root"))?;
    chroot(".").map_err(BootError::call("entering the scratch file system"))?;
    chdir("/").map_err(BootError::path("entering", "/"))?;
    stage.lower = Some(open_directory(LOWER)?);
    stage.lower_path = LOWER.into();
    stage.root = root::ROOT.into();
    Ok(Outcome::Done)
}

/// A machine without an image has the empty directory as its lower layer, and needs no overlay.
pub(super) fn mount_overlay(stage: &mut Stage) -> Result<Outcome, BootError> {
    if stage.facts().line.root.is_some() {
        return root::mount_overlay(stage);
    }
    mount::bind(&stage.root, &stage.root).map_err(BootError::path("binding", &stage.root))?;
    Ok(Outcome::Skipped("there is no image to put it over"))
}

/// The kernel's root stays the root, and is written to.
pub(super) fn keep_root(stage: &mut Stage) {
    stage.root = "/".into();
    stage.facts().written = open_directory("/").ok();
}
