//! What was typed into the sessions of a sandbox, bounded, beside the log of their output.
//!
//! ```text
//!  log/input/0000000003.seg   head: bytes that were rotated away · input · input · …
//!  log/input/0000000004.seg   head · input · …                          ◀── appended here
//! ```
//!
//! Each process that passes input on appends to it: the bridge for all its doors, and `attach` and `exec -i` in processes of
//! their own ([`append`](super::append)). What is missing is counted: that which was rotated
//! away by the heads, and that which a full disk did not take by the next record.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use protocol::SessionId;
use protocol::limits::CHUNK_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::LogError;
use super::append::{Appender, Bounds};
use super::reader::{failed, numbers};
use super::record::{Blob, Record, RecordBody};
use super::room::ReadBudget;
use super::segment::{Segment, SegmentItem};
use crate::limits::{INPUT_SEGMENT_BYTES, INPUT_SEGMENTS_MAX};

const INPUT_DIRECTORY: &str = "input";

/// Where the input of a log is.
pub(crate) fn input_directory(log: &Path) -> PathBuf {
    log.join(INPUT_DIRECTORY)
}

/// What this process appends to the input of a log.
#[derive(Debug)]
pub struct InputLog(Mutex<Inner>);

impl InputLog {
    /// For the log in this directory. Nothing is made before something is typed.
    pub fn new(log: &Path) -> Self {
        Self::bounded(log, INPUT_SEGMENT_BYTES)
    }

    pub(super) fn bounded(log: &Path, segment_bytes: u64) -> Self {
        let bounds = Bounds { segment_bytes, segments_max: INPUT_SEGMENTS_MAX };
        let files = Appender::new(input_directory(log), bounds, typed_bytes);
        Self(Mutex::new(Inner { files, lost: 0 }))
    }

    /// Records what was typed into a session at this time.
    pub fn append(&self, session: &SessionId, time_ms: u64, bytes: &[u8]) -> Result<(), LogError> {
        // A panic between two records leaves a file that ends with a whole one.
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, chunk) in (0..).step_by(CHUNK_BYTES_MAX).zip(bytes.chunks(CHUNK_BYTES_MAX)) {
            if let Err(source) = inner.append(session, time_ms, chunk) {
                inner.lost += (bytes.len() - at) as u64;
                let path = inner.files.directory().to_owned();
                return Err(LogError::Files { action: "write", path, source });
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Inner {
    files: Appender,
    /// Bytes that could not be written since the last record.
    lost: u64,
}

impl Inner {
    fn append(&mut self, session: &SessionId, time_ms: u64, chunk: &[u8]) -> io::Result<()> {
        let (session, bytes) = (session.clone(), Blob(Cow::Borrowed(chunk)));
        let body = RecordBody::Input { session, bytes, lost: self.lost };
        self.files.append(&Record::new(time_ms, body))?;
        self.lost = 0;
        Ok(())
    }
}

fn typed_bytes(body: &RecordBody<'_>) -> u64 {
    match body {
        RecordBody::Input { bytes, .. } => bytes.0.len() as u64,
        _ => 0,
    }
}

/// Something that was typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Typed {
    pub session: SessionId,
    pub bytes: Vec<u8>,
}

/// The result of one step of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputStep {
    Typed {
        time_ms: u64,
        typed: Typed,
    },
    /// So many bytes are not there any more, or never were.
    Missing {
        time_ms: u64,
        bytes: u64,
    },
    /// So many bytes of the files are damaged.
    Damaged {
        time_ms: u64,
        bytes: u64,
    },
    /// The budget is used up.
    Paused,
    /// There is no more of what was there when the reader began.
    AtEnd,
}

/// Reads what was typed, the oldest first.
#[derive(Debug)]
pub struct InputReader {
    directory: PathBuf,
    /// Files to read, the newest first.
    ahead: Vec<u64>,
    segment: Option<Segment>,
    /// Bytes of input before this place, those that are gone included.
    passed: u64,
    was_damaged: bool,
    /// What comes after the bytes that are missing before it.
    next: Option<InputStep>,
}

impl InputReader {
    /// Of the log in this directory, which may have none.
    pub fn open(log: &Path) -> Result<Self, LogError> {
        let directory = input_directory(log);
        let mut ahead = numbers(&directory)?;
        ahead.reverse();
        let (segment, passed, was_damaged, next) = (None, 0, false, None);
        Ok(Self { directory, ahead, segment, passed, was_damaged, next })
    }

    pub fn step(&mut self, room: &mut ReadBudget) -> Result<InputStep, LogError> {
        loop {
            if let Some(step) = self.next.take() {
                return Ok(step);
            }
            if room.is_over() {
                return Ok(InputStep::Paused);
            }
            let read_failed = |source| failed(&self.directory, source);
            let Some(segment) = &mut self.segment else {
                let Some(number) = self.ahead.pop() else { return Ok(InputStep::AtEnd) };
                self.segment = Segment::open(&self.directory, number).map_err(read_failed)?;
                let Some(segment) = self.segment.as_ref().filter(|found| !found.is_headless) else {
                    continue;
                };
                let (before, time_ms) = (segment.head.bytes_before, segment.head_time_ms);
                let missing = before.saturating_sub(self.passed);
                self.passed = before;
                if missing > 0 && !std::mem::take(&mut self.was_damaged) {
                    return Ok(InputStep::Missing { time_ms, bytes: missing });
                }
                continue;
            };
            let time_ms = segment.head_time_ms;
            match segment.find().map_err(read_failed)? {
                Some(SegmentItem::Damage(bytes)) => {
                    self.was_damaged = true;
                    return Ok(InputStep::Damaged { time_ms, bytes });
                }
                Some(SegmentItem::Record(record)) => {
                    room.take(&record);
                    let Record { time_ms, what, .. } = *record;
                    let RecordBody::Input { session, bytes, lost } = what else { continue };
                    self.passed += bytes.0.len() as u64;
                    let typed = Typed { session, bytes: bytes.0.into_owned() };
                    let step = InputStep::Typed { time_ms, typed };
                    if lost == 0 {
                        return Ok(step);
                    }
                    self.next = Some(step);
                    return Ok(InputStep::Missing { time_ms, bytes: lost });
                }
                None => {
                    // A record at the end of the newest file may be on its way.
                    let rest = segment.rest_bytes().map_err(read_failed)?;
                    self.segment = None;
                    if rest > 0 && !self.ahead.is_empty() {
                        self.was_damaged = true;
                        return Ok(InputStep::Damaged { time_ms, bytes: rest });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::FileExt;

    use super::super::segment::{segment_numbers, segment_path};
    use super::*;

    fn place(name: &str) -> PathBuf {
        let name = format!("burrow-input-{name}-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        place
    }

    fn session(name: &str) -> SessionId {
        name.parse().unwrap()
    }

    fn all(log: &Path) -> Vec<InputStep> {
        let mut reader = InputReader::open(log).unwrap();
        let mut steps = Vec::new();
        loop {
            match reader.step(&mut ReadBudget { records: 1, bytes: 1 << 20 }).unwrap() {
                InputStep::AtEnd => return steps,
                InputStep::Paused => {}
                step => steps.push(step),
            }
        }
    }

    fn typed(time_ms: u64, name: &str, bytes: &[u8]) -> InputStep {
        let typed = Typed { session: session(name), bytes: bytes.to_vec() };
        InputStep::Typed { time_ms, typed }
    }

    #[test]
    fn two_processes_append_in_turn_and_a_torn_record_hides_nothing() {
        let log = place("turns");
        assert_eq!(all(&log), []);
        let (one, other) = (InputLog::new(&log), InputLog::new(&log));
        one.append(&session("a"), 1, b"ls").unwrap();
        other.append(&session("b"), 2, b"\xff\x00").unwrap();
        one.append(&session("a"), 3, b"\r").unwrap();
        let path = segment_path(&input_directory(&log), 1);
        let whole = fs::metadata(&path).unwrap().len();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0, 0, 0, 9, 1], whole).unwrap();
        InputLog::new(&log).append(&session("a"), 4, b"x").unwrap();
        let steps = all(&log);
        let _ = fs::remove_dir_all(&log);
        let expected = [
            typed(1, "a", b"ls"),
            typed(2, "b", b"\xff\x00"),
            typed(3, "a", b"\r"),
            typed(4, "a", b"x"),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn the_oldest_goes_and_is_counted() {
        let log = place("oldest");
        let (one, other) = (InputLog::bounded(&log, 8192), InputLog::bounded(&log, 8192));
        for at in 0..100 {
            let input = if at % 2 == 0 { &one } else { &other };
            input.append(&session("a"), at, &[b'x'; 1000]).unwrap();
        }
        let bytes: u64 = segment_numbers(&input_directory(&log))
            .unwrap()
            .iter()
            .map(|number| {
                fs::metadata(segment_path(&input_directory(&log), *number)).unwrap().len()
            })
            .sum();
        let steps = all(&log);
        let _ = fs::remove_dir_all(&log);
        assert!(bytes <= 2 * 8192, "{bytes}");
        let InputStep::Missing { bytes: missing, .. } = steps[0] else { panic!("{:?}", steps[0]) };
        let rest = &steps[1..];
        assert_eq!(missing + 1000 * rest.len() as u64, 100_000);
        assert!(rest.len() >= 7, "{}", rest.len());
        let times = (100 - rest.len() as u64)..100;
        let expected: Vec<_> = times.map(|at| typed(at, "a", &[b'x'; 1000])).collect();
        assert_eq!(rest, expected);
    }

    #[test]
    fn what_could_not_be_written_is_counted_by_the_next_record() {
        let log = place("lost");
        // A file where the directory would be.
        fs::write(input_directory(&log), b"").unwrap();
        let input = InputLog::new(&log);
        assert!(input.append(&session("a"), 1, b"secret").is_err());
        fs::remove_file(input_directory(&log)).unwrap();
        input.append(&session("a"), 2, b"ls").unwrap();
        let steps = all(&log);
        let _ = fs::remove_dir_all(&log);
        let missing = InputStep::Missing { time_ms: 2, bytes: 6 };
        assert_eq!(steps, [missing, typed(2, "a", b"ls")]);
    }
}
