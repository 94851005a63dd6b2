//! Output and events of an interpreter, on their way to the client of the run, to the next run as late
//! output, and to every watch.

use protocol::message::Channel as Output;
use protocol::repl::{self, Event, Happening, OutputRecord, encode_output, encode_record};
use tokio::time::Instant;

use super::actor::Phase;
use super::actor::{Actor, is_run_number};
use super::limits::{
    LATE_BYTES_MAX, LATE_PAUSE, LATE_PIECE_BYTES, LATE_SETTLE, RECORD_KEPT_BYTES, SHORT_READ_BYTES,
    STARTUP_WORDS_BYTES,
};
use super::source::{NO_RUN, Read, Source};
use crate::sys::clock;

impl Actor {
    /// Sends an event to the run and to every watch.
    pub fn emit(&mut self, run: u64, what: Happening) {
        let is_current = self.current.as_ref().is_some_and(|current| current.number == run);
        // A driver may send any number, but not that of a future run.
        if !is_current && (run > self.begun || !self.context.is_watched()) {
            return;
        }
        self.send(is_current, |at_us, record| {
            encode_record(&Event { run, at_us, what }, record);
        });
    }

    /// Sends a record to every watch and, if it belongs to the current run, to its client.
    fn send(&mut self, to_current: bool, encode: impl FnOnce(u64, &mut Vec<u8>)) {
        let at_us = clock::wall_us();
        self.record.clear();
        encode(at_us, &mut self.record);
        let current = self.current.as_mut().filter(|_| to_current);
        if !current.as_ref().is_some_and(|current| current.aside) {
            self.context.show(&self.record, at_us);
        }
        if let Some(current) = current {
            current.deliver(&self.record);
        }
        // The buffer must not stay as large as one large display.
        self.record.shrink_to(RECORD_KEPT_BYTES);
    }

    /// Sends output that was read from a source of this run.
    pub fn emit_output(&mut self, from: u64, channel: Output, bytes: &[u8]) {
        if matches!(self.phase, Phase::Starting(_)) {
            self.startup_words.extend_from_slice(bytes);
            let excess = self.startup_words.len().saturating_sub(STARTUP_WORDS_BYTES);
            self.startup_words.drain(..excess);
        }
        let Some(current) = &mut self.current else {
            return self.emit_late_output(from, channel, bytes);
        };
        if from != NO_RUN && from != current.number {
            return self.emit_late_output(from, channel, bytes);
        }
        match channel {
            Output::Stderr => current.stderr_bytes += bytes.len() as u64,
            Output::Stdout | Output::Terminal => current.stdout_bytes += bytes.len() as u64,
        }
        let run = current.number;
        self.send(true, |at_us, record| {
            encode_output(&OutputRecord { run, at_us, channel, bytes }, record);
        });
    }

    pub fn emit_late_output(&mut self, from: u64, channel: Output, bytes: &[u8]) {
        let of = if is_run_number(from) { from } else { NO_RUN };
        if self.context.is_watched() {
            let late = repl::Late { of, channel, bytes: bytes.to_vec().into(), dropped: 0 };
            self.send(false, |at_us, record| {
                encode_record(&Event { run: 0, at_us, what: Happening::Late(late) }, record);
            });
        }
        self.late.push(of, channel, bytes);
        self.deliver_late_output();
    }

    /// Sends the late output of earlier runs in the current run, within bounds.
    pub fn deliver_late_output(&mut self) {
        while let Some(current) = &mut self.current {
            if current.aside
                || current.has_backlog()
                || current.late_bytes_delivered >= LATE_BYTES_MAX
            {
                return;
            }
            let Some(late) = self.late.pop() else { return };
            current.late_bytes_delivered += late.bytes.as_bytes().len() + LATE_PIECE_BYTES;
            let (run, at_us) = (current.number, clock::wall_us());
            let mut record = Vec::new();
            encode_record(&Event { run, at_us, what: Happening::Late(late) }, &mut record);
            current.deliver(&record);
        }
    }

    /// Reads once from a source.
    pub fn read(&mut self, index: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let source = &self.sources[index];
        let (run, channel) = (source.run, source.channel);
        match source.read(&mut buffer) {
            Read::Bytes(count) => {
                let is_current = self
                    .current
                    .as_ref()
                    .is_some_and(|current| run == NO_RUN || run == current.number);
                if !is_current {
                    self.late_rests_until = Some(Instant::now() + LATE_PAUSE);
                }
                self.emit_output(run, channel, &buffer[..count]);
                if let Some(current) = &mut self.current
                    && is_current
                    && count < SHORT_READ_BYTES
                {
                    current.rest();
                    self.sources[index].rest();
                }
            }
            Read::Drained => {}
            Read::Ended => drop(self.sources.remove(index)),
        }
        self.buffer = buffer;
    }

    /// A run is over. Its pipes are not polled for a moment, because most are closed by then. Those of
    /// earlier runs that are still open are polled.
    pub fn rest_late_output(&mut self, number: u64) {
        for index in (0..self.sources.len()).rev() {
            let source = &self.sources[index];
            if is_run_number(source.run) && source.run < number && !source.is_watched() {
                self.read(index);
            }
        }
        self.late_rests_until = Some(Instant::now() + LATE_SETTLE);
    }

    /// Reads what the chosen sources hold at this moment, and no more.
    pub fn drain(&mut self, chosen: impl Fn(&Source) -> bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for index in 0..self.sources.len() {
            if !chosen(&self.sources[index]) {
                continue;
            }
            let mut owed = self.sources[index].unread();
            while owed > 0 {
                let source = &self.sources[index];
                let (run, channel) = (source.run, source.channel);
                let want = owed.min(buffer.len());
                let Read::Bytes(count) = source.read(&mut buffer[..want]) else { break };
                owed -= count;
                self.emit_output(run, channel, &buffer[..count]);
            }
        }
        self.buffer = buffer;
    }

    /// Reads what the current run has written so far.
    pub fn drain_current(&mut self) {
        let number = self.current.as_ref().map(|current| current.number);
        self.drain(|source| source.run == NO_RUN || Some(source.run) == number);
    }
}
