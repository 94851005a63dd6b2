//! What the sandbox may use and do: resource limits, and the bound on its programs' capabilities.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{BootError, Outcome, Stage};
use crate::sys::{prctl, seccomp};

/// Capabilities that programs may have, by their numbers in `linux/capability.h`: docker's default
/// set. What they reach is the sandbox's own: devices are void on its file systems, and its network
/// is its own. `SYS_PTRACE` is not among them: a debugger needs it only for processes that have
/// more than itself, and the one such process is the agent, which may be root on the host.
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

/// Bounds what any program of the sandbox can ever have. The agent itself keeps what it has, since
/// a bound takes effect when something is executed.
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
