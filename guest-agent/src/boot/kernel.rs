//! The kernel's own file systems in a sandbox: `/proc`, `/sys`, and the control groups.
//!
//! A sandbox shares the host's kernel, so its programs may read there and turn no switches.

use std::path::Path;

use nix::mount::MsFlags;

use super::ids::NESTED_MAX;
use super::root::{cover, mount_new};
use super::{BootError, Outcome, Stage};
use crate::cgroup::Directory;
use crate::sys::mount;

const INERT: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

/// Switches of the whole kernel, as Docker guards them.
const READ_ONLY_IN_PROC: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// Files with information about the host's memory, keys, devices and timing, such as keystroke
/// times.
const COVERED: [&str; 19] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/pagetypeinfo",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/vmallocinfo",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

pub(super) fn mount_proc(stage: &mut Stage) -> Result<Outcome, BootError> {
    let point = stage.root.join("proc");
    mount_new("proc", &point, 0o555, INERT, "")?;
    Ok(Outcome::Done)
}

pub(super) fn mount_sys(stage: &mut Stage) -> Result<Outcome, BootError> {
    let point = stage.root.join("sys");
    // If this fails, an image's own directory there must not be used for the group: it may lead out of the
    // root.
    let group = stage.group_path.take();
    mount_new("sysfs", &point, 0o555, INERT | MsFlags::MS_RDONLY, "")?;
    stage.group_path = group;
    Ok(Outcome::Done)
}

/// Opens the group for the agent, which makes groups in it throughout its life. It is a detached mount:
/// access to the descriptor gives access to this group and to none above.
pub(super) fn open_group(stage: &mut Stage) -> Result<Outcome, BootError> {
    let Some(path) = &stage.group_path else {
        return Ok(Outcome::Skipped("the supervisor could not make a control group"));
    };
    let opened = mount::copy(path).map_err(BootError::path("copying the mount of", path))?;
    stage.group = Some(Directory::from(opened));
    Ok(Outcome::Done)
}

/// Shows programs their part of the hierarchy, read-only: it contains their limits. A namespace
/// would show the same, but its root is the agent's group, beside the sessions.
pub(super) fn mount_cgroup(stage: &mut Stage) -> Result<Outcome, BootError> {
    let Some(path) = &stage.group_path else {
        return Ok(Outcome::Skipped("the supervisor could not make a control group"));
    };
    let point = stage.root.join("sys/fs/cgroup");
    if !point.is_dir() {
        return Ok(Outcome::Skipped("there is no /sys/fs/cgroup to mount it at"));
    }
    mount::bind(path, &point).map_err(BootError::path("mounting", &point))?;
    mount::seal(&point).map_err(BootError::path("making read-only", &point))?;
    Ok(Outcome::Done)
}

/// Makes the kernel's global files read-only and covers them. Only what exists needs it.
pub(super) fn guard_proc(stage: &mut Stage) -> Result<Outcome, BootError> {
    if stage.in_user_namespace {
        // Root must not make another root in here. On a kernel without this switch the system call filter
        // prevents it.
        std::fs::write(NESTED_MAX, "0").ok();
    }
    for path in READ_ONLY_IN_PROC.map(Path::new) {
        if path.exists() {
            mount::bind(path, path).map_err(BootError::path("binding", path))?;
            mount::seal(path).map_err(BootError::path("making read-only", path))?;
        }
    }
    COVERED.map(Path::new).into_iter().try_for_each(cover)?;
    Ok(Outcome::Done)
}
