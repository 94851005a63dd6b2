//! The one writer of a log.
//!
//! It knows the next offset of every output that it records, so that bytes that come again after a
//! cut are left out, and bytes that never came are named.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use protocol::fault::clip;
use protocol::limits::{CHUNK_BYTES_MAX, SESSIONS_MAX};
use protocol::message::Channel;
use protocol::requests::TerminalSize;
use protocol::{ExitRecord, SessionId};

use super::LogError;
use super::carry::{Bounds, Shares, prune};
use super::record::{
    Blob, Head, Record, RecordBody, Run, Started, Tracked, bounded, encode_record,
};
use super::segment::{Segment, segment_numbers, segment_path};
use crate::limits::{
    LOG_CARRIED_BYTES_MAX, LOG_ROOM_BYTES_MIN, LOG_SEGMENT_BYTES, LOG_SEGMENTS_MAX, LOG_SHARE_BYTES,
};
use host::instant::now_ms;
use host::paths::{PRIVATE_FILE, make_private_directory};
use host::room::{free_bytes, is_full};

const BOUNDS: Bounds = Bounds {
    segment_bytes: LOG_SEGMENT_BYTES,
    segments_max: LOG_SEGMENTS_MAX,
    share_bytes: LOG_SHARE_BYTES,
    carried_bytes_max: LOG_CARRIED_BYTES_MAX,
    apart: true,
};
/// The thread that removes what is too much, as the kernel calls it.
const PRUNER: &str = "log-pruner";

/// A log open for appending.
#[derive(Debug)]
pub struct Writer {
    directory: PathBuf,
    bounds: Bounds,
    number: u64,
    file: File,
    /// The end of the last whole record. The file may be longer after a failed write.
    length: u64,
    torn: bool,
    /// Bytes of output in all segments, those that are gone included.
    recorded: u64,
    sessions: BTreeMap<SessionId, Session>,
    cut_bytes: u64,
    /// The disk was full at the last write of output. Nothing is tried before it has room again:
    /// small pieces would fit between large ones, and leave a gap for each large one.
    full: bool,
    /// The removal of the oldest segments, while it goes on.
    pruning: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Session {
    run: Run,
    exited: bool,
    next: BTreeMap<Channel, u64>,
    /// Rows and columns of its terminal, as they were last recorded.
    size: Option<(u16, u16)>,
}

impl Writer {
    /// Opens the log in `directory`, or begins one. A torn record at its end is cut off.
    pub fn open(directory: &Path) -> Result<Self, LogError> {
        Self::open_bounded(directory, BOUNDS)
    }

    pub(super) fn open_bounded(directory: &Path, bounds: Bounds) -> Result<Self, LogError> {
        let failed =
            |action, source| LogError::Files { action, path: directory.to_owned(), source };
        make_private_directory(directory).map_err(|error| failed("make", error))?;
        let mut numbers = segment_numbers(directory).map_err(|error| failed("read", error))?;
        while let Some(number) = numbers.pop() {
            let opened = Segment::open(directory, number).map_err(|error| failed("read", error))?;
            match opened {
                Some(segment) => {
                    // The previous segment has the state that the damaged head contained.
                    let earlier = numbers.pop().filter(|_| segment.is_headless);
                    let earlier = earlier.map(|number| Segment::open(directory, number));
                    let earlier = earlier.transpose().map_err(|error| failed("read", error))?;
                    return Self::resume(directory, bounds, segment, earlier.flatten());
                }
                // Cut off before its head was whole: nothing is in it.
                None => fs::remove_file(segment_path(directory, number))
                    .map_err(|error| failed("repair", error))?,
            }
        }
        let (number, recorded) = (1, 0);
        let (file, length) = create_segment(directory, number, Head::default())
            .map_err(|error| failed("begin", error))?;
        let (directory, sessions) = (directory.to_owned(), BTreeMap::new());
        let (torn, cut_bytes) = (false, 0);
        Ok(Self {
            directory,
            bounds,
            number,
            file,
            length,
            torn,
            recorded,
            sessions,
            cut_bytes,
            full: false,
            pruning: None,
        })
    }

    /// Continues at the end of the newest segment.
    fn resume(
        directory: &Path,
        bounds: Bounds,
        mut segment: Segment,
        mut earlier: Option<Segment>,
    ) -> Result<Self, LogError> {
        let failed =
            |action, source| LogError::Files { action, path: directory.to_owned(), source };
        let head = std::mem::take(&mut earlier.as_mut().unwrap_or(&mut segment).head);
        let path = segment_path(directory, segment.number);
        let file = OpenOptions::new().write(true).open(path);
        let file = file.map_err(|error| failed("open", error))?;
        let mut writer = Self {
            directory: directory.to_owned(),
            bounds,
            number: segment.number,
            file,
            length: 0,
            torn: false,
            recorded: head.bytes_before,
            sessions: head.sessions.into_iter().map(Session::from_tracked).collect(),
            cut_bytes: 0,
            full: false,
            pruning: None,
        };
        for segment in earlier.iter_mut().chain([&mut segment]) {
            while let Some(record) = segment.next().map_err(|error| failed("read", error))? {
                if record.carried.is_none() {
                    writer.apply(&record.what);
                }
            }
        }
        writer.length = segment.position();
        let metadata = writer.file.metadata().map_err(|error| failed("read", error))?;
        writer.cut_bytes = metadata.len() - writer.length;
        writer.torn = writer.cut_bytes > 0;
        writer.cut().map_err(|error| failed("repair", error))?;
        Ok(writer)
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Bytes of output that were ever recorded.
    #[cfg(test)]
    pub(super) fn recorded_bytes(&self) -> u64 {
        self.recorded
    }

    /// The bytes that [`Writer::open`] had to cut off.
    pub fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    /// Begins to record a session, unless this run of it is being recorded already.
    pub fn started(
        &mut self,
        session: &SessionId,
        run: Run,
        command: &str,
    ) -> Result<(), LogError> {
        if self.sessions.get(session).is_some_and(|known| known.run == run) {
            return Ok(());
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(LogError::TooManySessions { sessions: self.sessions.len() });
        }
        let command = clip(command.to_owned());
        self.append(RecordBody::Started(Started { session: session.clone(), command, run }))
    }

    /// The offset at which the recording of an output continues.
    pub fn next_offset(&self, session: &SessionId, channel: Channel) -> u64 {
        let known = self.sessions.get(session).and_then(|session| session.next.get(&channel));
        known.copied().unwrap_or(0)
    }

    /// Records bytes of a session's output. Those that are recorded already are left out.
    pub fn output(
        &mut self,
        session: &SessionId,
        channel: Channel,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), LogError> {
        if !self.sessions.contains_key(session) {
            return Err(LogError::UnknownSession { session: session.clone() });
        }
        self.has_room()?;
        let next = self.next_offset(session, channel);
        let known = next.saturating_sub(offset).min(bytes.len() as u64);
        let mut offset = offset.saturating_add(known);
        for chunk in bytes[known as usize..].chunks(CHUNK_BYTES_MAX) {
            self.skip_to(session, channel, offset)?;
            let (session, bytes) = (session.clone(), Blob(Cow::Borrowed(chunk)));
            self.append(RecordBody::Output { session, channel, offset, bytes })?;
            // The offset is the guest's word, and may be as large as it likes.
            offset = offset.saturating_add(chunk.len() as u64);
        }
        Ok(())
    }

    /// Records that output between the last recorded byte and `to` is lost.
    pub fn skip_to(
        &mut self,
        session: &SessionId,
        channel: Channel,
        to: u64,
    ) -> Result<(), LogError> {
        let from = self.next_offset(session, channel);
        if to <= from {
            return Ok(());
        }
        self.append(RecordBody::Gap { session: session.clone(), channel, from, to })
    }

    /// Records the size of a session's terminal, if it is another than before. A session that is not
    /// recorded has none.
    pub fn resized(&mut self, session: &SessionId, size: TerminalSize) -> Result<(), LogError> {
        let TerminalSize { rows, columns } = size;
        match self.sessions.get(session) {
            Some(known) if !known.exited && known.size != Some((rows, columns)) => {
                self.append(RecordBody::Resized { session: session.clone(), rows, columns })
            }
            _ => Ok(()),
        }
    }

    /// Records how a session ended, once.
    pub fn exited(&mut self, session: &SessionId, record: &ExitRecord) -> Result<(), LogError> {
        if self.has_exited(session) {
            return Ok(());
        }
        let (session, record) = (session.clone(), bounded(record.clone()));
        self.append(RecordBody::Exited { session, record })
    }

    /// Whether the end of the session has been recorded.
    pub fn has_exited(&self, session: &SessionId) -> bool {
        self.sessions.get(session).is_some_and(|session| session.exited)
    }

    /// Stops recording a session; another of the same name is a new one.
    pub fn released(&mut self, session: &SessionId) -> Result<(), LogError> {
        if !self.sessions.contains_key(session) {
            return Ok(());
        }
        self.append(RecordBody::Released { session: session.clone() })
    }

    /// Stops recording all sessions but those that the agent still has.
    pub fn retain(&mut self, keep: impl Fn(&SessionId) -> bool) -> Result<(), LogError> {
        let gone: Vec<SessionId> = self.sessions.keys().filter(|id| !keep(id)).cloned().collect();
        gone.iter().try_for_each(|session| self.released(session))
    }

    /// Says that nothing will follow.
    pub fn close(&mut self, why: &str) -> Result<(), LogError> {
        self.append(RecordBody::Closed { why: clip(why.to_owned()) })
    }

    /// Refuses output on a disk that was full and has not much room yet.
    fn has_room(&mut self) -> Result<(), LogError> {
        if self.full {
            self.full = free_bytes(&self.directory).is_ok_and(|free| free < LOG_ROOM_BYTES_MIN);
        }
        if self.full {
            let (path, source) = (self.directory.clone(), io::ErrorKind::StorageFull.into());
            return Err(LogError::Files { action: "write", path, source });
        }
        Ok(())
    }

    fn append(&mut self, what: RecordBody<'_>) -> Result<(), LogError> {
        let record = Record::new(now_ms(), what);
        let mut bytes = Vec::new();
        encode_record(&record, &mut bytes)?;
        let written = self.write(&bytes);
        let path = || self.directory.clone();
        written.map_err(|source| LogError::Files { action: "write", path: path(), source })?;
        self.apply(&record.what);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.cut()?;
        if self.length + bytes.len() as u64 > self.bounds.segment_bytes {
            self.rotate()?;
        }
        let mut written = self.file.write_all_at(bytes, self.length);
        if written.as_ref().is_err_and(is_full) && self.pruning.is_some() {
            // What is about to be removed makes room.
            self.settle();
            written = self.file.write_all_at(bytes, self.length);
        }
        if let Err(error) = written {
            self.torn = true;
            self.full = is_full(&error);
            // Readers stop before a torn record, so it may stay until the disk has room again.
            let _ = self.cut();
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Removes what follows the last complete record.
    fn cut(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.length)?;
            self.torn = false;
        }
        Ok(())
    }

    /// Begins a new segment and has the oldest ones removed.
    fn rotate(&mut self) -> io::Result<()> {
        self.settle();
        let now: Vec<_> =
            self.sessions.iter().map(|(id, session)| session.to_tracked(id)).collect();
        let head = Head { bytes_before: self.recorded, sessions: now.clone(), carried: None };
        (self.file, self.length) = create_segment(&self.directory, self.number + 1, head)?;
        self.number += 1;
        let shares = Shares { now, bounds: self.bounds };
        if self.bounds.apart {
            let (directory, shares) = (self.directory.clone(), shares.clone());
            let pruning = thread::Builder::new().name(PRUNER.to_owned());
            // What could not be removed is too much the next time, too.
            self.pruning = pruning.spawn(move || drop(prune(&directory, &shares))).ok();
        }
        // A host that has no thread left must not have a log without an end.
        if self.pruning.is_none() { prune(&self.directory, &shares) } else { Ok(()) }
    }

    /// Waits until the oldest segments are removed: there is one too many at most.
    fn settle(&mut self) {
        if let Some(pruning) = self.pruning.take() {
            let _ = pruning.join();
        }
    }

    /// Applies a record on disk to the writer's state; the same when it is written and when it is
    /// read again.
    fn apply(&mut self, what: &RecordBody<'_>) {
        match what {
            RecordBody::Head(_)
            | RecordBody::Input { .. }
            | RecordBody::Provenance(_)
            | RecordBody::Closed { .. } => {}
            RecordBody::Started(started) => {
                let (exited, next, size) = (false, BTreeMap::new(), None);
                let session = Session { run: started.run, exited, next, size };
                self.sessions.insert(started.session.clone(), session);
            }
            RecordBody::Output { session, channel, offset, bytes } => {
                let count = bytes.0.len() as u64;
                self.recorded += count;
                self.advance(session, *channel, offset.saturating_add(count));
            }
            RecordBody::Gap { session, channel, to, .. } => self.advance(session, *channel, *to),
            RecordBody::Resized { session, rows, columns } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.size = Some((*rows, *columns));
                }
            }
            RecordBody::Exited { session, .. } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.exited = true;
                }
            }
            RecordBody::Released { session } => {
                self.sessions.remove(session);
            }
        }
    }

    fn advance(&mut self, session: &SessionId, channel: Channel, to: u64) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.next.insert(channel, to);
        }
    }
}

/// Begins a segment: its file, and how long it is.
pub(super) fn create_segment(directory: &Path, number: u64, head: Head) -> io::Result<(File, u64)> {
    let mut bytes = Vec::new();
    encode_record(&Record::new(now_ms(), RecordBody::Head(head)), &mut bytes)
        .expect("the limits assert that a head fits a record");
    let path = segment_path(directory, number);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
    let file = options.open(&path)?;
    if let Err(error) = file.write_all_at(&bytes, 0) {
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok((file, bytes.len() as u64))
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The directory may be removed next.
        self.settle();
    }
}

impl Session {
    fn from_tracked(tracked: Tracked) -> (SessionId, Self) {
        let next = tracked.next.into_iter().collect();
        (tracked.session, Self { run: tracked.run, exited: tracked.exited, next, size: None })
    }

    fn to_tracked(&self, id: &SessionId) -> Tracked {
        let next = self.next.iter().map(|(channel, offset)| (*channel, *offset)).collect();
        Tracked { session: id.clone(), run: self.run, exited: self.exited, next }
    }
}
