//! The rows of runs: what ran in notebooks, and its result.

use rusqlite::{Connection, Row, params};

use super::limits::{
    HISTORY_CODE_BYTES_MAX, HISTORY_OUTPUT_BYTES_MAX, HISTORY_PAGE_MAX, HISTORY_RUNS_MAX,
};
use super::{Store, StoreError, count, number};

/// One run, as it is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRow {
    pub namespace: String,
    pub notebook: String,
    /// Counted by the notebook, from 1 on: see [`Store::begin_run`].
    pub number: u64,
    pub started_ms: u64,
    pub duration_us: u64,
    /// `ok`, `error`, `exited`, `interrupted`, `timed_out`, `died`, `cancelled`.
    pub status: String,
    /// Its beginning, if it is long.
    pub code: String,
    pub code_bytes: u64,
    /// SHA-256, in hexadecimal digits.
    pub code_digest: String,
    pub cache_key: Option<String>,
    /// Whether a compiled form was used again; nothing for languages that do not say.
    pub cache_hit: Option<bool>,
    pub error_type: Option<String>,
    pub error_message: Option<String>,
    /// The beginnings of its outputs, and their sizes.
    pub stdout: String,
    pub stdout_bytes: u64,
    pub stderr: String,
    pub stderr_bytes: u64,
    /// How many artifacts it left.
    pub artifacts: u64,
    pub sandbox: String,
    /// The key that started it.
    pub by_whom: String,
}

/// Which runs are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    pub namespace: Option<String>,
    pub notebook: Option<String>,
    /// Only failed ones.
    pub failed: bool,
    /// Only those before this number, in one notebook.
    pub before: Option<u64>,
    pub since_ms: u64,
    pub limit: u64,
}

impl Store {
    /// Counts a run before it begins and returns its number; `None` if its notebook is gone. A counted run
    /// without a row is known to be missing, even after a crash of this bridge.
    pub async fn begin_run(
        &self,
        namespace: &str,
        notebook: &str,
        started_ms: u64,
    ) -> Result<Option<u64>, StoreError> {
        let which = (namespace.to_owned(), notebook.to_owned());
        self.call(move |connection| {
            let order = "UPDATE notebooks SET runs = runs + 1, used_ms = ?3 \
                 WHERE namespace = ?1 AND id = ?2 RETURNING runs";
            let mut counting = connection.prepare_cached(order)?;
            let mut counted = counting
                .query_map(params![which.0, which.1, number(started_ms)], |row| count(row, 0))?;
            Ok(counted.next().transpose()?)
        })
        .await
    }

    /// Takes the count of a run back that was never asked for.
    pub async fn abandon_run(
        &self,
        namespace: &str,
        notebook: &str,
        number: u64,
    ) -> Result<(), StoreError> {
        let which = (namespace.to_owned(), notebook.to_owned());
        self.call(move |connection| {
            let order = "UPDATE notebooks SET runs = ?3 - 1 \
                 WHERE namespace = ?1 AND id = ?2 AND runs = ?3";
            connection.execute(order, params![which.0, which.1, super::number(number)])?;
            Ok(())
        })
        .await
    }

    /// Writes a counted run; `false` if its notebook is gone.
    pub async fn add_run(&self, run: RunRow) -> Result<bool, StoreError> {
        self.call(move |connection| add(connection, &run)).await
    }

    /// Runs, the newest first.
    pub async fn history(&self, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.call(move |connection| history(connection, &filter)).await
    }
}

fn add(connection: &Connection, run: &RunRow) -> Result<bool, StoreError> {
    let counted = connection
        .prepare_cached(
            "UPDATE notebooks SET runs_us = runs_us + ?3, cache_hits = cache_hits + ?4, \
             cache_misses = cache_misses + ?5 WHERE namespace = ?1 AND id = ?2",
        )?
        .execute(params![
            run.namespace,
            run.notebook,
            number(run.duration_us),
            run.cache_hit == Some(true),
            run.cache_hit == Some(false),
        ])?;
    if counted == 0 {
        return Ok(false);
    }
    connection
        .prepare_cached(
            "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
             ?15, ?16, ?17, ?18, ?19, ?20)",
        )?
        .execute(params![
            run.namespace,
            run.notebook,
            number(run.number),
            number(run.started_ms),
            number(run.duration_us),
            run.status,
            beginning(&run.code, HISTORY_CODE_BYTES_MAX),
            number(run.code_bytes),
            run.code_digest,
            run.cache_key,
            run.cache_hit,
            run.error_type.as_deref().map(|text| beginning(text, HISTORY_OUTPUT_BYTES_MAX)),
            run.error_message.as_deref().map(|text| beginning(text, HISTORY_OUTPUT_BYTES_MAX)),
            beginning(&run.stdout, HISTORY_OUTPUT_BYTES_MAX),
            number(run.stdout_bytes),
            beginning(&run.stderr, HISTORY_OUTPUT_BYTES_MAX),
            number(run.stderr_bytes),
            number(run.artifacts),
            run.sandbox,
            run.by_whom,
        ])?;
    connection
        .prepare_cached("DELETE FROM runs WHERE namespace = ?1 AND notebook = ?2 AND number <= ?3")?
        .execute(params![
            run.namespace,
            run.notebook,
            number(run.number.saturating_sub(HISTORY_RUNS_MAX))
        ])?;
    Ok(true)
}

/// The history, for a process that has opened the file with [`read`](super::read).
pub fn history(connection: &Connection, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
    // Each query has its own index: others wait for the same thread.
    let mut rows = connection.prepare_cached(match (&filter.namespace, &filter.notebook) {
        (Some(_), Some(_)) => {
            "SELECT * FROM runs WHERE namespace = ?1 AND notebook = ?2 \
             AND (NOT ?3 OR status <> 'ok') AND number < coalesce(?4, 9223372036854775807) \
             AND started_ms >= ?5 ORDER BY number DESC LIMIT ?6"
        }
        (Some(_), None) => {
            "SELECT * FROM runs WHERE namespace = ?1 AND (?2 IS NULL) \
             AND (NOT ?3 OR status <> 'ok') AND (?4 IS NULL) AND started_ms >= ?5 \
             ORDER BY started_ms DESC, number DESC LIMIT ?6"
        }
        _ => {
            "SELECT * FROM runs WHERE (?1 IS NULL) AND (?2 IS NULL OR notebook = ?2) \
             AND (NOT ?3 OR status <> 'ok') AND (?4 IS NULL) AND started_ms >= ?5 \
             ORDER BY started_ms DESC, number DESC LIMIT ?6"
        }
    })?;
    let found = rows.query_map(
        params![
            filter.namespace,
            filter.notebook,
            filter.failed,
            filter.before.map(number),
            number(filter.since_ms),
            number(filter.limit.min(HISTORY_PAGE_MAX)),
        ],
        read,
    )?;
    found.map(|row| row.map_err(StoreError::from)).collect()
}

fn read(row: &Row<'_>) -> Result<RunRow, rusqlite::Error> {
    Ok(RunRow {
        namespace: row.get("namespace")?,
        notebook: row.get("notebook")?,
        number: count(row, "number")?,
        started_ms: count(row, "started_ms")?,
        duration_us: count(row, "duration_us")?,
        status: row.get("status")?,
        code: row.get("code")?,
        code_bytes: count(row, "code_bytes")?,
        code_digest: row.get("code_digest")?,
        cache_key: row.get("cache_key")?,
        cache_hit: row.get("cache_hit")?,
        error_type: row.get("error_type")?,
        error_message: row.get("error_message")?,
        stdout: row.get("stdout")?,
        stdout_bytes: count(row, "stdout_bytes")?,
        stderr: row.get("stderr")?,
        stderr_bytes: count(row, "stderr_bytes")?,
        artifacts: count(row, "artifacts")?,
        sandbox: row.get("sandbox")?,
        by_whom: row.get("by_whom")?,
    })
}

/// The beginning of a text that fits, in whole characters.
fn beginning(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
