//! The log of a sandbox of another node of the fleet: read in parts, through this host's bridge.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use protocol::SessionId;
use tokio::time::{Instant, sleep};

use crate::context::Context;
use crate::output;
use control::message::{LogPage, LogQuery};
use control::{Client, ClientError, ErrorCode, Request};
use sandbox::SandboxRef;
use sandbox::log::Entry;

/// How long a follower asks a node that does not answer: longer than any usual lease, after which the fleet says what has
/// become of it.
const SILENT_MAX: Duration = Duration::from_secs(120);
/// The pause between two such questions.
const SILENT_PAUSE: Duration = Duration::from_millis(500);

/// See the module's description.
pub(super) struct OtherLog {
    daemon: Client,
    query: LogQuery,
    entries: VecDeque<Entry>,
    is_at_end: bool,
    is_over: bool,
}

impl OtherLog {
    /// `None`: no other node has a sandbox of that name, as far as this host knows.
    pub(super) async fn open(context: &Context, query: LogQuery) -> Result<Option<Self>> {
        let Ok(daemon) = context.running().await else { return Ok(None) };
        let mut log =
            Self { daemon, query, entries: VecDeque::new(), is_at_end: false, is_over: false };
        match log.read(false).await {
            Ok(()) => Ok(Some(log)),
            Err(ClientError::Refused(refusal))
                if matches!(refusal.code, ErrorCode::NotFound | ErrorCode::NotRunning) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The next entry; `None` if there is no more, or will be none for one who follows.
    pub(super) async fn next(&mut self, follows: bool) -> Result<Option<Entry>> {
        let mut silent: Option<Instant> = None;
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Ok(Some(entry));
            }
            if self.is_over || self.is_at_end && !follows {
                return Ok(None);
            }
            match self.read(follows).await {
                Ok(()) => silent = None,
                Err(ClientError::Refused(refusal)) if follows && is_silence(refusal.code) => {
                    if silent.is_none() {
                        output::note(&output::printable(&format!(
                            "{}; asking again",
                            refusal.message
                        )));
                    }
                    if silent.get_or_insert_with(Instant::now).elapsed() > SILENT_MAX {
                        return Err(ClientError::Refused(refusal).into());
                    }
                    sleep(SILENT_PAUSE).await;
                }
                // Nothing is left of one that was removed, as with a log of this host.
                Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::NotFound => {
                    self.is_over = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn read(&mut self, waits: bool) -> Result<(), ClientError> {
        self.query.waits = waits;
        let page: LogPage = self.daemon.ask(&Request::ReadLog(self.query.clone())).await?;
        self.entries.extend(page.entries);
        (self.is_at_end, self.is_over) = (page.is_at_end, page.is_over);
        // From here on it is the place that says where to begin, or the log has nothing yet.
        (self.query.tail, self.query.since_ms, self.query.after) = (None, None, page.after);
        Ok(())
    }
}

/// Whether the node did not answer, or another does not know yet what has become of it.
fn is_silence(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Busy | ErrorCode::Stopping | ErrorCode::Io)
}

/// The sessions that the log of a sandbox of another node knows; `None`: no other node has it.
pub(super) async fn sessions(context: &Context, which: &SandboxRef) -> Option<Vec<SessionId>> {
    let mut daemon = context.running().await.ok()?;
    daemon.ask(&Request::LogSessions { sandbox: which.clone() }).await.ok()
}
