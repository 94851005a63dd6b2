//! What is stored about a sandbox: the record that people see, and the file that a later bridge
//! reads.
//!
//! One directory per sandbox holds `box.json` and the logs. A record is replaced by a rename after
//! an fsync, so a reader and a crash find the old or the new. (The store in `SQLite`, with history
//! and audit, comes with a later issue; then these files become its rows.)

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::label::Labels;
use super::{
    Ancestor, Durability, Followed, Incarnation, Name, OnIdle, OnLost, RecordPolicy, SandboxRef,
    Spec, State, TemplateName,
};
use crate::due::Due;
use crate::limits::RECORD_SYNC_PAUSE;
use agent_client::link::Address;
use host::instant::now_ms;
use host::paths::{sync_written, write_durably, write_unsynced};
use image::digest::Digest;
use machine::limits::RECORD_BYTES_MAX;
use machine::{BoxFuture, Capability, MachineKind, SandboxId, ScratchPlace, Trace};
use workspace::volume::VolumeMount;

/// The name of the file in a sandbox's state directory.
pub const RECORD_FILE: &str = "box.json";

/// A sandbox as people and programs see it. It contains no value of the environment, because those
/// may be secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: SandboxId,
    pub namespace: Name,
    pub name: Name,
    pub machine: MachineKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The image that it was made from, if packages were added; a restart applies the policy of images to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The image of this host's store that it has as its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<Digest>,
    /// The template that it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateName>,
    /// The packages that were installed for it over the host's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<PathBuf>,
    pub hostname: String,
    pub scratch_bytes: u64,
    /// Where the writable layer of a process machine is; absent of other machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_place: Option<ScratchPlace>,
    pub env_names: Vec<String>,
    /// The secrets that it was given, by their names in the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The workspace at `/workspace`, by its name in the configuration or its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Whether that is the directory itself, and no copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mounted: bool,
    /// The volumes of its namespace that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    pub created_at_ms: u64,
    /// Its life in the fleet that this bridge is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
    /// The id of the key that has made it; absent where no key was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(flatten)]
    pub state: State,
    /// The supervisor of its machine; absent if somebody else runs that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Where its agent listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// The size of its log on disk; known when it has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// What its memory takes on disk while it sleeps there, or may take while it is written.
    #[serde(default, skip_serializing_if = "is_none")]
    pub asleep_bytes: u64,
    /// The default working directory of programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The user of programs and interpreters that name none: as requested, or the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The time to live, from the creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// When that time is over. The time that a suspended host sleeps does not count while the
    /// bridge lives, and what is shown here is corrected by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
    /// The time to live while nothing is at work in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ttl_ms: Option<u64>,
    /// What happens when that time is over.
    #[serde(default, skip_serializing_if = "OnIdle::is_stop")]
    pub on_idle: OnIdle,
    /// Whether what its programs write outlives the host.
    #[serde(default, skip_serializing_if = "Durability::is_off")]
    pub durability: Durability,
    /// What is recorded of its sessions.
    #[serde(default, skip_serializing_if = "RecordPolicy::is_on")]
    pub record: RecordPolicy,
    /// What becomes of it when it is lost with its node.
    #[serde(default, skip_serializing_if = "OnLost::is_lose")]
    pub on_lost: OnLost,
    /// The lost sandbox that it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<Followed>,
    /// Since when it is idle, and when it is idle for too long. Absent while it is active, and
    /// without an idle time to live. Never stored on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_expires_at_ms: Option<u64>,
    /// How long its record and logs are kept after it has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_stopped_ms: Option<u64>,
    /// Paths that were requested to be hidden; the default ones if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hide: Option<Vec<String>>,
    /// The egress rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    /// What was requested and is not enforced on this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What it was forked from, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<Ancestor>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}

impl Record {
    pub(super) fn new(id: SandboxId, spec: &Spec, created_at_ms: u64) -> Self {
        Self {
            id,
            namespace: spec.namespace.clone(),
            name: spec.name.clone(),
            machine: spec.machine(),
            image: spec.image.clone(),
            base: spec.base.clone(),
            image_digest: None,
            template: spec.template.clone(),
            packages: spec.packages.clone(),
            hostname: spec.hostname().to_owned(),
            scratch_bytes: if spec.machine().can(Capability::Scratch) {
                spec.scratch_bytes()
            } else {
                0
            },
            scratch_place: spec.scratch_place(),
            env_names: spec.env.iter().map(|(name, _)| name.clone()).collect(),
            secrets: spec.secrets.clone(),
            workspace: spec.workspace.clone(),
            mounted: spec.mount,
            volumes: spec.volumes.clone(),
            created_at_ms,
            incarnation: None,
            key: spec.key.clone(),
            state: State::Creating,
            pid: None,
            address: None,
            memory_mib: spec.memory_mib,
            cpu_millis: spec.cpu_millis(),
            log_bytes: None,
            asleep_bytes: 0,
            workdir: spec.workdir.clone(),
            user: spec.user.clone(),
            labels: spec.labels.clone(),
            ttl_ms: spec.ttl_ms,
            expires_at_ms: spec.ttl_ms.map(|ttl_ms| created_at_ms.saturating_add(ttl_ms)),
            idle_ttl_ms: spec.idle_ttl_ms,
            on_idle: spec.on_idle.unwrap_or_default(),
            durability: spec.durability.unwrap_or_default(),
            record: spec.record.unwrap_or_default(),
            on_lost: spec.on_lost.unwrap_or_default(),
            follows: spec.follows.clone(),
            idle_since_ms: None,
            idle_expires_at_ms: None,
            keep_stopped_ms: spec.keep_stopped_ms,
            hide: spec.hide.clone(),
            egress: spec.egress.clone().unwrap_or_default(),
            warnings: Vec::new(),
            ancestors: Vec::new(),
        }
    }

    /// The record of a sandbox whose record on disk cannot be read.
    pub(super) fn damaged(
        id: SandboxId,
        which: SandboxRef,
        directory: &Path,
        reason: &str,
    ) -> Self {
        let made = fs::metadata(directory).and_then(|found| found.modified()).ok();
        let made = made.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let made_ms = made.map_or(0, |at| u64::try_from(at.as_millis()).unwrap_or_default());
        Self {
            scratch_bytes: 0,
            state: State::Damaged { reason: reason.to_owned() },
            ..Self::new(id, &Spec::new(which), made_ms)
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
    /// How a later bridge finds the machine.
    #[serde(default)]
    pub trace: Trace,
    /// When its time is over, for a later bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Due>,
}

impl StoredRecord {
    pub(super) fn new(record: Record) -> Self {
        Self { record, trace: Trace::default(), due: None }
    }

    /// When its time is over by the wall clock: that to live, or that to be kept once it has stopped.
    fn due_ms(&self) -> Option<u64> {
        match &self.record.state {
            State::Stopped { at_ms, .. } => {
                self.record.keep_stopped_ms.map(|keep_ms| at_ms.saturating_add(keep_ms))
            }
            _ => self.record.expires_at_ms,
        }
    }

    /// How long until then. It is never longer than was asked for, should the wall clock have been set back.
    pub(super) fn left(&self) -> Option<Duration> {
        let due_ms = self.due_ms()?;
        let noted = self.due.as_ref().filter(|due| due.is_of(due_ms));
        let asked_ms = match &self.record.state {
            State::Stopped { .. } => self.record.keep_stopped_ms,
            _ => self.record.ttl_ms,
        };
        let by_wall = || due_ms.saturating_sub(now_ms()).min(asked_ms.unwrap_or(u64::MAX));
        Some(noted.and_then(Due::left).unwrap_or_else(|| Duration::from_millis(by_wall())))
    }

    /// Notes when its time is over, if that is another moment than before.
    pub(super) fn note_due(&mut self) {
        let due_ms = self.due_ms();
        if self.due.as_ref().is_none_or(|due| due_ms.is_none_or(|due_ms| !due.is_of(due_ms))) {
            self.due = due_ms.and_then(|due_ms| Due::at(due_ms).ok());
        }
    }

    /// Writes the record durably.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        write_durably(directory, RECORD_FILE, &serde_json::to_vec_pretty(self)?)
    }

    /// Saves it without blocking a thread that others need.
    pub(super) async fn save(&self, directory: &Path) -> io::Result<()> {
        let (record, directory) = (self.clone(), directory.to_owned());
        let written = tokio::task::spawn_blocking(move || record.write(&directory));
        written.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Writes a record that a bridge which dies now leaves whole, and a power cut may not: a new sandbox
    /// waits for no disk. [`sync_soon`] follows.
    pub(super) fn write_unsynced(&self, directory: &Path) -> io::Result<()> {
        write_unsynced(directory, RECORD_FILE, &serde_json::to_vec_pretty(self)?)
    }

    /// Reads the record of a sandbox's directory.
    pub fn read(directory: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&read_bytes(directory)?)?)
    }
}

/// Syncs the record to disk that was written last, after the answer that it is about.
pub(super) fn sync_soon(directory: &Path) -> BoxFuture<'static, io::Result<()>> {
    let directory = directory.to_owned();
    let syncing = tokio::spawn(async move {
        tokio::time::sleep(RECORD_SYNC_PAUSE).await;
        tokio::task::spawn_blocking(move || sync_written(&directory, RECORD_FILE)).await
    });
    Box::pin(async move {
        match syncing.await.and_then(|synced| synced).unwrap_or_else(|error| Err(error.into())) {
            // The sandbox is gone, and its record with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    })
}

fn read_bytes(directory: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(directory.join(RECORD_FILE))?;
    let mut bytes = Vec::new();
    file.take(RECORD_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The name in a damaged record, if it can still be made out: it stands near the beginning.
pub(super) fn salvage_name(directory: &Path) -> Option<SandboxRef> {
    let bytes = read_bytes(directory).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let field = |name: &str| -> Option<Name> {
        let (_, rest) = text.split_once(&format!("\"{name}\": \""))?;
        rest.split_once('"')?.0.parse().ok()
    };
    Some(SandboxRef { namespace: field("namespace")?, name: field("name")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExpiryKind, StopReason};

    fn example() -> StoredRecord {
        let mut spec = Spec::new("team/web".parse().unwrap());
        spec.env = vec![("TOKEN".to_owned(), "hunter2".to_owned())];
        let record = Record::new("0123456789ab".parse().unwrap(), &spec, 7);
        StoredRecord::new(record)
    }

    #[test]
    fn a_record_is_read_as_it_was_written_in_every_state() {
        let directory = std::env::temp_dir().join(format!("burrow-record-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let states = [
            State::Creating,
            State::Running,
            State::Paused { since_ms: 9, by_idle: false, by_lease: false, on_disk: false },
            State::Paused { since_ms: 9, by_idle: true, by_lease: false, on_disk: false },
            State::Paused { since_ms: 9, by_idle: true, by_lease: false, on_disk: true },
            State::Paused { since_ms: 9, by_idle: false, by_lease: true, on_disk: false },
            State::Stopping,
            State::Stopped { why: StopReason::Ended { detail: "so".to_owned() }, at_ms: 9 },
            State::Stopped { why: StopReason::BridgeAway, at_ms: 9 },
            State::Stopped { why: StopReason::Expired { kind: ExpiryKind::Idle }, at_ms: 9 },
            State::Lost { reason: "silent".to_owned() },
        ];
        for state in states {
            let mut stored = example();
            stored.record.state = state;
            stored.write(&directory).unwrap();
            assert_eq!(StoredRecord::read(&directory).unwrap(), stored);
        }
        assert!(!directory.join("box.json.new").exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn no_value_of_the_environment_is_kept() {
        let text = serde_json::to_string(&example()).unwrap();
        assert!(text.contains("TOKEN") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_record_of_an_earlier_release_is_read() {
        let text = r#"{"record":{"id":"0123456789ab","namespace":"team","name":"web",
            "machine":"process","hostname":"web","scratch_bytes":1,"env_names":["TOKEN"],
            "created_at_ms":7,"state":"running"},"trace":{}}"#;
        let mut expected = example();
        (expected.record.scratch_bytes, expected.record.scratch_place) = (1, None);
        expected.record.state = State::Running;
        assert_eq!(serde_json::from_str::<StoredRecord>(text).unwrap(), expected);
    }

    #[test]
    fn the_name_in_a_damaged_record_is_made_out_where_it_is_whole() {
        let directory = std::env::temp_dir().join(format!("burrow-salvage-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let whole = serde_json::to_string_pretty(&example()).unwrap();
        let cut = &whole[..whole.find("machine").unwrap()];
        for text in [whole.replace("hostname", "\u{0}"), cut.to_owned()] {
            fs::write(directory.join(RECORD_FILE), text).unwrap();
            assert_eq!(salvage_name(&directory), Some("team/web".parse().unwrap()));
        }
        for text in ["", "{", "\"namespace\": \"team\", \"name\": \"w/eb\""] {
            fs::write(directory.join(RECORD_FILE), text).unwrap();
            assert_eq!(salvage_name(&directory), None, "{text}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_torn_record_is_an_error_and_no_panic() {
        let directory = std::env::temp_dir().join(format!("burrow-torn-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let text = serde_json::to_vec(&example()).unwrap();
        for length in 0..text.len() {
            fs::write(directory.join(RECORD_FILE), &text[..length]).unwrap();
            assert!(StoredRecord::read(&directory).is_err(), "{length} bytes were enough");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
