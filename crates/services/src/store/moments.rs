//! What a timeline needs of a sandbox's rows: runs of its notebooks and its artifacts, oldest first, in pages that go
//! on where the last one ended.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::{StoreError, count, number};

/// Rows that one question is answered with.
pub const MOMENTS_PAGE_MAX: usize = 256;

/// The sandbox whose rows are wanted, and since when it has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsOf {
    pub namespace: String,
    pub sandbox: String,
    pub since_ms: u64,
}

/// A run of a notebook, when it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMoment {
    pub ended_ms: u64,
    pub notebook: String,
    pub number: u64,
    pub duration_us: u64,
    pub status: String,
    pub error_type: Option<String>,
    pub error_message: Option<String>,
}

/// An artifact, when it was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMoment {
    pub number: u64,
    pub created_ms: u64,
    pub id: String,
    pub name: String,
    pub path: Option<String>,
    pub size: u64,
}

/// Runs that have ended after the place of another, in the order of their ends.
pub fn runs_after(
    connection: &Connection,
    of: &RowsOf,
    after: Option<&RunMoment>,
) -> Result<Vec<RunMoment>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT started_ms + duration_us / 1000 AS ended_ms, notebook, number, duration_us, status, error_type, \
         error_message FROM runs WHERE namespace = ?1 AND sandbox IN (?2, ?1 || '/' || ?2) AND started_ms >= ?3 \
         AND (started_ms + duration_us / 1000, notebook, number) > (?4, ?5, ?6) \
         ORDER BY ended_ms, notebook, number LIMIT ?7",
    )?;
    let (ended_ms, notebook, last) =
        after.map_or((-1, "", 0), |one| (number(one.ended_ms), &one.notebook, one.number));
    let which = params![
        of.namespace,
        of.sandbox,
        number(of.since_ms),
        ended_ms,
        notebook,
        number(last),
        number(MOMENTS_PAGE_MAX as u64)
    ];
    let found = statement.query_map(which, |row| {
        Ok(RunMoment {
            ended_ms: count(row, "ended_ms")?,
            notebook: row.get("notebook")?,
            number: count(row, "number")?,
            duration_us: count(row, "duration_us")?,
            status: row.get("status")?,
            error_type: row.get("error_type")?,
            error_message: row.get("error_message")?,
        })
    })?;
    found.map(|row| row.map_err(StoreError::from)).collect()
}

/// Artifacts that were kept after another.
pub fn artifacts_after(
    connection: &Connection,
    of: &RowsOf,
    after: Option<&FileMoment>,
) -> Result<Vec<FileMoment>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT number, created_ms, id, name, path, size FROM artifacts \
         WHERE namespace = ?1 AND sandbox = ?2 AND created_ms >= ?3 AND number > ?4 ORDER BY number LIMIT ?5",
    )?;
    let last = after.map_or(0, |one| one.number);
    let which = params![
        of.namespace,
        of.sandbox,
        number(of.since_ms),
        number(last),
        number(MOMENTS_PAGE_MAX as u64)
    ];
    let found = statement.query_map(which, |row| {
        Ok(FileMoment {
            number: count(row, "number")?,
            created_ms: count(row, "created_ms")?,
            id: row.get("id")?,
            name: row.get("name")?,
            path: row.get("path")?,
            size: count(row, "size")?,
        })
    })?;
    found.map(|row| row.map_err(StoreError::from)).collect()
}
