//! The kernel's own file systems in a sandbox: `/proc`, `/sys`, and the control groups.
//!
//! A sandbox shares the host's kernel, so its programs may read there and turn no switches.

use std::path::Path;

use nix::mount::MsFlags;

use super::root::{cover, mount_new};
use super::{BootError, Outcome, Stage};
use crate::sys::mount;

const INERT: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

/// Switches of the whole kernel, as docker guards them.
const READ_ONLY_IN_PROC: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// What tells of the host's memory, keys and timing.
const COVERED_IN_PROC: [&str; 4] =
    ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug"];

pub(super) fn mount_proc(stage: &mut Stage) -> Result<Outcome, BootError> {
    let point = stage.root.join("proc");
    mount_new("proc", &point, 0o555, INERT, "")?;
    Ok(Outcome::Done)
}

pub(super) fn mount_sys(stage: &mut Stage) -> Result<Outcome, BootError> {
    let point = stage.root.join("sys");
    // Where this fails, what an image has there is no place for the group: it may lead out of the root.
    let group = stage.group_path.take();
    mount_new("sysfs", &point, 0o555, INERT | MsFlags::MS_RDONLY, "")?;
    stage.group_path = group;
    Ok(Outcome::Done)
}

/// Shows programs their part of the hierarchy, read-only: what they may use is written there. A
/// namespace would show the same, but it is rooted where the agent is, beside the sessions.
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

/// Makes read-only and covers what is the whole kernel's. Only what exists needs it.
pub(super) fn guard_proc(stage: &mut Stage) -> Result<Outcome, BootError> {
    if stage.in_user_namespace {
        return Ok(Outcome::Skipped("the kernel refuses an ordinary user's writes"));
    }
    for path in READ_ONLY_IN_PROC.map(Path::new) {
        if path.exists() {
            mount::bind(path, path).map_err(BootError::path("binding", path))?;
            mount::seal(path).map_err(BootError::path("making read-only", path))?;
        }
    }
    COVERED_IN_PROC.map(Path::new).into_iter().try_for_each(cover)?;
    Ok(Outcome::Done)
}
