//! The recorder of a running sandbox: brings the output of its sessions into the log.
//!
//! It follows the agent's list and takes up every session that has the holder [`HOLDER`]. As that
//! holder it is lossless: a byte is acknowledged after it was written to the log, so a bridge that
//! dies in between reads it again. It begins each output where the log ends, and the log skips what
//! it has already, so nothing is recorded twice.
//!
//! Where output must be durable, it also brings it into the fleet's log ([`publication`]): behind that, or, under `sync`,
//! before anybody sees it.
//!
//! A full disk does not stop the sandbox: output that cannot be written is acknowledged anyway, and
//! the log records the gap as soon as it can be written again. Only the end of a session waits.

mod activity;
mod outputs;
mod publication;

use std::collections::HashSet;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::limits::SESSIONS_MAX;
use protocol::message::{Channel, SessionInfo};
use protocol::requests::{Origin, Release, Role};
use protocol::{Cause, ExitRecord, FaultCode, SessionId};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::event::{Event, EventSink};
use super::log::{LogError, ProgramEnd, Provenance, ProvenanceLog, Writer, bounded};
use super::name::SandboxRef;
use super::presence::Presence;
use super::program_events::ProgramEvents;
use super::telemetry::Telemetry;
use crate::limits::{
    RECORDER_DIGEST_WAIT, RECORDER_DRAIN, RECORDER_LOOK_PAUSE, RECORDER_ORDER_WAIT,
    RECORDER_RETRY_PAUSE,
};
use agent_client::guest::{Guest, GuestError, Horizons, Piece};

pub use publication::Durable;

use super::durable::{Line, NotAppended, OutputPart};
use activity::{Key, SessionActivity, key_of, run_of};
use outputs::{Arrival, OutputState, Outputs, RecordedOutput};
use publication::{Landed, Opening, Publication, output_id};

/// The holder for which the log stands. A start that names it is recorded.
pub const HOLDER: &str = protocol::exit::RECORDER;

/// The log as the owner of the sandbox and its recorder share it. Writes go to the page cache, so
/// the lock is held for microseconds.
#[derive(Clone)]
pub struct SharedLog(Arc<Mutex<Writer>>);

impl SharedLog {
    pub fn new(writer: Writer) -> Self {
        Self(Arc::new(Mutex::new(writer)))
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut Writer) -> T) -> T {
        // A panic between two records leaves a writer whose next write begins at a whole record.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What every part of the recorder needs.
#[derive(Clone)]
pub struct Recorder {
    pub guest: Guest,
    pub log: SharedLog,
    pub which: SandboxRef,
    pub events: EventSink,
    /// Receives every lasting session, recorded or not. Running others counts as activity, too.
    pub presence: Arc<Presence>,
    /// Where its output outlives this host, if it does.
    pub durable: Option<Durable>,
    /// Learns of the ends that are recorded.
    pub programs: ProgramEvents,
    /// Where the costs of what it records are counted from.
    pub ends: Arc<ProvenanceLog>,
    pub telemetry: Telemetry,
    /// Whether output is kept. Otherwise it is taken from the agent, and the log has a gap in its place.
    pub keeps_output: bool,
}

impl Recorder {
    /// Records until the guest is lost.
    pub async fn run(self) {
        let mut since = 0;
        let mut following = JoinSet::new();
        let mut followed = HashSet::new();
        // Recorded to their end. A list that was made before the agent knew still says that they wait.
        let mut finished = HashSet::new();
        let mut first = true;
        let mut activity = SessionActivity::default();
        // Passed when all sessions that had ended at the last listing are in the log.
        let (_, mut earlier) = watch::channel(());
        // One request at a time: each that is dropped would wait at the agent for its answer.
        let mut listing = Box::pin(self.guest.lasting_sessions(since));
        loop {
            let list = tokio::select! {
                list = &mut listing => list,
                Some(done) = following.join_next() => {
                    for (key, is_finished) in done.unwrap_or_default() {
                        followed.remove(&key);
                        if is_finished {
                            finished.insert(key);
                        }
                    }
                    continue;
                }
                () = asked(self.horizons()) => {
                    self.show_unrecorded().await;
                    continue;
                }
            };
            let list = match list {
                Ok(list) => list,
                Err(GuestError::Link(_)) => break,
                Err(error) => {
                    self.trouble(format!("its sessions cannot be listed: {error}"));
                    tokio::time::sleep(RECORDER_RETRY_PAUSE).await;
                    listing = Box::pin(self.guest.lasting_sessions(since));
                    continue;
                }
            };
            since = list.version;
            activity.update(&list.sessions, &self.presence);
            if std::mem::take(&mut first) {
                // Sessions that ended and were released while no bridge was there.
                let known: HashSet<_> = list.sessions.iter().map(|info| &info.session).collect();
                let pruned = self.log.with(|log| log.retain(|session| known.contains(session)));
                self.report(pruned);
            }
            let listed: HashSet<_> = list.sessions.iter().map(key_of).collect();
            finished.retain(|key| listed.contains(key));
            let mut have_ended = Vec::new();
            let mut go_on = Vec::new();
            for info in list.sessions.into_iter().take(SESSIONS_MAX) {
                let key = key_of(&info);
                self.note_size(&info);
                if info.holders.iter().any(|holder| holder == HOLDER)
                    && followed.len() < SESSIONS_MAX
                    && !finished.contains(&key)
                    && followed.insert(key.clone())
                {
                    let is_over =
                        info.exit.as_ref().is_some_and(|exit| exit.left_behind_count == 0);
                    (if is_over { &mut have_ended } else { &mut go_on }).push((key, info));
                }
            }
            // Sessions that came and went since the last listing are recorded in order, and before later
            // ones.
            if !have_ended.is_empty() {
                have_ended.sort_by_key(|(_, info)| (info.started_at_ms, info.pid));
                let (done, after) = watch::channel(());
                let before = std::mem::replace(&mut earlier, after);
                following.spawn(self.clone().follow_ended(have_ended, before, done));
            }
            for (key, info) in go_on {
                let (recorder, before) = (self.clone(), earlier.clone());
                following.spawn(async move {
                    passed(before).await;
                    vec![(key, recorder.follow(info).await)]
                });
            }
            // The end of a guest is not kept waiting.
            let _ = timeout(RECORDER_LOOK_PAUSE, self.guest.lost()).await;
            listing = Box::pin(self.guest.lasting_sessions(since));
        }
        // What had arrived before the link broke is still recorded.
        while following.join_next().await.is_some() {}
        if let Some(horizons) = self.horizons() {
            horizons.fix();
        }
    }

    fn horizons(&self) -> Option<&Horizons> {
        self.durable.as_ref()?.horizons.as_ref()
    }

    /// Lets readers see sessions that nobody records any more: all of them is durable, or never will be.
    async fn show_unrecorded(&self) {
        let Some(horizons) = self.horizons() else { return };
        let asked = horizons.unrecorded();
        let Ok(list) = self.guest.sessions(0).await else { return };
        let is_recorded = |info: &SessionInfo| info.holders.iter().any(|holder| holder == HOLDER);
        for info in list.sessions.iter().filter(|info| !is_recorded(info)) {
            if asked.contains(&info.session) {
                horizons.lift(&info.session);
            }
        }
    }

    /// Records sessions that have ended, one after the other, after earlier ones.
    async fn follow_ended(
        self,
        sessions: Vec<(Key, SessionInfo)>,
        before: watch::Receiver<()>,
        _done: watch::Sender<()>,
    ) -> Vec<(Key, bool)> {
        passed(before).await;
        let mut followed = Vec::with_capacity(sessions.len());
        for (key, info) in sessions {
            followed.push((key, self.follow(info).await));
        }
        followed
    }

    /// Records one session, and says whether to its end.
    async fn follow(&self, info: SessionInfo) -> bool {
        let session = info.session.clone();
        match self.record(info).await {
            Ok(()) => {
                // Before its name can be another's.
                if let Some(horizons) = self.horizons() {
                    horizons.lift(&session);
                }
                let release = Release {
                    session: session.clone(),
                    holder: Some(HOLDER.to_owned()),
                    kill_survivors: false,
                };
                // If it is forgotten already, that is fine. Where the agent could not be asked, the next bridge
                // continues from here.
                if let Err(GuestError::Link(_)) = self.guest.release(release).await {
                    return false;
                }
                // Who has come meanwhile waits for a recorder that has left.
                if let Some(horizons) = self.horizons() {
                    horizons.changed();
                }
            }
            // The next bridge continues from here.
            Err(RecordError::Guest(GuestError::Link(_))) => return false,
            // Somebody has released it, or the agent has forgotten it because of its age.
            Err(RecordError::Guest(GuestError::Fault(fault)))
                if matches!(fault.code, FaultCode::NotFound | FaultCode::Gone) => {}
            // The next change of the list takes it up again where the log ends.
            Err(error) => {
                self.trouble(format!("session {session} is no longer recorded: {error}"));
                tokio::time::sleep(RECORDER_RETRY_PAUSE).await;
                return false;
            }
        }
        self.report(self.log.with(|log| log.released(&session)));
        true
    }

    async fn record(&self, info: SessionInfo) -> Result<(), RecordError> {
        let (session, run) = (&info.session, run_of(&info));
        self.log.with(|log| log.started(session, run, &info.command))?;
        self.note_size(&info);
        let opening = self.durable.as_ref().map(|durable| durable.open(&info));
        let mut outputs = self.subscribe(&info, opening.as_ref()).await?;
        let mut exit = info.exit.clone();
        // The first failure does not end it: earlier data may still arrive.
        let mut failure: Option<GuestError> = None;
        let mut waited = exit.is_some();
        let mut is_end_durable = opening.is_none();
        let waiting = self.guest.wait(session);
        tokio::pin!(waiting);
        loop {
            if let Some(record) = exit.as_ref().filter(|record| outputs.have_all(record)) {
                if !self.log.with(|log| log.has_exited(session)) {
                    let record = self.digested(session, record).await;
                    self.record_exit(&info, &record, outputs.reached()).await;
                    self.programs.ended(session, &record);
                }
                if !is_end_durable && outputs.have_landed() {
                    let record = self.digested(session, record).await;
                    self.publish_exit(&info, opening.as_deref(), record).await;
                    is_end_durable = true;
                }
                // Nobody can produce more output, or all have finished.
                let is_over = record.left_behind_count == 0 || outputs.have_ended();
                if is_over && is_end_durable && outputs.have_landed() {
                    return Ok(());
                }
            }
            if outputs.have_settled()
                && let Some(error) = failure.take()
            {
                // The answer may have arrived with the last bytes before the link broke.
                let answer = timeout(RECORDER_DRAIN, &mut waiting);
                match if waited { None } else { answer.await.ok() } {
                    Some(Ok(record)) => exit = Some(record),
                    Some(Err(_)) | None => return Err(error.into()),
                }
                (waited, failure) = (true, Some(error));
                continue;
            }
            tokio::select! {
                record = &mut waiting, if !waited => {
                    waited = true;
                    match record {
                        Ok(record) => exit = Some(record),
                        Err(error) => failure = Some(error),
                    }
                }
                (index, arrival) = outputs.next() => match arrival {
                    Arrival::Piece(piece) => {
                        if let Err(error) = self.take(session, &mut outputs, index, piece) {
                            failure = Some(error);
                        }
                    }
                    Arrival::Landed(landed) => self.land(session, &mut outputs, index, landed)?,
                },
            }
        }
    }

    async fn subscribe(
        &self,
        info: &SessionInfo,
        opening: Option<&Arc<Opening>>,
    ) -> Result<Outputs, RecordError> {
        let session = &info.session;
        let mut outputs = Outputs::default();
        for &channel in channels_of(info) {
            let offset = self.log.with(|log| log.next_offset(session, channel));
            let role = Role::Holder { name: HOLDER.to_owned() };
            let origin = Origin::Offset { offset };
            let (output, _) = self.guest.subscribe(session, channel, origin, role).await?;
            let output = output.manual().counted(self.guest.output_counter());
            let publication = self.durable.as_ref().zip(opening).map(|(durable, opening)| {
                let id = output_id(session, run_of(info), channel);
                Publication::new(durable, opening, id, offset, &self.log)
            });
            outputs.all.push(RecordedOutput {
                channel,
                output,
                reached: offset,
                rest: OutputState::Open,
                publication,
            });
        }
        Ok(outputs)
    }

    /// Writes a piece, then acknowledges it. What must be durable first is only passed on.
    fn take(
        &self,
        session: &SessionId,
        outputs: &mut Outputs,
        index: usize,
        piece: Piece,
    ) -> Result<(), GuestError> {
        let recorded = &mut outputs.all[index];
        let part = match piece {
            Piece::Bytes { offset, bytes } => {
                let to = offset.saturating_add(bytes.len() as u64);
                OutputPart { offset, to, bytes }
            }
            Piece::Gap { from, to } => OutputPart { offset: from, to, bytes: Vec::new() },
            Piece::End => {
                recorded.rest = OutputState::Nothing;
                return Ok(());
            }
            Piece::Failed(error) => {
                recorded.rest = OutputState::Lost;
                return Err(error);
            }
        };
        match &mut recorded.publication {
            Some(publication) if publication.is_first() => publication.offer(part),
            _ => self.write(session, outputs, index, &part),
        }
        Ok(())
    }

    /// What a flight has brought to the fleet's log may be written here, and then be read and forgotten.
    fn land(
        &self,
        session: &SessionId,
        outputs: &mut Outputs,
        index: usize,
        landed: Landed,
    ) -> Result<(), RecordError> {
        if let Err(error) = landed.outcome {
            if self.horizons().is_some() {
                return Err(error.into());
            }
            outputs.report_once(|| self.trouble(error.to_string()));
        }
        for part in &landed.parts {
            self.write(session, outputs, index, part);
        }
        Ok(())
    }

    fn write(&self, session: &SessionId, outputs: &mut Outputs, index: usize, part: &OutputPart) {
        let channel = outputs.all[index].channel;
        let written = self.log.with(|log| match &part.bytes[..] {
            // The end records one gap.
            _ if !self.keeps_output => Ok(()),
            [] => log.skip_to(session, channel, part.to),
            bytes => log.output(session, channel, part.offset, bytes),
        });
        if let Err(error) = written {
            outputs.report_once(|| self.trouble(format!("output is not recorded: {error}")));
        }
        let recorded = &mut outputs.all[index];
        recorded.reached = recorded.reached.max(part.to);
        recorded.output.consumed(part.to);
        if let Some(publication) = &mut recorded.publication {
            publication.follow_to(recorded.reached);
            publication.show(recorded.reached);
        }
    }

    /// Adds the end of a session to the fleet's log. The node that takes no more of it says so elsewhere.
    async fn publish_exit(
        &self,
        info: &SessionInfo,
        opening: Option<&Opening>,
        record: ExitRecord,
    ) {
        let (Some(durable), Some(opening)) = (&self.durable, opening) else { return };
        let (session, run) = (info.session.clone(), run_of(info));
        let line =
            Line::Exited { session: session.clone(), run, record: Box::new(bounded(record)) };
        let noted = async {
            opening.done().await?;
            durable.log.note(line).await
        };
        if let Err(error) = noted.await {
            tracing::debug!(%session, %error, "the end of a session is not durable");
        }
        durable.log.finished(&session, run);
    }

    /// Records the size of a session's terminal, if that is another now.
    fn note_size(&self, info: &SessionInfo) {
        if let Some(size) = info.size {
            self.report(self.log.with(|log| log.resized(&info.session, size)));
        }
    }

    /// The record with the digests of the outputs, which the agent has when it has read all of them. We
    /// have received that, so it is asked once more; an old agent has none.
    async fn digested(&self, session: &SessionId, record: &ExitRecord) -> ExitRecord {
        if record.outputs.iter().all(|total| total.sha256.is_some()) {
            return record.clone();
        }
        match timeout(RECORDER_DIGEST_WAIT, self.guest.wait(session)).await {
            Ok(Ok(later)) => later,
            _ => record.clone(),
        }
    }

    /// Writes the end of a session, however long the disk is full: as long as it is not released,
    /// the agent keeps it too. What it has cost comes first, and is not recorded again by a bridge that finds the end missing.
    async fn record_exit(
        &self,
        info: &SessionInfo,
        record: &ExitRecord,
        reached: Vec<(Channel, u64)>,
    ) {
        let session = &info.session;
        let end = ProgramEnd::of(session, &info.command, record);
        let write = |log: &mut Writer| {
            if let Some(end) = &end {
                self.ends.append(Provenance::Program(end.clone()))?;
            }
            for (channel, reached) in &reached {
                log.skip_to(session, *channel, *reached)?;
            }
            log.exited(session, record)
        };
        let mut is_reported = false;
        while let Err(error) = self.log.with(write) {
            if !std::mem::replace(&mut is_reported, true) {
                self.trouble(format!("the end of session {session} is not recorded yet: {error}"));
            }
            tokio::time::sleep(RECORDER_RETRY_PAUSE).await;
        }
        self.telemetry.note_end();
    }

    fn report(&self, written: Result<(), LogError>) {
        if let Err(error) = written {
            self.trouble(error.to_string());
        }
    }

    fn trouble(&self, what: String) {
        (self.events)(&Event::Trouble { which: Some(self.which.clone()), what });
    }
}

/// Waits until a reader has come for a session that nobody may record.
async fn asked(horizons: Option<&Horizons>) {
    match horizons {
        Some(horizons) => horizons.asked().await,
        None => pending().await,
    }
}

/// Waits until the other end's holder drops it. A full disk can delay that, so the wait is short, because
/// programs wait for us.
async fn passed(mut end: watch::Receiver<()>) {
    let _ = timeout(RECORDER_ORDER_WAIT, async { while end.changed().await.is_ok() {} }).await;
}

/// The outputs that a session has.
fn channels_of(info: &SessionInfo) -> &'static [Channel] {
    match &info.exit {
        // A program that never ran has an end and nothing else.
        Some(ExitRecord { cause: Cause::SpawnFailed { .. }, .. }) => &[],
        _ if info.terminal => &[Channel::Terminal],
        _ => &[Channel::Stdout, Channel::Stderr],
    }
}

#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    NotAppended(#[from] NotAppended),
}
