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
pub mod console;
pub mod hide;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use protocol::boot::BootConfig;
use protocol::hello::GoodbyeReason;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use self::console::{CONSOLE_FILE, Console};
use super::supervisor::Supervisor;
use super::{
    Adoption, Bind, BoxFuture, Directories, Machine, MachineError, MachineExit, MachineSpec,
    Running, SandboxId, Trace, boot,
};
use crate::limits::{BOOT_DEADLINE, KILL_DEADLINE, SCRATCH_BYTES_MIN};
use agent_client::guest::Guest;
use agent_client::link::{Address, LinkError};
use host::paths::{PRIVATE_FILE, find_agent};
use host::secret::Wiped;

/// The socket in a sandbox's runtime directory on which its agent listens.
const DOOR: &str = "agent.sock";
/// The file beside it that says which process the supervisor is.
const NOTE: &str = "supervisor.json";
/// The verb of the agent that makes a sandbox of itself.
const LAUNCH: &str = "launch";

/// Starts sandboxes from one agent binary.
#[derive(Clone, Debug, Default)]
pub struct ProcessMachine {
    /// Looked for at each start when absent, so that a bridge without an agent still serves the
    /// sandboxes that it finds.
    agent: Option<PathBuf>,
}

impl ProcessMachine {
    pub fn new(agent: PathBuf) -> Self {
        Self { agent: Some(agent) }
    }

    async fn launch(&self, spec: MachineSpec) -> Result<Arc<dyn Running>, MachineError> {
        let boot = encode_boot(&spec)?;
        let agent = self.agent.clone().map_or_else(find_agent, Ok)?;
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

        let mut command = Command::new(agent);
        command.arg(LAUNCH).env_clear().current_dir("/");
        // A group of its own, so that an interrupt from the terminal of whoever runs the bridge
        // does not end the sandboxes with it.
        command.process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(listener).stderr(stderr);
        let child = command.spawn().map_err(host("execute the agent"))?;
        // The command still holds the child's end of the pair, and the child's death shows on ours
        // only when nobody else has it.
        drop(command);

        let supervisor = Supervisor::of_child(child).map_err(host("watch the agent"))?;
        let mut half_made = HalfMade { supervisor: Some(supervisor.clone()), files: Vec::new() };
        if let Some(directories) = &spec.directories {
            half_made.files = [DOOR, NOTE].map(|name| directories.runtime.join(name)).into();
        }
        // Before it is told to become anything: if this bridge is cut off from here on, the next one
        // finds the supervisor. One that has not been told ends when it finds its link cut.
        if let Some(directories) = &spec.directories {
            supervisor
                .note(&directories.runtime.join(NOTE))
                .map_err(host("note the agent's process"))?;
        }
        // All that the sandbox will be is born of this one process, and it waits to be told.
        let warnings = bounds::hold(&spec.id, supervisor.identity().pid, spec.bounds).await;
        let address = door.map(|path| Address::Unix { path });
        let greeted = greet(ours, &boot, address.clone(), &supervisor, &console).await;
        match greeted {
            Ok(guest) => {
                half_made.keep();
                Ok(Arc::new(Process { guest: Some(guest), supervisor, address, warnings }))
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

    fn adopt(&self, _: SandboxId, _: Directories, trace: Trace) -> BoxFuture<'_, Adoption> {
        Box::pin(async move {
            let Some(identity) = trace.process else { return Adoption::Dead };
            // A process that cannot be opened cannot be told from one that is gone, and cannot be
            // stopped either.
            let Ok(Some(supervisor)) = Supervisor::find(&identity) else { return Adoption::Dead };
            let guest = match trace.address.clone() {
                Some(address) => supervisor.return_to(address).await,
                None => None,
            };
            if !identity.is_current() {
                return Adoption::Dead;
            }
            let (address, warnings) = (trace.address, Vec::new());
            Adoption::Alive(Arc::new(Process { guest, supervisor, address, warnings }))
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

/// Checks what is asked for and makes the first frame of it.
fn encode_boot(spec: &MachineSpec) -> Result<Wiped, MachineError> {
    if spec.address.is_some() {
        return Err(MachineError::UselessAddress { kind: super::MachineKind::Process });
    }
    if spec.scratch_bytes < SCRATCH_BYTES_MIN {
        let (bytes, bytes_min) = (spec.scratch_bytes, SCRATCH_BYTES_MIN);
        return Err(MachineError::Scratch { bytes, bytes_min });
    }
    check_root(&spec.root)?;
    let mut config = BootConfig {
        sandbox: spec.id.to_string(),
        hostname: spec.hostname.clone(),
        root: spec.root.to_string_lossy().into_owned(),
        scratch_bytes: spec.scratch_bytes,
        env: spec.environment(),
        hide: spec.hide.clone(),
        door: spec.directories.is_some(),
        time_us: 0,
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

/// Tells the launched agent what to become and waits until it answers.
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
        let options = super::guest_options(then.as_ref());
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
        // A link that broke because the agent died is told by how it died.
        Some(source) => match supervisor.exited_within(DEATH_AFTER_CUT).await {
            Some(exit) => Err(MachineError::Died { exit, console: console.tail() }),
            None => Err(MachineError::Link { source, console: console.tail() }),
        },
    }
}

/// How long after its link broke a dying agent may still count as alive: the kernel closes a
/// process's descriptors before it tells its parent.
const DEATH_AFTER_CUT: Duration = Duration::from_millis(500);

async fn send(stream: UnixStream, bytes: &[u8]) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(stream)?;
    stream.write_all(bytes).await?;
    stream.into_std()
}

/// A machine whose start is not complete: it goes when this goes.
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

/// A sandbox's supervisor and the agent behind it.
struct Process {
    guest: Option<Guest>,
    supervisor: Supervisor,
    address: Option<Address>,
    /// What was asked for and this host cannot hold; known only to the bridge that started it.
    warnings: Vec<String>,
}

impl Running for Process {
    fn guest(&self) -> Option<Guest> {
        self.guest.clone()
    }

    fn trace(&self) -> Trace {
        let process = Some(self.supervisor.identity().clone());
        Trace { process, address: self.address.clone(), paused: false }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn bind<'a>(&'a self, bind: &'a Bind) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(bind.make(&self.supervisor))
    }

    fn stop(&self, grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.supervisor.stop(self.guest.clone(), grace))
    }

    fn kill(&self) {
        self.supervisor.kill();
    }

    fn was_killed(&self) -> bool {
        self.supervisor.was_killed()
    }

    fn exited(&self) -> BoxFuture<'static, MachineExit> {
        let supervisor = self.supervisor.clone();
        Box::pin(async move { supervisor.exited().await })
    }
}

#[cfg(test)]
mod tests;
