//! What a session says, from an offset on, to one reader at its own pace.
//!
//! ```text
//!  agent ── observer ──▶ track ──┐                 a slow reader holds up its own tracks alone;
//!                          ▲     ├──▶ reader       what the agent has given up meanwhile is read
//!  log ─── what it has ────┘     │                 from the log, and only what that has not either
//!        given up        track ──┘                 becomes a gap
//! ```
//!
//! A reader that takes nothing for a while costs little more than its place: what waits for it is dropped
//! of, and fetched again from there when it reads on.
//!
//! The same goes for sessions that the agent does not have any more: all of them is then read from
//! the log.

use std::path::PathBuf;
use std::time::Duration;

use protocol::message::Channel;
use protocol::requests::{Origin, Role};
use protocol::{ExitRecord, FaultCode, SessionId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::find::{FoundSession, Session, recorded};
use crate::Api;
use crate::budget::{Portion, Share};
use crate::call::Inside;
use agent_client::guest::{Guest, GuestError, Output, Piece};
use sandbox::log::{Recording, Run};
use sandbox::refusal::{Code, Refusal};
use sandbox::{SandboxRef, Until};

/// Pieces that wait for the reader of a feed: it is handed one while the next is fetched.
const PIECES_WAITING_MAX: usize = 1;
/// A piece for the reader: the writing of it as JSON takes more than bringing it, and less of it waits.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// How long a reader may take for one before what waits after it is dropped: no reader that is only
/// slow fetches anything twice.
const READER_PAUSE_MAX: Duration = Duration::from_millis(250);
/// What the link may hold for one output.
const BACKLOG_BYTES: usize = protocol::limits::CREDIT_BYTES_INITIAL as usize;
/// How long something waits for the fleet's log before its reader gets an event about it.
const HELD_BACK_MAX: Duration = Duration::from_secs(1);
/// How long the log of a sandbox that has just ended may take to be complete.
const SETTLE_MAX: Duration = Duration::from_secs(3);

/// What is received from a session, in order of each output.
#[derive(Clone, Debug)]
pub enum FeedEvent {
    Output {
        channel: Channel,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Output that no longer exists.
    Gap {
        channel: Channel,
        from: u64,
        to: u64,
    },
    /// What follows may not be read before the fleet's log has it.
    Waiting,
    /// All of it has been received.
    Ended(SessionEnd),
    /// All that there is has been received, and the session goes on.
    Running,
}

/// How a session ended.
#[derive(Clone, Debug)]
pub enum SessionEnd {
    Known(Box<ExitRecord>),
    /// Its sandbox ended with it, and that is what its record says.
    Unknown {
        sandbox: Option<String>,
    },
}

impl Default for SessionEnd {
    fn default() -> Self {
        Self::Unknown { sandbox: None }
    }
}

impl SessionEnd {
    /// The end together with a sandbox, as far as its record is there.
    fn with(api: &Api, which: &SandboxRef) -> Self {
        let record = api.registry().get(which).ok();
        Self::Unknown { sandbox: record.map(|record| record.state.to_string()) }
    }
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Offset(u64),
    /// At most so many of the newest bytes.
    Tail(u64),
}

/// A session that is listened to. Dropping it gives it up.
pub struct Feed {
    pieces: mpsc::Receiver<FeedEvent>,
    tracks: JoinSet<()>,
    ending: watch::Receiver<Option<SessionEnd>>,
    /// The last event, which waits for nothing.
    last: Option<FeedEvent>,
    is_end_sent: bool,
    begins_at: u64,
    live_from: u64,
    /// The sandbox does not count as idle meanwhile.
    _inside: Option<Inside>,
}

impl Feed {
    /// Begins to read these outputs. Without `follow` it ends with what is there now.
    pub async fn open(
        api: &Api,
        found: FoundSession,
        channels: &[(Channel, Start)],
        follow: bool,
        memory: &Share,
    ) -> Result<Self, Refusal> {
        let (is_end_sent, ending) = watch::channel(match (&found.session, found.session.exit()) {
            (_, Some(record)) => Some(SessionEnd::Known(Box::new(record.clone()))),
            (Session::Recorded(_), None) => Some(SessionEnd::with(api, &found.which)),
            (Session::Live(_), None) => None,
        });
        let (sender, pieces) = mpsc::channel(PIECES_WAITING_MAX);
        let mut tracks = JoinSet::new();
        let (mut begins_at, mut live_from) = (None, None);
        let mut opened = Vec::new();
        for &(channel, start) in channels {
            opened.push((channel, OutputSource::open(api, &found, channel, start, follow).await));
        }
        // A reader that resumes after the last byte of one output has all of a shorter one.
        let is_within = opened.iter().any(|(_, source)| source.is_ok());
        for (channel, source) in opened {
            let source = match source {
                Err(problem) if is_within && problem.code == Code::RangeNotSatisfiable => {
                    OutputSource::open(api, &found, channel, Start::Tail(0), follow).await?
                }
                source => source?,
            };
            begins_at.get_or_insert(source.at);
            live_from.get_or_insert(source.live_from);
            let track = Track {
                source,
                channel,
                ending: ending.clone(),
                is_final: false,
                sender: sender.clone(),
                memory: memory.clone(),
                backlog: None,
                api: api.clone(),
                which: found.which.clone(),
                guest: found.inside.as_ref().map(|inside| inside.guest.clone()),
                session: found.session.id().clone(),
                waited: false,
            };
            tracks.spawn(track.run());
        }
        let FoundSession { which, session, inside, log } = found;
        let known = is_end_sent.borrow().clone();
        let last = match known {
            Some(ended) => Some(FeedEvent::Ended(ended)),
            None => (!follow).then_some(FeedEvent::Running),
        };
        if let Some(inside) = &inside
            && last.is_none()
        {
            let (guest, run) = (inside.guest.clone(), session.run());
            let place = SessionLocation { which, log, session: session.id().clone(), run };
            let api = api.clone();
            tracks.spawn(async move {
                let ended = place.ended(&api, &guest).await;
                is_end_sent.send_replace(Some(ended));
            });
        }
        let (begins_at, live_from) = (begins_at.unwrap_or(0), live_from.unwrap_or(0));
        Ok(Self {
            pieces,
            tracks,
            ending,
            last,
            is_end_sent: false,
            begins_at,
            live_from,
            _inside: inside,
        })
    }

    /// The offset at which the first of its outputs begins.
    pub fn begins_at(&self) -> u64 {
        self.begins_at
    }

    /// The offset below which the first of its outputs was there before.
    pub fn live_from(&self) -> u64 {
        self.live_from
    }

    /// The next event; `None` after the last. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Option<FeedEvent> {
        if let Some(piece) = self.pieces.recv().await {
            return Some(piece);
        }
        if self.is_end_sent {
            return None;
        }
        let last = match self.last.take() {
            Some(last) => last,
            None => match self.ending.wait_for(Option::is_some).await {
                Ok(ended) => FeedEvent::Ended(ended.clone().unwrap_or_default()),
                // What waited for the end has failed.
                Err(_) => FeedEvent::Ended(SessionEnd::default()),
            },
        };
        self.is_end_sent = true;
        self.tracks.abort_all();
        Some(last)
    }
}

/// Waits for the end of a session, without a limit.
pub async fn ending(api: &Api, found: FoundSession) -> SessionEnd {
    let FoundSession { which, session, inside, log } = found;
    if let Some(record) = session.exit() {
        return SessionEnd::Known(Box::new(record.clone()));
    }
    let Some(inside) = inside else { return SessionEnd::with(api, &which) };
    let place = SessionLocation { which, log, session: session.id().clone(), run: session.run() };
    place.ended(api, &inside.guest).await
}

/// Where a session is, with or without its agent.
struct SessionLocation {
    which: SandboxRef,
    log: PathBuf,
    session: SessionId,
    run: Run,
}

impl SessionLocation {
    /// Waits for the end. What the agent has forgotten is in the log, if anywhere.
    async fn ended(&self, api: &Api, guest: &Guest) -> SessionEnd {
        match guest.wait(&self.session).await {
            Ok(record) => return SessionEnd::Known(Box::new(record)),
            Err(error) if is_forgotten(&error) => {}
            Err(_) => settle(api, &self.which).await,
        }
        let recorded = recorded(self.log.clone(), self.session.clone()).await;
        let recorded = recorded.ok().flatten().filter(|recorded| recorded.run == self.run);
        match recorded.and_then(|recorded| recorded.exit) {
            Some(record) => SessionEnd::Known(Box::new(record)),
            None => SessionEnd::with(api, &self.which),
        }
    }
}

fn is_forgotten(error: &GuestError) -> bool {
    matches!(error.fault_code(), Some(FaultCode::NotFound | FaultCode::Gone))
}

/// Waits until all that arrived from a sandbox that ends is in its log.
async fn settle(api: &Api, which: &SandboxRef) {
    let _ = timeout(SETTLE_MAX, api.registry().wait(which, Until::Stopped)).await;
}

/// One output: live as far as the agent has it, and recorded.
struct OutputSource {
    live: Option<Output>,
    /// Where the rest of it is, while none of it is being fetched.
    parked: Option<Guest>,
    recording: Option<Recording>,
    /// The next offset.
    at: u64,
    /// Where it stood when reading began.
    live_from: u64,
    /// Where it ends for a reader that does not follow.
    until: Option<u64>,
}

impl OutputSource {
    async fn open(
        api: &Api,
        found: &FoundSession,
        channel: Channel,
        start: Start,
        follow: bool,
    ) -> Result<Self, Refusal> {
        let session = found.session.id();
        let run = found.session.run();
        let log = found.log.clone();
        let recording = Some(Recording::new(log.clone(), session.clone(), run, channel));
        if let (Session::Live(_), Some(inside)) = (&found.session, &found.inside) {
            let opened = subscribe(&inside.guest, session, channel, start).await;
            match opened {
                Ok((live, at, end)) => {
                    // The agent may still read what a program that has ended has written.
                    let written = found.session.exit().and_then(|exit| exit.complete_at(channel));
                    // Of a program that runs, what may be seen now.
                    let end_now = match (written, live.horizon()) {
                        (None, Some(horizon)) => end.min(horizon.max(at)),
                        (written, _) => end.max(written.unwrap_or(0)),
                    };
                    let until = (!follow).then_some(end_now);
                    let (live, live_from) = (Some(live), end);
                    return Ok(Self { live, parked: None, recording, at, live_from, until });
                }
                // It was forgotten since it was found.
                Err(SubscribeError::Forgotten) => settle_forgotten(api, &found.which).await,
                Err(SubscribeError::Refusal(problem)) => return Err(problem),
            }
        }
        let recorded = recorded(log, session.clone()).await?;
        let recorded = recorded.filter(|recorded| recorded.run == run);
        let extent = recorded.and_then(|recorded| recorded.outputs.get(&channel).copied());
        // What neither has any more is reported as missing.
        let written = found.session.exit().and_then(|record| record.complete_at(channel));
        let end = extent.unwrap_or_default().end.max(written.unwrap_or(0));
        let at = match start {
            Start::Offset(offset) if offset > end => return Err(beyond(offset, end)),
            Start::Offset(offset) => offset,
            Start::Tail(bytes) => end.saturating_sub(bytes),
        };
        Ok(Self { live: None, parked: None, recording, at, live_from: end, until: Some(end) })
    }

    /// Drops what was read ahead in the log.
    fn rest(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.rest();
        }
    }

    /// The next bytes of the log before `to`.
    async fn read_log(&mut self, to: u64) -> Option<(u64, Vec<u8>)> {
        let (mut recording, at) = (self.recording.take()?, self.at);
        let read = tokio::task::spawn_blocking(move || (recording.read(at, to), recording));
        let (read, recording) = read.await.ok()?;
        self.recording = Some(recording);
        // A log that cannot be read counts as empty, and what it lacks is reported as a gap.
        read.ok().flatten()
    }
}

/// Sessions are forgotten when they are recorded, so there is nothing to wait for but the order of
/// two answers.
async fn settle_forgotten(api: &Api, which: &SandboxRef) {
    if api.registry().guest(which).is_err() {
        settle(api, which).await;
    }
}

enum SubscribeError {
    Forgotten,
    Refusal(Refusal),
}

async fn subscribe(
    guest: &Guest,
    session: &SessionId,
    channel: Channel,
    start: Start,
) -> Result<(Output, u64, u64), SubscribeError> {
    let open = async |from| guest.subscribe(session, channel, from, Role::Observer {}).await;
    let refused = |error: GuestError| match &error {
        GuestError::Link(_) => SubscribeError::Forgotten,
        error if is_forgotten(error) => SubscribeError::Forgotten,
        _ => SubscribeError::Refusal(error.into()),
    };
    if start == Start::Offset(0) {
        let (output, seen) = open(Origin::Offset { offset: 0 }).await.map_err(refused)?;
        return Ok((output, 0, seen.end));
    }
    let (_, seen) = open(Origin::Tail { bytes: 0 }).await.map_err(refused)?;
    let offset = match start {
        Start::Offset(offset) if offset > seen.end => {
            return Err(SubscribeError::Refusal(beyond(offset, seen.end)));
        }
        Start::Offset(offset) => offset,
        // More of them than the agent has may be in the log.
        Start::Tail(bytes) => seen.end.saturating_sub(bytes),
    };
    let (output, seen) = open(Origin::Offset { offset }).await.map_err(refused)?;
    Ok((output, offset, seen.end))
}

fn beyond(offset: u64, end: u64) -> Refusal {
    let message = format!("offset {offset} is beyond the end of the output at {end}");
    Refusal::new(Code::RangeNotSatisfiable, message).details(serde_json::json!({ "end": end }))
}

/// What brings one output to the reader.
struct Track {
    source: OutputSource,
    channel: Channel,
    ending: watch::Receiver<Option<SessionEnd>>,
    /// No more will be known of the end.
    is_final: bool,
    sender: mpsc::Sender<FeedEvent>,
    /// Of the call that reads.
    memory: Share,
    /// The bytes that the link holds, counted while the reader is behind.
    backlog: Option<Portion>,
    api: Api,
    which: SandboxRef,
    guest: Option<Guest>,
    session: SessionId,
    /// The reader knows that what follows waits for the log.
    waited: bool,
}

/// The reader is gone.
struct ReaderGone;

impl Track {
    async fn run(mut self) {
        // The end of the sender means that everything has been sent.
        let _ = self.bring().await;
    }

    async fn bring(&mut self) -> Result<(), ReaderGone> {
        loop {
            if self.limit().is_some_and(|limit| self.source.at >= limit) {
                return Ok(());
            }
            if let Some(guest) = self.source.parked.take() {
                self.resume(guest).await?;
                continue;
            }
            let Some(live) = &mut self.source.live else { break };
            let may_wait = live.horizon().is_some() && !self.waited;
            let piece = tokio::select! {
                piece = live.next() => piece,
                () = tokio::time::sleep(HELD_BACK_MAX), if may_wait => {
                    if live.is_held_back() {
                        self.waited = true;
                        self.sender.send(FeedEvent::Waiting).await.map_err(|_| ReaderGone)?;
                    }
                    continue;
                }
                changed = self.ending.changed(), if !self.is_final => {
                    self.is_final = changed.is_err();
                    continue;
                }
            };
            self.waited = false;
            match piece {
                Piece::Bytes { offset, bytes } => self.pass(offset, &bytes).await?,
                Piece::Gap { to, .. } => {
                    // Nothing of it is fetched while the log is read, however long the reader takes.
                    (self.source.live, self.backlog) = (None, None);
                    self.fill(to).await?;
                    self.source.parked.clone_from(&self.guest);
                }
                // A session that is recorded whole is forgotten, and its streams end with it: what
                // they did not bring is in the log.
                Piece::End => self.source.live = None,
                Piece::Failed(error) => self.fail(&error).await,
            }
        }
        self.rest().await
    }

    /// The agent has no more of it.
    async fn fail(&mut self, error: &GuestError) {
        self.source.live = None;
        if matches!(error, GuestError::Link(_)) {
            settle(&self.api, &self.which).await;
        }
    }

    /// Hands on what the agent still has. From a reader that does not take it, it is kept back.
    async fn pass(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ReaderGone> {
        let mut at = offset;
        for piece in bytes.chunks(PIECE_BYTES_MAX) {
            if !self.is_taken().await? {
                self.source.at = at;
                self.source.parked.clone_from(&self.guest);
                (self.source.live, self.backlog) = (None, None);
                return Ok(());
            }
            self.send(at, piece.to_vec()).await?;
            at = self.source.at;
        }
        Ok(())
    }

    /// Whether the reader takes one more in time. While it is behind, there must be memory for what
    /// comes meanwhile.
    async fn is_taken(&mut self) -> Result<bool, ReaderGone> {
        if self.sender.capacity() > 0 {
            self.backlog = None;
            return Ok(true);
        }
        if self.backlog.is_none() {
            self.backlog = self.memory.try_portion(BACKLOG_BYTES);
        }
        if self.backlog.is_none() {
            return Ok(false);
        }
        match timeout(READER_PAUSE_MAX, self.sender.reserve()).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(_)) => Err(ReaderGone),
            Err(_) => Ok(false),
        }
    }

    /// Goes on where the reader has stopped, once it reads again.
    async fn resume(&mut self, guest: Guest) -> Result<(), ReaderGone> {
        drop(self.sender.reserve().await.map_err(|_| ReaderGone)?);
        let from = Origin::Offset { offset: self.source.at };
        match guest.subscribe(&self.session, self.channel, from, Role::Observer {}).await {
            Ok((live, _)) => self.source.live = Some(live),
            Err(error) => self.fail(&error).await,
        }
        Ok(())
    }

    /// Where the output is complete, as far as that is known.
    fn limit(&self) -> Option<u64> {
        let complete_at = match &*self.ending.borrow() {
            Some(SessionEnd::Known(record)) => record.complete_at(self.channel),
            _ => None,
        };
        match (self.source.until, complete_at) {
            // The output of survivors is in the log after it.
            (until, _) if self.source.live.is_none() && until.is_some() => until,
            (Some(until), Some(complete_at)) => Some(until.min(complete_at)),
            (until, complete_at) => until.or(complete_at),
        }
    }

    /// Everything that the log has from here on, to the end of what is known to have been.
    async fn rest(&mut self) -> Result<(), ReaderGone> {
        let limit = self.limit();
        let to = limit.unwrap_or(u64::MAX);
        while let Some((offset, bytes)) = self.source.read_log(to).await {
            self.skip_to(offset).await?;
            self.say(offset, bytes).await?;
        }
        match limit {
            Some(limit) => self.skip_to(limit).await,
            None => Ok(()),
        }
    }

    /// What the agent does not have any more.
    async fn fill(&mut self, to: u64) -> Result<(), ReaderGone> {
        while self.source.at < to {
            match self.source.read_log(to).await {
                Some((offset, bytes)) => {
                    self.skip_to(offset).await?;
                    self.say(offset, bytes).await?;
                }
                None => self.skip_to(to).await?,
            }
        }
        self.source.rest();
        Ok(())
    }

    async fn skip_to(&mut self, to: u64) -> Result<(), ReaderGone> {
        let (channel, from) = (self.channel, self.source.at);
        if from >= to {
            return Ok(());
        }
        self.source.at = to;
        self.wait_for_reader().await;
        self.sender.send(FeedEvent::Gap { channel, from, to }).await.map_err(|_| ReaderGone)
    }

    /// Says what only the log has: it is read once.
    async fn say(&mut self, offset: u64, bytes: Vec<u8>) -> Result<(), ReaderGone> {
        let mut at = offset;
        for piece in bytes.chunks(PIECE_BYTES_MAX) {
            self.wait_for_reader().await;
            self.send(at, piece.to_vec()).await?;
            at = self.source.at;
        }
        Ok(())
    }

    async fn send(&mut self, offset: u64, bytes: Vec<u8>) -> Result<(), ReaderGone> {
        self.source.at = offset.saturating_add(bytes.len() as u64);
        let channel = self.channel;
        self.sender.send(FeedEvent::Output { channel, offset, bytes }).await.map_err(|_| ReaderGone)
    }

    /// Gives up what was read ahead of a reader that pauses.
    async fn wait_for_reader(&mut self) {
        if timeout(READER_PAUSE_MAX, self.sender.reserve()).await.is_err() {
            self.source.rest();
        }
    }
}
