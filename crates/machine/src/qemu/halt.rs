//! Pausing, saving and restoring, by commands to QEMU's monitor.
//!
//! ```text
//! save   unplug the vsock ─▶ stop ─▶ migrate to a socket of ours ─▶ copy the disk ─▶ mend
//! mend   cancel a migration ─▶ cont ─▶ plug the vsock, if it is missing
//! load   -incoming ─▶ feed it the memory ─▶ mend
//! ```
//!
//! A vhost-user device cannot be migrated, so it is unplugged meanwhile. `mend` also repairs a machine that
//! another bridge left half-way.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep, timeout};

use super::Qemu;
use super::arguments::{self, SHARE_DEVICE, VHOST, VSOCK, VSOCK_ADDRESS, VSOCK_DEVICE};
use super::qmp::Qmp;
use crate::limits::{
    MONITOR_ORDER_DEADLINE, SNAPSHOT_MARGIN_BYTES, SNAPSHOT_WRITE_DEADLINE, UNPLUG_DEADLINE,
};
use crate::vmm::{
    Halt, MEMORY, MachineInputs, ORDERS, Plan, Programs, Saving, Standing, version_of,
};
use crate::{BoxFuture, MachineError, MachineKind};
use host::paths::PRIVATE_FILE;

/// The socket through which a memory goes out or comes in.
const MIGRATION: &str = "migration";
/// QEMU limits a migration to a network's speed by default; a file needs no limit.
const BYTES_PER_SECOND: u64 = 1 << 40;
/// How often to query a migration, and to retry plugging a device whose relay is not there yet.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a memory that are moved at once.
const PIECE_BYTES: usize = 256 * 1024;

impl Halt for Qemu {
    fn version(&self) -> BoxFuture<'_, Result<String, MachineError>> {
        Box::pin(version_of(&super::PROGRAM))
    }

    fn pause<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(order(directory, "stop"))
    }

    fn resume<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(order(directory, "cont"))
    }

    fn reconnect<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            let reconnected = async {
                if !has_vsock(directory) {
                    return Ok(());
                }
                let mut qmp = connect(directory).await?;
                unplug(&mut qmp).await?;
                set_right(&mut qmp, directory).await
            };
            let failed = |error: io::Error| MachineError::Monitor { reason: error.to_string() };
            reconnected.await.map_err(failed)
        })
    }

    fn calls_first(&self) -> bool {
        true
    }

    fn mend<'a>(&'a self, directory: &'a Path, paused: bool) -> BoxFuture<'a, Standing> {
        Box::pin(async move {
            let mended = async {
                let mut qmp = connect(directory).await?;
                if paused && is_reachable(&mut qmp, directory).await && !runs(&mut qmp).await? {
                    return Ok::<_, io::Error>(Standing::StandsStill);
                }
                let was_reachable = is_reachable(&mut qmp, directory).await;
                set_right(&mut qmp, directory).await?;
                Ok(if was_reachable { Standing::Runs } else { Standing::RunsAnew })
            };
            // A machine whose monitor does not answer is one whose agent may.
            mended.await.unwrap_or(Standing::Runs)
        })
    }

    fn check(&self, directory: &Path) -> Result<(), MachineError> {
        let (kind, what) = (MachineKind::Qemu, "be saved as a snapshot");
        let reason = if has_device(directory, SHARE_DEVICE) {
            "it has a directory of the host mounted, whose open files stay behind"
        } else if has_vsock(directory) {
            return Ok(());
        } else {
            "it has no vsock that could be taken away: a serial port, or a board other than pc"
        };
        Err(MachineError::CannotSuspend { kind, what, reason })
    }

    fn save<'a>(&'a self, saving: &'a Saving) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            let failed = |error: io::Error| MachineError::Monitor { reason: error.to_string() };
            let mut qmp = connect(&saving.directory).await.map_err(failed)?;
            let saved = save(&mut qmp, saving).await;
            let _ = std::fs::remove_file(saving.directory.join(MIGRATION));
            // Whatever went wrong, the machine continues.
            let mended = set_right(&mut qmp, &saving.directory).await;
            saved.and(mended).map_err(failed)
        })
    }

    fn awaiting(&self, programs: Programs) -> Programs {
        Programs { machine: arguments::awaiting(programs.machine), ..programs }
    }

    fn load<'a>(
        &'a self,
        plan: &'a Plan,
        from: &'a Path,
    ) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            let loaded = async {
                let mut qmp = born(&plan.directory).await?;
                load(&mut qmp, &plan.directory, &from.join(MEMORY)).await?;
                set_right(&mut qmp, &plan.directory).await
            };
            let loaded = loaded.await;
            let _ = std::fs::remove_file(plan.directory.join(MIGRATION));
            loaded.map_err(|error| MachineError::Monitor { reason: error.to_string() })
        })
    }
}

async fn connect(directory: &Path) -> io::Result<Qmp> {
    let path = directory.join(ORDERS);
    let connecting = Qmp::connect(&path);
    timeout(MONITOR_ORDER_DEADLINE, connecting).await.unwrap_or_else(|_| Err(late("answer")))
}

/// Connects to a monitor that has just been started.
async fn born(directory: &Path) -> io::Result<Qmp> {
    let deadline = Instant::now() + MONITOR_ORDER_DEADLINE;
    loop {
        match connect(directory).await {
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => sleep(LOOK_PAUSE).await,
            connected => return connected,
        }
    }
}

async fn order(directory: &Path, command: &'static str) -> Result<(), MachineError> {
    let ordered = async { connect(directory).await?.execute(command, json!({})).await };
    ordered.await.map(drop).map_err(|error| MachineError::Monitor { reason: error.to_string() })
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what}: it takes too long"))
}

async fn runs(qmp: &mut Qmp) -> io::Result<bool> {
    let status = qmp.execute("query-status", json!({})).await?;
    Ok(status.get("running").and_then(Value::as_bool) == Some(true))
}

/// Whether the machine was started with a vsock that can be taken away and given back.
fn has_vsock(directory: &Path) -> bool {
    has_device(directory, &format!("{VSOCK_DEVICE}-pci,addr={VSOCK_ADDRESS},"))
}

/// Whether the machine was started with a device whose words begin so.
fn has_device(directory: &Path, words: &str) -> bool {
    MachineInputs::noted(directory)
        .is_ok_and(|made| made.words.iter().any(|word| word.starts_with(words)))
}

async fn is_reachable(qmp: &mut Qmp, directory: &Path) -> bool {
    !has_vsock(directory) || is_plugged(qmp).await
}

async fn is_plugged(qmp: &mut Qmp) -> bool {
    let path = format!("/machine/peripheral/{VSOCK}");
    qmp.execute("qom-get", json!({ "path": path, "property": "type" })).await.is_ok()
}

async fn save(qmp: &mut Qmp, saving: &Saving) -> io::Result<()> {
    unplug(qmp).await?;
    qmp.execute("stop", json!({})).await?;
    let socket = saving.directory.join(MIGRATION);
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    qmp.execute("migrate-set-parameters", json!({ "max-bandwidth": BYTES_PER_SECOND })).await?;
    qmp.execute("migrate", json!({ "uri": format!("unix:{}", socket.display()) })).await?;
    let written = async {
        let (stream, _) = listener.accept().await?;
        let bytes_max = saving.memory_bytes + SNAPSHOT_MARGIN_BYTES;
        write(stream, &saving.into.join(MEMORY), bytes_max).await?;
        settled(qmp).await
    };
    let written = timeout(SNAPSHOT_WRITE_DEADLINE, written).await;
    written.unwrap_or_else(|_| Err(late("migrate")))?;
    saving.copy_disk().await
}

/// Takes the vsock away, and the connection to its relay, which makes itself again.
async fn unplug(qmp: &mut Qmp) -> io::Result<()> {
    qmp.execute("device_del", json!({ "id": VSOCK })).await?;
    timeout(UNPLUG_DEADLINE, unplugged(qmp)).await.unwrap_or_else(|_| Err(late("device_del")))?;
    qmp.execute("chardev-remove", json!({ "id": VHOST })).await.map(drop)
}

/// Waits until the guest has released its vsock.
async fn unplugged(qmp: &mut Qmp) -> io::Result<()> {
    loop {
        let event = qmp.event().await?;
        let is_vsock = event.pointer("/data/device").and_then(Value::as_str) == Some(VSOCK);
        match event.get("event").and_then(Value::as_str) {
            Some("DEVICE_DELETED") if is_vsock => return Ok(()),
            Some("DEVICE_UNPLUG_GUEST_ERROR") if is_vsock => {
                return Err(io::Error::other("the guest does not let go of its vsock"));
            }
            _ => {}
        }
    }
}

/// Writes what arrives until its end, durably, up to the limit.
async fn write(mut from: UnixStream, path: &Path, bytes_max: u64) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE_FILE);
    let mut file = OpenOptions::from(options).open(path).await?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            file.flush().await?;
            return file.sync_all().await;
        }
        bytes += count as u64;
        if bytes > bytes_max {
            return Err(io::Error::other(format!("the machine has more than {bytes_max} bytes")));
        }
        file.write_all(&piece[..count]).await?;
    }
}

/// Waits until a migration has completed or failed.
async fn settled(qmp: &mut Qmp) -> io::Result<()> {
    loop {
        let migration = qmp.execute("query-migrate", json!({})).await?;
        match migration.get("status").and_then(Value::as_str) {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => {
                let why = migration.get("error-desc").and_then(Value::as_str);
                return Err(io::Error::other(why.unwrap_or("the migration has failed").to_owned()));
            }
            _ => sleep(LOOK_PAUSE).await,
        }
    }
}

async fn load(qmp: &mut Qmp, directory: &Path, memory: &Path) -> io::Result<()> {
    let mut file = File::open(memory).await?;
    let socket: PathBuf = directory.join(MIGRATION);
    qmp.execute("migrate-set-parameters", json!({ "max-bandwidth": BYTES_PER_SECOND })).await?;
    let uri = format!("unix:{}", socket.display());
    qmp.execute("migrate-incoming", json!({ "uri": uri })).await?;
    let fed = async {
        let mut stream = UnixStream::connect(&socket).await?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = file.read(&mut piece).await?;
            if count == 0 {
                break;
            }
            stream.write_all(&piece[..count]).await?;
        }
        drop(stream);
        settled(qmp).await
    };
    timeout(SNAPSHOT_WRITE_DEADLINE, fed).await.unwrap_or_else(|_| Err(late("migrate-incoming")))
}

/// Resumes a machine in an unknown state, with its vsock plugged.
async fn set_right(qmp: &mut Qmp, directory: &Path) -> io::Result<()> {
    let migration = qmp.execute("query-migrate", json!({})).await?;
    if matches!(
        migration.get("status").and_then(Value::as_str),
        Some("setup" | "active" | "device")
    ) {
        qmp.execute("migrate_cancel", json!({})).await?;
        let cancelled = timeout(MONITOR_ORDER_DEADLINE, settled(qmp)).await;
        // A failed cancellation is expected: there may be no migration.
        drop(cancelled);
    }
    if !runs(qmp).await? {
        qmp.execute("cont", json!({})).await?;
    }
    let deadline = Instant::now() + MONITOR_ORDER_DEADLINE;
    while !is_reachable(qmp, directory).await {
        if let Err(error) = plug(qmp, directory).await {
            if Instant::now() >= deadline {
                return Err(error);
            }
            // The relay makes its socket again after each machine that has left it.
            sleep(LOOK_PAUSE).await;
        }
    }
    Ok(())
}

async fn plug(qmp: &mut Qmp, directory: &Path) -> io::Result<()> {
    // One that a try before has left.
    let _ = qmp.execute("chardev-remove", json!({ "id": VHOST })).await;
    let address = json!({ "type": "unix", "data": { "path": directory.join("vhost") } });
    let backend = json!({ "type": "socket", "data": { "addr": address, "server": false } });
    qmp.execute("chardev-add", json!({ "id": VHOST, "backend": backend })).await?;
    let device = json!({
        "driver": format!("{VSOCK_DEVICE}-pci"), "id": VSOCK, "chardev": VHOST, "addr": VSOCK_ADDRESS,
        "event_idx": false
    });
    qmp.execute("device_add", device).await.map(drop)
}
