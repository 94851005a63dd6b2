//! The checks, one function each.

use std::fs;

use protocol::hello::AgentInfo;
use protocol::requests;
use sysinfo::{MemoryRefreshKind, System};

use super::probe::What;
use super::{Check, Verdict};
use crate::context::Context;
use crate::exit;
use crate::values::human_bytes;
use agent_client::program::{Program, draw_session};
use host::paths::{self, Paths};
use sandbox::limits::SCRATCH_BYTES_DEFAULT;
use sandbox::{Name, SandboxRef, Spec};

/// Free memory below which a box with a full writable layer would push the host into swap.
const MEMORY_COMFORTABLE_BYTES: u64 = 2 * SCRATCH_BYTES_DEFAULT;
/// Free disk below which the logs of a few boxes do not fit.
const DISK_COMFORTABLE_BYTES: u64 = 1024 * 1024 * 1024;

pub(super) fn agent() -> Check {
    match paths::find_agent() {
        Ok(path) => Check::new("agent", Verdict::Works, path.display().to_string()),
        Err(missing) => Check::new("agent", Verdict::Fails, missing.to_string())
            .fix("build it with `just build`, or say where it is with BURROW_AGENT=/path"),
    }
}

pub(super) fn directories(paths: &Paths) -> Check {
    let name = "directories";
    match paths.prepare() {
        Ok(()) => {
            let detail = format!("{} and {}", paths.runtime.display(), paths.state.display());
            Check::new(name, Verdict::Works, detail)
        }
        Err(error) => Check::new(name, Verdict::Fails, error.to_string())
            .fix("choose others with BURROW_RUNTIME_DIR and BURROW_STATE_DIR"),
    }
}

/// Namespaces and the overlay.
pub(super) async fn probed() -> Vec<Check> {
    let root = nix::unistd::geteuid().is_root();
    let user = match What::UserNamespace.ask().await {
        Ok(()) => Check::new("user namespaces", Verdict::Works, "can be made"),
        // root does without.
        Err(reason) if root => Check::new("user namespaces", Verdict::Lacks, reason)
            .fix("not needed as root; others need sysctl kernel.unprivileged_userns_clone=1"),
        Err(reason) => Check::new("user namespaces", Verdict::Fails, reason).fix(
            "run as root, or allow them: sysctl kernel.unprivileged_userns_clone=1, \
             user.max_user_namespaces=15000, kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    };
    let namespaces = match What::Namespaces.ask().await {
        Ok(()) => Check::new("namespaces", Verdict::Works, "mount, PID, UTS, IPC and network"),
        Err(reason) => Check::new("namespaces", Verdict::Fails, reason).fix(
            "in a container, run it with more rights (docker run --privileged); \
             otherwise run as root",
        ),
    };
    let overlay = match What::Overlay.ask().await {
        Ok(()) => Check::new("overlay", Verdict::Works, "over the host's root"),
        Err(reason) => Check::new("overlay", Verdict::Fails, reason)
            .fix("modprobe overlay; without root it needs Linux 5.11 or newer"),
    };
    vec![user, namespaces, overlay]
}

/// What the agent of a box that was tried says of its control groups: only making some in it tells
/// whether they can be made. Those bound single sessions; `held` are the controllers by which this host
/// bounds whole boxes, from outside and in either version.
pub(super) fn control_groups(agent: Option<&AgentInfo>, held: &[&str]) -> Check {
    let name = "control groups";
    let Some(agent) = agent else {
        return Check::new(name, Verdict::Unknown, "no box came up to try them in");
    };
    if let Some(reason) = &agent.cgroup_missing {
        return Check::new(name, Verdict::Lacks, reason.clone()).fix(format!(
            "{}; run as root with cgroup v2 mounted, or with systemd-run --user --scope \
             -p Delegate=yes host-bridge serve",
            without_groups(held)
        ));
    }
    let missing: Vec<&str> = CONTROLLERS_WANTED
        .into_iter()
        .filter(|wanted| !agent.controllers.iter().any(|there| there == *wanted))
        .collect();
    if missing.is_empty() {
        return Check::new(
            name,
            Verdict::Works,
            format!("v2 with {}", agent.controllers.join(" ")),
        );
    }
    let lacks = format!("cgroup v2 without {}", missing.join(", "));
    Check::new(name, Verdict::Lacks, lacks).fix(format!(
        "{}; the container withholds the controllers, or version 1 has them, which booting with \
         systemd.unified_cgroup_hierarchy=1 changes",
        without_groups(held)
    ))
}

/// What holds where sessions have no groups of their own.
fn without_groups(held: &[&str]) -> String {
    if held.is_empty() {
        return "boxes run, without limits of memory and CPU".to_owned();
    }
    let held = held.join(" and ");
    format!("whole boxes are held to their {held} all the same, single sessions in them are not")
}

/// The controllers that a session's limits need.
const CONTROLLERS_WANTED: [&str; 3] = ["cpu", "memory", "pids"];

pub(super) fn vsock() -> Check {
    let name = "vsock";
    // Asked of the list of protocols: a socket of this family reaches whatever the host's own
    // hypervisor has put there, and is none of ours.
    let protocols = fs::read_to_string("/proc/net/protocols").unwrap_or_default();
    if !protocols.lines().any(|line| line.starts_with("AF_VSOCK")) {
        return Check::new(name, Verdict::Lacks, "no vsock sockets")
            .fix("modprobe vsock; only virtual machines that others start need it");
    }
    match fs::File::open("/dev/vhost-vsock") {
        Ok(_) => Check::new(name, Verdict::Works, "sockets and /dev/vhost-vsock"),
        Err(error) => Check::new(name, Verdict::Lacks, format!("sockets, but /dev/vhost-vsock: {error}"))
            .fix("modprobe vhost_vsock, and be in the group kvm; only virtual machines that others start need it"),
    }
}

pub(super) fn memory() -> Check {
    let name = "memory";
    let mut host = System::new();
    host.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    let (total, available) = (host.total_memory(), host.available_memory());
    if total == 0 {
        return Check::new(name, Verdict::Unknown, "/proc/meminfo does not say");
    }
    let detail = format!("{} of {} available", human_bytes(available), human_bytes(total));
    if available < MEMORY_COMFORTABLE_BYTES {
        return Check::new(name, Verdict::Lacks, detail)
            .fix("give boxes a smaller --scratch, since their writable layers are in memory");
    }
    Check::new(name, Verdict::Works, detail)
}

pub(super) fn disk(paths: &Paths) -> Check {
    let name = "disk";
    // The directory may not exist yet; what it will be on does.
    let Some(existing) = paths.state.ancestors().find(|path| path.exists()) else {
        return Check::new(name, Verdict::Unknown, "the state directory is nowhere");
    };
    // sysinfo lists neither NFS, nor tmpfs, nor anything below /run, and knows no free inodes.
    let Ok(status) = rustix::fs::statvfs(existing) else {
        return Check::new(name, Verdict::Unknown, "the file system does not say");
    };
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    let detail = format!("{} free for logs at {}", human_bytes(free), paths.state.display());
    if free < DISK_COMFORTABLE_BYTES || status.f_favail == 0 {
        return Check::new(name, Verdict::Lacks, detail)
            .fix("free some, `host-bridge rm` boxes that are over, or set BURROW_STATE_DIR");
    }
    Check::new(name, Verdict::Works, detail)
}

pub(super) async fn daemon(context: &Context) -> Check {
    let name = "daemon";
    let asked = match context.daemon().await {
        Ok(mut daemon) => daemon.version().await.map_err(anyhow::Error::from),
        Err(error) => Err(error),
    };
    match asked {
        Ok(version) => {
            let detail = format!("{}, process {}", version.release, version.pid);
            Check::new(name, Verdict::Works, detail)
        }
        Err(error) => Check::new(name, Verdict::Lacks, format!("{error:#}"))
            .fix("`host-bridge serve &` starts it; only boxes that stay need it"),
    }
}

/// The check that counts: a box, and a command in it. Returns what its agent says of itself, too.
pub(super) async fn sandbox(paths: &Paths) -> (Check, Option<AgentInfo>) {
    let name = "a box";
    let mut agent = None;
    let check = match try_sandbox(paths, &mut agent).await {
        Ok(detail) => Check::new(name, Verdict::Works, detail),
        Err(error) => Check::new(name, Verdict::Fails, format!("{error:#}"))
            .fix("mend what failed above, from the top"),
    };
    (check, agent)
}

async fn try_sandbox(paths: &Paths, agent: &mut Option<AgentInfo>) -> anyhow::Result<String> {
    let begun = std::time::Instant::now();
    let which = SandboxRef { namespace: Name::default_namespace(), name: Name::generate()? };
    let one_shot = sandbox::one_shot(paths, &Spec::new(which)).await?;
    *agent = Some(one_shot.guest().info());
    let mut program = Program::new(draw_session()?, requests::Program::argv(["true"]));
    program.start.deadline_ms = Some(10_000);
    let mut unheard = (|_: &[u8]| {}, |_: &[u8]| {});
    let ended = match program.begin(one_shot.guest()) {
        Ok(mut running) => running.collect(b"", &mut unheard).await,
        Err(error) => Err(error),
    };
    let took = begun.elapsed();
    one_shot.end().await;
    let record = ended?.record;
    match record.cause.shell_code() {
        0 => Ok(format!("started, ran `true` and ended, in {} ms", took.as_millis())),
        code => {
            let reason = exit::explain(&record.cause, "true");
            anyhow::bail!(
                "`true` in a box: {}",
                reason.unwrap_or_else(|| format!("exit code {code}"))
            )
        }
    }
}
