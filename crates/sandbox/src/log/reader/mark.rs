//! A place in a log that can be named and come back to, also by another reader at another time.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::{From, LogError, Reader, RecordPosition};
use crate::limits::{LOG_CARRIED_BYTES_MAX, LOG_RECORD_BYTES_MAX, LOG_SEGMENT_BYTES};
use crate::log::segment::MARK_CARRIED;

/// A reader's position: between two records. If records after it are rotated away meanwhile, a
/// reader that returns to it reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    segment: u64,
    position: u64,
    /// Bytes of output before it, in segments that are gone too.
    passed: u64,
}

/// Why a text is no mark.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a position in a log; use the `place` of a log entry")]
pub struct InvalidMark;

/// More than any log will ever have seen, and no sum with it overflows.
const PASSED_MAX: u64 = 1 << 62;
/// A segment ends with the record that fills it, and carried records are counted separately.
const POSITION_MAX: u64 =
    MARK_CARRIED + LOG_CARRIED_BYTES_MAX + LOG_SEGMENT_BYTES + LOG_RECORD_BYTES_MAX as u64;
/// The largest number of a segment, which is never reached.
const SEGMENT_MAX: u64 = 9_999_999_999;

impl Reader {
    /// Continues at a mark.
    pub fn resume(directory: &Path, mark: Mark) -> Result<Self, LogError> {
        let mut reader = Self::at_start(directory, From::Start);
        reader.begun = true;
        reader.go_to(RecordPosition {
            segment: mark.segment,
            position: mark.position,
            passed: mark.passed,
        })?;
        Ok(reader)
    }

    /// The position after the last entry that was read; `None` before the first.
    pub fn mark(&self) -> Option<Mark> {
        let segment = self.segment.as_ref()?;
        let (segment, position) = (segment.number, segment.mark_position());
        Some(Mark { segment, position, passed: self.passed? })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.segment, self.position, self.passed)
    }
}

impl FromStr for Mark {
    type Err = InvalidMark;

    fn from_str(text: &str) -> Result<Self, InvalidMark> {
        let mut numbers = text.split('-').map(|part| {
            let is_plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| is_plain).ok_or(InvalidMark)
        });
        let mut next = |max| match numbers.next() {
            Some(Ok(number)) if number <= max => Ok(number),
            _ => Err(InvalidMark),
        };
        let (segment, position, passed) =
            (next(SEGMENT_MAX)?, next(POSITION_MAX)?, next(PASSED_MAX)?);
        match numbers.next() {
            None => Ok(Self { segment, position, passed }),
            Some(_) => Err(InvalidMark),
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::message::Channel;

    use super::super::super::tests::SMALL;
    use super::super::super::writer::Writer;
    use super::super::super::{Event, Run};
    use super::*;

    #[test]
    fn a_reader_comes_back_to_a_mark_and_says_what_is_gone_since() {
        let name = format!("burrow-mark-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        let mut log = Writer::open_bounded(&directory, SMALL).unwrap();
        let session = "one".parse().unwrap();
        log.started(&session, Run { pid: 1, started_at_ms: 1 }, "seq").unwrap();
        let mut marks = Vec::new();
        let mut reader = Reader::open(&directory, From::Start).unwrap();
        assert_eq!(reader.mark(), None);
        reader.next().unwrap().expect("the start");
        for offset in 0..20 {
            log.output(&session, Channel::Stdout, offset * 100, &[b'x'; 100]).unwrap();
            let mark: Mark = reader.mark().expect("a place").to_string().parse().unwrap();
            marks.push((mark, offset * 100));
            reader.next().unwrap().expect("the output");
        }
        let after = |mark| {
            let mut reader = Reader::resume(&directory, mark).unwrap();
            reader.next().unwrap().expect("an entry").event
        };
        for (mark, expected) in &marks {
            let Event::Output { offset, .. } = after(*mark) else { panic!("no output") };
            assert_eq!(offset, *expected);
        }
        let last = reader.mark().expect("a place");
        assert!(Reader::resume(&directory, last).unwrap().next().unwrap().is_none());
        // Each segment takes less than twenty of these, so everything that was marked is rotated
        // away.
        for offset in 20..100 {
            log.output(&session, Channel::Stdout, offset * 100, &[b'x'; 100]).unwrap();
        }
        let Event::Missing { bytes } = after(last) else { panic!("nothing is missing") };
        let Event::Missing { bytes: more } = after(marks[10].0) else {
            panic!("nothing is missing")
        };
        assert_eq!(more - bytes, 1000);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_mark_reads_back_and_nothing_else_is_one() {
        let mark = Mark { segment: 7, position: 1234, passed: 99 };
        assert_eq!(mark.to_string().parse(), Ok(mark));
        for text in ["", "7", "7-1", "7-1-2-3", "7-1-", "+7-1-2", "7--2", "a-b-c"] {
            assert_eq!(text.parse::<Mark>(), Err(InvalidMark), "{text}");
        }
        let beyond = format!("1-{}-0", u64::MAX);
        assert_eq!(beyond.parse::<Mark>(), Err(InvalidMark));
    }
}
