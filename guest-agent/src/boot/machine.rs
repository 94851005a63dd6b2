//! Stage 1 as the init of a machine: from the kernel's start to a sandbox's first process.
//!
//! `main` calls [`enter`] once, before there is a thread. Where the kernel has started us decides
//! how the root comes about:
//!
//! ```text
//! initramfs ── modules ── host ── scratch, image ── overlay ──┐
//! disk, read-only ─────── host ── scratch ───────── overlay ──┼── furnish ── pivot ── finish ── serve
//! disk, `rw` ──────────── host ───────────────────────────────┴── furnish ─────────── finish ── serve
//! ```
//!
//! With a scratch device beside `rw`, the device is written to instead of the root.
//!
//! Nothing is executed a second time: the agent that began in the initramfs also serves, and the
//! initramfs is emptied after it.

mod console;
mod disk;
mod host;
mod kernel;
mod modules;
mod net;
mod steps;

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::mount::MsFlags;
use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};

use super::launch::Booted;
use super::{BootError, Outcome, Stage, StepReport, run};
use crate::cgroup::{Directory, OlderGroups};
use crate::config::line::{Line, parse_line};
use crate::host::serial::Port;
use crate::sys::mount;

/// What the steps know about the machine.
pub struct Facts {
    pub line: Line,
    /// The root that the kernel has mounted stays the root, and is written to.
    pub in_place: bool,
    /// The connection by which the host was asked; it becomes the first link.
    pub link: Option<OwnedFd>,
    /// The port at which the host is, where the line names one.
    pub serial: Option<Port>,
    /// The file system that is written to, as the kernel mounted it; for the end.
    pub written: Option<OwnedFd>,
    cgroup_root: Option<Directory>,
}

/// A machine that has come up.
pub struct Machine {
    pub booted: Booted,
    pub line: Line,
    pub link: Option<OwnedFd>,
    pub serial: Option<Port>,
    pub written: Option<OwnedFd>,
}

/// A failed boot, with what is needed to report it and to switch off.
pub struct Failure {
    pub error: BootError,
    pub line: Line,
    pub link: Option<OwnedFd>,
    pub written: Option<OwnedFd>,
}

/// The file system of an initramfs, unless the kernel uses a tmpfs for it.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// Boots the machine.
#[expect(clippy::result_large_err, reason = "called once, and either result is taken apart")]
pub fn enter() -> Result<Machine, Failure> {
    console::take();
    let mut report = Vec::new();
    let in_initramfs = statfs("/")
        .is_ok_and(|found| [RAMFS_MAGIC, TMPFS_MAGIC].contains(&found.filesystem_type()));
    // Without the command line the defaults apply.
    let early = kernel::mount_first();
    let line = parse_line(&std::fs::read_to_string("/proc/cmdline").unwrap_or_default());
    let mut stage = Stage::new(line.boot.clone());
    let in_place = !in_initramfs && line.writable_root && line.scratch.is_none();
    stage.machine =
        Some(Facts { line, in_place, link: None, serial: None, written: None, cgroup_root: None });
    let booted = early
        .map(|step| report.push(step))
        .and_then(|()| boot(in_initramfs, in_place, &mut stage, &mut report));
    let Facts { line, link, serial, written, cgroup_root, .. } =
        stage.machine.take().expect("it was put there");
    match booted {
        Ok(()) => {
            let config = stage.config;
            let older_groups = OlderGroups::default();
            let booted = Booted { config, report, cgroup_root, older_groups, layer: None };
            Ok(Machine { booted, line, link, serial, written })
        }
        Err(error) => {
            let link = link.or(serial.map(|port| port.file));
            Err(Failure { error, line, link, written })
        }
    }
}

fn boot(
    in_initramfs: bool,
    in_place: bool,
    stage: &mut Stage,
    report: &mut Vec<StepReport>,
) -> Result<(), BootError> {
    run(steps::HEAR, stage, report)?;
    if in_initramfs {
        run(steps::INITRAMFS, stage, report)?;
    }
    if in_place {
        disk::keep_root(stage);
        run(steps::FURNISH, stage, report)?;
    } else {
        run(if in_initramfs { steps::IMAGE } else { steps::MOUNTED }, stage, report)?;
        run(steps::FURNISH, stage, report)?;
        run(steps::PIVOT, stage, report)?;
    }
    run(steps::FINISH, stage, report)
}

impl Stage {
    fn facts(&mut self) -> &mut Facts {
        self.machine.as_mut().expect("only machines run these steps")
    }
}

/// Mounts one of the kernel's own file systems; that it is there already is as good.
fn mount_kernels(
    kind: &str,
    target: &Path,
    flags: MsFlags,
    options: &str,
) -> Result<Outcome, BootError> {
    super::overlay::make_directory(target, 0o755)?;
    match mount::fresh(kind, target, flags, options) {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(Outcome::Done),
        Err(error) => Err(BootError::path("mounting", target)(error)),
    }
}
