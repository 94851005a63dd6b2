//! What was put into a sandbox, and how its programs and the runs of its contexts ended, beside the log of its output:
//! lengths, digests and costs.
//!
//! ```text
//!  log/provenance/0000000001.seg   head: records that were rotated away · file · input · …
//!  log/ends/0000000001.seg         head: the same · run · program · …
//! ```
//!
//! The bridge appends for all its doors, and `cp`, `exec -i`, `attach` and `repl` in processes of their own
//! ([`append`](super::append)). Receipts are made from it, and costs are counted from the ends.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_client::guest::{Provenance, RunRecord};
use host::instant::now_ms;
use protocol::{ContextName, SessionId};
use serde::{Deserialize, Serialize};

use super::LogError;
use super::append::{Appender, Bounds};
use super::reader::{failed, numbers};
use super::record::{Record, RecordBody};
use super::segment::{Segment, segment_path};
use crate::limits::{
    ENDS_KNOWN_MAX, ENDS_WAITING_MAX, PROVENANCE_SEGMENT_BYTES, PROVENANCE_SEGMENTS_MAX,
};

const PROVENANCE_DIRECTORY: &str = "provenance";
const ENDS_DIRECTORY: &str = "ends";

/// The directories beside the log.
pub(crate) fn provenance_directories(log: &Path) -> [PathBuf; 2] {
    [inputs_directory(log), ends_directory(log)]
}

fn inputs_directory(log: &Path) -> PathBuf {
    log.join(PROVENANCE_DIRECTORY)
}

fn ends_directory(log: &Path) -> PathBuf {
    log.join(ENDS_DIRECTORY)
}

/// What this process appends.
#[derive(Debug)]
pub struct ProvenanceLog {
    inputs: Mutex<Appender>,
    ends: Mutex<Ends>,
}

#[derive(Debug)]
struct Ends {
    files: Appender,
    /// The newest ends of programs that are recorded, once one was: several learn of one end, and the next bridge does too.
    known: Option<VecDeque<(SessionId, u64)>>,
    /// Ends that could not be written yet, with their times.
    waiting: VecDeque<(u64, Provenance)>,
    /// How many of them were given up for newer ones.
    lost: u64,
}

impl ProvenanceLog {
    /// For the log in this directory. Nothing is made before there is something to record.
    pub fn new(log: &Path) -> Self {
        Self::bounded(log, PROVENANCE_SEGMENT_BYTES)
    }

    fn bounded(log: &Path, segment_bytes: u64) -> Self {
        let bounds = Bounds { segment_bytes, segments_max: PROVENANCE_SEGMENTS_MAX };
        let [inputs, ends] =
            provenance_directories(log).map(|directory| Appender::new(directory, bounds, |_| 1));
        let ends = Ends { files: ends, known: None, waiting: VecDeque::new(), lost: 0 };
        Self { inputs: Mutex::new(inputs), ends: Mutex::new(ends) }
    }

    /// Records something that has just ended. The end of one program is recorded once. Ends that cannot be written wait
    /// for the next call, or for [`ProvenanceLog::settle`].
    pub fn append(&self, what: Provenance) -> Result<(), LogError> {
        // A panic between two records leaves files that end with a whole one.
        match what {
            Provenance::Run(_) | Provenance::Program(_) => self.ends().add(what),
            Provenance::File(_)
            | Provenance::InputBegun(_)
            | Provenance::Input(_)
            | Provenance::Unseen {} => {
                let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
                append(&mut inputs, now_ms(), what)
            }
        }
    }

    /// Writes the ends that wait, and says how many were given up since the last call.
    pub fn settle(&self) -> Result<u64, LogError> {
        let mut ends = self.ends();
        ends.write()?;
        Ok(std::mem::take(&mut ends.lost))
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run of this number of a context, or its last one. Numbers come again with a context that is opened again: the
    /// last of them counts.
    pub fn run(
        log: &Path,
        context: &ContextName,
        number: Option<u64>,
    ) -> Result<Option<RunRecord>, LogError> {
        let mut found = None;
        read(&ends_directory(log), |_, what| match what {
            Provenance::Run(run)
                if run.context == *context && number.is_none_or(|wanted| wanted == run.run) =>
            {
                found = Some(*run);
            }
            _ => {}
        })?;
        Ok(found)
    }

    /// What was put in and sent, the oldest first.
    pub fn read(
        log: &Path,
        visit: impl FnMut(u64, Provenance),
    ) -> Result<ProvenanceExtent, LogError> {
        read(&inputs_directory(log), visit)
    }

    /// The ends that were recorded after this position, the oldest first, and the position after them.
    pub fn ends_after(
        log: &Path,
        after: EndsPosition,
        mut visit: impl FnMut(u64, Provenance),
    ) -> Result<EndsPosition, LogError> {
        let directory = ends_directory(log);
        let read_failed = |source| failed(&directory, source);
        let numbers = numbers(&directory)?;
        // The files were begun again because all were damaged.
        let is_before = numbers.last().is_some_and(|newest| *newest < after.segment);
        let after = if is_before { EndsPosition::default() } else { after };
        let mut reached = after;
        for number in numbers.into_iter().filter(|number| *number >= after.segment) {
            let is_where_it_was = number == after.segment;
            if is_where_it_was
                && segment_path(&directory, number)
                    .metadata()
                    .is_ok_and(|found| found.len() == after.offset)
            {
                continue;
            }
            let Some(mut segment) = Segment::open(&directory, number).map_err(read_failed)? else {
                continue;
            };
            if is_where_it_was {
                segment.seek(after.offset);
            }
            reached.missed += segment.head.bytes_before.saturating_sub(reached.records);
            reached.records = reached.records.max(segment.head.bytes_before);
            while let Some(record) = segment.next().map_err(read_failed)? {
                if let RecordBody::Provenance(what) = record.what {
                    visit(record.time_ms, what);
                    reached.records += 1;
                }
            }
            (reached.segment, reached.offset) = (number, segment.position());
        }
        Ok(reached)
    }
}

impl Ends {
    fn add(&mut self, what: Provenance) -> Result<(), LogError> {
        if let Provenance::Program(end) = &what {
            let key = (end.session.clone(), end.started_at_ms);
            let mut known = match self.known.take() {
                Some(known) => known,
                None => self.read_known()?,
            };
            let is_known = known.contains(&key);
            if !is_known {
                keep_newest(&mut known, key, ENDS_KNOWN_MAX);
            }
            self.known = Some(known);
            if is_known {
                return self.write();
            }
        }
        self.lost += u64::from(self.waiting.len() >= ENDS_WAITING_MAX);
        keep_newest(&mut self.waiting, (now_ms(), what), ENDS_WAITING_MAX);
        self.write()
    }

    fn write(&mut self) -> Result<(), LogError> {
        while let Some((at_ms, what)) = self.waiting.front() {
            append(&mut self.files, *at_ms, what.clone())?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn read_known(&self) -> Result<VecDeque<(SessionId, u64)>, LogError> {
        let mut known = VecDeque::new();
        read(self.files.directory(), |_, what| {
            if let Provenance::Program(end) = what {
                keep_newest(&mut known, (end.session, end.started_at_ms), ENDS_KNOWN_MAX);
            }
        })?;
        Ok(known)
    }
}

fn keep_newest<T>(all: &mut VecDeque<T>, one: T, max: usize) {
    if all.len() >= max {
        all.pop_front();
    }
    all.push_back(one);
}

fn append(files: &mut Appender, at_ms: u64, what: Provenance) -> Result<(), LogError> {
    let record = Record::new(at_ms, RecordBody::Provenance(what));
    files.append(&record).map_err(|source| {
        let path = files.directory().to_owned();
        LogError::Files { action: "write", path, source }
    })
}

/// All that is recorded in a directory, the oldest first.
fn read(
    directory: &Path,
    mut visit: impl FnMut(u64, Provenance),
) -> Result<ProvenanceExtent, LogError> {
    let read_failed = |source| failed(directory, source);
    let mut extent = ProvenanceExtent { is_whole: true };
    for (index, number) in numbers(directory)?.into_iter().enumerate() {
        let Some(mut segment) = Segment::open(directory, number).map_err(read_failed)? else {
            continue;
        };
        extent.is_whole &= index > 0 || segment.head.bytes_before == 0;
        extent.is_whole &= !segment.is_headless;
        while let Some(record) = segment.next().map_err(read_failed)? {
            if let RecordBody::Provenance(what) = record.what {
                visit(record.time_ms, what);
            }
        }
    }
    Ok(extent)
}

/// How much of what was recorded is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenanceExtent {
    /// Nothing was rotated away.
    pub is_whole: bool,
}

/// How far ends are read. The default is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndsPosition {
    segment: u64,
    offset: u64,
    records: u64,
    /// Records that were rotated away before they were read.
    pub missed: u64,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use agent_client::guest::{Content, FilePlace, ProgramEnd, ReceivedFile};

    use super::*;

    fn file(at: usize) -> Provenance {
        let content = Content { bytes: at as u64, sha256: "ab".repeat(32) };
        let path = format!("/tmp/{at}");
        Provenance::File(ReceivedFile { path, place: FilePlace::Whole, content })
    }

    #[test]
    fn the_newest_is_kept_and_a_reader_learns_that_there_was_more() {
        let log = std::env::temp_dir().join(format!("burrow-provenance-{}", std::process::id()));
        let _ = fs::remove_dir_all(&log);
        fs::create_dir(&log).unwrap();
        let read = || {
            let mut all = Vec::new();
            let extent = ProvenanceLog::read(&log, |_, what| all.push(what)).unwrap();
            (extent.is_whole, all)
        };
        assert_eq!(read(), (true, Vec::new()));
        let both = [4096, 4096].map(|bytes| ProvenanceLog::bounded(&log, bytes));
        let append = |at: usize| both[at % 2].append(file(at)).unwrap();
        (0..10).for_each(append);
        assert_eq!(read(), (true, (0..10).map(file).collect()));
        (10..100).for_each(append);
        let (is_whole, rest) = read();
        let _ = fs::remove_dir_all(&log);
        assert!(!is_whole && rest.len() >= 10 && rest.len() < 90, "{}", rest.len());
        assert_eq!(rest, (100 - rest.len()..100).map(file).collect::<Vec<_>>());
    }

    fn end(at: u64) -> Provenance {
        Provenance::Program(ProgramEnd {
            session: format!("s{at}").parse().unwrap(),
            started_at_ms: at,
            program: "sh".to_owned(),
            duration_us: 1,
            cpu_us: 1,
            memory_bytes_peak: 1,
            read_bytes: 0,
            written_bytes: 0,
        })
    }

    #[test]
    fn each_end_is_read_once_from_a_position_and_recorded_once_over_bridges() {
        let log = std::env::temp_dir().join(format!("burrow-ends-{}", std::process::id()));
        let _ = fs::remove_dir_all(&log);
        fs::create_dir(&log).unwrap();
        let read = |after: EndsPosition| {
            let mut all = Vec::new();
            let reached = ProvenanceLog::ends_after(&log, after, |_, what| all.push(what)).unwrap();
            (all, reached)
        };
        assert_eq!(read(EndsPosition::default()), (Vec::new(), EndsPosition::default()));
        let (mut position, mut found) = (EndsPosition::default(), Vec::new());
        for at in 0_u64..60 {
            // The next bridge learns of it again, and so does a second one that waits.
            let bridge = ProvenanceLog::bounded(&log, 2048);
            for known in [at.saturating_sub(1), at, at] {
                bridge.append(end(known)).unwrap();
            }
            bridge.append(file(1)).unwrap();
            if at % 3 == 0 {
                let (ends, reached) = read(position);
                found.extend(ends);
                position = reached;
            }
        }
        found.extend(read(position).0);
        assert_eq!(found, (0_u64..60).map(end).collect::<Vec<_>>());
        // Who reads too late learns how many are gone.
        let (rest, reached) = read(EndsPosition::default());
        assert_eq!(rest.len() as u64 + reached.missed, 60);
        assert!(reached.missed > 0);
        let _ = fs::remove_dir_all(&log);
    }
}
