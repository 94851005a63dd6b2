//! The plan of one machine, made before anything is started: its files, its resources, its kernel command
//! line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::kit::{IMAGE_DEFAULT, Kit};
use super::made::MADE;
use super::{PORT, Supervisor, copy, scratch};
use crate::limits::{
    VIRTUAL_CPUS_MAX, VIRTUAL_MEMORY_BYTES_DEFAULT, VIRTUAL_MEMORY_BYTES_MIN,
    VIRTUAL_SCRATCH_PART_OF_MEMORY,
};
use crate::process::cgroup;
use crate::{Bind, Directories, MachineError, MachineKind, MachineSpec, SandboxId};
use host::paths::make_private_directory;

/// The file that says which process the supervisor is.
pub(crate) const NOTE: &str = "machine.json";
/// The disk of a machine whose writable layer does not fit its memory.
pub const SCRATCH: &str = "scratch.img";
/// The socket of the machine's console.
pub const CONSOLE: &str = "console";
/// The socket of the virtio-serial port of an agent without a vsock.
pub const SERIAL: &str = "serial";
/// The socket of the monitor itself, and one for further orders to it, where it takes one connection
/// per socket.
pub const MONITOR: &str = "monitor";
pub const ORDERS: &str = "orders";
/// Where the daemon of a shared directory sees it, and nobody else does; and the daemon's socket.
pub const SHARED: &str = "shared";
pub const SHARE: &str = "share";
/// The directory that a jailed monitor sees.
pub const JAIL: &str = "jail";
/// A snapshot as one machine restores it.
pub const RESTORED: &str = "restored";
/// Links to the disks of a machine whose snapshots name its disks relative to its own directory.
pub const DISKS: &str = "disks";
/// What a monitor writes in order to be paused, which is removed at once.
pub const HALTED: &str = "halted";

/// The tag that makes the agent mount it.
const MOUNTED: &str = "burrow.workspace";

/// A disk of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub path: PathBuf,
    pub read_only: bool,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Plan {
    pub id: SandboxId,
    /// The directory of its sockets, for it alone.
    pub directory: PathBuf,
    /// Whether that directory is removed with the machine, because nothing else refers to it.
    pub temporary: bool,
    pub kit: Kit,
    /// In the order in which the guest sees them.
    pub disks: Vec<Disk>,
    pub layer: Option<Layer>,
    /// The directory of the host that its agent mounts.
    pub bind: Option<Bind>,
    pub memory_bytes: u64,
    pub cpus: u32,
    /// The agent's settings on the kernel command line.
    pub words: Vec<String>,
}

/// The disk of a writable layer that does not fit a machine's memory.
#[derive(Clone, Debug)]
pub struct Layer {
    pub path: PathBuf,
    pub bytes: u64,
    /// The disk that it is a copy of.
    pub from: Option<PathBuf>,
}

impl Plan {
    /// Changes nothing: see [`Plan::furnish`].
    pub fn make(kind: MachineKind, spec: &MachineSpec) -> Result<Self, MachineError> {
        if spec.address.is_some() {
            return Err(MachineError::UselessAddress { kind });
        }
        if spec.bind.is_some() && !kind.mounts_at_boot() {
            return Err(MachineError::NoMounts { kind });
        }
        let kit = Kit::find()?;
        let image = kit.image(spec.image.as_deref().unwrap_or(IMAGE_DEFAULT))?;
        let memory_bytes = spec.bounds.memory_bytes.unwrap_or(VIRTUAL_MEMORY_BYTES_DEFAULT);
        check_memory(memory_bytes, host::memory::total_bytes())?;
        // A machine has whole processors; a control group enforces the fraction.
        let cpus = spec.bounds.cpu_millis.map_or(1, |millis| millis.div_ceil(1000));
        let (directory, temporary) = match &spec.directories {
            Some(directories) => (directories.runtime.clone(), false),
            None => (temporary(&spec.id), true),
        };
        let mut words = vec!["burrow.root=/dev/vda", "burrow.ask", "burrow.dial"];
        let mut disks = vec![Disk { path: image, read_only: true }];
        let mut layer = None;
        if spec.scratch_bytes > memory_bytes / VIRTUAL_SCRATCH_PART_OF_MEMORY {
            let state = spec.directories.as_ref().map_or(&directory, |found| &found.state);
            let path = state.join(SCRATCH);
            let from = spec.restore.as_ref().map(|snapshot| snapshot.join(SCRATCH));
            layer = Some(Layer { path: path.clone(), bytes: spec.scratch_bytes, from });
            disks.push(Disk { path, read_only: false });
            words.push("burrow.scratch=/dev/vdb");
        }
        if spec.bind.is_some() {
            words.push(MOUNTED);
        }
        Ok(Self {
            id: spec.id.clone(),
            directory,
            temporary,
            kit,
            disks,
            layer,
            bind: spec.bind.clone(),
            memory_bytes,
            cpus: cpus.clamp(1, VIRTUAL_CPUS_MAX),
            words: words.into_iter().map(str::to_owned).collect(),
        })
    }

    /// Makes its files on disk, which may take long.
    pub fn furnish(&self) -> Result<(), MachineError> {
        let host = |action| move |source| MachineError::Host { action, source };
        if self.temporary {
            make_private_directory(&self.directory).map_err(host("make a directory"))?;
        }
        if self.bind.is_some() {
            make_private_directory(&self.shared()).map_err(host("make a directory"))?;
        }
        let Some(Layer { path, bytes, from }) = &self.layer else { return Ok(()) };
        if let Some(from) = from {
            let copied = copy::sparse(from, path);
            copied.map_err(host("copy the disk of the writable layer"))?;
        }
        scratch::make(path, *bytes)
    }

    /// The socket that leads to the guest's ports.
    pub fn vsock(&self) -> PathBuf {
        self.directory.join("vsock")
    }

    /// The socket on which the guest's calls arrive.
    pub fn calls(&self) -> PathBuf {
        calls(&self.directory)
    }

    /// The machine's console: a socket, or a pipe if it is the monitor's stdout.
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

    /// Where the daemon sees the shared directory, and the daemon's socket.
    pub fn shared(&self) -> PathBuf {
        self.directory.join(SHARED)
    }

    pub fn share(&self) -> PathBuf {
        self.directory.join(SHARE)
    }

    /// Notes who the supervisor is, before anything can be lost: a bridge that comes after one that
    /// was cut off finds it by this.
    pub fn note(&self, supervisor: &Supervisor) -> io::Result<()> {
        supervisor.note(&self.directory.join(NOTE))
    }

    /// Removes the machine's files.
    pub fn remove(&self) {
        remove(&self.directory, self.temporary);
    }
}

/// Refuses a memory in which nothing boots, or which this host does not have: the monitors accept any, and a
/// guest that finds less than it was promised dies later without a reason.
fn check_memory(bytes: u64, host_bytes: Option<u64>) -> Result<(), MachineError> {
    if bytes < VIRTUAL_MEMORY_BYTES_MIN {
        return Err(MachineError::Memory { bytes, bytes_min: VIRTUAL_MEMORY_BYTES_MIN });
    }
    match host_bytes.filter(|host_bytes| bytes > *host_bytes) {
        Some(host_bytes) => Err(MachineError::MemoryBeyondHost { bytes, host_bytes }),
        None => Ok(()),
    }
}

/// The socket on which the guest of a machine with its sockets there calls.
pub fn calls(directory: &Path) -> PathBuf {
    directory.join(format!("vsock_{PORT}"))
}

fn temporary(id: &SandboxId) -> PathBuf {
    std::env::temp_dir().join(format!("burrow-{id}"))
}

fn remove(directory: &Path, temporary: bool) {
    if temporary {
        fs::remove_dir_all(directory).ok();
        return;
    }
    fs::remove_file(calls(directory)).ok();
    for name in ["vsock", "vhost", CONSOLE, SERIAL, MONITOR, ORDERS, SHARE, MADE, NOTE] {
        fs::remove_file(directory.join(name)).ok();
    }
    // The directory must be empty by now; if it is not, its content is not ours.
    fs::remove_dir(directory.join(SHARED)).ok();
    for name in [JAIL, RESTORED, DISKS, HALTED] {
        fs::remove_dir_all(directory.join(name)).ok();
    }
}

/// Ends the remains of a machine, and removes its files.
pub async fn clean(id: &SandboxId, directories: Option<Directories>) {
    let (directory, is_temporary) = match directories {
        Some(directories) => (directories.runtime, false),
        None => (temporary(id), true),
    };
    Supervisor::end_noted(&directory.join(NOTE)).await;
    cgroup::remove(id).await;
    remove(&directory, is_temporary);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_beyond_the_hosts_is_refused_with_both_numbers() {
        let gib = 1 << 30;
        let refused = check_memory(128 * gib, Some(24 * gib)).unwrap_err().to_string();
        for part in ["128.0 GiB", "24.0 GiB", "ask for less"] {
            assert!(refused.contains(part), "{refused}");
        }
        check_memory(24 * gib, Some(24 * gib)).unwrap();
        check_memory(128 * gib, None).unwrap();
        assert!(matches!(check_memory(1, Some(gib)), Err(MachineError::Memory { .. })));
    }
}
