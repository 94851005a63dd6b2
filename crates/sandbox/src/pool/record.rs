//! The owner of a pooled machine, on disk: at each moment the pool, nobody, or one sandbox.
//!
//! ```text
//!  no record ──ready──▶ pool.json ──claim──▶ claimed.json ──box.json appears──▶ box.json
//!  (starting)           (the pool's)         (nobody's)                         (the sandbox's)
//! ```
//!
//! Each arrow is one rename. A bridge that opens the directories gives `box.json` precedence; a
//! `pool.json` alone is an unused machine, to be taken over or ended; everything else is half-made
//! and is ended: a claimed machine may contain somebody's environment and must never be ready
//! again. Nothing is synced here, because a pooled machine does not outlive a crash of the host
//! that would lose these files: the sandbox's own record is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use protocol::ContextName;
use serde::{Deserialize, Serialize};

use super::Shape;
use host::paths::PRIVATE_FILE;
use machine::limits::RECORD_BYTES_MAX;
use machine::{SandboxId, Trace};

/// The file of a machine that is ready.
const POOL_FILE: &str = "pool.json";
/// The file that becomes it.
const POOL_FILE_NEW: &str = "pool.json.new";
/// The same file after a claim.
const CLAIMED_FILE: &str = "claimed.json";

/// A machine that is ready, for the bridge that may come after this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pooled {
    pub id: SandboxId,
    pub shape: Shape,
    pub contexts: Vec<ContextName>,
    pub trace: Trace,
    pub ready_at_ms: u64,
    /// The bridge that started it, and so the agent in it.
    pub release: String,
}

impl Pooled {
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join(POOL_FILE_NEW);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
        options.open(&new)?.write_all(&serde_json::to_vec_pretty(self)?)?;
        fs::rename(new, directory.join(POOL_FILE))
    }

    pub fn read(directory: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let file = File::open(directory.join(POOL_FILE))?;
        file.take(RECORD_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

/// From here on the machine does not belong to the pool.
pub fn mark_claimed(directory: &Path) -> io::Result<()> {
    fs::rename(directory.join(POOL_FILE), directory.join(CLAIMED_FILE))
}

/// Removes what is obsolete beside a sandbox's record.
pub fn forget(directory: &Path) {
    for name in [CLAIMED_FILE, POOL_FILE_NEW, POOL_FILE] {
        let _ = fs::remove_file(directory.join(name));
    }
}

/// Why a directory without a sandbox's record exists.
pub fn explain(directory: &Path) -> &'static str {
    if directory.join(CLAIMED_FILE).exists() {
        "its claim from the pool was interrupted"
    } else {
        "it has no record"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::MachineKind;

    fn pooled() -> Pooled {
        let shape = Shape {
            machine: MachineKind::Process,
            root: Some("/".into()),
            image: None,
            file: None,
            scratch_bytes: 1,
            is_on_disk: false,
            memory_bytes: Some(2),
            cpu_millis: None,
            hide: vec!["/x".to_owned()],
            template: None,
        };
        Pooled {
            id: "0123456789ab".parse().unwrap(),
            shape,
            contexts: vec!["python".parse().unwrap()],
            trace: Trace::default(),
            ready_at_ms: 7,
            release: "0".to_owned(),
        }
    }

    #[test]
    fn a_record_is_the_pools_until_it_is_claimed() {
        let directory = std::env::temp_dir().join(format!("burrow-pooled-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        assert_eq!(explain(&directory), "it has no record");
        pooled().write(&directory).unwrap();
        assert_eq!(Pooled::read(&directory).unwrap(), pooled());
        mark_claimed(&directory).unwrap();
        assert!(Pooled::read(&directory).is_err());
        assert!(mark_claimed(&directory).is_err(), "it was claimed twice");
        assert!(explain(&directory).contains("claim"));
        forget(&directory);
        assert!(fs::read_dir(&directory).unwrap().next().is_none());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_torn_record_is_none() {
        let directory = std::env::temp_dir().join(format!("burrow-torn-p-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let text = serde_json::to_vec(&pooled()).unwrap();
        for length in 0..text.len() {
            fs::write(directory.join(POOL_FILE), &text[..length]).unwrap();
            assert!(Pooled::read(&directory).is_err(), "{length} bytes were enough");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
