//! Makes a new store from the readable part of a damaged one, for `host-bridge store repair`.
//!
//! The damaged file is only read. It is moved aside, with its log, when the new one is complete, so an
//! interrupted repair has changed nothing. Rows are read by their numbers: after an unreadable page the next
//! readable one is searched.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::{StoreError, open, schema};
use host::instant::now_ms;
use host::paths::Paths;

/// The tables of a store, those before which others refer to.
const TABLES: [&str; 3] = ["notebooks", "runs", "artifacts"];
/// Rows that one question reads.
const ROWS_AT_ONCE: usize = 256;
/// Queries for the next row after damage: each looks twice as far, so that these reach any row.
const SKIPS_MAX: u32 = 63;

/// What a repair has kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedStore {
    /// For each table, the rows in the new store, and those that were read and refused: they refer
    /// to a notebook that is lost.
    pub tables: Vec<(&'static str, u64, u64)>,
    /// Where the damaged file is now.
    pub damaged: PathBuf,
}

/// Repairs the store of a bridge that does not run; `None` if it is whole, or there is none.
pub fn repair(paths: &Paths) -> Result<Option<RepairedStore>, StoreError> {
    let path = paths.store();
    match super::read(paths, |_| Ok(())) {
        Ok(_) => return Ok(None),
        Err(StoreError::Damaged { .. } | StoreError::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    let made = |path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::Make { path, source }
    };
    let new = path.with_extension("db.repaired");
    for old in [new.clone(), beside(&new, "-wal"), beside(&new, "-shm")] {
        match fs::remove_file(&old) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(made(&old)(error));
            }
            _ => {}
        }
    }
    let target = open(&new)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source = Connection::open_with_flags(&path, flags);
    let mut tables = Vec::new();
    for table in TABLES {
        let (copied, refused) = match &source {
            Ok(source) => copy(source, &target, table)?,
            Err(_) => (0, 0),
        };
        tables.push((table, copied, refused));
    }
    schema::check(&target, &new)?;
    drop(source);
    // The last to close it writes its log into it.
    target.close().map_err(|(_, error)| error)?;
    let damaged = path.with_extension(format!("db.damaged-{}", now_ms()));
    for suffix in ["", "-wal", "-shm"] {
        let from = beside(&path, suffix);
        match fs::rename(&from, beside(&damaged, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(made(&from)(error));
            }
            _ => {}
        }
    }
    fs::rename(&new, &path).map_err(made(&path))?;
    Ok(Some(RepairedStore { tables, damaged }))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Copies the rows of a table that can be read.
fn copy(
    source: &Connection,
    target: &Connection,
    table: &'static str,
) -> Result<(u64, u64), StoreError> {
    let columns = columns(target, table)?;
    let named = columns.join(", ");
    let places: Vec<_> = (1..=columns.len()).map(|at| format!("?{at}")).collect();
    let insert = format!("INSERT INTO {table} ({named}) VALUES ({})", places.join(", "));
    let mut insert = target.prepare(&insert)?;
    let (mut copied, mut refused) = (0, 0);
    let (mut above, mut skips) = (i64::MIN, 0);
    target.execute_batch("BEGIN")?;
    while skips <= SKIPS_MAX {
        let (rows, is_whole) = read_above(source, table, &named, columns.len(), above);
        for (number, row) in &rows {
            above = *number;
            match insert.execute(params_from_iter(row)) {
                Ok(_) => copied += 1,
                Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {
                    return Err(error.into());
                }
                Err(_) => refused += 1,
            }
        }
        if !rows.is_empty() {
            skips = 0;
        } else if is_whole {
            break;
        } else {
            // From the first row on: none has a number below 1.
            above = above.max(0).saturating_add(1_i64 << skips.min(62));
            skips += 1;
        }
    }
    target.execute_batch("COMMIT")?;
    Ok((copied, refused))
}

type NumberedRow = (i64, Vec<Value>);

/// The next readable rows after a number, and whether they were all readable.
fn read_above(
    source: &Connection,
    table: &str,
    columns: &str,
    count: usize,
    above: i64,
) -> (Vec<NumberedRow>, bool) {
    let question = format!(
        "SELECT rowid, {columns} FROM {table} NOT INDEXED WHERE rowid > ?1 ORDER BY rowid \
         LIMIT {ROWS_AT_ONCE}"
    );
    let mut read = Vec::new();
    let Ok(mut statement) = source.prepare(&question) else { return (read, false) };
    let rows = statement.query_map([above], |row| {
        let values = (1..=count).map(|at| row.get(at)).collect::<Result<Vec<Value>, _>>()?;
        Ok((row.get(0)?, values))
    });
    let Ok(rows) = rows else { return (read, false) };
    for row in rows {
        match row {
            Ok(row) => read.push(row),
            Err(_) => return (read, false),
        }
    }
    (read, true)
}

fn columns(connection: &Connection, table: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let names = statement.query_map([table], |row| row.get(0))?;
    names.map(|name| name.map_err(StoreError::from)).collect()
}
