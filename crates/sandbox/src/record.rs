//! What is kept of a sandbox: the record that people see, and the file that a later bridge reads.
//!
//! One directory per sandbox holds `box.json` and the logs. A record is replaced by a rename after
//! an fsync, so a reader and a crash find the old or the new. (The store in `SQLite`, with history
//! and audit, comes with a later issue; then these files become its rows.)

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::label::Labels;
use super::{Name, SandboxRef, Spec, State};
use agent_client::link::Address;
use host::paths::write_durably;
use image::digest::Digest;
use machine::limits::RECORD_BYTES_MAX;
use machine::{Capability, MachineKind, SandboxId, Trace};

/// The name of the file in a sandbox's state directory.
pub const RECORD_FILE: &str = "box.json";

/// A sandbox as people and programs are told of it. It holds no value of the environment, because
/// those may be secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: SandboxId,
    pub namespace: Name,
    pub name: Name,
    pub machine: MachineKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The image of this host's store that it has as its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<Digest>,
    pub hostname: String,
    pub scratch_bytes: u64,
    pub env_names: Vec<String>,
    /// The secrets that it was given, by their names in the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// What it has at `/workspace`, by its name in the configuration or its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Whether that is the directory itself, and no copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mounted: bool,
    pub created_at_ms: u64,
    /// The id of the key that has made it; absent where no key was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(flatten)]
    pub state: State,
    /// The supervisor of its machine; absent where somebody else runs that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Where its agent listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// What its log takes of the disk; known when it has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// The default working directory of programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Who programs and interpreters run as that name nobody: as it was asked for, or the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The time to live, from the creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// When that is over. The time that a suspended host sleeps does not count while the bridge
    /// lives, and what is shown here is corrected by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
    /// The time to live while nothing is at work in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ttl_ms: Option<u64>,
    /// Since when nothing has been at work in it, and when that is too long. Absent while something
    /// is, and without an idle time to live. Never kept on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_expires_at_ms: Option<u64>,
    /// How long its record and logs are kept after it has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_stopped_ms: Option<u64>,
    /// The egress rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    /// What was asked for and does not hold on this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Record {
    pub(super) fn new(id: SandboxId, spec: &Spec, created_at_ms: u64) -> Self {
        Self {
            id,
            namespace: spec.namespace.clone(),
            name: spec.name.clone(),
            machine: spec.machine,
            image: spec.image.clone(),
            image_digest: None,
            hostname: spec.hostname().to_owned(),
            scratch_bytes: if spec.machine.can(Capability::Scratch) {
                spec.scratch_bytes()
            } else {
                0
            },
            env_names: spec.env.iter().map(|(name, _)| name.clone()).collect(),
            secrets: spec.secrets.clone(),
            workspace: spec.workspace.clone(),
            mounted: spec.mount,
            created_at_ms,
            key: spec.key.clone(),
            state: State::Creating,
            pid: None,
            address: None,
            memory_mib: spec.memory_mib,
            cpu_millis: spec.cpu_millis(),
            log_bytes: None,
            workdir: spec.workdir.clone(),
            user: spec.user.clone(),
            labels: spec.labels.clone(),
            ttl_ms: spec.ttl_ms,
            expires_at_ms: spec.ttl_ms.map(|ttl_ms| created_at_ms.saturating_add(ttl_ms)),
            idle_ttl_ms: spec.idle_ttl_ms,
            idle_since_ms: None,
            idle_expires_at_ms: None,
            keep_stopped_ms: spec.keep_stopped_ms,
            egress: spec.egress.clone().unwrap_or_default(),
            warnings: Vec::new(),
        }
    }

    pub fn which(&self) -> SandboxRef {
        SandboxRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// The content of `box.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRecord {
    pub record: Record,
    /// How a later bridge finds the machine again.
    #[serde(default)]
    pub trace: Trace,
}

impl StoredRecord {
    /// Writes the record durably.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        write_durably(directory, RECORD_FILE, &serde_json::to_vec_pretty(self)?)
    }

    /// The same, without keeping a thread that others need waiting for the disk.
    pub(super) async fn save(&self, directory: &Path) -> io::Result<()> {
        let (kept, directory) = (self.clone(), directory.to_owned());
        let written = tokio::task::spawn_blocking(move || kept.write(&directory));
        written.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Reads the record of a sandbox's directory.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let file = File::open(directory.join(RECORD_FILE))?;
        let mut bytes = Vec::new();
        file.take(RECORD_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{ExpiryKind, StopReason};

    fn kept() -> StoredRecord {
        let mut spec = Spec::new("team/web".parse().unwrap());
        spec.env = vec![("TOKEN".to_owned(), "hunter2".to_owned())];
        let record = Record::new("0123456789ab".parse().unwrap(), &spec, 7);
        StoredRecord { record, trace: Trace::default() }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_in_every_state() {
        let directory = std::env::temp_dir().join(format!("burrow-record-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let states = [
            State::Creating,
            State::Running,
            State::Paused { since_ms: 9 },
            State::Stopping,
            State::Stopped { why: StopReason::Ended { detail: "so".to_owned() }, at_ms: 9 },
            State::Stopped { why: StopReason::BridgeAway, at_ms: 9 },
            State::Stopped { why: StopReason::Expired { kind: ExpiryKind::Idle }, at_ms: 9 },
            State::Lost { reason: "silent".to_owned() },
        ];
        for state in states {
            let mut kept = kept();
            kept.record.state = state;
            kept.write(&directory).unwrap();
            assert_eq!(StoredRecord::read(&directory).unwrap(), kept);
        }
        assert!(!directory.join("box.json.new").exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn no_value_of_the_environment_is_kept() {
        let text = serde_json::to_string(&kept()).unwrap();
        assert!(text.contains("TOKEN") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_record_of_an_earlier_release_is_read() {
        let text = r#"{"record":{"id":"0123456789ab","namespace":"team","name":"web",
            "machine":"process","hostname":"web","scratch_bytes":1,"env_names":["TOKEN"],
            "created_at_ms":7,"state":"running"},"trace":{}}"#;
        let mut expected = kept();
        expected.record.scratch_bytes = 1;
        expected.record.state = State::Running;
        assert_eq!(serde_json::from_str::<StoredRecord>(text).unwrap(), expected);
    }

    #[test]
    fn a_torn_record_is_an_error_and_no_panic() {
        let directory = std::env::temp_dir().join(format!("burrow-torn-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let text = serde_json::to_vec(&kept()).unwrap();
        for length in 0..text.len() {
            fs::write(directory.join(RECORD_FILE), &text[..length]).unwrap();
            assert!(StoredRecord::read(&directory).is_err(), "{length} bytes were enough");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
