//! The writer of the log: numbers records, chains them, starts new files and removes the oldest.
//!
//! The lines of one turn are passed to the kernel in one write, so a bridge that dies in it tears at
//! most one line; the next one cuts the incomplete line off and records that.
//! Lines are on the disk within [`super::limits::SYNC_PAUSE`]. Other processes write to the same
//! log, each while it holds the [lock](super::write_lock), and with the options of the running
//! bridge at that moment, which may have started after them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use super::entry::{Entry, Record};
use super::limits::{LINE_BYTES_MAX, SYNC_PAUSE};
use super::segment::{digest_of, lines, parse, segment, segments};
use super::write_lock::{LogState, WriteGuard, WriteLock};
use super::{Observer, Options};
use host::instant;
use host::paths::{PRIVATE_FILE, make_private_directory};

/// See the module's description.
pub struct Writer {
    directory: PathBuf,
    place: WriterRole,
    options: Options,
    /// The options of the running bridge or of the last one, if there was one.
    set: Option<Options>,
    turns: WriteLock,
    file: File,
    /// Lines that are not in the kernel's hands yet.
    batch: Vec<u8>,
    /// Where the log ends with them.
    end: Position,
    /// Where it ends without them.
    settled: Position,
    /// Entries of this turn that have become lines, and those of them that are in the kernel's hands.
    appended: usize,
    written: usize,
    /// Since when something has not been synced.
    unsynced: Option<Instant>,
}

/// What the next line is made from.
#[derive(Clone)]
struct Position {
    /// Complete lines in the newest file.
    bytes: u64,
    next_seq: u64,
    /// The digest of the last line, if there is one.
    digest: Option<String>,
}

/// Who decides the options of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterRole {
    /// The running bridge: its options apply.
    Bridge,
    /// Another process, which follows the bridge's options.
    Visitor,
}

/// The end of an existing log.
struct End {
    file: File,
    position: Position,
    was_chained: bool,
    cut_bytes: u64,
}

impl End {
    /// Reads the newest file, and cuts off an incomplete line.
    fn find(directory: &Path) -> io::Result<Self> {
        let mut segments = segments(directory)?;
        let mut cut_bytes = 0;
        // A file without a whole line is one whose first line was torn.
        let last = loop {
            let Some(segment) = segments.pop() else { break None };
            let bytes = segment.read()?;
            let whole = lines(&bytes).map(|line| line.len() as u64 + 1).sum::<u64>();
            cut_bytes += bytes.len() as u64 - whole;
            if let Some(line) = lines(&bytes).last() {
                break Some((segment, whole, line.to_vec()));
            }
            fs::remove_file(&segment.path)?;
        };
        // The very first record has no predecessor, and states the format of the log.
        let was_chained = last.as_ref().is_some_and(|(_, _, line)| {
            parse(line).is_some_and(|record| {
                let says = record.entry.facts.get("chain").and_then(serde_json::Value::as_bool);
                says.unwrap_or(record.prev.is_some())
            })
        });
        let Some((segment, bytes, line)) = last else {
            let file = append_to(&segment(directory, 1).path)?;
            let position = Position { bytes: 0, next_seq: 1, digest: None };
            return Ok(Self { file, position, was_chained, cut_bytes });
        };
        let file = append_to(&segment.path)?;
        file.set_len(bytes)?;
        // An unreadable line counts as one: its number is missing, and that shows.
        let seq = parse(&line).map_or(segment.first, |record| record.seq);
        let position = Position { bytes, next_seq: seq + 1, digest: Some(digest_of(&line)) };
        Ok(Self { file, position, was_chained, cut_bytes })
    }
}

impl Writer {
    pub fn open(directory: &Path, options: Options, place: WriterRole) -> io::Result<Self> {
        make_private_directory(directory)?;
        let turns = WriteLock::open(directory)?;
        let turn = turns.take()?;
        let end = End::find(directory)?;
        let (was_chained, cut_bytes) = (end.was_chained, end.cut_bytes);
        let mut writer = Self {
            directory: directory.to_owned(),
            place,
            options,
            set: (place == WriterRole::Bridge).then_some(options),
            turns,
            file: end.file,
            batch: Vec::new(),
            settled: end.position.clone(),
            end: end.position,
            appended: 0,
            written: 0,
            unsynced: None,
        };
        writer.heed(&turn.mark());
        writer.begin(&turn)?;
        writer.go_on(was_chained, cut_bytes)?;
        writer.flush()?;
        writer.sync_if_due(true)?;
        writer.end(&turn);
        Ok(writer)
    }

    pub fn options(&self) -> Options {
        self.options
    }

    /// The lock from which the current options can be read, if they are not ours to decide.
    pub fn set_in(&self) -> Option<WriteLock> {
        (self.place == WriterRole::Visitor).then(|| self.turns.clone())
    }

    pub fn is_unsynced(&self) -> bool {
        self.unsynced.is_some()
    }

    /// Writes the waiting entries, shows them to the observer, and leaves those that could not be written.
    pub fn write(
        &mut self,
        waiting: &mut Vec<Entry>,
        observer: Option<&Observer>,
    ) -> io::Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        let turn = self.turns.take()?;
        let mark = turn.mark();
        self.heed(&mark);
        self.begin(&turn)?;
        (self.appended, self.written) = (0, 0);
        self.catch_up(&mark)?;
        let appended = waiting.iter().try_for_each(|entry| {
            self.append(entry.clone())?;
            self.appended += 1;
            Ok(())
        });
        let flushed = self.flush();
        for entry in waiting.drain(..self.written) {
            if let Some(observe) = observer {
                observe(entry);
            }
        }
        self.end(&turn);
        appended.and(flushed)
    }

    /// Applies the options of the running bridge, which may have changed since our last write.
    fn heed(&mut self, mark: &LogState) {
        if self.place == WriterRole::Visitor
            && let Some(options) = mark.options
        {
            (self.options, self.set) = (options, Some(options));
        }
    }

    /// Continues after the records that others have written since our last write.
    fn catch_up(&mut self, mark: &LogState) -> io::Result<()> {
        let is_ours = mark.next_seq == self.settled.next_seq;
        if is_ours && self.file.metadata()?.len() == self.settled.bytes {
            return Ok(());
        }
        if self.is_unsynced() {
            self.file.sync_data()?;
        }
        let end = End::find(&self.directory)?;
        (self.file, self.unsynced) = (end.file, None);
        (self.settled, self.end) = (end.position.clone(), end.position);
        self.batch.clear();
        self.go_on(end.was_chained, end.cut_bytes)
    }

    /// Says what the next record could not be understood without: that a file begins here, that the log
    /// is chained from here on or is not, that something was cut off.
    fn go_on(&mut self, was_chained: bool, cut_bytes: u64) -> io::Result<()> {
        let chain = self.options.chain;
        if self.end.bytes == 0 {
            self.append(self.head())?;
        } else if was_chained != chain {
            self.append(Entry::of_bridge("audit.chain").fact("chain", chain))?;
        }
        if cut_bytes > 0 {
            self.append(Entry::of_bridge("audit.repaired").fact("cut_bytes", cut_bytes))?;
        }
        Ok(())
    }

    /// Says that what the file of turns has is not so any more, until [`Writer::end`].
    fn begin(&self, turn: &WriteGuard) -> io::Result<()> {
        turn.leave(&LogState { next_seq: 0, options: self.set })
    }

    fn end(&self, turn: &WriteGuard) {
        // A reader who does not find it there looks at the log itself.
        let _ = turn.leave(&LogState { next_seq: self.settled.next_seq, options: self.set });
    }

    /// Syncs the file, if that is due.
    pub fn sync_if_due(&mut self, now: bool) -> io::Result<()> {
        if self.unsynced.is_some_and(|since| now || since.elapsed() >= SYNC_PAUSE) {
            self.file.sync_data()?;
            self.unsynced = None;
        }
        Ok(())
    }

    fn append(&mut self, entry: Entry) -> io::Result<()> {
        let mut line = self.line(entry)?;
        let bytes = self.end.bytes;
        if bytes > 0 && bytes + line.len() as u64 > self.options.file_bytes_max {
            let entry = parse(line.trim_ascii_end()).map(|record| (record.time, record.entry));
            self.rotate()?;
            // Its number and what was before it are others now.
            if let Some((time, entry)) = entry {
                line = self.line_at(time, entry)?;
            }
        }
        self.put(&line);
        Ok(())
    }

    fn line(&self, entry: Entry) -> io::Result<Vec<u8>> {
        let time = instant::format(entry.at_ms);
        self.line_at(time, entry.cut())
    }

    fn line_at(&self, time: String, entry: Entry) -> io::Result<Vec<u8>> {
        let prev = self.end.digest.clone().filter(|_| self.options.chain);
        let record = Record { seq: self.end.next_seq, time, entry, prev };
        let mut line = serde_json::to_vec(&record)?;
        if line.len() >= LINE_BYTES_MAX {
            // Nothing that is recorded comes near it; what does is recorded by its name.
            let Record { seq, time, entry, prev } = record;
            let entry = Entry::new(entry.who, entry.door, entry.operation).fact("too_long", true);
            line = serde_json::to_vec(&Record { seq, time, entry, prev })?;
        }
        line.push(b'\n');
        Ok(line)
    }

    fn put(&mut self, line: &[u8]) {
        self.batch.extend_from_slice(line);
        self.end.bytes += line.len() as u64;
        self.end.next_seq += 1;
        self.end.digest = Some(digest_of(line.trim_ascii_end()));
    }

    /// Writes the lines of the batch, or nothing of them.
    fn flush(&mut self) -> io::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.file.write_all(&batch) {
            // A half line would be taken for a torn one at the next start, and be joined with the
            // next one before that.
            self.end = self.settled.clone();
            self.file.set_len(self.end.bytes)?;
            return Err(error);
        }
        self.settled = self.end.clone();
        self.written = self.appended;
        self.unsynced.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Begins a new file. Its first line says how many records there were before it, so that the
    /// oldest file that is kept shows what is gone.
    fn rotate(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_data()?;
        self.prune()?;
        let path = segment(&self.directory, self.end.next_seq).path;
        let old = std::mem::replace(&mut self.file, append_to(&path)?);
        let before = self.settled.clone();
        self.file.set_len(0)?;
        (self.settled.bytes, self.end.bytes) = (0, 0);
        let head = self.line(self.head())?;
        self.put(&head);
        if let Err(error) = self.flush() {
            // The old file goes on until there is room for a new one.
            let _ = fs::remove_file(&path);
            self.file = old;
            (self.settled, self.end) = (before.clone(), before);
            return Err(error);
        }
        File::open(&self.directory)?.sync_all()
    }

    fn head(&self) -> Entry {
        Entry::of_bridge("audit.began")
            .fact("records_before", self.end.next_seq - 1)
            .fact("chain", self.options.chain)
    }

    /// Removes the oldest files, so that with the next one the limit is kept.
    fn prune(&self) -> io::Result<()> {
        let segments = segments(&self.directory)?;
        let surplus = (segments.len() + 1).saturating_sub(self.options.files_max);
        // The one that was written last stays whatever is wanted.
        let old = segments.len().saturating_sub(1);
        for (at, segment) in segments.iter().take(old).enumerate() {
            let age = fs::metadata(&segment.path).and_then(|found| found.modified()).ok();
            let age = age.and_then(|at| SystemTime::now().duration_since(at).ok());
            let is_old = self.options.age_max.is_some_and(|max| age.is_some_and(|age| age > max));
            if at < surplus || is_old {
                fs::remove_file(&segment.path)?;
            }
        }
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(PRIVATE_FILE).open(path)
}
