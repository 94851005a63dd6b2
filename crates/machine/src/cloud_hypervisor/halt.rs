//! Pausing, saving and restoring, by requests to Cloud Hypervisor.
//!
//! ```text
//! save    pause ─▶ snapshot ─▶ our names for its files ─▶ copy the disk ─▶ resume
//! load    its names for our files, a description with this machine's paths ─▶ restore ─▶ resume
//! ```
//!
//! Links live on through all of it. A clone does not have them, and its agent may not notice that for long, so
//! it is dialled.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{CloudHypervisor, PROGRAM, api, describe};
use crate::vmm::{
    Api, CONFIG, Halt, MEMORY, MONITOR, Plan, RESTORED, STATE, Saving, Standing, version_of,
};
use crate::{BoxFuture, MachineError};

/// The files of a snapshot: our name and that of Cloud Hypervisor.
const FILES: [(&str, &str); 3] =
    [(MEMORY, "memory-ranges"), (STATE, "state.json"), (CONFIG, CONFIG_THERE)];
const CONFIG_THERE: &str = "config.json";
/// The longest accepted description of a machine.
const CONFIG_BYTES_MAX: u64 = 256 * 1024;

const PAUSE: &str = "/api/v1/vm.pause";
const RESUME: &str = "/api/v1/vm.resume";

impl Halt for CloudHypervisor {
    fn version(&self) -> BoxFuture<'_, Result<String, MachineError>> {
        Box::pin(version_of(&PROGRAM))
    }

    fn pause<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move { Ok(monitor(directory).put(PAUSE, None).await?) })
    }

    fn resume<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move { Ok(monitor(directory).put(RESUME, None).await?) })
    }

    fn mend<'a>(&'a self, directory: &'a Path, paused: bool) -> BoxFuture<'a, Standing> {
        Box::pin(async move {
            // A machine whose monitor does not answer is one whose agent may.
            let Ok(info) = self.info(&directory.join(MONITOR)).await else { return Standing::Runs };
            if info.get("state").and_then(Value::as_str) != Some("Paused") {
                return Standing::Runs;
            }
            if paused {
                return Standing::StandsStill;
            }
            let _ = self.resume(directory).await;
            Standing::Runs
        })
    }

    fn save<'a>(&'a self, saving: &'a Saving) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            self.pause(&saving.directory).await?;
            let saved = async {
                let body = json!({ "destination_url": url(&saving.into) });
                monitor(&saving.directory).put_slowly("/api/v1/vm.snapshot", body).await?;
                let kept = async {
                    keep_files(saving.into.clone()).await?;
                    saving.copy_disk().await
                };
                let action = "write the snapshot";
                kept.await.map_err(|source| MachineError::Host { action, source })
            };
            let saved = saved.await;
            // Whatever went wrong, the machine continues.
            saved.and(self.resume(&saving.directory).await)
        })
    }

    fn load<'a>(
        &'a self,
        plan: &'a Plan,
        from: &'a Path,
    ) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            let description = describe(plan)?;
            let ours = adapt(plan, &description, from)
                .map_err(|source| MachineError::Host { action: "read the snapshot", source })?;
            let api = monitor(&plan.directory);
            api.listening().await?;
            let mode = if can_page_on_demand() { "OnDemand" } else { "Copy" };
            let body = json!({ "source_url": url(&ours), "memory_restore_mode": mode });
            api.put_slowly("/api/v1/vm.restore", body).await?;
            self.resume(&plan.directory).await
        })
    }
}

fn monitor(directory: &Path) -> Api {
    api(&directory.join(MONITOR))
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Whether this process, and so its monitors, may have the kernel ask it for pages of memory. Otherwise a
/// restore reads all of them first.
fn can_page_on_demand() -> bool {
    let is_open = || {
        let value = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
        value.is_ok_and(|value| value.trim() == "1")
    };
    nix::unistd::geteuid().is_root() || is_open()
}

/// Gives the files of a snapshot our names, and has them on disk.
async fn keep_files(directory: PathBuf) -> io::Result<()> {
    let kept = tokio::task::spawn_blocking(move || {
        for (ours, theirs) in FILES {
            let path = directory.join(ours);
            fs::rename(directory.join(theirs), &path)?;
            File::open(path)?.sync_all()?;
        }
        Ok(())
    });
    kept.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// A snapshot as this plan's machine restores it: its files under the names that Cloud Hypervisor has for
/// them, and a description with the machine's own kernel, disks and sockets.
fn adapt(plan: &Plan, description: &Value, from: &Path) -> io::Result<PathBuf> {
    let ours = plan.directory.join(RESTORED);
    fs::create_dir(&ours)?;
    for (name, theirs) in FILES {
        if theirs != CONFIG_THERE {
            symlink(from.join(name).canonicalize()?, ours.join(theirs))?;
        }
    }
    let described = from.join(CONFIG);
    if fs::metadata(&described)?.len() > CONFIG_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut config: Value = serde_json::from_slice(&fs::read(described)?)?;
    let paths = ["/payload/kernel", "/payload/initramfs", "/vsock/socket", "/serial/socket"];
    let disks = (0..plan.disks.len()).map(|number| format!("/disks/{number}/path"));
    for place in paths.into_iter().map(str::to_owned).chain(disks) {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("no {place}"));
        let own = description.pointer(&place).ok_or_else(missing)?;
        *config.pointer_mut(&place).ok_or_else(missing)? = own.clone();
    }
    // A disk more than this machine has would be that of the source.
    if config["disks"].as_array().map(Vec::len) != Some(plan.disks.len()) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has other disks"));
    }
    fs::write(ours.join(CONFIG_THERE), config.to_string())?;
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firecracker::tests::plan;

    #[test]
    fn a_clone_has_paths_of_its_own_and_no_disk_of_its_source() {
        let (there, source) = plan("ch-source");
        let (here, clone) = plan("ch-clone");
        let mut config = describe(&source).unwrap();
        config["cpus"]["kvm_hyperv"] = json!(false);
        for name in [MEMORY, STATE] {
            fs::write(there.join(name), b"").unwrap();
        }
        fs::write(there.join(CONFIG), config.to_string()).unwrap();
        let ours = adapt(&clone, &describe(&clone).unwrap(), &there).unwrap();
        let text = fs::read_to_string(ours.join(CONFIG_THERE)).unwrap();
        assert!(!text.contains(there.to_str().unwrap()), "{text}");
        assert!(text.contains("kvm_hyperv"), "what only the monitor knows is kept: {text}");
        assert!(ours.join("memory-ranges").exists() && ours.join("state.json").exists());
        fs::remove_dir_all(&ours).unwrap();
        let more =
            [config["disks"][0].clone(), config["disks"][1].clone(), json!({ "path": "/x" })];
        config["disks"] = json!(more);
        fs::write(there.join(CONFIG), config.to_string()).unwrap();
        let refused = adapt(&clone, &describe(&clone).unwrap(), &there).unwrap_err();
        assert!(refused.to_string().contains("disks"), "{refused}");
        for directory in [there, here] {
            fs::remove_dir_all(directory).unwrap();
        }
    }
}
