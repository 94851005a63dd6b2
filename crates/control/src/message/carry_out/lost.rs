//! Reads a part of the log of a sandbox that is gone with its node.

use std::collections::BTreeMap;

use crate::message::{ErrorCode, ErrorReply, LostPage};
use node::{LogAway, LostLog, Node, Route};
use sandbox::log::Event;
use sandbox::{SandboxError, SandboxRef};

/// Output in one answer: some of the largest records.
pub(super) const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Entries in one answer.
pub(super) const PAGE_ENTRIES_MAX: usize = 4_096;

pub(super) async fn read(
    node: Option<&Node>,
    which: &SandboxRef,
    after: u64,
) -> Result<LostPage, ErrorReply> {
    let not_found = || SandboxError::NotFound { which: which.clone() };
    let node = node.ok_or_else(not_found)?;
    let (name, life) = match Box::pin(node.route(which)).await {
        Route::Lost { node, incarnation, .. } => (node, incarnation),
        Route::Unknown { why } => return Err(ErrorReply::new(ErrorCode::Busy, why, None)),
        Route::Here | Route::There(_) => return Err(not_found().into()),
    };
    let found = Box::pin(node.lost_log(which, (&name, &life))).await;
    let Some(log) = found.map_err(|error| away(&error))? else {
        let message = format!("{which} was lost with its node {name}");
        let hint = "nothing of its output was durable: `--durability` keeps that of the next one";
        return Err(ErrorReply::new(ErrorCode::NotRunning, message, Some(hint)));
    };
    page(log, name, after).await.map_err(|error| away(&error))
}

async fn page(log: LostLog, node: String, after: u64) -> Result<LostPage, LogAway> {
    let mut reading = log.entries(after).await?;
    let (mut entries, mut bytes, mut next) = (Vec::new(), 0, None);
    while let Some(entry) = reading.next().await? {
        if let Event::Output { bytes: output, .. } = &entry.event {
            bytes += output.len();
        }
        entries.push(entry);
        if bytes >= PAGE_BYTES_MAX || entries.len() >= PAGE_ENTRIES_MAX {
            next = Some(reading.place);
            break;
        }
    }
    let history = if next.is_none() { Some(log.history().await?) } else { None };
    let last_durable_offset = match &history {
        Some(history) => log.open_ends(history).await?,
        None => BTreeMap::new(),
    };
    let is_closed = history.is_some_and(|history| history.closed.is_some());
    Ok(LostPage { node, at_ms: log.at_ms, entries, next, is_closed, last_durable_offset })
}

fn away(error: &LogAway) -> ErrorReply {
    ErrorReply::new(ErrorCode::Busy, error.to_string(), Some("try again"))
}
