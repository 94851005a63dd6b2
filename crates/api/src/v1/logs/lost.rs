//! The log of a sandbox that is gone with its node, from the fleet's log: the same entries, and then the truth.
//!
//! Nothing is added to it any more, so following it is reading it. A place in it is its number in the fleet's log, written
//! as a mark of the segment that no log on a disk has.

use std::collections::VecDeque;

use super::entry::{LogEntry, LogStream};
use super::reading::Selection;
use super::{LogPage, NO_SEGMENT};
use crate::body::Gone;
use crate::call::{Call, LostLife};
use crate::sessions::lost::Lost;
use crate::stream::Teller;
use node::{LogAway, LostEntries};
use sandbox::log::{Entry, Event};
use sandbox::refusal::{Code, Refusal};

/// A log that is read.
pub(super) struct LostReading {
    lost: Lost,
    entries: LostEntries,
    selection: Selection,
    /// Lines that are before the first wanted one.
    skip_lines: u64,
    ready: VecDeque<LogEntry>,
    is_over: bool,
}

impl LostReading {
    pub(super) async fn open(
        call: &Call,
        life: LostLife,
        selection: Selection,
        after: Option<u64>,
    ) -> Result<Self, Refusal> {
        let lost = Lost::open(call, life).await?;
        if let Some(session) = &selection.session {
            lost.session(session)?;
        }
        let skip_lines = match selection.tail {
            Some(tail) => count_lines(&lost, &selection).await?.saturating_sub(tail),
            None => 0,
        };
        let entries = lost.log.entries(after.unwrap_or(0)).await?;
        let (ready, is_over) = (VecDeque::new(), false);
        Ok(Self { lost, entries, selection, skip_lines, ready, is_over })
    }

    /// The next entry. After the last comes how it ended: the log's own last word, or a problem.
    pub(super) async fn next(&mut self) -> Option<LogEntry> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(entry);
            }
            if self.is_over {
                return None;
            }
            match self.entries.next().await {
                Ok(Some(mut entry)) => {
                    let is_wanted = is_wanted(&self.selection, &entry);
                    if is_wanted && skip(&mut entry.event, &mut self.skip_lines) {
                        let mut entry = LogEntry::new(entry, None);
                        entry.place = Some(format!("{NO_SEGMENT}{}", self.entries.place));
                        self.ready.push_back(entry);
                    }
                }
                Ok(None) => {
                    self.is_over = true;
                    if !self.entries.is_closed {
                        let problem = match self.lost.open_ends().await {
                            Ok(ends) => self.lost.refusal(&ends),
                            Err(problem) => problem,
                        };
                        return Some(LogEntry::problem(problem.into()));
                    }
                }
                Err(error) => {
                    self.is_over = true;
                    return Some(LogEntry::problem(Refusal::from(error).into()));
                }
            }
        }
    }

    /// A page of entries. One that could not be read to its end is refused, as it would be by its node.
    pub(super) async fn page(
        mut self,
        call: &Call,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<LogPage, Refusal> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while entries.len() < entries_max && bytes < bytes_max {
            let Some(entry) = self.next().await else {
                return Ok(LogPage { entries, next: None });
            };
            call.memory.grow(entry.cost())?;
            bytes += entry.cost();
            entries.push(entry);
        }
        let next = entries.last().and_then(|entry: &LogEntry| entry.place.clone());
        Ok(LogPage { entries, next })
    }

    pub(super) async fn tell(mut self, teller: &Teller<LogEntry>) -> Result<(), Gone> {
        while let Some(entry) = self.next().await {
            teller.tell(&entry).await?;
        }
        Ok(())
    }
}

fn is_wanted(selection: &Selection, entry: &Entry) -> bool {
    let Selection { since_ms, until_ms, session, stream, .. } = selection;
    let is_in_time = since_ms.is_none_or(|since_ms| entry.time_ms >= since_ms)
        && until_ms.is_none_or(|until_ms| entry.time_ms <= until_ms);
    let is_of_session = match (session, entry.event.session()) {
        (Some(wanted), Some(session)) => wanted == session,
        _ => true,
    };
    let is_of_stream = match (stream, &entry.event) {
        (Some(wanted), Event::Output { channel, .. } | Event::Gap { channel, .. }) => {
            LogStream::from(*channel) == *wanted
        }
        _ => true,
    };
    is_in_time && is_of_session && is_of_stream
}

/// The lines of the wanted output, the last of which may have no end.
async fn count_lines(lost: &Lost, selection: &Selection) -> Result<u64, Refusal> {
    let count = async {
        let mut entries = lost.log.entries(0).await?;
        let (mut lines, mut is_at_begin) = (0, true);
        while let Some(entry) = entries.next().await? {
            if let Event::Output { bytes, .. } = &entry.event
                && is_wanted(selection, &entry)
            {
                lines += bytes.split(|byte| *byte == b'\n').skip(1).count() as u64;
                is_at_begin = bytes.last().is_none_or(|byte| *byte == b'\n');
            }
        }
        Ok::<_, LogAway>(lines + u64::from(!is_at_begin))
    };
    Ok(count.await?)
}

/// Takes lines that are not wanted from the front of an output. `false`: nothing of the entry is wanted.
fn skip(event: &mut Event, lines: &mut u64) -> bool {
    if *lines == 0 {
        return true;
    }
    let Event::Output { offset, bytes, .. } = event else { return false };
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let ends: Vec<usize> = ends.take(usize::try_from(*lines).unwrap_or(usize::MAX)).collect();
    *lines -= ends.len() as u64;
    if *lines > 0 {
        return false;
    }
    let cut = ends.last().copied().unwrap_or(0);
    bytes.drain(..cut);
    *offset += cut as u64;
    !bytes.is_empty()
}

/// A place in the fleet's log.
pub(super) fn parse_place(text: &str) -> Result<u64, Refusal> {
    let place = text.strip_prefix(NO_SEGMENT).and_then(|number| number.parse().ok());
    place.ok_or_else(|| {
        let message = format!("after: {text:?} is a place in the log of the node that is gone");
        Refusal::new(Code::Gone, message)
            .hint("read without `after`, or the output of a session from an offset: both are in the fleet's log")
    })
}
