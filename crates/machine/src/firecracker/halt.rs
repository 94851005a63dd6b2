//! Pausing, saving and restoring, by requests to Firecracker.
//!
//! ```text
//! pause    Paused ─▶ a snapshot that nobody needs
//! resume   Resumed ─▶ the agent is dialled again
//! save     Paused ─▶ snapshot ─▶ copy the disk ─▶ Resumed
//! load     link to the disks ─▶ load, with the memory mapped from its file
//! ```
//!
//! A machine that was only paused answers no new call of the host afterwards (Firecracker's issue 6100, in 1.15
//! to 1.16.1). A snapshot resets the guest's vsock, which cuts its links and makes new ones possible. So each
//! pause takes one and removes it.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::{Firecracker, PROGRAM, api, jail};
use crate::vmm::{
    Api, DISKS, HALTED, Halt, MEMORY, MONITOR, MachineInputs, Plan, STATE, Saving, Standing,
    version_of,
};
use crate::{BoxFuture, MachineError, MachineKind};
use host::paths::make_private_directory;
use host::units::human_bytes;

/// The states of a machine, as Firecracker names them.
const PAUSED: &str = "Paused";
const RESUMED: &str = "Resumed";

impl Halt for Firecracker {
    fn version(&self) -> BoxFuture<'_, Result<String, MachineError>> {
        Box::pin(version_of(&PROGRAM))
    }

    fn pause<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            self.check(directory)?;
            require_room(directory)?;
            let api = monitor(directory);
            enter(&api, PAUSED).await?;
            let Err(error) = reset_vsock(&api, directory).await else { return Ok(()) };
            enter(&api, RESUMED).await?;
            let reason = format!(
                "it was not paused, because the snapshot that a pause needs was not written; until a \
                 snapshot of it succeeds, it may answer no new connection: {error}"
            );
            Err(MachineError::Monitor { reason })
        })
    }

    fn resume<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move { enter(&monitor(directory), RESUMED).await })
    }

    fn pause_cuts(&self) -> bool {
        true
    }

    fn mend<'a>(&'a self, directory: &'a Path, paused: bool) -> BoxFuture<'a, Standing> {
        Box::pin(async move {
            let api = monitor(directory);
            // A machine whose monitor does not answer is one whose agent may.
            let Ok(about) = api.get("/").await else { return Standing::Runs };
            if about.get("state").and_then(Value::as_str) != Some(PAUSED) {
                return Standing::Runs;
            }
            if paused {
                return Standing::StandsStill;
            }
            let _ = reset_vsock(&api, directory).await;
            let _ = enter(&api, RESUMED).await;
            Standing::Runs
        })
    }

    /// The paths of a snapshot would be those inside the jail.
    fn check(&self, _: &Path) -> Result<(), MachineError> {
        if self.jailer.is_none() {
            return Ok(());
        }
        let (kind, what) = (MachineKind::Firecracker, "be paused or saved");
        let reason = "a Firecracker in a jail can write no snapshot out of it";
        Err(MachineError::CannotSuspend { kind, what, reason })
    }

    fn save<'a>(&'a self, saving: &'a Saving) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            self.check(&saving.directory)?;
            let api = monitor(&saving.directory);
            require_relative_disks(&api).await?;
            enter(&api, PAUSED).await?;
            let saved = async {
                create_snapshot(&api, "Full", &saving.into).await?;
                let copied = saving.copy_disk().await;
                let action = "copy the disk of the writable layer";
                copied.map_err(|source| MachineError::Host { action, source })
            };
            let saved = saved.await;
            // Whatever went wrong, the machine continues.
            saved.and(enter(&api, RESUMED).await)
        })
    }

    fn load<'a>(
        &'a self,
        plan: &'a Plan,
        from: &'a Path,
    ) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            self.check(&plan.directory)?;
            link_disks(plan)?;
            let api = monitor(&plan.directory);
            api.listening().await?;
            // Firecracker maps the file privately: pages are read when they are used, and those that no
            // clone has written are in this host's memory once.
            let body = json!({
                "snapshot_path": from.join(STATE),
                "mem_backend": { "backend_type": "File", "backend_path": from.join(MEMORY) },
                "resume_vm": true,
            });
            Ok(api.put_slowly("/snapshot/load", body).await?)
        })
    }
}

fn monitor(directory: &Path) -> Api {
    api(&directory.join(MONITOR))
}

async fn enter(api: &Api, state: &str) -> Result<(), MachineError> {
    Ok(api.patch("/vm", json!({ "state": state })).await?)
}

async fn create_snapshot(api: &Api, kind: &str, into: &Path) -> Result<(), MachineError> {
    let body = json!({
        "snapshot_type": kind,
        "snapshot_path": into.join(STATE),
        "mem_file_path": into.join(MEMORY),
    });
    Ok(api.put_slowly("/snapshot/create", body).await?)
}

/// Takes a snapshot that nobody needs, and removes it: see the module's description.
async fn reset_vsock(api: &Api, directory: &Path) -> Result<(), MachineError> {
    let halted = directory.join(HALTED);
    let _ = fs::remove_dir_all(&halted);
    make_private_directory(&halted)
        .map_err(|source| MachineError::Host { action: "make a directory", source })?;
    // This kind writes only memory that the guest has used. Releases that do not offer it write all.
    let taken = match create_snapshot(api, "Diff", &halted).await {
        Err(MachineError::Api(_)) => create_snapshot(api, "Full", &halted).await,
        taken => taken,
    };
    let _ = fs::remove_dir_all(&halted);
    taken
}

/// Refuses a pause before anything is done where its snapshot might not fit.
fn require_room(directory: &Path) -> Result<(), MachineError> {
    let refused = |source| MachineError::Host {
        action: "write the snapshot that a pause of Firecracker needs",
        source,
    };
    let wanted = MachineInputs::noted(directory).map_err(refused)?.memory_bytes;
    let found = rustix::fs::statvfs(directory).map_err(io::Error::from).map_err(refused)?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free >= wanted {
        return Ok(());
    }
    let reason = format!(
        "it takes up to {}, and {} has {} free",
        human_bytes(wanted),
        directory.display(),
        human_bytes(free)
    );
    Err(refused(io::Error::new(io::ErrorKind::StorageFull, reason)))
}

/// Refuses to save a machine that an older bridge has started: its clones would open its own disks.
async fn require_relative_disks(api: &Api) -> Result<(), MachineError> {
    let config = api.get("/vm/config").await?;
    let drives = config.get("drives").and_then(Value::as_array).into_iter().flatten();
    let mut paths = drives.filter_map(|drive| drive.get("path_on_host").and_then(Value::as_str));
    if paths.all(|path| Path::new(path).is_relative()) {
        return Ok(());
    }
    let (kind, what) = (MachineKind::Firecracker, "be saved as a snapshot");
    let reason = "an older bridge has started it, with disks that its clones would share";
    Err(MachineError::CannotSuspend { kind, what, reason })
}

/// The name of a disk for a monitor that runs in the machine's own directory. Snapshots have this name too, so
/// each clone finds its own disks.
pub(super) fn relative_disk(number: usize) -> String {
    format!("{DISKS}/{}", jail::disk(number))
}

/// Makes the links that these names mean.
pub(super) fn link_disks(plan: &Plan) -> Result<(), MachineError> {
    let linked = || {
        let directory = plan.directory.join(DISKS);
        let _ = fs::remove_dir_all(&directory);
        make_private_directory(&directory)?;
        for (number, disk) in plan.disks.iter().enumerate() {
            symlink(&disk.path, plan.directory.join(relative_disk(number)))?;
        }
        Ok(())
    };
    linked().map_err(|source| MachineError::Host { action: "link to the disks", source })
}
