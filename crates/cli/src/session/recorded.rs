//! Sessions that a sandbox's log knows, of which many have ended and are forgotten by the agent.

use std::path::PathBuf;

use anyhow::Result;

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
