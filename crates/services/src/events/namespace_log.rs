//! The log of one namespace: its segments, what waits to be written, and the sandboxes that its events
//! have led to. The writer's thread owns it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::limits::{PENDING_BYTES_MAX, SEGMENT_BYTES, SYNC_PAUSE};
use super::line::{Entry, Head, Known, cut, encode, parse};
use host::journal::{Segment, lines};
use host::paths::{PRIVATE_FILE, make_private_directory};
use sandbox::event::{Facts, Kind};
use sandbox::{Name, Phase, SandboxId};

pub const PREFIX: &str = "events-";

pub struct NamespaceLog {
    directory: PathBuf,
    /// The first offset and the size of each segment, oldest first.
    segments: VecDeque<(u64, u64)>,
    /// The size of the newest segment's head, which does not count against its bound: it has as much as
    /// there are sandboxes.
    head_bytes: u64,
    /// The offset of the next event.
    next: u64,
    /// The offset after the last event that is in the kernel's hands.
    settled: u64,
    /// Lines that are not in the kernel's hands yet.
    pending: Vec<u8>,
    /// Events that found no room among them.
    lost: u64,
    known: BTreeMap<SandboxId, (Name, Phase)>,
    /// Whether all of them are known: not after damage to the newest segment.
    pub is_complete: bool,
    /// The newest segment, as long as it is not synced.
    file: Option<File>,
    unsynced: Option<Instant>,
    pub used: Instant,
}

impl NamespaceLog {
    /// Opens the log in a directory, or a new one whose first offset is `first`.
    pub fn open(directory: &Path, first: u64) -> io::Result<Self> {
        make_private_directory(directory)?;
        let mut log = Self {
            directory: directory.to_owned(),
            segments: VecDeque::new(),
            head_bytes: 0,
            next: first,
            settled: first,
            pending: Vec::new(),
            lost: 0,
            known: BTreeMap::new(),
            is_complete: true,
            file: None,
            unsynced: None,
            used: Instant::now(),
        };
        log.take_up()?;
        Ok(log)
    }

    /// Reads the newest segment, and cuts off what a dying bridge has left half-written.
    fn take_up(&mut self) -> io::Result<()> {
        let mut segments = Segment::all(&self.directory, PREFIX)?;
        if !segments.is_empty() {
            // It has offsets of its own.
            self.next = 0;
        }
        while let Some(segment) = segments.last() {
            self.next = self.next.max(segment.first);
            let bytes = segment.read()?;
            let whole = lines(&bytes).map(|line| line.len() as u64 + 1).sum::<u64>();
            if whole == 0 {
                // Its head was torn; the events before it are in the one before.
                fs::remove_file(&segment.path)?;
                segments.pop();
                continue;
            }
            if whole < bytes.len() as u64 {
                OpenOptions::new().write(true).open(&segment.path)?.set_len(whole)?;
            }
            self.read(&bytes);
            break;
        }
        for segment in &segments {
            self.segments.push_back((segment.first, fs::metadata(&segment.path)?.len()));
        }
        self.settled = self.next;
        Ok(())
    }

    /// What the lines of the newest segment have led to.
    fn read(&mut self, bytes: &[u8]) {
        let mut lines = lines(bytes);
        let head = lines.next();
        self.head_bytes = head.map_or(0, |line| line.len() as u64 + 1);
        let head = head.and_then(|line| serde_json::from_slice::<Head>(line).ok());
        self.is_complete = head.is_some();
        for Known { id, sandbox, phase } in head.into_iter().flat_map(|head| head.present) {
            self.known.insert(id, (sandbox, phase));
        }
        for line in lines {
            let Some(entry) = parse(line) else {
                // Its number is missing, and readers see that.
                self.is_complete = false;
                self.next += 1;
                continue;
            };
            self.next = self.next.max(entry.offset + 1);
            if let (Some(id), Some(sandbox)) = (entry.id, entry.sandbox) {
                self.fold(entry.kind, id, sandbox);
            }
        }
    }

    fn fold(&mut self, kind: Kind, id: SandboxId, sandbox: Name) {
        if kind.is_end() {
            self.known.remove(&id);
        } else if let Some(phase) = kind.leads_to() {
            self.known.insert(id, (sandbox, phase));
        }
    }

    pub fn settled(&self) -> u64 {
        self.settled
    }

    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }

    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.pending.is_empty()
    }

    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty() || self.lost > 0
    }

    pub fn is_unsynced(&self) -> bool {
        self.unsynced.is_some()
    }

    pub fn known(&self) -> &BTreeMap<SandboxId, (Name, Phase)> {
        &self.known
    }

    /// Takes a sandbox for known without an event.
    pub fn know(&mut self, id: SandboxId, sandbox: Name, phase: Phase) {
        self.known.insert(id, (sandbox, phase));
    }

    pub fn count_lost(&mut self, count: u64) {
        self.lost += count;
    }

    /// Adds an event, or counts it where there is no room for it.
    pub fn add(
        &mut self,
        at_ms: u64,
        kind: Kind,
        (sandbox, id): (Name, SandboxId),
        late: bool,
        mut facts: Facts,
    ) {
        self.used = Instant::now();
        self.say_lost(at_ms);
        if self.lost > 0 {
            self.lost += 1;
        } else {
            cut(&mut facts);
            let (offset, of, by) = (self.next, Some(sandbox.clone()), Some(id.clone()));
            let entry = Entry { offset, at_ms, kind, sandbox: of, id: by, late, facts };
            self.put(&encode(&entry));
        }
        // After it: the head of a segment has what the lines before it have led to.
        self.fold(kind, id, sandbox);
    }

    /// Adds the number of events that were lost, once there is room.
    pub fn say_lost(&mut self, at_ms: u64) {
        if self.lost > 0 {
            let line = encode(&Entry::lost(self.next, at_ms, self.lost));
            let lost = std::mem::take(&mut self.lost);
            self.put(&line);
            // It found no room itself.
            self.lost = if self.lost > 0 { lost } else { 0 };
        }
    }

    fn put(&mut self, line: &[u8]) {
        if self.is_full() {
            // What cannot be written stays, and begins a segment with it later.
            let _ = self.flush().and_then(|()| self.rotate());
        }
        if self.pending.len() + line.len() > PENDING_BYTES_MAX && self.flush().is_err() {
            self.lost += 1;
            return;
        }
        self.pending.extend_from_slice(line);
        self.next += 1;
    }

    fn is_full(&self) -> bool {
        let newest = self.segments.back().map(|(_, bytes)| bytes + self.pending.len() as u64);
        newest.is_none_or(|bytes| bytes >= SEGMENT_BYTES + self.head_bytes)
    }

    fn head(&self) -> Vec<u8> {
        let present = self.known.iter().map(|(id, (sandbox, phase))| Known {
            id: id.clone(),
            sandbox: sandbox.clone(),
            phase: *phase,
        });
        encode(&Head { present: present.collect() })
    }

    /// Writes what is pending, as whole lines: after a failure nothing is left of a half one, and the
    /// whole ones before it stay, since a reader may have seen them.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.segments.is_empty() {
            self.rotate()?;
        }
        let Some((first, bytes)) = self.segments.back_mut() else { return Ok(()) };
        let mut file = match self.file.take() {
            Some(file) => file,
            None => append_to(&Segment::new(&self.directory, PREFIX, *first).path)?,
        };
        let written = file.write_all(&self.pending);
        let count = if written.is_ok() {
            self.pending.len()
        } else {
            let reached = file.metadata()?.len().saturating_sub(*bytes) as usize;
            let part = &self.pending[..reached.min(self.pending.len())];
            let whole = part.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            file.set_len(*bytes + whole as u64)?;
            whole
        };
        self.settled += lines(&self.pending[..count]).count() as u64;
        *bytes += count as u64;
        self.pending.drain(..count);
        if count > 0 {
            self.unsynced.get_or_insert_with(Instant::now);
        }
        self.file = Some(file);
        written
    }

    /// Begins a segment. Nothing is pending, or there is none yet.
    fn rotate(&mut self) -> io::Result<()> {
        self.sync(true)?;
        // Nothing is before the first.
        let is_first = self.segments.is_empty();
        let head = if is_first { encode(&Head { present: Vec::new() }) } else { self.head() };
        let path = Segment::new(&self.directory, PREFIX, self.settled).path;
        let mut file = append_to(&path)?;
        let begun = file.set_len(0).and_then(|()| file.write_all(&head));
        if let Err(error) = begun {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        File::open(&self.directory)?.sync_all()?;
        self.head_bytes = head.len() as u64;
        self.segments.push_back((self.settled, self.head_bytes));
        (self.file, self.unsynced) = (Some(file), Some(Instant::now()));
        Ok(())
    }

    /// Syncs the newest segment, if that is due.
    pub fn sync(&mut self, now: bool) -> io::Result<()> {
        if self.unsynced.is_some_and(|since| now || since.elapsed() >= SYNC_PAUSE) {
            if let Some(file) = self.file.take() {
                file.sync_data()?;
            }
            self.unsynced = None;
        }
        Ok(())
    }

    /// Removes the oldest segment, unless it is the only one.
    pub fn shorten(&mut self) -> io::Result<()> {
        if self.segments.len() > 1
            && let Some((first, _)) = self.segments.front()
        {
            fs::remove_file(Segment::new(&self.directory, PREFIX, *first).path)?;
            self.segments.pop_front();
        }
        Ok(())
    }

    /// Removes all of it, and returns an offset that none of its events had.
    pub fn remove(self) -> io::Result<u64> {
        fs::remove_dir_all(&self.directory)?;
        Ok(self.next)
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(PRIVATE_FILE).open(path)
}
