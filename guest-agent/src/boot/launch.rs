//! `guest-agent launch`: from an ordinary process to the supervisor of a sandbox and, in a child,
//! the sandbox's first process.
//!
//! `main` calls [`enter`] once, before there is a thread. The descriptors are the host's doing: 0
//! is the socket to it, 1 the door or the empty device, 2 the log. The process that
//! returns as [`Role::Init`] has them; the supervisor keeps only the log.
//!
//! ```text
//! launch ── own group, user and pid namespace ── fork ──┬── supervisor: waits, removes the group
//!                                                       └── child: the other namespaces, steps, serves
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{getegid, geteuid, pipe2, setsid};
use protocol::boot::BootConfig;

use super::ids::Namespaces;
use super::root::below_host;
use super::supervisor::{self, SandboxGroup, die_with_supervisor};
use super::{LaunchError, Outcome, Stage, StepReport, run, steps};
use crate::cgroup::{Directory, OlderGroups};
use crate::config::Layer;
use crate::sys::namespace::{Side, fork};
use crate::sys::{clock, prctl};

/// Which process this one is now.
pub enum Role {
    /// The sandbox is over. Nothing is left to do but to exit with this.
    Supervisor { exit_code: u8 },
    /// PID 1 of the sandbox.
    Init(Box<Booted>),
}

/// The result of stage 1.
pub struct Booted {
    pub config: BootConfig,
    pub report: Vec<StepReport>,
    /// For `CgroupSupport::discover`.
    pub cgroup_root: Option<Directory>,
    pub older_groups: OlderGroups,
    pub layer: Option<Layer>,
}

/// Becomes the sandbox that `config` describes. An error is returned on whichever side it happens,
/// with descriptor 0 still open to report it to the host.
pub fn enter(config: BootConfig) -> Result<Role, LaunchError> {
    let in_user_namespace = !geteuid().is_root();
    supervisor::block_signals()?;
    let ids = config.ids.filter(|_| !in_user_namespace);
    let (ids, ids_missing) = match ids.map(|ids| Namespaces::make(ids, config.processes_max)) {
        Some(Err(error @ LaunchError::NoUsers(_)))
            if !config.ids.is_some_and(|ids| ids.required) =>
        {
            (None, Some(error.to_string()))
        }
        Some(Err(error)) => return Err(error),
        Some(Ok(ids)) => (Some(ids), None),
        None => (None, None),
    };
    // Best effort: without a group, sessions are identified by /proc.
    let owner = ids.as_ref().map(Namespaces::first);
    let group = SandboxGroup::create(&config, owner).ok();
    enter_outer_namespaces(in_user_namespace)?;
    let (parent_lives, parent) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| {
        LaunchError::Supervision { what: "making a pipe", source: errno.into() }
    })?;
    match fork(group.as_ref().map(SandboxGroup::leaf)).map_err(LaunchError::Fork)? {
        Side::Parent { child } => {
            drop(parent_lives);
            // `parent` stays open until this process has ended.
            let exit_code = supervisor::watch(child, group);
            // So does the range of ids.
            drop((parent, ids));
            Ok(Role::Supervisor { exit_code: exit_code? })
        }
        Side::Child { in_group } => {
            drop(parent);
            let group = group.filter(|group| in_group || group.enter().is_ok());
            let stage = Stage { in_user_namespace, ids, ids_missing, ..Stage::new(config) };
            become_init(stage, group, parent_lives).map(|booted| Role::Init(Box::new(booted)))
        }
    }
}

/// The namespaces that a child is born into. The supervisor itself stays in all others, so that it
/// can clean up where it came from.
fn enter_outer_namespaces(in_user_namespace: bool) -> Result<(), LaunchError> {
    let failed = |what| move |source| LaunchError::Namespace { what, source };
    if in_user_namespace {
        let (uid, gid) = (geteuid(), getegid());
        unshare(CloneFlags::CLONE_NEWUSER)
            .map_err(|errno| failed("making a user namespace")(errno.into()))?;
        // The kernel lets an ordinary user map a group only after this.
        for (file, text) in [
            ("/proc/self/setgroups", "deny".to_owned()),
            ("/proc/self/uid_map", format!("0 {uid} 1")),
            ("/proc/self/gid_map", format!("0 {gid} 1")),
        ] {
            std::fs::write(file, text).map_err(failed("becoming root of a user namespace"))?;
        }
    }
    unshare(CloneFlags::CLONE_NEWPID)
        .map_err(|errno| failed("making a pid namespace")(errno.into()))
}

/// The namespaces of the first process alone. There is none for control groups: it would be rooted at
/// the agent's own leaf, and show programs everything but their own group.
const INNER: CloneFlags = CloneFlags::CLONE_NEWNS
    .union(CloneFlags::CLONE_NEWUTS)
    .union(CloneFlags::CLONE_NEWIPC)
    .union(CloneFlags::CLONE_NEWNET);

fn become_init(
    mut stage: Stage,
    group: Option<SandboxGroup>,
    parent_lives: OwnedFd,
) -> Result<Booted, LaunchError> {
    die_with_supervisor(&parent_lives)?;
    stage.parent_lives = Some(parent_lives);
    // A terminal's signals are for the person at it, and not for the sandbox.
    setsid().map_err(|errno| LaunchError::Supervision {
        what: "leaving the session of the host",
        source: errno.into(),
    })?;
    umask(Mode::from_bits_truncate(0o022));
    prctl::leave_keyrings();

    let begun_us = clock::monotonic_us();
    enter_inner_namespaces(stage.ids.as_ref()).map_err(|source| LaunchError::Namespace {
        what: "making the namespaces of the sandbox",
        source,
    })?;
    let namespaces = StepReport {
        name: "namespaces",
        outcome: Outcome::Done,
        micros: clock::monotonic_us() - begun_us,
    };

    // The host's hierarchies are still visible.
    let older_groups = OlderGroups::open();
    stage.group_path = group.map(|group| below_host(&group.into_path()));
    let mut report = vec![namespaces];
    run(steps::STEPS, &mut stage, &mut report)?;
    let is_patchwork = stage.is_patchwork;
    let layer = stage.scratch.map(|scratch| Layer { directory: Arc::new(scratch), is_patchwork });
    Ok(Booted { config: stage.config, report, cgroup_root: stage.group, older_groups, layer })
}

fn enter_inner_namespaces(ids: Option<&Namespaces>) -> io::Result<()> {
    match ids {
        None => unshare(INNER)?,
        Some(ids) => {
            ids.enter()?;
            unshare(CloneFlags::CLONE_NEWNS)?;
        }
    }
    Ok(())
}
