//! The users of a sandbox that root starts: ids of the host that nobody else has, so that the sandbox's root
//! has no rights outside.
//!
//! `launch` makes the namespaces before it forks. The steps before `user-namespace` mount with root's
//! rights, for the user namespace owns no mount; from that step on the agent is root there alone.
//!
//! ```text
//! launch ── holder: becomes the range's first id, makes user, network, IPC and host name namespaces, waits
//!    ├── writes the maps, opens the namespaces, lets the holder end
//!    └── fork ── child: enters all but the user namespace, mounts ── enters that one, drops to its root
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, pipe2, setfsgid, setfsuid, setgroups, setresgid, setresuid};
use protocol::boot::{IDS_PER_SANDBOX, IdRanges};

use super::supervisor::die_with_supervisor;
use super::{BootError, LaunchError, Outcome, Stage};
use crate::sys::namespace::{Side, fork};
use crate::sys::{entropy, prctl};

/// The namespaces that the sandbox's users own. The first process enters them.
const OWNED: CloneFlags = CloneFlags::CLONE_NEWUSER
    .union(CloneFlags::CLONE_NEWNET)
    .union(CloneFlags::CLONE_NEWIPC)
    .union(CloneFlags::CLONE_NEWUTS);

/// The switch of the kernel that forbids user namespaces below the one that sets it.
pub(super) const NESTED_MAX: &str = "/proc/sys/user/max_user_namespaces";

/// Where ranges are claimed: a file of root, in which the bytes at a range's ids are locked.
const CLAIMS: &str = "/run/burrow-ids";

/// A range of ids, and the namespaces of which its first is root.
pub(super) struct Namespaces {
    first: u32,
    user: File,
    network: File,
    ipc: File,
    name: File,
    /// The range is taken as long as this file is open in the supervisor.
    _claim: File,
}

impl Namespaces {
    /// Takes a range that no sandbox has, and makes the namespaces.
    pub(super) fn make(ranges: IdRanges, processes_max: u64) -> Result<Self, LaunchError> {
        // They stay claimed until a free range is found, so that none is tried twice.
        let mut inhabited = Vec::new();
        loop {
            let (first, claim) = claim(ranges).map_err(LaunchError::Ids)?;
            match make_namespaces(first, processes_max) {
                Ok([user, network, ipc, name]) => {
                    return Ok(Self { first, user, network, ipc, name, _claim: claim });
                }
                Err(LaunchError::Namespace { source, .. })
                    if source.raw_os_error() == Some(INHABITED as i32) =>
                {
                    inhabited.push(claim);
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn user(&self) -> BorrowedFd<'_> {
        self.user.as_fd()
    }

    /// Enters all namespaces except the user namespace; what is made from here on belongs to the
    /// sandbox's root.
    pub(super) fn enter(&self) -> io::Result<()> {
        for (namespace, kind) in [
            (&self.network, CloneFlags::CLONE_NEWNET),
            (&self.ipc, CloneFlags::CLONE_NEWIPC),
            (&self.name, CloneFlags::CLONE_NEWUTS),
        ] {
            setns(namespace, kind)?;
        }
        prctl::keep_capabilities(true)?;
        set_file_owner(self.first);
        Ok(())
    }

    /// Becomes root of the user namespace, and so nobody on the host.
    fn become_root(&self) -> nix::Result<()> {
        setns(&self.user, CloneFlags::CLONE_NEWUSER)?;
        setgroups(&[])?;
        let (root, group) = (Uid::from_raw(0), Gid::from_raw(0));
        setresgid(group, group, group)?;
        setresuid(root, root, root)
    }
}

/// Makes a user namespace whose root is this id, and network, IPC and host name namespaces that it owns.
fn make_namespaces(first: u32, processes_max: u64) -> Result<[File; 4], LaunchError> {
    let failed = |source: io::Error| {
        if is_lacking(&source, &NOT_HERE) {
            LaunchError::NoUsers(source)
        } else {
            let what = "making the namespaces of the sandbox's users";
            LaunchError::Namespace { what, source }
        }
    };
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()));
    let (made, say_made) = pipe()?;
    let (go, let_go) = pipe()?;
    let child = match fork(None).map_err(LaunchError::Fork)? {
        Side::Parent { child } => child,
        Side::Child { .. } => {
            drop((made, let_go));
            hold(first, processes_max, say_made, go)
        }
    };
    drop((say_made, go));
    let open = || {
        read_outcome(made)?;
        let map = format!("0 {first} {IDS_PER_SANDBOX}");
        fs::write(format!("/proc/{child}/uid_map"), &map)?;
        fs::write(format!("/proc/{child}/gid_map"), &map)?;
        let open = |kind| File::open(format!("/proc/{child}/ns/{kind}"));
        Ok([open("user")?, open("net")?, open("ipc")?, open("uts")?])
    };
    let opened = open().map_err(failed);
    drop(let_go);
    opened
}

/// Sets the owner of the files that this process makes. The calls cannot fail for who may choose any
/// id.
fn set_file_owner(id: u32) {
    setfsgid(Gid::from_raw(id));
    setfsuid(Uid::from_raw(id));
}

/// Keeps the host's users in the sandbox where the kernel cannot do `what`, and undoes what
/// [`Namespaces::enter`] prepared. Any other error ends the start.
pub(super) fn give_up(
    stage: &mut Stage,
    what: &'static str,
    error: io::Error,
) -> Result<(), BootError> {
    if !is_lacking(&error, &CANNOT_MAP) {
        return Err(BootError::Call { what, source: error });
    }
    let why = format!("{what} failed: {error}");
    if stage.config.ids.is_some_and(|ids| ids.required) {
        return Err(BootError::Users { why });
    }
    stage.ids = None;
    stage.ids_missing = Some(why);
    // Programs would inherit it, and a user who is not root would keep every capability.
    prctl::keep_capabilities(false).map_err(BootError::call("giving up the sandbox's users"))?;
    set_file_owner(0);
    stay_tied(stage)
}

/// Ties the sandbox to its supervisor again: the kernel forgets the tie when the process changes its user,
/// even only for files.
fn stay_tied(stage: &Stage) -> Result<(), BootError> {
    let lives = stage.parent_lives.as_ref().expect("it is given where there are namespaces");
    die_with_supervisor(lives).map_err(|error| BootError::Call {
        what: "tying the sandbox to its supervisor",
        source: io::Error::other(error),
    })
}

/// From here on nothing is done with the rights of the host's root.
pub(super) fn enter_user_namespace(stage: &mut Stage) -> Result<Outcome, BootError> {
    let Some(namespaces) = &stage.ids else {
        return Ok(match &stage.ids_missing {
            Some(why) => Outcome::Failed(format!("root of the sandbox is root of the host: {why}")),
            None if stage.in_user_namespace => Outcome::Done,
            None => Outcome::Skipped(
                "root of the sandbox is root of the host: it has no users of its own by the configuration",
            ),
        });
    };
    namespaces.become_root().map_err(BootError::call("entering the user namespace"))?;
    stay_tied(stage)?;
    Ok(Outcome::Done)
}

/// The kernel's errors if it has no user namespaces, or this process may not make or map one. Other errors
/// are temporary or caused by somebody, and then the sandbox does not start: others must not be able to make
/// its root the host's.
const NOT_HERE: [Errno; 5] =
    [Errno::EINVAL, Errno::ENOSYS, Errno::EPERM, Errno::ENOSPC, Errno::EUSERS];

/// The kernel's answers if it or the file system cannot map the owners of files, or this process may not.
/// `ENOSPC` is not one of them: it means too many mounts. Without overlayfs (`ENODEV`) the next attempt
/// fails too, with a better message.
const CANNOT_MAP: [Errno; 5] =
    [Errno::EINVAL, Errno::ENOSYS, Errno::EPERM, Errno::EOPNOTSUPP, Errno::ENODEV];

/// Whether an error means that this host cannot do something, and not that it failed this time.
fn is_lacking(error: &io::Error, answers: &[Errno]) -> bool {
    error.raw_os_error().is_some_and(|errno| answers.contains(&Errno::from_raw(errno)))
}

/// Claims a range that no living sandbox of this host has. The kernel releases a lock when the last process
/// with the open file is gone. Only root can open it.
fn claim(ranges: IdRanges) -> io::Result<(u32, File)> {
    let claims = File::options()
        .read(true)
        .write(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(CLAIMS)
        .map_err(|error| io::Error::other(format!("{CLAIMS} cannot be opened: {error}")))?;
    let found = claims.metadata()?;
    if !found.is_file() || found.uid() != 0 || found.mode() & 0o077 != 0 {
        let why = format!("{CLAIMS} is not a file that root alone can open: remove it");
        return Err(io::Error::other(why));
    }
    let mut random = [0; 4];
    entropy::fill(&mut random)?;
    let begin = u32::from_ne_bytes(random);
    for step in 0..ranges.count {
        let number = begin.wrapping_add(step) % ranges.count;
        let first = ranges.first + number * IDS_PER_SANDBOX;
        let lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: libc::off_t::from(first),
            l_len: libc::off_t::from(IDS_PER_SANDBOX),
            l_pid: 0,
        };
        match fcntl(&claims, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => return Ok((first, claims)),
            Err(Errno::EAGAIN | Errno::EACCES) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::Error::other("every range is taken: raise `id_ranges` of `[process]`"))
}

/// The life of the process that makes the namespaces.
fn hold(first: u32, processes_max: u64, made: OwnedFd, go: OwnedFd) -> ! {
    let make = || -> io::Result<()> {
        let (soft, hard) = match processes_max {
            0 => getrlimit(Resource::RLIMIT_NPROC)?,
            max => (max, max),
        };
        prctl::keep_capabilities(true)?;
        become_only(first, hard)?;
        // The kernel limits all of the namespace's processes together to its creator's limit; no other
        // sandbox has the creator's id.
        setrlimit(Resource::RLIMIT_NPROC, soft, hard)?;
        unshare(OWNED)?;
        // In the sandbox root must not make another root.
        fs::write(NESTED_MAX, "0").ok();
        Ok(())
    };
    let errno = make().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
    File::from(made).write_all(&errno.to_ne_bytes()).ok();
    // Until the end of the pipe: nothing is ever written to it.
    File::from(go).read_to_end(&mut Vec::new()).ok();
    std::process::exit(0)
}

/// Becomes the user of this id. Fails with [`INHABITED`] if another process has the id, or is in a user
/// namespace that the id has made: a killed supervisor releases its range before the processes of its sandbox
/// are gone.
///
/// The kernel counts the processes of a namespace as those of its creator. It checks the count when a process
/// that has changed to a user with too many processes executes a program.
fn become_only(id: u32, processes_hard: u64) -> io::Result<()> {
    let allow = |count| setrlimit(Resource::RLIMIT_NPROC, count, processes_hard);
    // With a limit of 0 every kernel remembers to check; some do so only if there is another process.
    allow(0)?;
    let id = Uid::from_raw(id);
    setresuid(id, id, id)?;
    allow(1)?;
    match prctl::execute_nothing() {
        INHABITED => Err(INHABITED.into()),
        _ => Ok(()),
    }
}

/// The kernel's error for a user with more processes than allowed.
const INHABITED: Errno = Errno::EAGAIN;

/// The result of the holder's work.
fn read_outcome(made: OwnedFd) -> io::Result<()> {
    let mut errno = [0; 4];
    File::from(made).read_exact(&mut errno)?;
    match i32::from_ne_bytes(errno) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_cannot_do_leaves_a_sandbox_with_the_host_s_users() {
        let is = |errno: Errno, answers| is_lacking(&errno.into(), answers);
        for lacking in [Errno::EINVAL, Errno::ENOSYS, Errno::EPERM] {
            assert!(is(lacking, &CANNOT_MAP) && is(lacking, &NOT_HERE), "{lacking}");
        }
        for passing in [
            Errno::ENOMEM,
            Errno::EMFILE,
            Errno::ENFILE,
            Errno::EAGAIN,
            Errno::EBUSY,
            Errno::EINTR,
            Errno::EIO,
            Errno::ENOENT,
            Errno::EACCES,
            Errno::ESTALE,
        ] {
            assert!(!is(passing, &CANNOT_MAP) && !is(passing, &NOT_HERE), "{passing}");
        }
        assert!(!is(Errno::ENOSPC, &CANNOT_MAP), "too many mounts are somebody's doing");
        assert!(!is_lacking(&io::Error::other("no number"), &CANNOT_MAP));
    }
}
