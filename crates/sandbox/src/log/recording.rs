//! The outputs of one session in the log, read from an offset on.
//!
//! The server reads here what an agent no longer has: output that its spool has dropped, sessions
//! that it has forgotten, and everything of a sandbox that has ended. Session names are reused, so
//! everything here belongs to one [`Run`].

use std::path::{Path, PathBuf};

use protocol::SessionId;
use protocol::message::Channel;

use super::LogError;
use super::reader::{failed, numbers};
use super::record::{Record, RecordBody, Run, Tracked};
use super::segment::Segment;

/// A position in one output of one run. It only advances, so reading an output in many steps costs
/// one pass over the log.
#[derive(Debug)]
pub struct Recording {
    directory: PathBuf,
    session: SessionId,
    run: Run,
    channel: Channel,
    segment: Option<Segment>,
    /// Whether the records at this place are of our run.
    ours: bool,
    /// A newer segment exists, so the current one no longer grows.
    sealed: bool,
    /// Output that was read and not requested yet.
    ahead: Option<(u64, Vec<u8>)>,
}

impl Recording {
    pub fn new(directory: PathBuf, session: SessionId, run: Run, channel: Channel) -> Self {
        let (segment, ours, sealed, ahead) = (None, false, false, None);
        Self { directory, session, run, channel, segment, ours, sealed, ahead }
    }

    /// Drops what was read ahead, for a reader that may pause for long.
    pub fn rest(&mut self) {
        if let Some(segment) = &mut self.segment {
            segment.rest();
        }
    }

    /// The next bytes from `from` on and before `to`, with their offset; `None` if the log has
    /// none. Positions must ascend.
    pub fn read(&mut self, from: u64, to: u64) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        loop {
            let next = match self.ahead.take() {
                Some(ahead) => Some(ahead),
                None => self.next_output(from)?,
            };
            let Some((offset, mut bytes)) = next else { return Ok(None) };
            let end = offset.saturating_add(bytes.len() as u64);
            if end <= from {
                continue;
            }
            if offset >= to {
                self.ahead = Some((offset, bytes));
                return Ok(None);
            }
            if end > to {
                let rest = bytes.split_off((to - offset) as usize);
                self.ahead = Some((to, rest));
            }
            let early = from.saturating_sub(offset);
            bytes.drain(..early as usize);
            return Ok(Some((offset + early, bytes)));
        }
    }

    /// The next output of this run, at any position.
    fn next_output(&mut self, from: u64) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        loop {
            let Some(segment) = &mut self.segment else {
                if self.enter_first(from)? {
                    continue;
                }
                return Ok(None);
            };
            let number = segment.number;
            if let Some(record) = next(&self.directory, segment)? {
                if let Some(output) = self.select(*record) {
                    return Ok(Some(output));
                }
                continue;
            }
            // Records may have been written between the last read and the rotation, so it is read
            // once more.
            if !self.sealed {
                self.sealed = numbers(&self.directory)?.into_iter().any(|other| other > number);
                if self.sealed {
                    continue;
                }
                return Ok(None);
            }
            let newer = numbers(&self.directory)?.into_iter().filter(|other| *other > number);
            if !self.enter_one_of(newer)? {
                return Ok(None);
            }
        }
    }

    /// Goes into the last segment before which there is nothing that is wanted.
    fn enter_first(&mut self, from: u64) -> Result<bool, LogError> {
        let all = numbers(&self.directory)?;
        let (mut first, mut is_tracked, mut absent_at) = (0, false, None);
        for (index, number) in all.iter().enumerate() {
            let Some(segment) = open(&self.directory, *number)? else { continue };
            let tracked = segment.head.sessions.iter().find(|tracked| self.is_ours(tracked));
            let next = tracked.and_then(|tracked| {
                tracked.next.iter().find(|(channel, _)| *channel == self.channel)
            });
            if next.is_some_and(|(_, next)| *next <= from) {
                first = index;
            } else if let (Some(_), Some(before)) = (tracked, absent_at) {
                // It began after the head that does not name it.
                first = before;
            }
            is_tracked |= tracked.is_some();
            absent_at = (tracked.is_none() && !segment.is_headless).then_some(index);
        }
        // One that goes on and that no head names has begun in the newest.
        if !is_tracked
            && let Some(newest) = all.last()
            && self.enter_at_start(*newest)?
        {
            return Ok(true);
        }
        self.enter_one_of(all.into_iter().skip(first))
    }

    /// Goes into a segment behind the start of the run, if that is there.
    fn enter_at_start(&mut self, number: u64) -> Result<bool, LogError> {
        // A head that names it now was not whole a moment ago: it has begun before.
        let may_begin_here = self.enter_one_of([number].into_iter())? && !self.ours;
        while may_begin_here
            && let Some(segment) = &mut self.segment
            && let Some(record) = next(&self.directory, segment)?
        {
            self.select(*record);
            if self.ours {
                return Ok(true);
            }
        }
        (self.segment, self.ours) = (None, false);
        Ok(false)
    }

    /// Opens the first of these segments that exists.
    fn enter_one_of(&mut self, numbers: impl Iterator<Item = u64>) -> Result<bool, LogError> {
        for number in numbers {
            let Some(segment) = open(&self.directory, number)? else { continue };
            self.ours = segment.head.sessions.iter().any(|tracked| self.is_ours(tracked));
            self.segment = Some(segment);
            self.sealed = false;
            return Ok(true);
        }
        Ok(false)
    }

    fn is_ours(&self, tracked: &Tracked) -> bool {
        tracked.is_of(&self.session, self.run)
    }

    fn select(&mut self, record: Record<'static>) -> Option<(u64, Vec<u8>)> {
        let is_ours = record.carried.map_or(self.ours, |carried| carried.run == self.run);
        match record.what {
            RecordBody::Started(started)
                if started.session == self.session && record.carried.is_none() =>
            {
                self.ours = started.run == self.run;
                None
            }
            RecordBody::Output { session, channel, offset, bytes } => {
                let wanted = is_ours && channel == self.channel && session == self.session;
                wanted.then(|| (offset, bytes.0.into_owned()))
            }
            _ => None,
        }
    }
}

pub(super) fn open(directory: &Path, number: u64) -> Result<Option<Segment>, LogError> {
    Segment::open(directory, number).map_err(|source| failed(directory, source))
}

pub(super) fn next(
    directory: &Path,
    segment: &mut Segment,
) -> Result<Option<Box<Record<'static>>>, LogError> {
    segment.next().map_err(|source| failed(directory, source))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::carry::Bounds;
    use super::super::tests::SMALL;
    use super::super::writer::Writer;
    use super::*;

    /// Where reading of a session's whole output begins, and how much it finds.
    fn begins(directory: &Path, name: &str, pid: u32) -> (u64, usize) {
        let run = Run { pid, started_at_ms: 1 };
        let (directory, session) = (directory.to_owned(), name.parse().unwrap());
        let mut recording = Recording::new(directory, session, run, Channel::Stdout);
        assert!(recording.enter_first(0).unwrap());
        let begins = recording.segment.as_ref().expect("it has entered one").number;
        let mut at = 0;
        while let Some((offset, bytes)) = recording.read(at, u64::MAX).unwrap() {
            at = offset + bytes.len() as u64;
        }
        (begins, at as usize)
    }

    #[test]
    fn reading_begins_in_the_file_in_which_the_session_did() {
        let name = format!("burrow-recording-begins-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        let bounds = Bounds { segments_max: 99, ..SMALL };
        let mut log = Writer::open_bounded(&directory, bounds).unwrap();
        // Each but the last fills more than two files. The second is released in the file in which the third begins.
        let mut began = Vec::new();
        for (pid, (name, pieces)) in [(1, ("a", 40)), (2, ("b", 40)), (3, ("c", 40)), (4, ("d", 1))]
        {
            let session: SessionId = name.parse().unwrap();
            log.started(&session, Run { pid, started_at_ms: 1 }, "seq").unwrap();
            began.push(*numbers(&directory).unwrap().last().unwrap());
            for piece in 0..pieces {
                log.output(&session, Channel::Stdout, piece * 100, &[b'x'; 100]).unwrap();
            }
            if name == "b" {
                log.released(&session).unwrap();
            }
        }
        assert_eq!(began[0], 1);
        assert!(began.windows(2).take(2).all(|pair| pair[1] >= pair[0] + 2), "{began:?}");
        assert_eq!(begins(&directory, "a", 1), (began[0], 4000));
        assert_eq!(begins(&directory, "b", 2), (began[1], 4000));
        assert_eq!(begins(&directory, "c", 3), (began[2], 4000));
        assert_eq!(begins(&directory, "d", 4), (began[3], 100));
        assert_eq!(begins(&directory, "d", 5), (1, 0), "another of that name");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
