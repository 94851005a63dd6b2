//! `/dev` of a sandbox: the few devices that every program may use, and its own terminals.
//!
//! They are files of the sandbox, bound into place, so that a program's change to one (`chmod`) does not
//! affect the host's. If devices cannot be made, the host's are bound, and the sandbox owns none of them. On
//! every other file system of the sandbox devices are disabled.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::mount::MsFlags;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::ids::Namespaces;
use super::overlay::make_file;
use super::root::{SHARED_MEMORY, bind_new, mount_new};
use super::{BootError, Outcome, Stage};
use crate::sys::mount;

const HOST_DEV: &str = "/host/dev";
/// The devices, with their numbers, which are the same on every Linux.
const DEVICES: [(&str, u64, u64); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];
/// Where they are made: on a file system that is unreachable after the boot.
const NODES: &str = "/nodes";
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
    let source = if make_nodes().is_ok() { Path::new(NODES) } else { Path::new(HOST_DEV) };
    for (name, ..) in DEVICES {
        let target = dev.join(name);
        make_file(&target)?;
        mount::bind(&source.join(name), &target).map_err(BootError::path("mounting", &target))?;
    }
    // It is not there where they could not be made.
    mount::detach(Path::new(NODES)).ok();
    make_links(&dev)?;
    Ok(Outcome::Done)
}

/// Makes the devices, each for everybody.
fn make_nodes() -> Result<(), BootError> {
    let nodes = Path::new(NODES);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount_new("tmpfs", nodes, 0o755, flags, "size=16k,mode=755")?;
    for (name, major, minor) in DEVICES {
        let node = nodes.join(name);
        let made = mknod(&node, SFlag::S_IFCHR, Mode::empty(), makedev(major, minor));
        made.map_err(BootError::path("making", &node))?;
        set_permissions(&node, Permissions::from_mode(0o666))
            .map_err(BootError::path("opening to everyone", &node))?;
    }
    Ok(())
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
    let group = if stage.in_user_namespace {
        String::new()
    } else {
        let first = stage.ids.as_ref().map_or(0, Namespaces::first);
        format!(",gid={}", first + TTY_GROUP)
    };
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
