//! One run's turn in a notebook, and what was heard of it.

use protocol::repl::{Event, Happening, OpenContext, RunEnd};
use ring::digest::{SHA256, digest};
use tokio::sync::oneshot;

use super::limits::HEARD_BYTES_MAX;
use super::manifest::{Dependent, LostName, Unavailable};
use crate::store::history::RunRow;
use host::hex;
use sandbox::{Activity, SandboxRef};

/// What a run is begun with.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub code: String,
    /// The caller's name for the code. The code alone decides what is used again.
    pub cache_key: Option<String>,
    /// The key that asks.
    pub by_whom: String,
}

/// The right to run code in a notebook's context, for as long as it is held. Whoever has it tells it
/// all events of the run; then it is dropped, and the notebook goes on.
pub struct Turn {
    pub which: SandboxRef,
    pub context: OpenContext,
    /// Which run of the notebook this is.
    pub number: u64,
    /// What was brought back, if the interpreter is another than the last run's.
    pub reopened: Option<Reopened>,
    /// Keeps its sandbox from being idle.
    pub(super) _activity: Option<Activity>,
    pub(super) heard: RunTranscript,
    pub(super) over: Option<oneshot::Sender<TurnEnd>>,
}

/// What a notebook has in an interpreter that is new to it.
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

/// The end of a turn, and who waits until it is written down.
pub(super) type TurnEnd = (RunTranscript, Option<oneshot::Sender<()>>);

/// What was heard of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct RunTranscript {
    ask: Ask,
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
        self.heard.has_begun = true;
    }

    pub fn hear(&mut self, event: &Event) {
        self.heard.hear(&event.what);
    }

    /// Ends the turn, and waits until the run is in the history: whoever is told its number finds it
    /// there.
    pub async fn end(mut self) {
        let (written, waited) = oneshot::channel();
        if let Some(over) = self.over.take()
            && over.send((std::mem::take(&mut self.heard), Some(written))).is_ok()
        {
            let _ = waited.await;
        }
    }

    /// How many artifacts the run has left.
    pub fn count_artifacts(&mut self, count: u64) {
        self.heard.artifacts = count;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(over) = self.over.take() {
            // The notebook's task may be gone, and then nobody asks.
            let _ = over.send((std::mem::take(&mut self.heard), None));
        }
    }
}

impl RunTranscript {
    pub fn new(ask: Ask, started_ms: u64) -> Self {
        Self { ask, started_ms, ..Self::default() }
    }

    fn hear(&mut self, what: &Happening) {
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

    /// Whether the interpreter may have other variables than before.
    pub fn may_have_changed(&self) -> bool {
        !matches!(
            self.finished.as_ref().map(|finished| &finished.end),
            Some(RunEnd::Cancelled { .. } | RunEnd::Died { .. })
        )
    }

    pub fn row(self, namespace: String, notebook: String, sandbox: String) -> RunRow {
        let Ask { code, cache_key, by_whom } = self.ask;
        let (status, said) = status(self.finished.as_ref().map(|finished| &finished.end));
        let (error_type, error_message) = match self.error {
            Some((kind, message)) => (Some(kind), Some(message)),
            None => (None, said),
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

/// How a run went, in the words of the API, and what is to be said of it.
fn status(end: Option<&RunEnd>) -> (&'static str, Option<String>) {
    match end {
        Some(RunEnd::Ok {}) => ("ok", None),
        Some(RunEnd::Error {}) => ("error", None),
        Some(RunEnd::Exited { code }) => ("exited", Some(format!("it exited with {code}"))),
        Some(RunEnd::Interrupted { by }) => ("interrupted", Some(format!("interrupted by {by}"))),
        Some(RunEnd::TimedOut { limit_ms }) => {
            ("timeout", Some(format!("it ran longer than its deadline of {limit_ms} ms")))
        }
        Some(RunEnd::Died { .. }) => ("died", Some("its interpreter died".to_owned())),
        Some(RunEnd::Cancelled { reason }) => ("cancelled", Some(reason.clone())),
        None => (
            "abandoned",
            Some("the client that asked for it disconnected before it ended".to_owned()),
        ),
    }
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = HEARD_BYTES_MAX.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
}
