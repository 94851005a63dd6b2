//! `/dev` of a sandbox: the few devices that every program may use, and terminals of its own.
//!
//! Devices are bound from the host's rather than made, which needs no right to make devices; on
//! every other file system of the sandbox they are void.

use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::MsFlags;

use super::overlay::make_file;
use super::root::{SHARED_MEMORY, bind_new, mount_new};
use super::{BootError, Outcome, Stage};
use crate::sys::mount;

const HOST_DEV: &str = "/host/dev";
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 6] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
    ("/proc/kcore", "core"),
];

/// The group that owns terminals on every distribution.
const TTY_GROUP: u32 = 5;

pub(super) fn mount_devices(stage: &mut Stage) -> Result<Outcome, BootError> {
    let dev = stage.root.join("dev");
    // The devices bound here bring the flags of the host's mount, so that they alone are not void.
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_new("tmpfs", &dev, 0o755, flags, "size=64k,mode=755")?;
    for name in DEVICES {
        let target = dev.join(name);
        make_file(&target)?;
        mount::bind(&Path::new(HOST_DEV).join(name), &target)
            .map_err(BootError::path("mounting", &target))?;
    }
    make_links(&dev)?;
    Ok(Outcome::Done)
}

/// The names by which programs know their own descriptors. Those that are there are left.
pub(super) fn make_links(dev: &Path) -> Result<(), BootError> {
    for (points_to, name) in LINKS {
        let link = dev.join(name);
        match symlink(points_to, &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(BootError::path("making", link)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn mount_terminals(stage: &mut Stage) -> Result<Outcome, BootError> {
    let point = stage.root.join("dev/pts");
    // A user namespace of one user has no such group.
    let group = if stage.in_user_namespace { String::new() } else { format!(",gid={TTY_GROUP}") };
    let options = format!("newinstance,ptmxmode=0666,mode=620{group}");
    mount_new("devpts", &point, 0o755, MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, &options)?;
    Ok(Outcome::Done)
}

pub(super) fn mount_shared_memory(stage: &mut Stage) -> Result<Outcome, BootError> {
    let point = stage.root.join("dev/shm");
    bind_new(SHARED_MEMORY, &point, 0o1777)?;
    Ok(Outcome::Done)
}

pub(super) fn mount_message_queues(stage: &mut Stage) -> Result<Outcome, BootError> {
    let point = stage.root.join("dev/mqueue");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_new("mqueue", &point, 0o755, flags, "")?;
    Ok(Outcome::Done)
}
