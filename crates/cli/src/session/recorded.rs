//! Sessions that a sandbox's log knows, of which many have ended and are forgotten by the agent.

use std::path::PathBuf;

use anyhow::Result;

use super::find_by;
use sandbox::log::{AllSessions, ReadBudget, RecordedSession};

/// All of them.
pub async fn recorded_sessions(log: PathBuf) -> Result<Vec<RecordedSession>> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut look = AllSessions::new(&log, usize::MAX)?;
        // With so large a budget one step reads everything.
        let mut budget = ReadBudget::ENDLESS;
        look.step(&mut budget)
    });
    Ok(reading.await??.unwrap_or_default())
}

/// The session of a log with this id or prefix.
pub async fn find_recorded(log: PathBuf, wanted: &str) -> Result<RecordedSession> {
    let recorded = recorded_sessions(log).await?;
    Ok(find_by(&recorded, wanted, |one| &one.session)?.clone())
}
