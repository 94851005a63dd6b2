//! What a host has kept of what ran in a sandbox, for a verb at another node of the fleet: played, compared with the
//! agent's digests, and signed. The verbs of this host read the files themselves.

use protocol::{ContextName, SessionId};
use tokio::task::spawn_blocking;

use super::Parts;
use super::log::failed;
use crate::message::{ErrorCode, ErrorReply, PlayPage, PlayQuery};
use access::receipt::{Ledger, Ran, Receipt, ReceiptError};
use sandbox::SandboxRef;
use sandbox::log::{
    Comparison, Event, LogError, OneSession, Only, ProvenanceLog, ReadBudget, RecordedSession,
    verify,
};
use services::timeline::{InvalidPlace, Kind, Place, Places, Selection, Step, Timeline, What};

/// Output and input in one part of a replay. JSON has up to four characters for each byte, and an answer of another node has a limit.
const PLAY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Entries in one part of a replay.
const PLAY_MOMENTS_MAX: usize = 8_192;

pub(super) async fn verified(
    parts: Parts<'_>,
    which: &SandboxRef,
    session: Option<SessionId>,
) -> Result<Vec<Comparison>, ErrorReply> {
    let log = parts.registry.log_directory(which)?;
    reading(move || verify(&log, session.as_ref())).await
}

pub(super) async fn receipt(
    parts: Parts<'_>,
    which: &SandboxRef,
    session: SessionId,
) -> Result<Receipt, ErrorReply> {
    let registry = parts.registry;
    let (record, log) = (registry.get(which)?, registry.log_directory(which)?);
    let (from, wanted) = (log.clone(), session.clone());
    let found = reading(move || recorded(&log, &wanted)).await?;
    let found = found.ok_or_else(|| unknown(which, &session))?;
    let (ledger, audit) = (Ledger::new(registry.store_paths().receipts()), parts.audit.clone());
    let issuing =
        spawn_blocking(move || ledger.issue(&record, &from, Ran::Session(&found), &audit));
    issuing.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

pub(super) async fn receipt_of_run(
    parts: Parts<'_>,
    which: &SandboxRef,
    context: ContextName,
    run: Option<u64>,
) -> Result<Receipt, ErrorReply> {
    let registry = parts.registry;
    let (record, log) = (registry.get(which)?, registry.log_directory(which)?);
    let (from, wanted) = (log.clone(), context.clone());
    let found = reading(move || ProvenanceLog::run(&log, &wanted, run)).await?;
    let found = found.ok_or_else(|| {
        let error = ReceiptError::no_run(&context, run).to_string();
        ErrorReply::new(ErrorCode::Invalid, error, None)
    })?;
    let (ledger, audit) = (Ledger::new(registry.store_paths().receipts()), parts.audit.clone());
    let issuing = spawn_blocking(move || ledger.issue(&record, &from, Ran::Run(&found), &audit));
    issuing.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

pub(super) async fn played(parts: Parts<'_>, query: PlayQuery) -> Result<PlayPage, ErrorReply> {
    let PlayQuery { sandbox: which, session, has_events, has_input, after } = query;
    let registry = parts.registry;
    let (record, log) = (registry.get(&which)?, registry.log_directory(&which)?);
    let paths = registry.store_paths().clone();
    let after: Option<Place> =
        after.map(|place| place.parse()).transpose().map_err(|error: InvalidPlace| {
            ErrorReply::new(ErrorCode::Invalid, error.to_string(), None)
        })?;
    let wanted = session.clone();
    let page = reading(move || {
        let sessions = match &session {
            None => Only::All,
            Some(session) => match recorded(&log, session)? {
                Some(recorded) => Only::of(&recorded),
                None => return Ok(None),
            },
        };
        let kinds = Kind::played(has_events, has_input);
        let selection = Selection { sessions, kinds, after, ..Selection::default() };
        let places = Places { paths: &paths, record: &record, log: &log };
        page(&mut Timeline::open(places, selection, Vec::new())?).map(Some)
    });
    match (page.await?, wanted) {
        (Some(page), _) => Ok(page),
        (None, Some(session)) => Err(unknown(&which, &session)),
        (None, None) => Ok(PlayPage { moments: Vec::new(), next: None }),
    }
}

fn page(timeline: &mut Timeline) -> Result<PlayPage, LogError> {
    let (mut moments, mut bytes) = (Vec::new(), 0);
    let mut room = ReadBudget::ENDLESS;
    while bytes < PLAY_BYTES_MAX && moments.len() < PLAY_MOMENTS_MAX {
        let Step::Moment(moment) = timeline.step(&mut room)? else {
            return Ok(PlayPage { moments, next: None });
        };
        bytes += match &moment.what {
            What::Log(Event::Output { bytes, .. }) => bytes.len(),
            What::Input { typed, .. } => typed.bytes.len(),
            _ => 0,
        };
        moments.push(*moment);
    }
    Ok(PlayPage { moments, next: Some(timeline.place().to_string()) })
}

fn recorded(
    log: &std::path::Path,
    session: &SessionId,
) -> Result<Option<RecordedSession>, LogError> {
    let mut budget = ReadBudget::ENDLESS;
    Ok(OneSession::new(log, session)?.step(&mut budget)?.flatten())
}

/// Reads a log on a thread that may wait for the disk.
async fn reading<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, ErrorReply> {
    let read = spawn_blocking(work).await.map_err(|error| failed(&error))?;
    read.map_err(|error| failed(&error))
}

fn unknown(which: &SandboxRef, session: &SessionId) -> ErrorReply {
    let message = format!("the log of {which} has no session {session}");
    let hint = format!("`host-bridge verify {which}` lists the sessions of its log");
    ErrorReply::new(ErrorCode::Invalid, message, Some(&hint))
}
