//! What all kinds of virtual machine have in common: a kernel with the agent as its init, a host
//! process that is the machine, and a Unix socket that leads to the guest's vsock.
//!
//! ```text
//!  bridge ──▶ sh (supervisor) ──▶ monitor (qemu, …) ══ vsock ══ agent (PID 1)
//!    │              ├───────────▶ relay, where the monitor needs one  ║
//!    │              └───────────▶ virtiofsd, where a directory is mounted
//!    └── uds_<port>: the agent calls, once ◀──────────────────────────╢
//!    └── uds: CONNECT <port>, by which a later bridge comes back ─────╝
//! ```
//!
//! Each kind implements [`Monitor`]: the programs that it needs, and what else it can do. Starting, the
//! handshake, stopping, killing, adopting and cleaning up are the same for all kinds, and are here.

mod api;
mod awaited;
mod console;
pub mod copy;
mod halt;
pub mod kit;
mod made;
mod plan;
mod programs;
mod running;
mod scratch;
mod suspend;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use protocol::boot::BootConfig;
use tokio::time::timeout;

pub use api::{Api, ApiError};
pub use console::Tape;
pub use halt::{Halt, Saving, Standing, version_of};
pub use kit::{Kit, KitError};
pub use made::{CONFIG, MANIFEST, MEMORY, MachineInputs, Manifest, STATE};
pub(crate) use plan::NOTE;
pub use plan::{DISKS, Disk, HALTED, JAIL, MONITOR, ORDERS, Plan, RESTORED, SCRATCH};
pub use programs::{Beside, Programs, RELAY, SHARER, find_program};
pub use running::{At, Virtual};

use self::awaited::Awaited;
use super::process::bounds::{Bounds, Members};
use super::process::console::Console;
use super::process::{bounds, cgroup};
use super::supervisor::Supervisor;
use super::{
    Adoption, BoxFuture, Directories, Machine, MachineError, MachineExit, MachineKind, MachineSpec,
    Running, SandboxId, Trace,
};
use crate::Capability;
use crate::limits::{VIRTUAL_RESTORE_DEADLINE, WAKE_DEADLINE};
use agent_client::guest::{Guest, now_us};
use agent_client::link::{Address, Timing};
use host::secret::Wiped;

/// The port that agents listen on, and that they dial on the host.
pub const PORT: u32 = 1024;

/// The CID of a guest. Each machine has its own vsock, so all use the same number.
pub const GUEST_CID: u32 = 3;

/// One kind of virtual machine.
pub trait Monitor: Send + Sync + 'static {
    fn kind(&self) -> MachineKind;

    /// The programs that make up the machine, and warnings about parts of the plan that this kind cannot
    /// honour.
    fn programs(&self, plan: &Plan) -> Result<Programs, MachineError>;

    /// Boots the machine, if its program only waits for requests after it was started.
    fn begin<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), MachineError>>;

    /// How machines of this kind are paused and saved; `None` if they cannot be.
    fn halt(&self) -> Option<&dyn Halt> {
        None
    }

    /// Why the machine ended, as the monitor reports it. The future runs as long as the machine.
    fn follow(&self, _monitor: PathBuf) -> Option<BoxFuture<'static, Option<String>>> {
        None
    }
}

/// Runs virtual machines of one kind.
pub struct VirtualMachines<M>(Arc<M>);

impl<M: Monitor> VirtualMachines<M> {
    pub fn new(monitor: M) -> Self {
        Self(Arc::new(monitor))
    }

    async fn launch(&self, spec: MachineSpec) -> Result<Arc<dyn Running>, MachineError> {
        let boot = boot_config(&spec);
        // Refuse invalid input before anything is made.
        frame_now(boot.clone())?;
        let Prepared { mut half_made, mut programs, made } = self.prepare(&spec).await?;
        let plan = Arc::clone(&half_made.plan);
        let restoring = match &spec.restore {
            Some(from) => Some((self.fit(&made, from).await?, from)),
            None => None,
        };
        if let Some((halt, _)) = restoring {
            programs = halt.awaiting(programs);
        }
        let host = |action| move |source| MachineError::Host { action, source };
        let awaited =
            Awaited::bind(&plan.calls()).map_err(host("bind the socket that the agent calls"))?;
        let own = match &spec.directories {
            Some(directories) => Console::at(&directories.state.join(MONITOR_LOG)),
            None => Console::in_memory(),
        };
        let own = own.map_err(host("open the monitor's log"))?;
        let log = own.descriptor().map_err(host("open the monitor's log"))?;
        made.note(&plan.directory).map_err(host("note what the machine is made of"))?;
        let mut started = programs.start(&plan, spec.directories.is_none(), log)?;
        let supervisor = started.supervisor.clone();
        half_made.supervisor = Some(supervisor.clone());
        let mut warnings = std::mem::take(&mut programs.warnings);
        // The machine's size limits its memory and its number of whole processors.
        let cpu_millis = spec.bounds.cpu_millis.filter(|millis| millis % 1000 != 0);
        let bounds = Bounds { memory_bytes: None, cpu_millis };
        let members = Members::Moved(supervisor.identity().pid);
        warnings.extend(bounds::hold(&spec.id, members, bounds, 0).await.warnings);
        let tape = Tape::new(spec.directories.as_ref().map(|found| found.state.clone()));
        match started.console.take() {
            Some(pipe) => tape.record_pipe(pipe),
            None => tape.record(plan.console()),
        }
        let tie = started.go().map_err(host("tell the machine's shell to go on"))?;
        let serial = programs.serial.clone();
        let address = match &serial {
            Some(path) => Address::Serial { path: path.clone() },
            None => Address::Hybrid { path: plan.vsock(), port: PORT },
        };
        let born = async {
            if let Some((halt, from)) = restoring {
                halt.load(&plan, from).await?;
                let guest = if halt.calls_first() {
                    awaited.take(address.clone()).await?
                } else {
                    awaited::dial(address.clone()).await?
                };
                let adopted = suspend::adopt(&guest, &spec).await?;
                return Ok((guest, adopted));
            }
            self.0.begin(&plan).await?;
            if let Some(path) = &serial {
                return Ok((awaited::call(path, boot, address.clone()).await?, Vec::new()));
            }
            Ok((awaited.greet(boot, address.clone()).await?, Vec::new()))
        };
        let deadline = match restoring {
            Some(_) => VIRTUAL_RESTORE_DEADLINE,
            None => self.0.kind().profile().start_deadline,
        };
        let error = tokio::select! {
            outcome = timeout(deadline, born) => match outcome {
                Ok(Ok((guest, more))) => {
                    warnings.extend(more);
                    // It has all its children by now. The bridge finds it without the note, too.
                    if let Err(error) = plan.note(&supervisor) {
                        warnings.push(format!("its processes could not be recorded: {error}"));
                    }
                    half_made.is_done = true;
                    // The removal of a kept sandbox removes this directory, too.
                    let is_held = cpu_millis.is_some() && spec.directories.is_none();
                    let place = At {
                        directory: plan.directory.clone(),
                        directories: spec.directories,
                        held: is_held.then_some(spec.id),
                    };
                    let mut running = self.at(place, Some(guest), supervisor, Some(address), tape);
                    running.warnings = warnings;
                    running.tie = tie;
                    return Ok(Arc::new(running));
                }
                Ok(Err(error)) => error,
                Err(_) => MachineError::Silent { deadline, console: String::new() },
            },
            exit = supervisor.exited() => died(exit),
        };
        // A monitor that ends during a request can only break off its answer.
        let error = match error {
            MachineError::Api(api) if api.means_end() => {
                let exit = supervisor.exited_within(LAST_BREATH_MAX).await;
                exit.map_or(MachineError::Api(api), died)
            }
            error => error,
        };
        // The kernel's last words say more than the exit of its machine.
        let console = [own.tail(), tape.settled().await].join("\n");
        half_made.end().await;
        Err(error.with_console(console.trim()))
    }
}

/// What exists before any process runs.
struct Prepared {
    half_made: HalfMade,
    programs: Programs,
    made: MachineInputs,
}

impl<M: Monitor> VirtualMachines<M> {
    /// Plans the machine and makes its files. This may copy a disk, or boot a guest to find out which
    /// accelerator works, so it must not run on a thread that others need.
    async fn prepare(&self, spec: &MachineSpec) -> Result<Prepared, MachineError> {
        let (monitor, spec) = (Arc::clone(&self.0), spec.clone());
        let prepared = tokio::task::spawn_blocking(move || {
            let plan = Arc::new(Plan::make(monitor.kind(), &spec)?);
            let half_made = HalfMade { supervisor: None, plan: Arc::clone(&plan), is_done: false };
            plan.furnish()?;
            let programs = monitor.programs(&plan)?;
            let made = MachineInputs::of(monitor.kind(), &plan, &programs)?;
            Ok(Prepared { half_made, programs, made })
        });
        prepared.await.unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            Err(MachineError::Host { action: "prepare the machine", source })
        })
    }

    /// What a machine would be made of, without making anything.
    async fn planned(&self, spec: MachineSpec) -> Result<MachineInputs, MachineError> {
        let monitor = Arc::clone(&self.0);
        let planning = tokio::task::spawn_blocking(move || {
            let plan = Plan::make(monitor.kind(), &spec)?;
            let programs = monitor.programs(&plan);
            let planned =
                programs.and_then(|programs| MachineInputs::of(monitor.kind(), &plan, &programs));
            if plan.temporary {
                // The trial of an accelerator may have made its directory.
                plan.remove();
            }
            planned
        });
        planning.await.unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            Err(MachineError::Host { action: "plan the machine", source })
        })
    }

    /// Refuses a snapshot that would not be the same machine here.
    async fn fit(&self, made: &MachineInputs, from: &Path) -> Result<&dyn Halt, MachineError> {
        let manifest = Manifest::read(from)?;
        let cannot = MachineError::lacks(self.0.kind(), Capability::Snapshot, "be restored");
        let halt = self.0.halt().ok_or(cannot)?;
        let version = halt.version().await?;
        let made = made.clone();
        let checked = tokio::task::spawn_blocking(move || manifest.check(&made, &version)).await;
        checked.unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            Err(MachineError::Host { action: "count digests", source })
        })?;
        Ok(halt)
    }

    /// A running machine.
    fn at(
        &self,
        place: At,
        guest: Option<Guest>,
        supervisor: Supervisor,
        address: Option<Address>,
        tape: Tape,
    ) -> Virtual {
        let monitor = Arc::clone(&self.0) as Arc<dyn Monitor>;
        let follow = self.0.follow(place.directory.join(MONITOR));
        Virtual::new(monitor, place, guest, supervisor, address, tape, follow)
    }
}

impl<M: Monitor> Machine for VirtualMachines<M> {
    fn start(&self, spec: MachineSpec) -> BoxFuture<'_, Result<Arc<dyn Running>, MachineError>> {
        Box::pin(self.launch(spec))
    }

    fn adopt(
        &self,
        _: SandboxId,
        directories: Directories,
        trace: Trace,
    ) -> BoxFuture<'_, Adoption> {
        Box::pin(async move {
            let Some(identity) = &trace.process else { return Adoption::Dead };
            let Ok(Some(supervisor)) = Supervisor::find(identity) else { return Adoption::Dead };
            let directory = directories.runtime.clone();
            let standing = match self.0.halt() {
                Some(halt) => suspend::mend(halt, &directory, trace.paused).await,
                None => Standing::Runs,
            };
            let stands_still = standing == Standing::StandsStill;
            let guest = match trace.address.clone().filter(|_| !stands_still) {
                Some(address) => supervisor.return_to(address, Timing::REMOTE).await,
                None => None,
            };
            if !identity.is_current() {
                return Adoption::Dead;
            }
            if let Some(guest) = guest.as_ref().filter(|_| !stands_still) {
                // The last bridge may have left it frozen or with an old clock. A failure here costs nothing.
                let _ = timeout(WAKE_DEADLINE, guest.wake()).await;
            }
            let tape = Tape::new(Some(directories.state.clone()));
            tape.record(directory.join(plan::CONSOLE));
            let place = At { directory, directories: Some(directories), held: None };
            let found = self.at(place, guest, supervisor, trace.address, tape);
            found.paused.store(stands_still, std::sync::atomic::Ordering::Relaxed);
            Adoption::Alive(Arc::new(found))
        })
    }

    fn clean(&self, id: SandboxId, directories: Option<Directories>) -> BoxFuture<'_, ()> {
        Box::pin(async move { plan::clean(&id, directories).await })
    }

    fn check_fit(
        &self,
        spec: MachineSpec,
        from: PathBuf,
    ) -> BoxFuture<'_, Result<(), MachineError>> {
        Box::pin(async move {
            let planned = self.planned(spec).await?;
            self.fit(&planned, &from).await.map(drop)
        })
    }
}

/// The boot configuration for the agent of a machine.
fn boot_config(spec: &MachineSpec) -> BootConfig {
    BootConfig {
        sandbox: spec.id.to_string(),
        hostname: spec.hostname.clone(),
        root: "/".to_owned(),
        scratch_bytes: spec.scratch_bytes,
        env: spec.environment(),
        hide: spec.hide.clone(),
        door: spec.directories.is_some(),
        time_us: 0,
        ids: None,
        processes_max: 0,
        group: String::new(),
        scratch_mount: String::new(),
    }
}

/// The boot frame, with the current time: a machine takes seconds to boot.
fn frame_now(config: BootConfig) -> Result<Wiped, MachineError> {
    let mut config = BootConfig { time_us: now_us(), ..config };
    let frame = super::boot::frame(&config).map(Wiped::new);
    super::wipe(&mut config.env);
    frame
}

/// The log of monitor, relay and shell, in a sandbox's state directory.
const MONITOR_LOG: &str = "monitor.log";

/// How long a monitor may still run after it has closed its socket.
const LAST_BREATH_MAX: Duration = Duration::from_millis(500);

fn died(exit: MachineExit) -> MachineError {
    MachineError::Died { exit: programs::from_shell(exit), console: String::new() }
}

/// A machine that is still being started. Dropping this ends it.
struct HalfMade {
    supervisor: Option<Supervisor>,
    plan: Arc<Plan>,
    is_done: bool,
}

impl HalfMade {
    /// Ends it. If something is left after all, the next bridge finds it by its note.
    async fn end(mut self) {
        self.is_done = true;
        end(self.supervisor.take(), Arc::clone(&self.plan)).await;
    }
}

async fn end(supervisor: Option<Supervisor>, plan: Arc<Plan>) {
    if let Some(supervisor) = supervisor {
        supervisor.stop(None, Duration::ZERO).await;
        if supervisor.exited_within(Duration::ZERO).await.is_none() {
            return;
        }
    }
    cgroup::remove(&plan.id).await;
    plan.remove();
}

impl Drop for HalfMade {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let plan = Arc::clone(&self.plan);
        let Some(supervisor) = self.supervisor.take() else { return plan.remove() };
        supervisor.kill();
        // A drop does not wait for this.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(end(Some(supervisor), plan));
        }
    }
}
