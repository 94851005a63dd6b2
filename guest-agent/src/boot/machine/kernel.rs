//! The kernel's own file systems in a machine, its clock, and its control groups. The kernel is the
//! sandbox's alone, so nothing of it is kept from its programs.

use std::path::Path;

use nix::mount::MsFlags;
use protocol::boot::HOME;

use super::super::overlay::make_directory;
use super::super::root::SHARED_MEMORY;
use super::super::{BootError, Outcome, Stage, StepReport, devices};
use super::mount_kernels;
use crate::cgroup::{self, AGENT_LEAF, Directory};
use crate::sys::clock;

const INERT: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

/// The group of the agent and everything that it starts.
const GROUP: &str = "burrow";

/// What every other step needs to see.
pub(super) fn mount_first() -> Result<StepReport, BootError> {
    let begun_us = clock::monotonic_us();
    mount_kernels("proc", Path::new("/proc"), INERT, "")?;
    mount_kernels("sysfs", Path::new("/sys"), INERT, "")?;
    mount_kernels("devtmpfs", Path::new("/dev"), MsFlags::MS_NOSUID, "mode=755")?;
    let micros = clock::monotonic_us() - begun_us;
    Ok(StepReport { name: "first-mounts", outcome: Outcome::Done, micros })
}

pub(super) fn mount_devices(stage: &mut Stage) -> Result<Outcome, BootError> {
    let dev = stage.root.join("dev");
    let outcome = mount_kernels("devtmpfs", &dev, MsFlags::MS_NOSUID, "mode=755")?;
    devices::make_links(&dev)?;
    Ok(outcome)
}

pub(super) fn mount_shared_memory(stage: &mut Stage) -> Result<Outcome, BootError> {
    // In place there is no scratch file system to share.
    if Path::new(SHARED_MEMORY).exists() && stage.root != Path::new("/") {
        return devices::mount_shared_memory(stage);
    }
    mount_kernels("tmpfs", &stage.root.join("dev/shm"), INERT, "mode=1777")
}

pub(super) fn mount_proc(stage: &mut Stage) -> Result<Outcome, BootError> {
    mount_kernels("proc", &stage.root.join("proc"), INERT, "")
}

pub(super) fn mount_sys(stage: &mut Stage) -> Result<Outcome, BootError> {
    mount_kernels("sysfs", &stage.root.join("sys"), INERT, "")
}

/// Mounts the hierarchy and makes the agent's part of it, with the agent in a leaf.
pub(super) fn mount_cgroup(stage: &mut Stage) -> Result<Outcome, BootError> {
    let point = stage.root.join("sys/fs/cgroup");
    if !point.is_dir() {
        return Ok(Outcome::Skipped("there is no /sys/fs/cgroup to mount it at"));
    }
    let outcome = mount_kernels("cgroup2", &point, INERT, "nsdelegate,memory_recursiveprot")?;
    let make = || {
        let top = Directory::open(&point)?;
        cgroup::hand_down(&top);
        if !top.has(GROUP) {
            top.make(GROUP)?;
        }
        let group = top.open_below(GROUP)?;
        if !group.has(AGENT_LEAF) {
            group.make(AGENT_LEAF)?;
        }
        group.open_below(AGENT_LEAF)?.write("cgroup.procs", "0")?;
        Ok(group)
    };
    let group = make().map_err(BootError::call::<std::io::Error>("making the agent's group"))?;
    stage.facts().cgroup_root = Some(group);
    Ok(outcome)
}

/// A root that is used directly has its own directories for these.
pub(super) fn mount_run_in_place(stage: &mut Stage) -> Result<Outcome, BootError> {
    if !stage.facts().in_place {
        return Ok(Outcome::Done);
    }
    let flags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);
    mount_kernels("tmpfs", Path::new("/run"), flags, "mode=755")?;
    make_directory(Path::new("/run/lock"), 0o1777)?;
    make_directory(Path::new("/tmp"), 0o1777)?;
    make_directory(Path::new(HOME), 0o755)?;
    Ok(Outcome::Done)
}

/// A directory of the host, in the sandbox's root. If one was promised, an empty directory of the machine
/// would only look like it, and writes to it would be lost.
pub(super) fn mount_workspace(stage: &mut Stage) -> Result<Outcome, BootError> {
    if !stage.facts().line.workspace {
        return Ok(Outcome::Skipped("none is mounted"));
    }
    let flags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);
    mount_kernels("virtiofs", Path::new("/workspace"), flags, "")
}

/// Sets the clock to the host's. A machine need not have one that knows the time.
pub(super) fn set_clock(stage: &mut Stage) -> Result<Outcome, BootError> {
    match stage.config.time_us {
        0 => Ok(Outcome::Skipped("the host has not sent the time")),
        time_us => {
            clock::set_wall(time_us).map_err(BootError::call("setting the clock"))?;
            Ok(Outcome::Done)
        }
    }
}
