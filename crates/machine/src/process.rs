//! The process machine: the agent as init of fresh namespaces on this host, over an overlay of a
//! directory. No hypervisor is needed, a start takes milliseconds, and it is **no security
//! boundary**: the sandbox shares the host's kernel.
//!
//! ```text
//!  bridge ──stdin: socket pair──▶ guest-agent launch (supervisor) ──clone──▶ guest-agent (init)
//!         ──stdout: listener────▶      │ dies: the kernel kills the init          │ dies: all die
//!         ◀─stderr: console ────       └── exits when the init has ended ◀────────┘
//! ```
//!
//! The bridge sees only the supervisor. A kept sandbox (`door`) has a listening socket through which
//! a later bridge comes back; a one-shot has none, so its agent stops as soon as its one link, the
//! socket pair, is cut, however the bridge ended.

pub mod bind;
pub mod bounds;
pub(crate) mod cgroup;
pub mod confinement;
pub mod console;
pub mod freezer;
pub mod hide;
mod running;
pub mod scratch;
mod sealed;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::boot::{BootConfig, PROCESSES_UNBOUNDED};
use protocol::hello::GoodbyeReason;
use tokio::io::AsyncWriteExt;

use self::bounds::Members;
use self::confinement::Users;
use self::console::{CONSOLE_FILE, Console};
use self::freezer::Freezer;
use self::running::{Process, find_freezer, init_of};
use self::scratch::spares::{Kind, Layers};
use self::sealed::Sealed;
use super::supervisor::Supervisor;
use super::{
    Adoption, BoxFuture, Directories, Machine, MachineError, MachineSpec, Running, SandboxId,
    Trace, boot,
};
use crate::limits::{BOOT_DEADLINE, KILL_DEADLINE, SCRATCH_BYTES_MIN};
use agent_client::guest::Guest;
use agent_client::link::{Address, LinkError, Timing};
use host::agent::{Agent, find_agent};
use host::paths::PRIVATE_FILE;
use host::secret::Wiped;

/// The socket in a sandbox's runtime directory on which its agent listens.
const DOOR: &str = "agent.sock";
/// The file beside it that says which process the supervisor is.
pub(crate) const NOTE: &str = "supervisor.json";
/// The verb of the agent that makes a sandbox of itself.
const LAUNCH: &str = "launch";
/// Boot steps whose failure must be reported to the sandbox's user: its root is a user of the host, or its
/// processes are unlimited.
const REPORTED_STEPS: [&str; 2] = ["user-namespace", "processes"];

/// Starts sandboxes from one agent binary.
#[derive(Clone, Debug, Default)]
pub struct ProcessMachine {
    /// If absent, searched at each start, so that a bridge without an agent still serves the
    /// sandboxes that it finds.
    agent: Option<Agent>,
    sealed: Sealed,
    layers: Layers,
}

impl ProcessMachine {
    pub fn new(agent: PathBuf) -> Self {
        Self { agent: Some(agent.into()), ..Self::default() }
    }

    async fn launch(&self, mut spec: MachineSpec) -> Result<Arc<dyn Running>, MachineError> {
        check(&spec)?;
        let program = self.agent.clone().map_or_else(find_agent, Ok)?;
        // Open until the agent has put it at its place.
        let layer = match &spec.scratch_disk {
            Some(state) => {
                let kind = Kind { state: state.clone(), bytes: spec.scratch_bytes };
                Some(self.layers.take(kind, self.sealed.clone(), program.clone()).await?)
            }
            None => None,
        };
        let host = |action| move |source| MachineError::Host { action, source };
        let (ours, theirs) = UnixStream::pair().map_err(host("make a socket pair"))?;
        let console = match &spec.directories {
            Some(directories) => Console::at(&directories.state.join(CONSOLE_FILE)),
            None => Console::in_memory(),
        };
        let console = console.map_err(host("open the agent's log"))?;
        let door = spec.directories.as_ref().map(|directories| directories.runtime.join(DOOR));
        let listener = match &door {
            Some(path) => {
                Stdio::from(OwnedFd::from(bind(path).map_err(host("bind the agent's socket"))?))
            }
            None => Stdio::null(),
        };
        let stderr = console.descriptor().map_err(host("open the agent's log"))?;

        let mut agent = self.sealed.command(&program).map_err(host("execute the agent"))?;
        if let Some(file) = &agent.exposed {
            spec.confinement.users = users_to_protect(file, spec.confinement.users)
                .map_err(host("execute the agent"))?;
        }
        let command = &mut agent.command;
        command.arg(LAUNCH).env_clear().current_dir("/");
        // A group of its own, so that an interrupt from the bridge's terminal does not end the
        // sandboxes with it.
        command.process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(listener).stderr(stderr);
        let mut half_made = HalfMade::default();
        if let Some(directories) = &spec.directories {
            half_made.files = [DOOR, NOTE].map(|name| directories.runtime.join(name)).into();
        }
        let bounds = (spec.bounds, spec.confinement.processes_max);
        let mut held = bounds::hold(&spec.id, Members::Born, bounds.0, bounds.1).await;
        // Every process of the sandbox descends from this one. The command still holds the child's end of the
        // pair until it is dropped. Our end shows the child's death only if nobody else has it.
        let started = held.start(move || agent.command.spawn()).await;
        let supervisor = match started.and_then(Supervisor::of_child) {
            Ok(supervisor) => supervisor,
            Err(error) => {
                cgroup::remove(&spec.id).await;
                return Err(host("execute the agent")(error));
            }
        };
        half_made.supervisor = Some(supervisor.clone());
        // Noted before the agent is configured: if this bridge is cut off from here on, the next one finds
        // the supervisor. An agent that was never configured ends when its link is cut.
        let noted = match &spec.directories {
            Some(directories) => supervisor
                .note(&directories.runtime.join(NOTE))
                .map_err(host("note the agent's process")),
            None => Ok(()),
        };
        let bridges = hide::running_bridges(&spec.root);
        let boot =
            noted.and_then(|()| encode_boot(&spec, held.group.as_deref(), layer.as_ref(), bridges));
        let address = door.map(|path| Address::Unix { path });
        let greeted = match boot {
            Ok(boot) => greet(ours, &boot, address.clone(), &supervisor, &console).await,
            Err(error) => Err(error),
        };
        match greeted {
            Ok(guest) => {
                half_made.keep();
                // A sandbox without a name is this process's only one.
                if layer.is_some() && spec.directories.is_some() {
                    self.layers.prepare_next(self.sealed.clone(), program);
                }
                let mut warnings = held.warnings;
                for warning in boot_warnings(&guest) {
                    warnings.extend(bound_processes(&spec, &supervisor, warning).await);
                }
                Ok(Arc::new(Process::new(spec.id, Some(guest), supervisor, address, warnings)))
            }
            Err(error) => {
                drop(half_made);
                supervisor.exited_within(KILL_DEADLINE).await;
                cgroup::remove(&spec.id).await;
                Err(error)
            }
        }
    }
}

impl Machine for ProcessMachine {
    fn start(&self, spec: MachineSpec) -> BoxFuture<'_, Result<Arc<dyn Running>, MachineError>> {
        Box::pin(self.launch(spec))
    }

    fn adopt(&self, id: SandboxId, _: Directories, trace: Trace) -> BoxFuture<'_, Adoption> {
        Box::pin(async move {
            let Some(identity) = trace.process else { return Adoption::Dead };
            // A process that cannot be opened cannot be distinguished from one that is gone, and
            // cannot be stopped either.
            let Ok(Some(supervisor)) = Supervisor::find(&identity) else { return Adoption::Dead };
            let freezer = find_freezer(&id, &supervisor).ok().filter(Freezer::is_frozen);
            // One that its record does not call paused was left half-way, and goes on.
            let freezer = freezer.filter(|freezer| trace.paused || freezer.thaw().is_err());
            let guest = match trace.address.clone().filter(|_| freezer.is_none()) {
                Some(address) => supervisor.return_to(address, Timing::LOCAL).await,
                None => None,
            };
            if !identity.is_current() {
                return Adoption::Dead;
            }
            let found = Process::new(id, guest, supervisor, trace.address, Vec::new());
            found.paused.store(freezer.is_some(), Ordering::Relaxed);
            Adoption::Alive(Arc::new(found))
        })
    }

    fn clean(&self, id: SandboxId, directories: Option<Directories>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(Directories { runtime, .. }) = directories {
                Supervisor::end_noted(&runtime.join(NOTE)).await;
                let _ = fs::remove_file(runtime.join(NOTE));
                let _ = fs::remove_file(runtime.join(DOOR));
            }
            cgroup::remove(&id).await;
        })
    }
}

/// What the agent reports that it could not isolate from the host.
fn boot_warnings(guest: &Guest) -> impl Iterator<Item = String> {
    let steps = guest.info().boot.into_iter();
    steps
        .filter(|step| REPORTED_STEPS.contains(&step.name.as_str()))
        .filter_map(|step| step.problem)
}

/// Bounds the sandbox's processes if the warning says that the agent could not, and returns the warning that
/// remains. All programs will be descendants of the first process, which is moved for that.
async fn bound_processes(
    spec: &MachineSpec,
    supervisor: &Supervisor,
    warning: String,
) -> Option<String> {
    if !warning.starts_with(PROCESSES_UNBOUNDED) {
        return Some(warning);
    }
    let Some(first) = init_of(supervisor) else { return Some(warning) };
    let held = bounds::hold_processes(&spec.id, first.pid, spec.confinement.processes_max).await;
    held.err().map(|why| format!("{warning}; {why}"))
}

/// The users of a sandbox whose agent is executed from a file of the host, because a program in the sandbox
/// could then reach that file. They must not be allowed to change it.
fn users_to_protect(file: &Path, users: Users) -> io::Result<Users> {
    let own = nix::unistd::geteuid();
    if own.is_root() && users != Users::Host {
        return Ok(Users::Required);
    }
    if !own.is_root() && fs::metadata(file)?.uid() != own.as_raw() {
        return Ok(users);
    }
    let why = format!(
        "this host allows no program in memory (vm.memfd_noexec is 2), and root of the sandbox could \
         change the agent's file {}: set vm.memfd_noexec to 1, or let another user own the file",
        file.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Checks the specification.
fn check(spec: &MachineSpec) -> Result<(), MachineError> {
    if spec.address.is_some() {
        return Err(MachineError::UselessAddress { kind: super::MachineKind::Process });
    }
    if spec.scratch_bytes < SCRATCH_BYTES_MIN {
        let (bytes, bytes_min) = (spec.scratch_bytes, SCRATCH_BYTES_MIN);
        return Err(MachineError::Scratch { bytes, bytes_min });
    }
    check_root(&spec.root)?;
    // Too large an environment is found out before anything is started.
    encode_boot(spec, None, None, Vec::new()).map(drop)
}

/// The first frame, which configures the agent. The directories of bridges that run now are hidden too.
fn encode_boot(
    spec: &MachineSpec,
    group: Option<&Path>,
    layer: Option<&OwnedFd>,
    bridges: Vec<String>,
) -> Result<Wiped, MachineError> {
    let mut config = BootConfig {
        sandbox: spec.id.to_string(),
        hostname: spec.hostname.clone(),
        root: spec.root.to_string_lossy().into_owned(),
        scratch_bytes: spec.scratch_bytes,
        env: spec.environment(),
        hide: spec.hide.iter().cloned().chain(bridges).collect(),
        door: spec.directories.is_some(),
        time_us: 0,
        ids: spec.confinement.ids(),
        processes_max: spec.confinement.processes_max,
        group: group.map_or_else(String::new, |path| path.to_string_lossy().into_owned()),
        scratch_mount: layer.map_or_else(String::new, |mount| {
            format!("/proc/{}/fd/{}", std::process::id(), mount.as_raw_fd())
        }),
    };
    let frame = boot::frame(&config).map(Wiped::new);
    super::wipe(&mut config.env);
    frame
}

fn check_root(root: &Path) -> Result<(), MachineError> {
    let refused = |reason: String| Err(MachineError::Root { root: root.to_owned(), reason });
    if !root.is_absolute() {
        return refused("give an absolute path".to_owned());
    }
    if root.to_str().is_none() {
        return refused("its name is not UTF-8".to_owned());
    }
    match fs::metadata(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refused("there is no such directory".to_owned())
        }
        Err(error) => refused(error.to_string()),
        Ok(found) if !found.is_dir() => {
            refused("it is not a directory; images that are files are not supported yet".to_owned())
        }
        Ok(_) => Ok(()),
    }
}

/// Binds the door. Its directory is private already; the mode says so once more.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE_FILE))?;
    Ok(listener)
}

/// Configures the launched agent and waits for its answer.
async fn greet(
    stream: UnixStream,
    boot: &[u8],
    then: Option<Address>,
    supervisor: &Supervisor,
    console: &Console,
) -> Result<Guest, MachineError> {
    let answered = tokio::time::timeout(BOOT_DEADLINE, async {
        let stream =
            send(stream, boot).await.map_err(|error| LinkError::Broken(Arc::new(error)))?;
        let mut options = super::guest_options(then.as_ref());
        options.timing = Timing::LOCAL;
        Guest::over(stream, then, options).await
    });
    let error = match answered.await {
        Ok(Ok(guest)) => return Ok(guest),
        Ok(Err(error)) => Some(error),
        Err(_) => None,
    };
    match error {
        Some(LinkError::Refused { reason: GoodbyeReason::BootFailed, message }) => {
            Err(MachineError::BootFailed { message })
        }
        None => Err(MachineError::Silent { deadline: BOOT_DEADLINE, console: console.tail() }),
        // If the link broke because the agent died, its exit is the better error.
        Some(source) => match supervisor.exited_within(DEATH_AFTER_CUT).await {
            Some(exit) => Err(MachineError::Died { exit, console: console.tail() }),
            None => Err(MachineError::Link { source, console: console.tail() }),
        },
    }
}

/// How long after its link broke a dying agent may still count as alive: the kernel closes a
/// process's descriptors before it notifies the parent.
const DEATH_AFTER_CUT: Duration = Duration::from_millis(500);

async fn send(stream: UnixStream, bytes: &[u8]) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(stream)?;
    stream.write_all(bytes).await?;
    stream.into_std()
}

/// A machine whose start is not complete: it goes when this goes.
#[derive(Default)]
struct HalfMade {
    supervisor: Option<Supervisor>,
    files: Vec<PathBuf>,
}

impl HalfMade {
    fn keep(mut self) {
        self.supervisor = None;
        self.files.clear();
    }
}

impl Drop for HalfMade {
    fn drop(&mut self) {
        if let Some(supervisor) = &self.supervisor {
            supervisor.kill();
        }
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests;
