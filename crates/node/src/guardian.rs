//! The guardian: a process beside the bridge that ends its sandboxes at the end of the lease, whatever has become of
//! the bridge. A bridge that was stopped or killed cannot do it, and others are about to take its names.
//!
//! ```text
//!  bridge: renewed ──▶ lease file ──▶ guardian: sleeps to the end of the lease, reads the file again
//!                                        │ it has another end: sleeps again
//!                                        │ the bridge has ended everything itself: done
//!                                        └─ otherwise kills the bridge, then every machine of the fleet
//! ```
//!
//! The bridge is killed first, so that it starts nothing afterwards: one that was stopped would go on where it was.
//! `host-bridge` itself is the guardian, run with a hidden verb; a bridge starts one when there is none, and the next
//! bridge finds it.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fleet::driver::now_ms;
use host::helper::find_helper;
use host::paths::Paths;
use machine::{Directories, SandboxId, Trace};
use rustix::process::{Signal, pidfd_send_signal};
use sandbox::record::StoredRecord;

use crate::leash::{GuardianLock, LeashFile};
use crate::limits::{BRIDGE_ENDS_MS, GUARDIAN_LOOK_PAUSE, GUARDIAN_SLEEP_MAX, GUARDIAN_START_MAX};

/// The hidden verb; its arguments are the two directories.
pub const VERB: &str = "__fleet-guardian";

/// Why there is no guardian.
#[derive(Debug, thiserror::Error)]
pub enum GuardianError {
    #[error(transparent)]
    Helper(#[from] host::helper::HelperMissing),
    #[error("the guardian that ends this node's sandboxes with its lease cannot be started: {0}")]
    Spawn(io::Error),
    #[error("the guardian that ends this node's sandboxes with its lease was not there in time")]
    Late,
}

/// Makes sure that there is a guardian, and waits until it watches. The lease must have been written before.
pub(crate) async fn ensure(paths: &Paths) -> Result<(), GuardianError> {
    if GuardianLock::is_taken(paths) {
        return Ok(());
    }
    let mut command = Command::new(find_helper()?.program());
    command.arg0("host-bridge").arg(VERB).arg(&paths.runtime).arg(&paths.state);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A group of its own: an interrupt from the bridge's terminal is not for it.
    command.process_group(0).current_dir("/");
    let mut child = command.spawn().map_err(GuardianError::Spawn)?;
    let deadline = Instant::now() + GUARDIAN_START_MAX;
    let watches = loop {
        if GuardianLock::is_taken(paths) {
            break true;
        }
        if Instant::now() > deadline {
            break false;
        }
        tokio::time::sleep(GUARDIAN_LOOK_PAUSE).await;
    };
    // It is reaped when it ends, which may be long after.
    std::thread::Builder::new()
        .name("guardian".to_owned())
        .spawn(move || child.wait())
        .map_err(GuardianError::Spawn)?;
    if watches { Ok(()) } else { Err(GuardianError::Late) }
}

/// The hidden verb. It returns when there is nothing left to watch over.
pub async fn watch(paths: &Paths) -> io::Result<()> {
    be_the_last_to_go();
    loop {
        let Some(lock) = take_lock(paths).await? else { return Ok(()) };
        let seen = watch_one(paths).await;
        drop(lock);
        // A bridge that has renewed its lease meanwhile has still seen the lock.
        if read(paths) == seen {
            return Ok(());
        }
    }
}

/// A lease that cannot be read is as good as none.
fn read(paths: &Paths) -> Option<LeashFile> {
    LeashFile::read(paths).unwrap_or(None)
}

/// Watches until a lease is over and nothing of it runs; says which.
async fn watch_one(paths: &Paths) -> Option<LeashFile> {
    loop {
        let Some(leash) = read(paths) else {
            end_machines(paths).await;
            return None;
        };
        let now = now_ms();
        let end_at = leash.end_at_ms + BRIDGE_ENDS_MS;
        if now < end_at {
            let left = Duration::from_millis(end_at - now);
            std::thread::sleep(left.min(GUARDIAN_SLEEP_MAX));
            continue;
        }
        if !leash.is_ended {
            if let Ok(Some(bridge)) = leash.bridge.open() {
                let _ = pidfd_send_signal(&bridge, Signal::KILL);
            }
            end_machines(paths).await;
        }
        return Some(leash);
    }
}

/// Ends what runs here of a fleet without a lease: before a bridge takes up what an earlier one has left.
pub async fn end_what_has_no_lease(paths: &Paths) {
    match LeashFile::read(paths) {
        Ok(Some(leash)) if now_ms() < leash.end_at_ms => {}
        _ => end_machines(paths).await,
    }
}

/// The guardian before this one may be about to end, or a bridge may be looking.
async fn take_lock(paths: &Paths) -> io::Result<Option<GuardianLock>> {
    let deadline = Instant::now() + GUARDIAN_START_MAX / 2;
    loop {
        if let Some(lock) = GuardianLock::try_take(paths)? {
            return Ok(Some(lock));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        tokio::time::sleep(GUARDIAN_LOOK_PAUSE).await;
    }
}

/// A host without memory ends others first. An ordinary user may not ask for that.
fn be_the_last_to_go() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}

/// Ends every machine of a fleet that the two directories know, and returns when they have ended. A machine whose
/// record cannot be read may be one.
async fn end_machines(paths: &Paths) {
    let mut found = BTreeSet::new();
    for directory in [paths.state_boxes(), paths.runtime_boxes()] {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.file_name()));
    }
    let mut ending = tokio::task::JoinSet::new();
    for name in found {
        let Some(id) = name.to_str().and_then(|name| name.parse::<SandboxId>().ok()) else {
            continue;
        };
        let directories = directories(paths, &id);
        let stored = StoredRecord::read(&directories.state).ok();
        if stored.as_ref().is_some_and(|stored| stored.record.incarnation.is_none()) {
            continue;
        }
        let trace = stored.map_or_else(Trace::default, |stored| stored.trace);
        ending.spawn(async move { machine::end_at_once(&directories, &trace).await });
    }
    while ending.join_next().await.is_some() {}
}

fn directories(paths: &Paths, id: &SandboxId) -> Directories {
    let below = |directory: PathBuf| directory.join(id.as_str());
    Directories { runtime: below(paths.runtime_boxes()), state: below(paths.state_boxes()) }
}
