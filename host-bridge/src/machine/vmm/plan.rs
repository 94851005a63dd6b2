//! What one machine is to be, decided before anything is started: its files, its resources, its
//! kernel command line.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::kit::{IMAGE_DEFAULT, Kit};
use super::made::MADE;
use super::{PORT, Supervisor, copy, scratch};
use crate::config::make_private_directory;
use crate::limits::{
    KILL_DEADLINE, VIRTUAL_CPUS_MAX, VIRTUAL_MEMORY_BYTES_DEFAULT, VIRTUAL_MEMORY_BYTES_MIN,
    VIRTUAL_SCRATCH_PART_OF_MEMORY,
};
use crate::machine::process::identity::ProcessIdentity;
use crate::machine::{BoxId, Directories, MachineError, MachineKind, MachineSpec};

/// The file that says which process the supervisor is.
const NOTE: &str = "machine.json";
/// The disk of a machine whose writable layer does not fit its memory.
pub const SCRATCH: &str = "scratch.img";
/// The sockets of the machine's console, of the monitor itself, and for further orders to it, where
/// it takes one connection per socket.
pub const CONSOLE: &str = "console";
/// The socket of the virtio-serial port at which an agent without a vsock is.
pub const SERIAL: &str = "serial";
pub const MONITOR: &str = "monitor";
pub const ORDERS: &str = "orders";
/// What a monitor sees that is kept from the rest, and a snapshot as one machine restores it.
pub const JAIL: &str = "jail";
pub const RESTORED: &str = "restored";

/// A disk of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub path: PathBuf,
    pub read_only: bool,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Plan {
    pub id: BoxId,
    /// Where its sockets are, for it alone.
    pub directory: PathBuf,
    /// Whether that directory goes with the machine, because nobody else knows of it.
    pub temporary: bool,
    pub kit: Kit,
    /// In the order in which the guest sees them.
    pub disks: Vec<Disk>,
    pub memory_bytes: u64,
    pub cpus: u32,
    /// What the agent is asked on the kernel command line.
    pub words: Vec<String>,
}

impl Plan {
    pub fn make(kind: MachineKind, spec: &MachineSpec) -> Result<Self, MachineError> {
        if spec.address.is_some() {
            return Err(MachineError::UselessAddress { kind });
        }
        let kit = Kit::find()?;
        let image = kit.image(spec.image.as_deref().unwrap_or(IMAGE_DEFAULT))?;
        let memory_bytes = spec.bounds.memory_bytes.unwrap_or(VIRTUAL_MEMORY_BYTES_DEFAULT);
        if memory_bytes < VIRTUAL_MEMORY_BYTES_MIN {
            let bytes_min = VIRTUAL_MEMORY_BYTES_MIN;
            return Err(MachineError::Memory { bytes: memory_bytes, bytes_min });
        }
        // A share of a processor is not a processor; what remains of it is the machine's bounds'.
        let cpus = spec.bounds.cpu_millis.map_or(1, |millis| millis.div_ceil(1000));
        let (directory, temporary) = match &spec.directories {
            Some(directories) => (directories.runtime.clone(), false),
            None => (temporary(&spec.id), true),
        };
        if temporary {
            make_private_directory(&directory)
                .map_err(|source| MachineError::Host { action: "make a directory", source })?;
        }
        let mut words = vec!["burrow.root=/dev/vda", "burrow.ask", "burrow.dial"];
        let mut disks = vec![Disk { path: image, read_only: true }];
        if spec.scratch_bytes > memory_bytes / VIRTUAL_SCRATCH_PART_OF_MEMORY {
            let kept = spec.directories.as_ref().map_or(&directory, |found| &found.state);
            let path = kept.join(SCRATCH);
            if let Some(snapshot) = &spec.restore {
                copy::sparse(&snapshot.join(SCRATCH), &path).map_err(|source| {
                    MachineError::Host { action: "copy the disk of the writable layer", source }
                })?;
            }
            scratch::make(&path, spec.scratch_bytes)?;
            disks.push(Disk { path, read_only: false });
            words.push("burrow.scratch=/dev/vdb");
        }
        Ok(Self {
            id: spec.id.clone(),
            directory,
            temporary,
            kit,
            disks,
            memory_bytes,
            cpus: cpus.clamp(1, VIRTUAL_CPUS_MAX),
            words: words.into_iter().map(str::to_owned).collect(),
        })
    }

    /// The socket that leads to the guest's ports.
    pub fn vsock(&self) -> PathBuf {
        self.directory.join("vsock")
    }

    /// The socket on which the guest's calls arrive.
    pub fn calls(&self) -> PathBuf {
        self.directory.join(format!("vsock_{PORT}"))
    }

    /// The machine's console: a socket, or a pipe where the monitor has it as its stdout.
    pub fn console(&self) -> PathBuf {
        self.directory.join(CONSOLE)
    }

    /// The socket of the port at which the agent is, where there is no vsock.
    pub fn serial(&self) -> PathBuf {
        self.directory.join(SERIAL)
    }

    /// The socket of the monitor itself.
    pub fn monitor(&self) -> PathBuf {
        self.directory.join(MONITOR)
    }

    /// Notes who the supervisor is, before anything can be lost: a bridge that comes after one that
    /// was cut off finds it by this.
    pub fn note(&self, identity: &ProcessIdentity) -> io::Result<()> {
        fs::write(self.directory.join(NOTE), serde_json::to_vec(identity)?)
    }

    /// Removes what the machine had here.
    pub fn remove(&self) {
        remove(&self.directory, self.temporary);
    }
}

fn temporary(id: &BoxId) -> PathBuf {
    std::env::temp_dir().join(format!("burrow-{id}"))
}

fn remove(directory: &Path, temporary: bool) {
    if temporary {
        fs::remove_dir_all(directory).ok();
        return;
    }
    let calls = format!("vsock_{PORT}");
    for name in ["vsock", &calls, "vhost", CONSOLE, SERIAL, MONITOR, ORDERS, MADE, NOTE] {
        fs::remove_file(directory.join(name)).ok();
    }
    for name in [JAIL, RESTORED] {
        fs::remove_dir_all(directory.join(name)).ok();
    }
}

/// Ends what was left of a machine, and removes its files.
pub async fn clean(id: &BoxId, directories: Option<Directories>) {
    let (directory, is_temporary) = match directories {
        Some(directories) => (directories.runtime, false),
        None => (temporary(id), true),
    };
    let noted = File::open(directory.join(NOTE)).ok().and_then(|file| {
        let identity = serde_json::from_reader::<_, ProcessIdentity>(file).ok()?;
        Supervisor::find(&identity).ok().flatten()
    });
    if let Some(supervisor) = noted {
        supervisor.kill();
        supervisor.exited_within(KILL_DEADLINE).await;
    }
    remove(&directory, is_temporary);
}
