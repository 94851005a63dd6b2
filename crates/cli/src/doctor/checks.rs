//! The checks of the host, one function each.

use std::fs;

use protocol::hello::AgentInfo;
use protocol::requests;
use sysinfo::{MemoryRefreshKind, System};

use super::probe::ProbeKind;
use super::{Check, Verdict};
use crate::context::Context;
use crate::exit;
use crate::values::human_bytes;
use agent_client::program::{Program, draw_session};
use host::paths::{self, Paths};
use sandbox::limits::SCRATCH_BYTES_DEFAULT;
use sandbox::{Name, SandboxRef, Spec};

/// Free memory below which a sandbox with a full writable layer would push the host into swap.
const MEMORY_COMFORTABLE_BYTES: u64 = 2 * SCRATCH_BYTES_DEFAULT;
/// Free disk below which the logs of a few sandboxes do not fit.
const DISK_COMFORTABLE_BYTES: u64 = 1024 * 1024 * 1024;

pub(super) fn agent() -> Check {
    match paths::find_agent() {
        Ok(path) => Check::new("agent", Verdict::Works, path.display().to_string()),
        Err(missing) => Check::new("agent", Verdict::Fails, missing.to_string())
            .fix("build it with `just build`, or set its path with BURROW_AGENT=/path"),
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
    let user = match ProbeKind::UserNamespace.ask().await {
        Ok(()) => Check::new("user namespaces", Verdict::Works, "available"),
        // root does without.
        Err(reason) if root => Check::new("user namespaces", Verdict::Lacks, reason)
            .fix("not needed as root; other users need sysctl kernel.unprivileged_userns_clone=1"),
        Err(reason) => Check::new("user namespaces", Verdict::Fails, reason).fix(
            "run as root, or allow them: sysctl kernel.unprivileged_userns_clone=1, \
             user.max_user_namespaces=15000, kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    };
    let namespaces = match ProbeKind::Namespaces.ask().await {
        Ok(()) => Check::new("namespaces", Verdict::Works, "mount, PID, UTS, IPC and network"),
        Err(reason) => Check::new("namespaces", Verdict::Fails, reason).fix(
            "in a container, run it with more rights (docker run --privileged); \
             otherwise run as root",
        ),
    };
    let overlay = match ProbeKind::Overlay.ask().await {
        Ok(()) => Check::new("overlay", Verdict::Works, "over the host's root"),
        Err(reason) => Check::new("overlay", Verdict::Fails, reason)
            .fix("modprobe overlay; without root it needs Linux 5.11 or newer"),
    };
    vec![user, namespaces, overlay]
}

/// Control groups as the agent of a test sandbox reports them: only creating some in it shows
/// whether they can be made. Those bound single sessions; `held` are the controllers by which this host
/// bounds whole sandboxes, from outside and in either version.
pub(super) fn control_groups(agent: Option<&AgentInfo>, held: &[&str]) -> Check {
    let name = "control groups";
    let Some(agent) = agent else {
        return Check::new(name, Verdict::Unknown, "no sandbox started to check them in");
    };
    if let Some(reason) = &agent.cgroup_missing {
        return Check::new(name, Verdict::Lacks, reason.clone()).fix(format!(
            "{}; run as root with cgroup v2 mounted, or use systemd-run --user --scope \
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
        "{}; either the container does not pass the controllers on, or cgroup v1 has them: boot with \
         systemd.unified_cgroup_hierarchy=1",
        without_groups(held)
    ))
}

/// The limits that apply where sessions have no control groups of their own.
fn without_groups(held: &[&str]) -> String {
    if held.is_empty() {
        return "sandboxes run without limits on memory and CPU".to_owned();
    }
    let held = held.join(" and ");
    format!("limits on {held} apply to whole sandboxes, but not to single sessions")
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
            .fix("modprobe vsock; only needed for virtual machines started by others");
    }
    match fs::File::open("/dev/vhost-vsock") {
        Ok(_) => Check::new(name, Verdict::Works, "sockets and /dev/vhost-vsock"),
        Err(error) => Check::new(name, Verdict::Lacks, format!("sockets, but /dev/vhost-vsock: {error}"))
            .fix("modprobe vhost_vsock, and join the group kvm; only needed for virtual machines started by others"),
    }
}

pub(super) fn memory() -> Check {
    let name = "memory";
    let mut host = System::new();
    host.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    let (total, available) = (host.total_memory(), host.available_memory());
    if total == 0 {
        return Check::new(name, Verdict::Unknown, "/proc/meminfo does not show it");
    }
    let detail = format!("{} of {} available", human_bytes(available), human_bytes(total));
    if available < MEMORY_COMFORTABLE_BYTES {
        return Check::new(name, Verdict::Lacks, detail)
            .fix("give sandboxes a smaller --scratch, since their writable layers are in memory");
    }
    Check::new(name, Verdict::Works, detail)
}

pub(super) fn disk(paths: &Paths) -> Check {
    let name = "disk";
    // The directory may not exist yet; what it will be on does.
    let Some(existing) = paths.state.ancestors().find(|path| path.exists()) else {
        return Check::new(name, Verdict::Unknown, "no parent of the state directory exists");
    };
    // sysinfo lists neither NFS, nor tmpfs, nor anything below /run, and knows no free inodes.
    let Ok(status) = rustix::fs::statvfs(existing) else {
        return Check::new(name, Verdict::Unknown, "the file system does not report it");
    };
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    let detail = format!("{} free for logs at {}", human_bytes(free), paths.state.display());
    if free < DISK_COMFORTABLE_BYTES || status.f_favail == 0 {
        return Check::new(name, Verdict::Lacks, detail)
            .fix("free some space, remove stopped sandboxes with `host-bridge rm`, or set BURROW_STATE_DIR");
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
            .fix("`host-bridge serve &` starts it; only `start` and the API need it"),
    }
}

/// The main check: starts a sandbox and runs a command in it. Also returns its agent's information.
pub(super) async fn sandbox(paths: &Paths) -> (Check, Option<AgentInfo>) {
    let name = "a sandbox";
    let mut agent = None;
    let check = match try_sandbox(paths, &mut agent).await {
        Ok(detail) => Check::new(name, Verdict::Works, detail),
        Err(error) => Check::new(name, Verdict::Fails, format!("{error:#}"))
            .fix("fix the failed checks above, from the top"),
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
                "`true` in a sandbox failed: {}",
                reason.unwrap_or_else(|| format!("exit code {code}"))
            )
        }
    }
}
