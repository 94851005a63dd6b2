//! Reads a log by turns, each on a thread that may wait for the disk.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::SessionId;
use protocol::message::Channel;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::entry::{LogEntry, LogStream};
use super::limits::TURNS_MAX;
use crate::api::problem::{Code, Problem};
use crate::sandbox::log::{Entry, Event, From, LogError, Mark, Reader};

/// Places for turns. Who is gone while waiting for one costs no turn.
static TURNS: Semaphore = Semaphore::const_new(TURNS_MAX);

/// What is wanted of a log.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// So many of the last lines.
    pub tail: Option<u64>,
    pub since_ms: Option<u64>,
    pub until_ms: Option<u64>,
    pub session: Option<SessionId>,
    pub stream: Option<LogStream>,
    pub after: Option<Mark>,
}

/// A log that is read.
pub struct Reading {
    directory: PathBuf,
    /// Away while a turn is on; one that does not come back has failed.
    reader: Option<Reader>,
    since_ms: u64,
    until_ms: u64,
}

/// What one turn has found.
pub struct Turn {
    pub entries: Vec<LogEntry>,
    pub ended: Ended,
}

/// Why a turn was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There may be more at once.
    Full,
    /// There is no more at the moment.
    AtEnd,
    /// Nothing will follow.
    Closed,
}

impl Reading {
    pub async fn open(directory: PathBuf, selection: Selection) -> Result<Self, Problem> {
        let since_ms = selection.since_ms.unwrap_or(0);
        let until_ms = selection.until_ms.unwrap_or(u64::MAX);
        let place = directory.clone();
        let turn = TURNS.acquire().await.map_err(|_| broken())?;
        let opened = spawn_blocking(move || {
            let _turn = turn;
            open(&place, selection)
        })
        .await;
        let reader = opened.map_err(|_| broken())?.map_err(|error| unreadable(&error))?;
        Ok(Self { directory, reader: Some(reader), since_ms, until_ms })
    }

    /// Reads on, up to so many entries and about so many bytes of output.
    pub async fn turn(&mut self, entries_max: usize, bytes_max: usize) -> Result<Turn, Problem> {
        let place = TURNS.acquire().await.map_err(|_| broken())?;
        let Some(mut reader) = self.reader.take() else { return Err(broken()) };
        let (since_ms, until_ms) = (self.since_ms, self.until_ms);
        let directory = self.directory.clone();
        let turned = spawn_blocking(move || {
            let _place = place;
            let is_wanted = move |entry: &Entry| (since_ms..=until_ms).contains(&entry.time_ms);
            let turn = turn(&mut reader, &directory, entries_max, bytes_max, is_wanted);
            (reader, turn)
        });
        let (reader, turn) = turned.await.map_err(|_| broken())?;
        self.reader = Some(reader);
        turn.map_err(|error| unreadable(&error))
    }

    /// How long there can still be something to wait for; `None` without an end.
    pub fn time_left(&self) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let until = Duration::from_millis(self.until_ms);
        (self.until_ms < u64::MAX).then(|| until.saturating_sub(now))
    }
}

fn open(directory: &Path, selection: Selection) -> Result<Reader, LogError> {
    let Selection { tail, since_ms, session, stream, after, until_ms: _ } = selection;
    let mut reader = match (after, tail, since_ms) {
        (Some(mark), _, _) => Reader::resume(directory, mark)?,
        // With both, the lines are counted first: the last of them, as far as they are new enough.
        (None, Some(lines), _) => Reader::open(directory, From::Lines(lines))?,
        (None, None, Some(ms)) => Reader::open(directory, From::Since { ms })?,
        (None, None, None) => Reader::open(directory, From::Start)?,
    };
    if let Some(session) = session {
        reader = reader.only(session);
    }
    Ok(match stream {
        None => reader,
        Some(LogStream::Stdout) => reader.outputs(|channel| channel == Channel::Stdout),
        Some(LogStream::Stderr) => reader.outputs(|channel| channel == Channel::Stderr),
        Some(LogStream::Terminal) => reader.outputs(|channel| channel == Channel::Terminal),
    })
}

fn turn(
    reader: &mut Reader,
    directory: &Path,
    entries_max: usize,
    bytes_max: usize,
    is_wanted: impl Fn(&Entry) -> bool,
) -> Result<Turn, LogError> {
    let mut entries = Vec::new();
    let mut room_bytes = bytes_max;
    let ended = loop {
        if entries.len() >= entries_max || room_bytes == 0 {
            break Ended::Full;
        }
        let Some(entry) = reader.next()? else {
            // A log that was removed will not go on either.
            let is_over = reader.is_closed() || !directory.exists();
            break if is_over { Ended::Closed } else { Ended::AtEnd };
        };
        if is_wanted(&entry) {
            if let Event::Output { bytes, .. } = &entry.event {
                room_bytes = room_bytes.saturating_sub(bytes.len());
            }
            entries.push(LogEntry::new(entry, reader.mark()));
        }
    };
    Ok(Turn { entries, ended })
}

/// The task of a turn is no more, which happens when the server ends.
fn broken() -> Problem {
    Problem::new(Code::Unavailable, "the server is ending, and so is what it read for you")
}

fn unreadable(error: &LogError) -> Problem {
    Problem::new(Code::Internal, error.to_string())
}
