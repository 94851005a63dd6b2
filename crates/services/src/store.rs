//! Rows that outlive every bridge: notebooks, their history, artifacts. One `SQLite` file.
//!
//! One thread has the connection, and does one job after another; callers wait for theirs. `schema` has the
//! tables, and each has a file with its queries. Nothing here knows what a notebook does, and sandboxes keep
//! their own state: see [`sandbox`](sandbox). Another process may read while a bridge writes, as `host-bridge
//! history` does.

pub mod artifacts;
pub mod history;
pub mod limits;
pub mod moments;
pub mod notebooks;
pub mod repair;
mod schema;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
use rusqlite::{Connection, OpenFlags, Row, RowIndex, TransactionBehavior};
use tokio::sync::oneshot;

use host::paths::{PRIVATE_FILE, Paths};
use limits::{BUSY_DEADLINE, JOBS_WAITING_MAX};

/// Why the store does not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store {path:?} cannot be opened: {source}")]
    Open { path: PathBuf, source: rusqlite::Error },
    #[error("the store {path:?} cannot be made: {source}")]
    Make { path: PathBuf, source: io::Error },
    #[error(
        "the store {path:?} was written by a newer bridge (version {version}; this bridge reads up \
        to {known}); use that bridge, or move the file away to start with an empty store"
    )]
    Newer { path: PathBuf, version: u32, known: usize },
    #[error(
        "the store {path:?} is damaged ({what}); stop the daemon and run `host-bridge store repair`, \
        which keeps what can be read"
    )]
    Damaged { path: PathBuf, what: String },
    #[error("the store has no room on its disk: {source}")]
    Full { source: io::Error },
    #[error("the store is damaged: {source}; stop the daemon and run `host-bridge store repair`")]
    Corrupt { source: rusqlite::Error },
    #[error("the store could not do it: {0}")]
    Sql(rusqlite::Error),
    /// A column contains something that this bridge does not write.
    #[error("the store's {column} cannot be read: {source}")]
    Column { column: &'static str, source: serde_json::Error },
    #[error("{waiting} jobs wait for the store, which is the limit")]
    Busy { waiting: usize },
    #[error("the store is closed")]
    Closed,
    /// The bridge runs without its store.
    #[error("{why}")]
    Unavailable { why: String },
}

impl From<rusqlite::Error> for StoreError {
    fn from(source: rusqlite::Error) -> Self {
        let code = source.sqlite_error();
        let is_full = code.is_some_and(|error| {
            // The log's index is a separate file, with its own code.
            error.code == rusqlite::ErrorCode::DiskFull
                || error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
        });
        match source.sqlite_error_code() {
            // In the form that every door recognises.
            _ if is_full => {
                Self::Full { source: io::Error::new(io::ErrorKind::StorageFull, source) }
            }
            Some(DatabaseCorrupt | NotADatabase) => Self::Corrupt { source },
            _ => Self::Sql(source),
        }
    }
}

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The open store, or why there is none. Clones are the same; the last one closes it.
#[derive(Clone)]
pub struct Store(Result<Arc<mpsc::SyncSender<Job>>, Arc<str>>);

impl Store {
    /// Opens the store of a bridge, and makes it if there is none. The paths must be prepared.
    pub async fn open(paths: &Paths) -> Result<Self, StoreError> {
        let path = paths.store();
        let (jobs, work) = mpsc::sync_channel::<Job>(JOBS_WAITING_MAX);
        let (tell, outcome) = oneshot::channel();
        let named = thread::Builder::new().name("store".to_owned());
        let made = named.spawn(move || {
            let mut connection = match open(&path) {
                Ok(connection) => connection,
                Err(error) => return drop(tell.send(Err(error))),
            };
            drop(tell.send(Ok(())));
            while let Ok(job) = work.recv() {
                job(&mut connection);
            }
        });
        made.map_err(|source| StoreError::Make { path: paths.store(), source })?;
        outcome.await.map_err(|_| StoreError::Closed)??;
        Ok(Self(Ok(Arc::new(jobs))))
    }

    /// Opens it for a bridge that can run without it: sandboxes, their programs and their logs need none of
    /// it. Reports what is refused.
    pub async fn open_or_refuse(paths: &Paths, tell: impl FnOnce(String)) -> Self {
        match Self::open(paths).await {
            Ok(store) => store,
            Err(error) => {
                tell(format!("notebooks, history and artifacts are refused: {error}"));
                Self::unavailable(&error)
            }
        }
    }

    /// In the place of a store that cannot be opened: it refuses everything with the reason.
    pub fn unavailable(why: &StoreError) -> Self {
        Self(Err(why.to_string().into()))
    }

    /// Runs something in one transaction, and waits for it. It is finished even if the caller stops
    /// waiting.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let jobs = self.0.as_ref();
        let jobs = jobs.map_err(|why| StoreError::Unavailable { why: why.to_string() })?;
        let (tell, outcome) = oneshot::channel();
        let job: Job = Box::new(move |connection| drop(tell.send(within(connection, work))));
        jobs.try_send(job).map_err(|error| match error {
            mpsc::TrySendError::Full(_) => StoreError::Busy { waiting: JOBS_WAITING_MAX },
            mpsc::TrySendError::Disconnected(_) => StoreError::Closed,
        })?;
        outcome.await.map_err(|_| StoreError::Closed)?
    }
}

fn within<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // A job that reads first and then writes must not find that another has written meanwhile.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

fn open(path: &Path) -> Result<Connection, StoreError> {
    // It holds code and its outputs: for its owner alone, and so are the files beside it.
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    let file = file.and_then(|file| file.set_permissions(fs::Permissions::from_mode(PRIVATE_FILE)));
    file.map_err(|source| StoreError::Make { path: path.to_owned(), source })?;
    let opened = Connection::open(path).and_then(|connection| {
        connection.busy_timeout(BUSY_DEADLINE)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A crash of the host may cost the newest rows, and never the file.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        Ok(connection)
    });
    let mut connection = opened.map_err(|source| failure(path, source))?;
    schema::prepare(&mut connection, path)?;
    Ok(connection)
}

/// Reads in this thread, concurrently with a writer; `None` if there is no store.
pub fn read<T>(
    paths: &Paths,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let path = paths.store();
    if !path.exists() {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, flags);
    let connection = opened.map_err(|source| failure(&path, source))?;
    connection.busy_timeout(BUSY_DEADLINE)?;
    schema::check(&connection, &path)?;
    work(&connection).map(Some)
}

/// Damage has its own remedy.
fn failure(path: &Path, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => {
            StoreError::Damaged { path, what: source.to_string() }
        }
        _ => StoreError::Open { path, source },
    }
}

/// A count or a time as `SQLite` has numbers: they are ours, and far from its end.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The way back.
fn count(row: &Row<'_>, column: impl RowIndex) -> Result<u64, rusqlite::Error> {
    let value: i64 = row.get(column)?;
    Ok(u64::try_from(value).unwrap_or_default())
}

#[cfg(test)]
mod tests;
