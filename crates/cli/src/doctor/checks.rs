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
use host::agent::find_agent;
use host::paths::Paths;
use machine::process::scratch;
use sandbox::limits::SCRATCH_BYTES_DEFAULT;
use sandbox::{Name, SandboxRef, Spec};
use services::build::packages::cache::{CACHE_BYTES_MAX, PackageCache};

/// Free memory below which a sandbox with a full writable layer would push the host into swap.
const MEMORY_COMFORTABLE_BYTES: u64 = 2 * SCRATCH_BYTES_DEFAULT;
/// Free disk below which the logs of a few sandboxes do not fit.
const DISK_COMFORTABLE_BYTES: u64 = 1024 * 1024 * 1024;

pub(super) fn agent() -> Check {
    match find_agent() {
        Ok(agent) => {
            let place = agent.path().map(|path| path.display().to_string());
            let place = place.unwrap_or_else(|| "carried by this program".to_owned());
            Check::new("agent", Verdict::Works, place)
        }
        Err(missing) => Check::new("agent", Verdict::Fails, missing.to_string())
            .fix("build it with `./do build`, or set its path with BURROW_AGENT=/path"),
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
        // The agent makes one of each directory at the top then.
        Err(reason) if !root => Check::new("overlay", Verdict::Lacks, reason).fix(
            "sandboxes over the host's root get an overlay for each of its directories; one over the \
             whole root needs Linux 5.11 or newer, or root",
        ),
        Err(reason) => Check::new("overlay", Verdict::Fails, reason)
            .fix("modprobe overlay"),
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

/// Whether the collector of the configuration takes telemetry, if there is one.
pub(super) async fn telemetry() -> Option<Check> {
    let name = "telemetry";
    let fix = "`[otel]` of the configuration has its address, headers and certificates";
    let settings = match control::own_settings() {
        Ok(settings) => settings,
        Err(error) => {
            let fix = "host-bridge serve --check-config";
            return Some(Check::new(name, Verdict::Unknown, error.to_string()).fix(fix));
        }
    };
    if !settings.otel.enabled {
        return None;
    }
    let origin = settings.otel.endpoint.origin.to_string();
    let probed = control::telemetry(&settings).probe().await;
    let failed = probed.iter().find_map(|(signal, sent)| Some((signal, sent.as_ref().err()?)));
    if let Some((signal, error)) = failed {
        let detail = format!("{origin} does not take {}: {error}", signal.name());
        return Some(Check::new(name, Verdict::Lacks, detail).fix(fix));
    }
    let names: Vec<_> = probed.iter().map(|(signal, _)| signal.name()).collect();
    Some(Check::new(name, Verdict::Works, format!("{origin} takes {}", names.join(", "))))
}

pub(super) fn vsock() -> Check {
    let name = "vsock";
    // Reads the list of protocols: a socket of this family reaches whatever the host's own
    // hypervisor has there, and must not be opened.
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
    // The directory may not exist yet; its parent does.
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

/// Whether writable layers of process sandboxes can be on disk; a template of them is made and mounted.
pub(super) fn layers(paths: &Paths) -> Check {
    let name = "writable layers";
    let Some(existing) = paths.state.ancestors().find(|path| path.exists()) else {
        return Check::new(name, Verdict::Unknown, "no parent of the state directory exists");
    };
    let tried = scratch::size(existing, None).and_then(|bytes| {
        if existing == paths.state {
            scratch::prepare(existing, bytes)?;
        }
        Ok(bytes)
    });
    match tried {
        Ok(bytes) => {
            let detail = format!("on disk with a memory limit, {} each", human_bytes(bytes));
            Check::new(name, Verdict::Works, detail)
        }
        Err(why) => Check::new(name, Verdict::Lacks, format!("always in memory: {why}")).fix(
            "docs/reference/machines.md has the rule; until then, give sandboxes more --memory",
        ),
    }
}

/// Packages that were installed over the host's root, which take room until they are removed.
pub(super) fn packages() -> Check {
    let name = "packages";
    let cache = match PackageCache::of_user() {
        Ok(cache) => cache,
        Err(error) => {
            return Check::new(name, Verdict::Lacks, error.to_string())
                .fix("--pip and --npm need it over the host's root, and not on an image");
        }
    };
    let place = cache.place().display();
    match cache.size() {
        Ok((sets, bytes)) => {
            let (bytes, max) = (human_bytes(bytes), human_bytes(CACHE_BYTES_MAX));
            let sets = if sets == 1 { "1 set".to_owned() } else { format!("{sets} sets") };
            let detail = format!("{sets} of {bytes} in {place}; at most {max} of unused ones stay");
            Check::new(name, Verdict::Works, detail)
        }
        Err(error) => Check::new(name, Verdict::Lacks, format!("{place}: {error}"))
            .fix("remove the directory, or set BURROW_CACHE_DIR"),
    }
}

/// The files that bridges keep.
pub(super) fn state(paths: &Paths) -> Vec<Check> {
    let name = "state";
    let problems = control::state_problems(paths);
    if problems.is_empty() {
        return vec![Check::new(name, Verdict::Works, "all records can be read")];
    }
    let checks = problems.into_iter();
    checks.map(|one| Check::new(name, Verdict::Lacks, one.what).fix(one.fix)).collect()
}

pub(super) async fn daemon(context: &Context) -> Check {
    let name = "daemon";
    let answer = match context.running().await {
        Ok(mut daemon) => daemon.version().await.map_err(anyhow::Error::from),
        Err(error) => Err(error),
    };
    match answer {
        Ok(version) => {
            let detail = format!("{}, process {}", version.release, version.pid);
            Check::new(name, Verdict::Works, detail)
        }
        Err(error) => Check::new(name, Verdict::Lacks, format!("{error:#}"))
            .fix("nothing to fix: `start` and other commands start it when they need it"),
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
