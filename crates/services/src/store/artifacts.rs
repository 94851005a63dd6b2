//! The rows of artifacts. What they are of, and where their bytes are, is
//! [`artifact`](crate::artifact)'s.

use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use serde::{Deserialize, Serialize};

use super::limits::{ARTIFACTS_PAGE_MAX, ARTIFACTS_REMOVED_AT_ONCE_MAX};
use super::{Store, StoreError, count, number};

/// One artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRow {
    /// Given by the store; a newer artifact has a larger one.
    pub number: u64,
    pub id: String,
    pub namespace: String,
    pub sandbox: String,
    pub notebook: Option<String>,
    pub run: Option<u64>,
    pub name: String,
    /// Its path in the sandbox; absent for a display.
    pub path: Option<String>,
    pub mime: String,
    pub category: String,
    pub size: u64,
    /// SHA-256, in hexadecimal digits.
    pub digest: String,
    pub created_ms: u64,
}

/// A filter for artifacts. Absent fields match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArtifactFilter {
    pub namespace: Option<String>,
    pub id: Option<String>,
    pub sandbox: Option<String>,
    pub notebook: Option<String>,
    pub run: Option<u64>,
    pub category: Option<String>,
    /// Made then or later.
    pub since_ms: Option<u64>,
    /// Made before.
    pub until_ms: Option<u64>,
    /// With a smaller number.
    pub below: Option<u64>,
}

/// The quota for the artifacts of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub count_max: u64,
    pub bytes_max: u64,
}

/// The usage of a namespace's artifacts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub count: u64,
    pub bytes: u64,
}

/// The result of adding a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactInsert {
    /// It has this number.
    Made(u64),
    /// It would exceed its namespace's quota. It was not added.
    Full(Usage),
}

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub count: u64,
    pub bytes: u64,
    /// Those that no row refers to any more.
    pub digests: Vec<String>,
    /// Whether there are more of them.
    pub more: bool,
}

const MATCHES: &str = "(?1 IS NULL OR namespace = ?1) AND (?2 IS NULL OR id = ?2) \
     AND (?3 IS NULL OR sandbox = ?3) AND (?4 IS NULL OR notebook = ?4) \
     AND (?5 IS NULL OR run = ?5) AND (?6 IS NULL OR category = ?6) \
     AND (?7 IS NULL OR created_ms >= ?7) AND (?8 IS NULL OR created_ms < ?8) \
     AND (?9 IS NULL OR number < ?9)";

impl Store {
    /// Adds an artifact, if its namespace has room for it.
    pub async fn add_artifact(
        &self,
        row: ArtifactRow,
        quota: Quota,
    ) -> Result<ArtifactInsert, StoreError> {
        self.call(move |connection| add(connection, &row, quota)).await
    }

    /// Artifacts, the newest first.
    pub async fn artifacts(
        &self,
        which: ArtifactFilter,
        limit: u64,
    ) -> Result<Vec<ArtifactRow>, StoreError> {
        self.call(move |connection| artifacts(connection, &which, limit)).await
    }

    /// How many artifacts a notebook has.
    pub async fn count_artifacts(
        &self,
        namespace: &str,
        notebook: &str,
    ) -> Result<u64, StoreError> {
        let key = [namespace.to_owned(), notebook.to_owned()];
        self.call(move |connection| {
            let count = "SELECT count(*) FROM artifacts WHERE namespace = ?1 AND notebook = ?2";
            Ok(connection.prepare_cached(count)?.query_row(key, |row| super::count(row, 0))?)
        })
        .await
    }

    /// The number of artifacts, and the bytes of their contents, each counted once.
    pub async fn artifact_totals(&self) -> Result<(u64, u64), StoreError> {
        self.call(move |connection| {
            let totals = "SELECT coalesce(sum(count), 0), coalesce(sum(size), 0) FROM \
                 (SELECT count(*) AS count, max(size) AS size FROM artifacts GROUP BY digest)";
            let mut statement = connection.prepare_cached(totals)?;
            Ok(statement.query_row([], |row| Ok((count(row, 0)?, count(row, 1)?)))?)
        })
        .await
    }

    /// The usage of a namespace's artifacts.
    pub async fn artifact_usage(&self, namespace: &str) -> Result<Usage, StoreError> {
        let namespace = namespace.to_owned();
        self.call(move |connection| usage(connection, &namespace)).await
    }

    /// Removes the oldest matching ones, in batches that delay nobody for long.
    pub async fn remove_artifacts(&self, which: ArtifactFilter) -> Result<Removed, StoreError> {
        self.call(move |connection| remove(connection, &which)).await
    }

    /// Those of some digests that no artifact has.
    pub async fn unused_digests(&self, digests: Vec<String>) -> Result<Vec<String>, StoreError> {
        self.call(move |connection| {
            let mut unused = Vec::new();
            for digest in digests {
                if !is_used(connection, &digest)? {
                    unused.push(digest);
                }
            }
            Ok(unused)
        })
        .await
    }
}

fn add(
    connection: &Connection,
    row: &ArtifactRow,
    quota: Quota,
) -> Result<ArtifactInsert, StoreError> {
    let there = usage(connection, &row.namespace)?;
    if there.count >= quota.count_max || there.bytes.saturating_add(row.size) > quota.bytes_max {
        return Ok(ArtifactInsert::Full(there));
    }
    connection
        .prepare_cached(
            "INSERT INTO artifacts (id, namespace, sandbox, notebook, run, name, path, type, \
             category, size, digest, created_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            row.id,
            row.namespace,
            row.sandbox,
            row.notebook,
            row.run.map(number),
            row.name,
            row.path,
            row.mime,
            row.category,
            number(row.size),
            row.digest,
            number(row.created_ms),
        ])?;
    Ok(ArtifactInsert::Made(u64::try_from(connection.last_insert_rowid()).unwrap_or_default()))
}

fn usage(connection: &Connection, namespace: &str) -> Result<Usage, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*) AS count, coalesce(sum(size), 0) AS bytes FROM artifacts \
         WHERE namespace = ?1",
    )?;
    Ok(statement.query_row([namespace], |row| {
        Ok(Usage { count: count(row, "count")?, bytes: count(row, "bytes")? })
    })?)
}

/// The artifacts, for a process that has opened the file with [`read`](super::read).
pub fn artifacts(
    connection: &Connection,
    which: &ArtifactFilter,
    limit: u64,
) -> Result<Vec<ArtifactRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT * FROM artifacts WHERE {MATCHES} ORDER BY number DESC LIMIT ?10"
    ))?;
    let limit = limit.min(ARTIFACTS_PAGE_MAX);
    let found = statement.query_map(terms(which, limit), read)?;
    found.map(|row| row.map_err(StoreError::from)).collect()
}

fn remove(connection: &Connection, which: &ArtifactFilter) -> Result<Removed, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "DELETE FROM artifacts WHERE number IN \
         (SELECT number FROM artifacts WHERE {MATCHES} ORDER BY number LIMIT ?10) \
         RETURNING digest, size"
    ))?;
    let gone = statement.query_map(terms(which, ARTIFACTS_REMOVED_AT_ONCE_MAX), |row| {
        Ok((row.get::<_, String>("digest")?, count(row, "size")?))
    })?;
    let gone = gone.collect::<Result<Vec<_>, _>>()?;
    let mut removed = Removed { count: gone.len() as u64, ..Removed::default() };
    removed.more = removed.count == ARTIFACTS_REMOVED_AT_ONCE_MAX;
    for (digest, size) in gone {
        removed.bytes = removed.bytes.saturating_add(size);
        if !removed.digests.contains(&digest) && !is_used(connection, &digest)? {
            removed.digests.push(digest);
        }
    }
    Ok(removed)
}

/// The parameters of [`MATCHES`], and of a limit after them.
fn terms(which: &ArtifactFilter, limit: u64) -> impl Params + '_ {
    (
        &which.namespace,
        &which.id,
        &which.sandbox,
        &which.notebook,
        which.run.map(number),
        &which.category,
        which.since_ms.map(number),
        which.until_ms.map(number),
        which.below.map(number),
        number(limit),
    )
}

fn is_used(connection: &Connection, digest: &str) -> Result<bool, StoreError> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM artifacts WHERE digest = ?1")?;
    Ok(statement.query_row([digest], |_| Ok(())).optional()?.is_some())
}

fn read(row: &Row<'_>) -> Result<ArtifactRow, rusqlite::Error> {
    Ok(ArtifactRow {
        number: count(row, "number")?,
        id: row.get("id")?,
        namespace: row.get("namespace")?,
        sandbox: row.get("sandbox")?,
        notebook: row.get("notebook")?,
        run: row.get::<_, Option<i64>>("run")?.map(|run| u64::try_from(run).unwrap_or_default()),
        name: row.get("name")?,
        path: row.get("path")?,
        mime: row.get("type")?,
        category: row.get("category")?,
        size: count(row, "size")?,
        digest: row.get("digest")?,
        created_ms: count(row, "created_ms")?,
    })
}
