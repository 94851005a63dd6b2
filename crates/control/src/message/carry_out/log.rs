//! Reads a part of the log of a sandbox of this host, for a verb at another node of the fleet: the verbs of this host read
//! the files themselves.

use std::path::{Path, PathBuf};

use protocol::SessionId;
use protocol::message::Channel;
use tokio::time::{Instant, sleep};

use super::Parts;
use super::lost::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};
use crate::limits::LOG_WAIT_MAX;
use crate::message::{ErrorCode, ErrorReply, LogPage, LogQuery};
use node::Route;
use sandbox::SandboxRef;
use sandbox::limits::LOG_FOLLOW_PAUSE;
use sandbox::log::{AllSessions, Event, From, LogError, Mark, ReadBudget, Reader};

/// The next entries, or all that there are. One that waits is answered as soon as there is one, or the log is over.
pub(super) async fn read(parts: Parts<'_>, query: &LogQuery) -> Result<LogPage, ErrorReply> {
    let directory = directory(parts, &query.sandbox).await?;
    let mut reader = open(&directory, query)?;
    let deadline = Instant::now() + LOG_WAIT_MAX;
    loop {
        let reading = tokio::task::spawn_blocking(move || {
            let page = page(&mut reader);
            page.map(|page| (page, reader))
        });
        let (mut page, read) =
            reading.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        reader = read;
        page.is_over |= page.is_at_end && !directory.exists();
        if !page.entries.is_empty() || page.is_over || !query.waits || Instant::now() >= deadline {
            return Ok(page);
        }
        sleep(LOG_FOLLOW_PAUSE).await;
    }
}

/// The sessions that the log knows.
pub(super) async fn sessions(
    parts: Parts<'_>,
    which: &SandboxRef,
) -> Result<Vec<SessionId>, ErrorReply> {
    let directory = directory(parts, which).await?;
    let reading = tokio::task::spawn_blocking(move || {
        // With so large a budget one step reads everything.
        let mut budget = ReadBudget::ENDLESS;
        AllSessions::new(&directory, usize::MAX)?.step(&mut budget)
    });
    let recorded =
        reading.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    Ok(recorded.into_iter().flatten().map(|recorded| recorded.session).collect())
}

/// Where it is. One that is not here may be gone with its node, and a follower learns it in words.
async fn directory(parts: Parts<'_>, which: &SandboxRef) -> Result<PathBuf, ErrorReply> {
    let unknown = match parts.registry.log_directory(which) {
        Ok(directory) => return Ok(directory),
        Err(unknown) => unknown,
    };
    let Some(node) = parts.node else { return Err(unknown.into()) };
    match Box::pin(node.route_or_search(which)).await {
        Route::Lost { node, .. } => {
            let message = format!("{which} was lost with its node {node}");
            let hint = format!("`host-bridge logs {which}` shows what of its output was durable");
            Err(ErrorReply::new(ErrorCode::NotRunning, message, Some(&hint)))
        }
        Route::Unknown { why } => Err(ErrorReply::new(ErrorCode::Busy, why, Some("try again"))),
        Route::Here | Route::There(_) => Err(unknown.into()),
    }
}

fn open(directory: &Path, query: &LogQuery) -> Result<Reader, ErrorReply> {
    let mut reader = if let Some(after) = &query.after {
        let mark: Mark = after.parse().map_err(|error| {
            ErrorReply::new(ErrorCode::Invalid, format!("{after:?}: {error}"), None)
        })?;
        Reader::resume(directory, mark)
    } else {
        let from = match (query.tail, query.since_ms) {
            (Some(lines), _) => From::Lines(lines),
            (None, Some(ms)) => From::Since { ms },
            (None, None) => From::Start,
        };
        Reader::open(directory, from)
    }
    .map_err(|error| failed(&error))?;
    if let Some(session) = &query.session {
        reader = reader.only(session.clone());
    }
    Ok(match query.is_stderr {
        Some(true) => reader.outputs(|channel| channel == Channel::Stderr),
        Some(false) => reader.outputs(|channel| channel != Channel::Stderr),
        None => reader,
    })
}

fn page(reader: &mut Reader) -> Result<LogPage, LogError> {
    let (mut entries, mut bytes, mut is_at_end) = (Vec::new(), 0, false);
    while bytes < PAGE_BYTES_MAX && entries.len() < PAGE_ENTRIES_MAX {
        let Some(entry) = reader.next()? else {
            is_at_end = true;
            break;
        };
        if let Event::Output { bytes: output, .. } = &entry.event {
            bytes += output.len();
        }
        entries.push(entry);
    }
    let after = reader.mark().map(|mark| mark.to_string());
    Ok(LogPage { entries, after, is_at_end, is_over: is_at_end && reader.is_closed() })
}

pub(super) fn failed(error: &dyn std::error::Error) -> ErrorReply {
    ErrorReply::new(ErrorCode::Io, error.to_string(), None)
}
