//! Sessions that a sandbox's log knows, of which many have ended and are forgotten by the agent.

use std::path::PathBuf;

use anyhow::Result;

use super::super::exit;
use super::super::failure::CliError;
use super::find_by;
use host::paths::Paths;
use sandbox::log::{AllSessions, ReadBudget, RecordedSession};
use sandbox::{SandboxRef, find_log};

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

/// Why the agent has no such session: it has ended, which the log knows, or nobody knows it.
pub async fn why_not_there(paths: &Paths, which: &SandboxRef, unknown: CliError) -> CliError {
    let CliError::UnknownSession { wanted, .. } = &unknown else { return unknown };
    let Ok(log) = find_log(paths, which) else { return unknown };
    let Ok(RecordedSession { session, exit: Some(record), command, .. }) =
        find_recorded(log, wanted).await
    else {
        return unknown;
    };
    let how = exit::explain(&record.cause, &command)
        .unwrap_or_else(|| format!("exit code {}", record.cause.shell_code()));
    CliError::SessionEnded { name: which.clone(), session: session.to_string(), how }
}
