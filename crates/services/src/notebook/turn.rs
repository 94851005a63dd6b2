//! One run's turn in a notebook, and what was recorded of it.

use protocol::exit::Cause;
use protocol::repl::{Event, Happening, OpenContext, RunEnd};
use ring::digest::{SHA256, digest};
use tokio::sync::oneshot;

use super::limits::HEARD_BYTES_MAX;
use super::manifest::{Dependent, LostName, Unavailable};
use crate::store::history::RunRow;
use agent_client::program::ran_out_of_memory;
use host::hex;
use sandbox::{Activity, SandboxRef};

/// How to begin a run.
#[derive(Clone, Debug, Default)]
pub struct TurnRequest {
    pub code: String,
    /// The caller's name for the code. Only the code itself decides what is reused.
    pub cache_key: Option<String>,
    /// The key that asks.
    pub by_whom: String,
}

/// The right to run code in a notebook's context, while it is held. Its holder passes it all events of the
/// run; when it is dropped, the notebook continues.
pub struct Turn {
    pub which: SandboxRef,
    pub context: OpenContext,
    /// Which run of the notebook this is.
    pub number: u64,
    /// What was restored, if the interpreter was replaced since the last run.
    pub reopened: Option<Reopened>,
    /// Keeps its sandbox from being idle.
    pub(super) _activity: Option<Activity>,
    pub(super) recording: RunTranscript,
    pub(super) over: Option<oneshot::Sender<TurnEnd>>,
}

/// The state of a notebook in an interpreter that is new to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reopened {
    /// The last run whose variables were kept; 0 when none was.
    pub as_of_run: u64,
    /// How many later runs lost their changes; cancelled runs are not counted.
    pub unsaved_runs: u64,
    pub restored: Vec<String>,
    pub lost: Vec<LostName>,
    pub depends: Vec<Dependent>,
    pub unavailable: Vec<Unavailable>,
    /// Why the working directory is different.
    pub directory_lost: Option<String>,
}

/// The end of a turn, and who waits until it is recorded.
pub(super) type TurnEnd = (RunTranscript, Option<oneshot::Sender<()>>);

/// What was recorded of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct RunTranscript {
    ask: TurnRequest,
    has_begun: bool,
    started_ms: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    error: Option<(String, String)>,
    finished: Option<protocol::repl::Finished>,
    artifacts: u64,
}

impl Turn {
    /// Says that the run is asked for. A turn that ends before that was none.
    pub fn begin(&mut self) {
        self.recording.has_begun = true;
    }

    pub fn record(&mut self, event: &Event) {
        self.recording.record(&event.what);
    }

    /// Ends the turn, and waits until the run is in the history: a caller that gets its number finds it
    /// there.
    pub async fn end(mut self) {
        let (written, waited) = oneshot::channel();
        if let Some(over) = self.over.take()
            && over.send((std::mem::take(&mut self.recording), Some(written))).is_ok()
        {
            let _ = waited.await;
        }
    }

    /// Sets the number of the run's artifacts.
    pub fn count_artifacts(&mut self, count: u64) {
        self.recording.artifacts = count;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(over) = self.over.take() {
            // If the notebook's task is gone, nobody asks.
            let _ = over.send((std::mem::take(&mut self.recording), None));
        }
    }
}

impl RunTranscript {
    pub fn new(ask: TurnRequest, started_ms: u64) -> Self {
        Self { ask, started_ms, ..Self::default() }
    }

    fn record(&mut self, what: &Happening) {
        match what {
            Happening::Stdout { bytes } => keep(&mut self.stdout, bytes.as_bytes()),
            Happening::Stderr { bytes } => keep(&mut self.stderr, bytes.as_bytes()),
            Happening::Error(report) => {
                self.error = Some((report.kind.clone(), report.message.clone()));
            }
            Happening::Finished(finished) => self.finished = Some(finished.clone()),
            _ => {}
        }
    }

    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the interpreter's variables may have changed.
    pub fn may_have_changed(&self) -> bool {
        !matches!(
            self.finished.as_ref().map(|finished| &finished.end),
            Some(RunEnd::Cancelled { .. } | RunEnd::Died { .. })
        )
    }

    pub fn row(self, namespace: String, notebook: String, sandbox: String) -> RunRow {
        let TurnRequest { code, cache_key, by_whom } = self.ask;
        let (status, error) = status(self.finished.as_ref().map(|finished| &finished.end));
        let (error_type, error_message) = match self.error {
            Some((kind, message)) => (Some(kind), Some(message)),
            None => (None, error),
        };
        let finished = self.finished.as_ref();
        RunRow {
            namespace,
            notebook,
            number: 0,
            started_ms: self.started_ms,
            duration_us: finished.map_or(0, |finished| finished.duration_us.min(DURATION_US_MAX)),
            status: status.to_owned(),
            code_bytes: code.len() as u64,
            code_digest: hex::digits(digest(&SHA256, code.as_bytes()).as_ref()),
            code,
            cache_key,
            cache_hit: finished.and_then(|finished| finished.cached),
            error_type,
            error_message,
            stdout: String::from_utf8_lossy(&self.stdout).into_owned(),
            stdout_bytes: finished.map_or(0, |finished| finished.stdout_bytes),
            stderr: String::from_utf8_lossy(&self.stderr).into_owned(),
            stderr_bytes: finished.map_or(0, |finished| finished.stderr_bytes),
            artifacts: self.artifacts,
            sandbox,
            by_whom,
        }
    }
}

/// The guest says how long a run took; longer than a year none is.
const DURATION_US_MAX: u64 = 366 * 24 * 3600 * 1_000_000;

/// The status of a run in the API's terms, and its message.
fn status(end: Option<&RunEnd>) -> (&'static str, Option<String>) {
    match end {
        Some(RunEnd::Ok {}) => ("ok", None),
        Some(RunEnd::Error {}) => ("error", None),
        Some(RunEnd::Exited { code }) => ("exited", Some(format!("it exited with {code}"))),
        Some(RunEnd::Interrupted { by }) => ("interrupted", Some(format!("interrupted by {by}"))),
        Some(RunEnd::TimedOut { limit_ms }) => {
            ("timeout", Some(format!("it ran longer than its deadline of {limit_ms} ms")))
        }
        Some(RunEnd::Died { cause: Cause::OutOfMemory { limit_bytes } }) => {
            ("died", Some(format!("its interpreter {}", ran_out_of_memory(*limit_bytes))))
        }
        Some(RunEnd::Died { .. }) => ("died", Some("its interpreter died".to_owned())),
        Some(RunEnd::Cancelled { reason }) => ("cancelled", Some(reason.clone())),
        None => (
            "abandoned",
            Some("the client that asked for it disconnected before it ended".to_owned()),
        ),
    }
}

fn keep(head: &mut Vec<u8>, bytes: &[u8]) {
    let room = HEARD_BYTES_MAX.saturating_sub(head.len());
    head.extend_from_slice(&bytes[..room.min(bytes.len())]);
}
