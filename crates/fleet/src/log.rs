//! Output that outlives a node: the log of one life of a sandbox, and its one writer.
//!
//! ```text
//!  burrow.log.SHARD.NAMESPACE.NAME.INCARNATION.lines               what has happened, one line each
//!  burrow.log.SHARD.NAMESPACE.NAME.INCARNATION.out.SESSION.RUN.CHANNEL    bytes, by their offsets
//! ```
//!
//! Each subject is a *track*. Its records follow each other without a hole: each is stored only if the one before it is
//! the last, which the store checks, so that two writers never interleave. A track is closed by a *seal*: a node that
//! reports where the output of a lost sandbox ends seals it first, and what its own node still sends is refused from then on. The
//! track of lines is sealed first, because a session's other tracks begin only after its line.
//!
//! This knows nothing of sessions; `node` gives the lines their meaning.

use bytes::Bytes;

use crate::event::Outcome;
use crate::ids::{NodeId, Revision};
use crate::limits::{APPEND_PAUSE_MAX_MS, APPEND_PAUSE_MS};
use crate::nats::{Link, StoreError};
use crate::track::{Draft, Form, LogId, Part, Reading, Track};

/// Another has written to the track, or has sealed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", if *.is_sealed { format!("the node {node} has sealed it") } else {
    format!("the node {node} writes to it")
})]
pub struct Fenced {
    pub node: NodeId,
    pub is_sealed: bool,
}

/// Why an append has ended without a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The writer's name is no longer its own.
    #[error("the sandbox is no longer this node's")]
    NotOurs,
}

/// The writer of one track. Nobody else may write to it from the same node.
pub struct Writer {
    link: Link,
    log: LogId,
    track: Track,
    node: NodeId,
    /// The last record and where it ends, once that is known.
    last: Option<(Revision, u64)>,
    /// Whether the log is still this node's to write.
    is_ours: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Writer {
    pub fn new(
        link: Link,
        log: LogId,
        track: Track,
        node: NodeId,
        is_ours: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { link, log, track, node, last: None, is_ours: Box::new(is_ours) }
    }

    /// Where the track ends. The store is asked until it answers.
    pub async fn end(&mut self) -> Result<u64, AppendError> {
        match self.last {
            Some((_, end)) => Ok(end),
            None => Ok(self.look().await?.1),
        }
    }

    /// Appends bytes at an offset, or a gap where there are none, without what the track has already.
    pub async fn append(&mut self, offset: u64, end: u64, bytes: Bytes) -> Result<(), AppendError> {
        loop {
            let known = self.end().await?;
            if end <= known {
                return Ok(());
            }
            // What comes before it is missing.
            if offset > known {
                self.store(Form::Gap, known, offset, Bytes::new()).await?;
                continue;
            }
            let form = if bytes.is_empty() { Form::Gap } else { Form::Data };
            let rest = if bytes.is_empty() {
                Bytes::new()
            } else {
                bytes.slice((known - offset) as usize..)
            };
            if self.store(form, known, end, rest).await? {
                return Ok(());
            }
        }
    }

    /// Appends a line after all others.
    pub async fn note(&mut self, line: Bytes) -> Result<(), AppendError> {
        loop {
            let at = self.end().await?;
            if self.store(Form::Data, at, at + 1, line.clone()).await? {
                return Ok(());
            }
            // An answer may have been lost.
            if self
                .link
                .last(&self.log, &self.track)
                .await
                .ok()
                .flatten()
                .is_some_and(|last| last.draft.payload == line && last.draft.node == self.node)
            {
                return Ok(());
            }
        }
    }

    /// Stores one record after the last one. `false`: the track has another end than was known, which is known now.
    async fn store(
        &mut self,
        form: Form,
        offset: u64,
        end: u64,
        payload: Bytes,
    ) -> Result<bool, AppendError> {
        let (expected, _) = self.last.unwrap_or_default();
        let draft = Draft { form, offset, end, payload, node: self.node.clone() };
        let mut pause = APPEND_PAUSE_MS;
        loop {
            if !(self.is_ours)() {
                return Err(AppendError::NotOurs);
            }
            match self.link.append(&self.log, &self.track, expected, &draft).await {
                Outcome::Stored(revision) => {
                    self.last = Some((revision, end));
                    return Ok(true);
                }
                // It may be what was stored without an answer.
                Outcome::Conflict => {
                    self.look().await?;
                    return Ok(false);
                }
                Outcome::Unavailable => wait(&mut pause).await,
            }
        }
    }

    /// Reads the end of the track, whose last record must be this node's.
    async fn look(&mut self) -> Result<(Revision, u64), AppendError> {
        let mut pause = APPEND_PAUSE_MS;
        loop {
            match self.link.last(&self.log, &self.track).await {
                // Or the store keeps none of it any more.
                Ok(None) => {
                    let end = self.last.map_or(0, |(_, end)| end);
                    return Ok(*self.last.insert((Revision(0), end)));
                }
                Ok(Some(last)) => {
                    let (node, is_sealed) = (last.draft.node, last.draft.form == Form::Seal);
                    if is_sealed || node != self.node {
                        return Err(Fenced { node, is_sealed }.into());
                    }
                    return Ok(*self.last.insert((last.revision, last.draft.end)));
                }
                Err(error) => {
                    tracing::debug!(%error, "the end of a track is not known yet");
                    if !(self.is_ours)() {
                        return Err(AppendError::NotOurs);
                    }
                    wait(&mut pause).await;
                }
            }
        }
    }
}

/// Each pause is twice as long as the one before, up to a bound.
async fn wait(pause_ms: &mut u64) {
    tokio::time::sleep(std::time::Duration::from_millis(*pause_ms)).await;
    *pause_ms = (*pause_ms * 2).min(APPEND_PAUSE_MAX_MS);
}

/// Seals a track, and says where it ends.
async fn seal_track(
    link: &Link,
    log: &LogId,
    track: &Track,
    by: &NodeId,
) -> Result<u64, StoreError> {
    loop {
        let last = link.last(log, track).await?;
        let (expected, end) = match last {
            Some(last) if last.draft.form == Form::Seal => return Ok(last.draft.end),
            Some(last) => (last.revision, last.draft.end),
            None => (Revision(0), 0),
        };
        let node = by.clone();
        let seal = Draft { form: Form::Seal, offset: end, end, payload: Bytes::new(), node };
        match link.append(log, track, expected, &seal).await {
            Outcome::Stored(_) => return Ok(end),
            Outcome::Conflict => {}
            Outcome::Unavailable => {
                return Err(StoreError::Unavailable("a seal was not stored".to_owned()));
            }
        }
    }
}

/// Makes sure that nothing is added to a log any more. `false`: there is no such log.
pub async fn seal(link: &Link, log: &LogId, by: &NodeId) -> Result<bool, StoreError> {
    if link.last(log, &Track::Lines).await?.is_none() {
        return Ok(false);
    }
    seal_track(link, log, &Track::Lines, by).await?;
    let mut ends = link.read_log(log, &Part::All, Reading::LastOfEach).await?;
    while let Some(last) = ends.next().await? {
        if last.draft.form != Form::Seal {
            seal_track(link, log, &last.track, by).await?;
        }
    }
    Ok(true)
}
