//! What the sandbox may use and do: resource limits, and the capability bound of its programs.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, getresgid, setresgid};
use protocol::boot::PROCESSES_UNBOUNDED;

use super::{BootError, Outcome, Stage};
use crate::sys::{capability, landlock, oom, prctl, seccomp};

/// Capabilities that programs may have, by their numbers in `linux/capability.h`: docker's default
/// set. They only affect the sandbox's own resources: devices are disabled on its file systems, and
/// its network is separate. `SYS_PTRACE` is not among them: a debugger needs it only for processes
/// that have more capabilities than itself, and the one such process is the agent, which may be
/// root on the host.
const CAPABILITIES_KEPT: [u32; 14] = [
    0,  // CHOWN
    1,  // DAC_OVERRIDE
    3,  // FOWNER
    4,  // FSETID
    5,  // KILL
    6,  // SETGID
    7,  // SETUID
    8,  // SETPCAP
    10, // NET_BIND_SERVICE
    13, // NET_RAW
    18, // SYS_CHROOT
    27, // MKNOD
    29, // AUDIT_WRITE
    31, // SETFCAP
];

/// The same as a set. The agent's own threads that work on files for clients need it, too.
pub const PROGRAMS_MAY_HAVE: u64 = capability::set_of(&CAPABILITIES_KEPT);

/// Capabilities that only the agent keeps after the boot.
const AGENT_MAY_HAVE: u64 = PROGRAMS_MAY_HAVE
    | capability::set_of(&[
        12, // NET_ADMIN, to give the loopback the addresses of the gates
        19, // SYS_PTRACE, to read what processes of other users use and which session they belong to
        21, // SYS_ADMIN, to give programs their filter without forbidding them to change their user
    ]);

/// The kernel's capability sets have 64 bits.
const CAPABILITIES: u32 = 64;

/// The agent holds several descriptors for each session. What programs start with is
/// `process`'s affair.
pub(super) fn raise_limits(_: &mut Stage) -> Result<Outcome, BootError> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(BootError::call("reading the limit of open files"))?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        .map_err(BootError::call("raising the limit of open files"))?;
    Ok(Outcome::Done)
}

/// A saved group of the agent that is not its own. Any group of the namespace would do.
const SAVED_GROUP: Gid = Gid::from_raw(65534);

/// Keeps root of the sandbox from setting the agent's limits: the kernel lets a process set those of another
/// whose users and groups are all its own. Nothing else looks at the saved group, while a saved user could send
/// signals.
pub(super) fn own_limits(_: &mut Stage) -> Result<Outcome, BootError> {
    let own = getresgid().map_err(BootError::call("reading the agent's groups"))?;
    match setresgid(own.real, own.effective, SAVED_GROUP) {
        Err(Errno::EINVAL) => Ok(Outcome::Skipped(
            "the sandbox has one group, so programs can lower the agent's limits",
        )),
        saved => saved.map(|()| Outcome::Done).map_err(BootError::call("saving another group")),
    }
}

/// So that a program is killed before the agent when memory runs out.
pub(super) fn open_memory_score(_: &mut Stage) -> Result<Outcome, BootError> {
    oom::open().map_err(BootError::call("opening the agent's memory score"))?;
    Ok(Outcome::Done)
}

/// Limits the number of the sandbox's processes if no control group does: the kernel counts them per user of
/// a user namespace.
pub(super) fn bound_processes(stage: &mut Stage) -> Result<Outcome, BootError> {
    let processes_max = stage.config.processes_max;
    if processes_max == 0 {
        return Ok(Outcome::Done);
    }
    // The kernel does not count processes of the host's root.
    if stage.has_host_users() {
        return Ok(if group_bounds_processes(stage) {
            Outcome::Done
        } else {
            let why =
                "root of the sandbox is root of the host, and no control group has the controller";
            Outcome::Failed(format!("{PROCESSES_UNBOUNDED}: {why}"))
        });
    }
    setrlimit(Resource::RLIMIT_NPROC, processes_max, processes_max)
        .map_err(BootError::call("bounding the processes"))?;
    Ok(Outcome::Done)
}

fn group_bounds_processes(stage: &Stage) -> bool {
    let max = stage.group.as_ref().and_then(|group| group.read("pids.max").ok());
    max.is_some_and(|max| max.trim_end() != "max")
}

/// Limits what any program of the sandbox can ever have. The agent itself keeps its capabilities,
/// since the bound takes effect when something is executed.
pub(super) fn bound_capabilities(_: &mut Stage) -> Result<Outcome, BootError> {
    for capability in (0..CAPABILITIES).filter(|number| !CAPABILITIES_KEPT.contains(number)) {
        let known = prctl::drop_from_bounding_set(capability)
            .map_err(BootError::call("bounding the capabilities of programs"))?;
        if !known {
            break;
        }
    }
    Ok(Outcome::Done)
}

/// The kernel is the host's too: a socket to the host's own kind must not be opened in here.
pub(super) fn filter_calls(_: &mut Stage) -> Result<Outcome, BootError> {
    seccomp::close_doors().map_err(BootError::call("filtering system calls"))?;
    Ok(Outcome::Done)
}

/// Forbids to open anything outside of the sandbox, through whatever descriptor. The agent's own mount of its
/// control group is detached and so not below the root: it gets a rule of its own. Of the writable layer it may
/// list the directories.
pub(super) fn confine_files(stage: &mut Stage) -> Result<Outcome, BootError> {
    let root = open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(BootError::path("opening", "/"))?;
    let group = stage.group.as_ref().map(AsFd::as_fd);
    let scratch = stage.scratch.as_ref().map(AsFd::as_fd);
    match landlock::confine(root.as_fd(), group, scratch) {
        Ok(true) => Ok(Outcome::Done),
        Ok(false) => Ok(Outcome::Skipped("this kernel has no Landlock, or its first version")),
        Err(error) => Err(BootError::call("confining files by Landlock")(error)),
    }
}

/// The agent gives up what only the boot needed.
pub(super) fn drop_rights(_: &mut Stage) -> Result<Outcome, BootError> {
    capability::retain(AGENT_MAY_HAVE).map_err(BootError::call("giving up rights"))?;
    Ok(Outcome::Done)
}
