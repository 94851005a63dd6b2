//! A sandbox for one command: no name, no record, no log, no daemon.
//!
//! It has no door, so its agent stops as soon as the one link to this process is cut. However this
//! process ends, the sandbox ends with it.

use std::sync::Arc;
use std::time::Duration;

use super::commit::{self, Archive};
use super::options::Defaults;
use super::spec::unsupported::check_without_bridge;
use super::stored::{HeldImage, RequestedImage};
use super::{HostFiles, SandboxError, SandboxRef, Spec, event, mounted, secrets, trust};
use agent_client::guest::Guest;
use egress::{EgressEvent, EgressGuard, EgressPolicy, EgressSink, Settings};
use host::paths::Paths;
use host::secret::Secrets;
use image::document::Process;
use image::store::describe_lost;
use machine::limits::KILL_DEADLINE;
use machine::{Machine, MachineExit, Machines, Running, SandboxId};
use workspace::limits::LAST_SYNC_DEADLINE;
use workspace::{Mirror, MirrorSettings, Report, WorkspaceError, Workspaces};

/// A running sandbox that belongs to this process alone. Dropping it kills it; [`OneShot::end`]
/// also waits until it is gone.
pub struct OneShot {
    /// Its name in errors.
    which: SandboxRef,
    guest: Guest,
    /// The way out, for as long as the sandbox lives.
    _egress: Option<EgressGuard>,
    mirror: Option<Mirror>,
    /// Files of its workspace that were not copied.
    left_out: Report,
    // The machine is dropped before its root.
    alive: KillOnDrop,
    image: Option<HeldImage>,
}

/// Starts a sandbox for one command. `paths` are hidden from it, and their store of images is
/// where one comes from that is asked for by its name.
pub async fn one_shot(paths: &Paths, spec: &Spec) -> Result<OneShot, SandboxError> {
    one_shot_with(paths, spec, &OneShotOptions::default()).await
}

/// What a one-shot sandbox may name, and its limits.
#[derive(Default)]
pub struct OneShotOptions {
    pub secrets: Secrets,
    pub workspaces: Workspaces,
    pub egress: Settings,
    /// Defaults of its options.
    pub defaults: Defaults,
    /// Its rules of egress if it names none.
    pub egress_default: egress::Defaults,
    /// Receives the decisions about its egress.
    pub decisions: Option<EgressSink>,
    pub files: HostFiles,
}

/// Starts a one-shot that may name these.
pub async fn one_shot_with(
    paths: &Paths,
    spec: &Spec,
    options: &OneShotOptions,
) -> Result<OneShot, SandboxError> {
    let OneShotOptions { secrets: known, workspaces, egress, decisions, files, .. } = options;
    let mut spec = spec.clone();
    options.defaults.fill_one_shot(&mut spec);
    files.settle(&mut spec)?;
    files.settle_scratch(&mut spec, paths).await?;
    spec.settle_workdir();
    spec.settle_egress(options.egress_default.of(spec.namespace.as_str()))?;
    let spec = &spec;
    spec.check()?;
    check_without_bridge(spec)?;
    let rules = spec.rules()?;
    secrets::variables(known, spec, &rules)?;
    let workspace = mounted::find(spec, workspaces, &[&paths.runtime, &paths.state])?;
    let machines = Machines::default();
    let id = SandboxId::draw().map_err(SandboxError::Draw)?;
    let machine = Arc::clone(machines.get(spec.machine()));
    let mut machine_spec = spec.machine_spec(id.clone(), paths, files, None);
    machine_spec.bind = mounted::at_boot(spec, workspace.as_ref());
    let resolved = secrets::resolve(known, spec, &event::nobody()).await?;
    machine_spec.secrets = trust::variables(spec, &resolved, egress);
    machine_spec.secrets.extend(resolved.variables);
    let injections = resolved.injections;
    let image = match RequestedImage::of(spec, paths, None) {
        Some(wanted) => wanted.furnish(&mut machine_spec).await?,
        None => None,
    };
    let user = spec.user.as_deref().or_else(|| image.as_ref().and_then(HeldImage::user));
    let running = machine.start(machine_spec).await?;
    let guest = running.guest().expect("a machine that has started has been greeted by its agent");
    let process = image.as_ref().map(|held| &held.lease.image.process);
    let of_image = process.and_then(|process| process.workdir.as_deref());
    let guest = guest.running_as(user).beginning_in(spec.workdir.as_deref().or(of_image));
    // Nobody reconnects to the agent of a machine that is gone, so its end also ends what waits for
    // it.
    let (exited, orphan) = (running.exited(), guest.clone());
    tokio::spawn(async move {
        exited.await;
        orphan.machine_ended();
    });
    let owner = id.to_string();
    let alive = KillOnDrop { running, machine, id, ended: false };
    let (mirror, left_out) = match workspace {
        Some(workspace) if workspace.policy.mount => {
            mounted::mount(spec.machine(), &*alive.running, &workspace).await?;
            (None, Report::default())
        }
        Some(workspace) => {
            let guest = guest.clone();
            let (ended, carried) = (Arc::default(), workspaces.carried().clone());
            let ends = MirrorSettings { guest, workspace, owner, ended, carried };
            let (mirror, report) = Mirror::open(ends, None).await?;
            (Some(mirror), report)
        }
        None => (None, Report::default()),
    };
    let egress = if rules.is_empty() {
        None
    } else {
        let decisions = decisions.clone();
        let sink = Arc::new(move |event: EgressEvent| {
            tracing::info!("egress: {event}");
            if let Some(decisions) = &decisions {
                decisions(event);
            }
        });
        let shares_trust = trust::is_shared(spec.machine(), spec.image.as_deref(), egress);
        let allowed = EgressPolicy {
            rules: rules.into(),
            secrets: injections,
            shares_trust,
            ..EgressPolicy::default()
        };
        Some(EgressGuard::open(guest.clone(), allowed, egress, None, sink).await?)
    };
    let which = spec.which();
    Ok(OneShot { which, guest, _egress: egress, mirror, left_out, alive, image })
}

impl OneShot {
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// The image's settings for programs, if the root is an image of this host's store.
    pub fn process(&self) -> Option<&Process> {
        self.image.as_ref().map(|held| &held.lease.image.process)
    }

    /// Which image of this host's store the root is.
    pub fn image_digest(&self) -> Option<String> {
        self.image.as_ref().map(|held| held.lease.image.digest.to_string())
    }

    /// What was requested and is not enforced on this host.
    pub fn warnings(&self) -> Vec<String> {
        let lost = self.image.as_ref().and_then(|held| describe_lost(held.lease.lost));
        let warnings = self.alive.running.warnings().into_iter().chain(lost);
        warnings.chain(self.left_out.warnings()).collect()
    }

    /// Passes the archive of all its files to `take`; its programs are frozen meanwhile.
    pub async fn files<T: Send + 'static>(
        &self,
        take: impl FnOnce(Archive) -> T + Send + 'static,
    ) -> Result<T, SandboxError> {
        commit::files(&self.guest, &self.which, take).await
    }

    /// Copies changes in its workspace back; does nothing without one.
    pub async fn sync(&mut self) -> Result<Report, WorkspaceError> {
        let Some(mirror) = &mut self.mirror else { return Ok(Report::default()) };
        let seconds = LAST_SYNC_DEADLINE.as_secs();
        let synced = tokio::time::timeout(LAST_SYNC_DEADLINE, mirror.sync()).await;
        synced.unwrap_or(Err(WorkspaceError::Overran { seconds }))
    }

    /// Resolves when the sandbox is gone, for any reason.
    pub async fn exited(&self) -> MachineExit {
        self.alive.running.exited().await
    }

    /// Ends the sandbox at once and waits until nothing of it is left.
    pub async fn end(mut self) -> MachineExit {
        self.alive.running.stop(Duration::ZERO).await;
        let exit = tokio::time::timeout(KILL_DEADLINE, self.exited()).await;
        self.alive.machine.clean(self.alive.id.clone(), None).await;
        self.alive.ended = true;
        exit.unwrap_or_else(|_| MachineExit::Unreachable {
            reason: "it was killed, but it still exists: a process in it hangs in the kernel"
                .to_owned(),
        })
    }
}

struct KillOnDrop {
    running: Arc<dyn Running>,
    machine: Arc<dyn Machine>,
    id: SandboxId,
    ended: bool,
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.running.kill();
        // The control group of a killed sandbox is this process's to remove, as long as there is a
        // runtime to wait in.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (machine, id) = (Arc::clone(&self.machine), self.id.clone());
            runtime.spawn(async move { machine.clean(id, None).await });
        }
    }
}
