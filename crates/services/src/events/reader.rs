//! Reads the log of a namespace. Readers take no lock and hold no file: lines are only ever appended,
//! and an incomplete last line is not read. They know their place by its offset, so a reader that is
//! slow costs nothing, and learns by a gap what is no longer there.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::line::{Entry, parse};
use super::namespace_log::PREFIX;
use host::instant::now_ms;
use host::journal::{Segment, lines};
use sandbox::Name;
use sandbox::event::Kind;

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With the oldest event that is kept.
    Oldest,
    /// With this offset; what is no longer there of it is a gap.
    Offset(u64),
    /// With the first event of this time or later, in milliseconds since 1970.
    Time(u64),
}

/// The events that are wanted. Gaps, and events that were lost, are everybody's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Names or ids; empty for all.
    pub sandboxes: Vec<String>,
    /// Empty for all.
    pub kinds: Vec<Kind>,
}

impl Filter {
    pub fn matches(&self, entry: &Entry) -> bool {
        let is_everybodys = matches!(entry.kind, Kind::Gap | Kind::EventsLost);
        let is_named = |wanted: &String| {
            entry.sandbox.as_ref().is_some_and(|name| name.as_str() == wanted)
                || entry.id.as_ref().is_some_and(|id| id.as_str() == wanted)
        };
        is_everybodys
            || (self.sandboxes.is_empty() || self.sandboxes.iter().any(is_named))
                && (self.kinds.is_empty() || self.kinds.contains(&entry.kind))
    }
}

/// What one turn has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub entries: Vec<Entry>,
    /// Whether there is no more at the moment.
    pub is_at_end: bool,
}

/// A reader's place.
#[derive(Clone, Debug)]
pub struct Reader {
    directory: PathBuf,
    /// The offset of the next event; unknown before the first.
    next: Option<u64>,
    since_ms: u64,
    /// The segment, and the bytes of it that are read.
    at: Option<(u64, u64)>,
}

impl Reader {
    /// A reader of the log of a namespace in the directory of all.
    pub fn new(directory: &Path, namespace: &Name, from: From) -> Self {
        let (next, since_ms) = match from {
            From::Oldest => (None, 0),
            From::Offset(offset) => (Some(offset), 0),
            From::Time(ms) => (None, ms),
        };
        Self { directory: directory.join(namespace.as_str()), next, since_ms, at: None }
    }

    /// The offset with which it goes on; unknown in a log that has no segment yet.
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    /// The next events that match, at most so many; fewer before the end where one segment has no more.
    pub fn read(&mut self, filter: &Filter, limit: usize) -> io::Result<Batch> {
        let segments = Segment::all(&self.directory, PREFIX)?;
        let Some(index) = self.segment(&segments) else {
            return Ok(Batch { entries: Vec::new(), is_at_end: true });
        };
        let segment = &segments[index];
        let next = *self.next.get_or_insert(segment.first);
        let from = match self.at {
            Some((first, bytes)) if first == segment.first => bytes,
            _ => 0,
        };
        let bytes = match content(segment, from) {
            // It was removed meanwhile; the next turn looks again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.at = None;
                return Ok(Batch::default());
            }
            read => read?,
        };
        let mut batch = Batch::default();
        let (mut next, mut taken) = (next, from);
        let mut is_whole = true;
        for line in lines(&bytes) {
            if batch.entries.len() >= limit {
                is_whole = false;
                break;
            }
            taken += line.len() as u64 + 1;
            // A head; or damage, which shows by the next offset.
            let Some(entry) = parse(line) else { continue };
            if entry.offset < next {
                continue;
            }
            if entry.offset > next && entry.at_ms >= self.since_ms {
                batch.entries.push(Entry::gap(next, entry.offset, now_ms()));
            }
            next = entry.offset + 1;
            if entry.at_ms >= self.since_ms && filter.matches(&entry) {
                batch.entries.push(entry);
            }
        }
        (self.next, self.at) = (Some(next), Some((segment.first, taken)));
        if is_whole && let Some(following) = segments.get(index + 1) {
            // Lines are added to the newest segment alone.
            self.at = Some((following.first, 0));
        } else {
            batch.is_at_end = is_whole;
        }
        Ok(batch)
    }

    /// The segment that has the place; the oldest if that is gone.
    fn segment(&self, segments: &[Segment]) -> Option<usize> {
        let here = self.at.and_then(|(at, _)| segments.iter().position(|one| one.first == at));
        let with = || {
            let next = self.next?;
            segments.iter().rposition(|segment| segment.first <= next)
        };
        here.or_else(with).or((!segments.is_empty()).then_some(0))
    }
}

/// The bytes of a segment from here on, which its size bounds.
fn content(segment: &Segment, from: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(&segment.path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The namespaces that have a log, by name.
pub fn namespaces(directory: &Path) -> io::Result<Vec<Name>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found: Vec<Name> = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(entry.file_name().to_str().and_then(|name| name.parse().ok()));
        }
    }
    found.sort();
    Ok(found)
}
