//! All records of a log that are about sessions, oldest first, each with the run of the session that it is of, and
//! the damage between them. Names of sessions are reused, and a record names only the session.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use protocol::SessionId;

use super::LogError;
use super::carry::SessionRun;
use super::reader::{failed, numbers};
use super::record::{Record, RecordBody, Run};
use super::recording::open;
use super::segment::{Segment, SegmentItem};

/// See the module's description. It reads what is there now, and follows nothing.
#[derive(Debug)]
pub(super) struct Runs {
    directory: PathBuf,
    /// Segments to read, the newest first.
    ahead: Vec<u64>,
    segment: Option<Segment>,
    current: HashMap<SessionId, Run>,
}

pub(super) enum RunItem {
    Record(SessionRun, Box<Record<'static>>),
    /// So many bytes of the log's files are damaged here. `is_last`: they end the newest file, and may be a record
    /// that is being written.
    Damage {
        bytes: u64,
        is_last: bool,
    },
}

impl Runs {
    pub fn begin(directory: &Path) -> Result<Self, LogError> {
        let mut ahead = numbers(directory)?;
        ahead.reverse();
        let (directory, segment, current) = (directory.to_owned(), None, HashMap::new());
        Ok(Self { directory, ahead, segment, current })
    }

    pub fn next(&mut self) -> Result<Option<RunItem>, LogError> {
        loop {
            let Some(segment) = &mut self.segment else {
                let Some(number) = self.ahead.pop() else { return Ok(None) };
                self.segment = open(&self.directory, number)?;
                if let Some(segment) = self.segment.as_ref().filter(|found| !found.is_headless) {
                    let known = &segment.head.sessions;
                    self.current =
                        known.iter().map(|known| (known.session.clone(), known.run)).collect();
                }
                continue;
            };
            match segment.find().map_err(|source| failed(&self.directory, source))? {
                Some(SegmentItem::Damage(bytes)) => {
                    return Ok(Some(RunItem::Damage { bytes, is_last: false }));
                }
                Some(SegmentItem::Record(record)) => {
                    let Some(session) = record.what.session().cloned() else { continue };
                    if let (RecordBody::Started(started), None) = (&record.what, record.carried) {
                        self.current.insert(session.clone(), started.run);
                    }
                    let carried = record.carried.map(|carried| carried.run);
                    let Some(run) = carried.or_else(|| self.current.get(&session).copied()) else {
                        continue;
                    };
                    return Ok(Some(RunItem::Record((session, run), record)));
                }
                None => {
                    let rest = segment.rest_bytes();
                    let bytes = rest.map_err(|source| failed(&self.directory, source))?;
                    self.segment = None;
                    if bytes > 0 {
                        let is_last = self.ahead.is_empty();
                        return Ok(Some(RunItem::Damage { bytes, is_last }));
                    }
                }
            }
        }
    }
}
