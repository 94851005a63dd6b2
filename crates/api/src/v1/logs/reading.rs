//! Reads the requested part of a log, in turns.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::SessionId;
use protocol::message::Channel;

use super::entry::{LogEntry, LogStream};
use crate::sessions::turns::{self, broken};
use sandbox::log::{Entry, Event, From, LogError, Mark, ReadBudget, Reader, Step};
use sandbox::refusal::Refusal;

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
    /// Bytes of output in them.
    pub bytes: usize,
    pub ended: TurnEnd,
}

/// Why a turn was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// There may be more at once.
    Full,
    /// There may be more that was not looked at.
    Paused,
    /// There is no more at the moment.
    AtEnd,
    /// Nothing will follow.
    Closed,
}

impl Reading {
    pub async fn open(directory: PathBuf, selection: Selection) -> Result<Self, Refusal> {
        let since_ms = selection.since_ms.unwrap_or(0);
        let until_ms = selection.until_ms.unwrap_or(u64::MAX);
        let place = directory.clone();
        let reader = turns::turn(move |_| open(&place, selection)).await?;
        Ok(Self { directory, reader: Some(reader), since_ms, until_ms })
    }

    /// Reads on, up to so many entries and about so many bytes of output.
    pub async fn turn(&mut self, entries_max: usize, bytes_max: usize) -> Result<Turn, Refusal> {
        let Some(mut reader) = self.reader.take() else { return Err(broken()) };
        let (since_ms, until_ms) = (self.since_ms, self.until_ms);
        let directory = self.directory.clone();
        let (reader, turn) = turns::turn(move |room| {
            let is_wanted = move |entry: &Entry| (since_ms..=until_ms).contains(&entry.time_ms);
            let turn = turn(&mut reader, &directory, room, entries_max, bytes_max, is_wanted)?;
            Ok((reader, turn))
        })
        .await?;
        self.reader = Some(reader);
        Ok(turn)
    }

    /// Reads on in as many turns as it takes, up to so many entries and about so many bytes.
    pub async fn page(&mut self, entries_max: usize, bytes_max: usize) -> Result<Turn, Refusal> {
        let mut page = self.turn(entries_max, bytes_max).await?;
        while page.ended == TurnEnd::Paused {
            let entries_left = entries_max.saturating_sub(page.entries.len());
            let turn = self.turn(entries_left, bytes_max.saturating_sub(page.bytes)).await?;
            page.entries.extend(turn.entries);
            page.bytes += turn.bytes;
            page.ended = turn.ended;
        }
        Ok(page)
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
    room: &mut ReadBudget,
    entries_max: usize,
    bytes_max: usize,
    is_wanted: impl Fn(&Entry) -> bool,
) -> Result<Turn, LogError> {
    let (mut entries, mut bytes_found) = (Vec::new(), 0);
    let ended = loop {
        if entries.len() >= entries_max || bytes_found >= bytes_max {
            break TurnEnd::Full;
        }
        let entry = match reader.step(room)? {
            Step::Entry(entry) => *entry,
            Step::Paused => break TurnEnd::Paused,
            Step::AtEnd => {
                // A log that was removed will not go on either.
                let is_over = reader.is_closed() || !directory.exists();
                break if is_over { TurnEnd::Closed } else { TurnEnd::AtEnd };
            }
        };
        if is_wanted(&entry) {
            if let Event::Output { bytes, .. } = &entry.event {
                bytes_found += bytes.len();
            }
            entries.push(LogEntry::new(entry, reader.mark()));
        }
    };
    Ok(Turn { entries, bytes: bytes_found, ended })
}
