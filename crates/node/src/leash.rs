//! The lease as the guardian reads it: one small file in the runtime directory, written with each renewal.
//!
//! The bridge writes it, and the guardian and the next bridge read it. Its times are of the clock that goes on while
//! the host is suspended, and of one boot.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use fleet::ids::Millis;
use fleet::lease::Leash;
use host::paths::{Paths, write_unsynced};
use machine::ProcessIdentity;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::limits::LEASH_BYTES_MAX;

const FILE: &str = "fleet-lease.json";
const LOCK: &str = "fleet-guardian.lock";

/// Until when sandboxes of the fleet may run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeashFile {
    pub end_at_ms: Millis,
    /// The bridge that holds the lease.
    pub bridge: ProcessIdentity,
    /// The bridge has ended all of them after the end.
    pub is_ended: bool,
}

impl LeashFile {
    pub(crate) fn write(&self, paths: &Paths) -> io::Result<()> {
        write_unsynced(&paths.runtime, FILE, &serde_json::to_vec(self)?)
    }

    /// The one that an earlier bridge has left; over, if there is none.
    pub(crate) fn last(paths: &Paths, grace: Duration) -> Leash {
        let end_at = Self::read(paths).ok().flatten().map_or(0, |leash| leash.end_at_ms);
        Leash { pause_at: end_at.saturating_sub(grace.as_millis() as u64 / 2), end_at }
    }

    /// `None` where there never was one, or it is not of this boot.
    pub(crate) fn read(paths: &Paths) -> io::Result<Option<Self>> {
        let file = match File::open(paths.runtime.join(FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(LEASH_BYTES_MAX).read_to_end(&mut bytes)?;
        let leash: Self = serde_json::from_slice(&bytes)?;
        let own = ProcessIdentity::of(std::process::id())?;
        Ok(Some(leash).filter(|leash| leash.bridge.boot_id == own.boot_id))
    }
}

/// Held by the guardian for as long as it watches.
pub(crate) struct GuardianLock(#[expect(dead_code, reason = "it is held")] Flock<File>);

impl GuardianLock {
    /// `None` while another has it.
    pub(crate) fn try_take(paths: &Paths) -> io::Result<Option<Self>> {
        let file = open(&paths.runtime.join(LOCK))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(Self(lock))),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(errno.into()),
        }
    }

    /// Whether a guardian watches.
    pub(crate) fn is_taken(paths: &Paths) -> bool {
        // A lock that can be shared is nobody's; it is gone again with the file.
        let Ok(file) = open(&paths.runtime.join(LOCK)) else { return false };
        matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
    }
}

fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(host::paths::PRIVATE_FILE).open(path)
}
