//! What was put into a sandbox and what the runs of its contexts were, beside the log of its output: lengths and digests.
//!
//! ```text
//!  log/provenance/0000000001.seg   head: records that were rotated away · file · input · run · …
//! ```
//!
//! The bridge appends for all its doors, and `cp`, `exec -i`, `attach` and `repl` in processes of their own
//! ([`append`](super::append)). Receipts are made from it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use agent_client::guest::{Provenance, RunRecord};
use host::instant::now_ms;
use protocol::ContextName;

use super::LogError;
use super::append::{Appender, Bounds};
use super::reader::{failed, numbers};
use super::record::{Record, RecordBody};
use super::segment::Segment;
use crate::limits::{PROVENANCE_SEGMENT_BYTES, PROVENANCE_SEGMENTS_MAX};

const PROVENANCE_DIRECTORY: &str = "provenance";

pub(crate) fn provenance_directory(log: &Path) -> PathBuf {
    log.join(PROVENANCE_DIRECTORY)
}

/// What this process appends.
#[derive(Debug)]
pub struct ProvenanceLog(Mutex<Appender>);

impl ProvenanceLog {
    /// For the log in this directory. Nothing is made before there is something to record.
    pub fn new(log: &Path) -> Self {
        Self::bounded(log, PROVENANCE_SEGMENT_BYTES)
    }

    fn bounded(log: &Path, segment_bytes: u64) -> Self {
        let bounds = Bounds { segment_bytes, segments_max: PROVENANCE_SEGMENTS_MAX };
        Self(Mutex::new(Appender::new(provenance_directory(log), bounds, |_| 1)))
    }

    /// Records something that has just ended.
    pub fn append(&self, what: Provenance) -> Result<(), LogError> {
        let record = Record::new(now_ms(), RecordBody::Provenance(what));
        // A panic between two records leaves a file that ends with a whole one.
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.append(&record).map_err(|source| {
            let path = files.directory().to_owned();
            LogError::Files { action: "write", path, source }
        })
    }

    /// The run of this number of a context, or its last one. Numbers come again with a context that is opened again: the
    /// last of them counts.
    pub fn run(
        log: &Path,
        context: &ContextName,
        number: Option<u64>,
    ) -> Result<Option<RunRecord>, LogError> {
        let mut found = None;
        Self::read(log, |_, what| match what {
            Provenance::Run(run)
                if run.context == *context && number.is_none_or(|wanted| wanted == run.run) =>
            {
                found = Some(*run);
            }
            _ => {}
        })?;
        Ok(found)
    }

    /// All that is recorded in a log, the oldest first.
    pub fn read(
        log: &Path,
        mut visit: impl FnMut(u64, Provenance),
    ) -> Result<ProvenanceExtent, LogError> {
        let directory = provenance_directory(log);
        let read_failed = |source| failed(&directory, source);
        let mut extent = ProvenanceExtent { is_whole: true };
        for (index, number) in numbers(&directory)?.into_iter().enumerate() {
            let Some(mut segment) = Segment::open(&directory, number).map_err(read_failed)? else {
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
}

/// How much of what was recorded is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenanceExtent {
    /// Nothing was rotated away.
    pub is_whole: bool,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use agent_client::guest::{Content, FilePlace, ReceivedFile};

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
}
