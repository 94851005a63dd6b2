//! The tables, as a list of steps from an empty file to the current version. Steps are only ever
//! added: an older store is updated when it is opened.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::{StoreError, failure};

/// Each is carried out once in the life of a file, whose `user_version` counts them.
const STEPS: &[&str] = &[
    // Notebooks, and what ran in them.
    "CREATE TABLE notebooks (
        namespace TEXT NOT NULL,
        id TEXT NOT NULL,
        language TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        used_ms INTEGER NOT NULL,
        place TEXT NOT NULL,
        seat TEXT,
        saved TEXT,
        saved_run INTEGER NOT NULL DEFAULT 0,
        runs INTEGER NOT NULL DEFAULT 0,
        runs_us INTEGER NOT NULL DEFAULT 0,
        cache_hits INTEGER NOT NULL DEFAULT 0,
        cache_misses INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (namespace, id)
    ) STRICT;
    CREATE TABLE runs (
        namespace TEXT NOT NULL,
        notebook TEXT NOT NULL,
        number INTEGER NOT NULL,
        started_ms INTEGER NOT NULL,
        duration_us INTEGER NOT NULL,
        status TEXT NOT NULL,
        code TEXT NOT NULL,
        code_bytes INTEGER NOT NULL,
        code_digest TEXT NOT NULL,
        cache_key TEXT,
        cache_hit INTEGER,
        error_type TEXT,
        error_message TEXT,
        stdout TEXT NOT NULL,
        stdout_bytes INTEGER NOT NULL,
        stderr TEXT NOT NULL,
        stderr_bytes INTEGER NOT NULL,
        artifacts INTEGER NOT NULL,
        sandbox TEXT NOT NULL,
        by_whom TEXT NOT NULL,
        PRIMARY KEY (namespace, notebook, number),
        FOREIGN KEY (namespace, notebook) REFERENCES notebooks (namespace, id) ON DELETE CASCADE
    ) STRICT;
    CREATE INDEX runs_by_time ON runs (started_ms);
    CREATE INDEX runs_by_namespace ON runs (namespace, started_ms);",
    // Artifacts: the bytes of each are a file named by their digest.
    "CREATE TABLE artifacts (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        namespace TEXT NOT NULL,
        sandbox TEXT NOT NULL,
        notebook TEXT,
        run INTEGER,
        name TEXT NOT NULL,
        path TEXT,
        type TEXT NOT NULL,
        category TEXT NOT NULL,
        size INTEGER NOT NULL,
        digest TEXT NOT NULL,
        created_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX artifacts_by_namespace ON artifacts (namespace, size);
    CREATE INDEX artifacts_by_digest ON artifacts (digest);",
];

/// Brings a store up to date.
pub fn prepare(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    check(connection, path)?;
    // Two processes may open one store at once: the second finds the first's work done.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = version(&transaction)? as usize;
    for step in STEPS.iter().skip(done) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", STEPS.len().max(done) as u32)?;
    transaction.commit()?;
    Ok(())
}

/// Refuses a store that is damaged or from a newer bridge.
pub fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let version = version(connection).map_err(|source| failure(path, source))?;
    if version as usize > STEPS.len() {
        let (path, known) = (path.to_owned(), STEPS.len());
        return Err(StoreError::Newer { path, version, known });
    }
    let quick = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match quick.map_err(|source| failure(path, source))? {
        fine if fine == "ok" => Ok(()),
        what => Err(StoreError::Damaged { path: path.to_owned(), what }),
    }
}

fn version(connection: &Connection) -> Result<u32, rusqlite::Error> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}
