//! The two halves of a stream as pure state: what has been sent, received and granted.
//!
//! Offsets are absolute, so every message about them can be repeated, and after a cut the two ends
//! continue by comparing numbers.
//!
//! ```text
//! sender                                   receiver
//!   acked ≤ next ≤ up_to (credit)            consumed ≤ next ≤ granted
//!     └ the spool may discard below            └ taken by the application
//! ```

use serde::{Deserialize, Serialize};

use crate::decode_struct;
use crate::ids::StreamId;
use crate::limits::{CREDIT_BYTES_INITIAL, SPOOL_BYTES_MIN};

/// A receiver acknowledges after so many consumed bytes. Half of the smallest spool, so that no
/// sender can be full of bytes that were consumed and not acknowledged.
const ACK_EVERY_BYTES: u64 = SPOOL_BYTES_MIN as u64 / 2;

/// A violation of the protocol. It costs the peer its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error("stream {stream}: data at {offset} leaves out bytes from {next} on")]
    Hole { stream: u64, offset: u64, next: u64 },
    #[error("stream {stream}: data up to {end} exceeds the credit of {granted}")]
    BeyondCredit { stream: u64, end: u64, granted: u64 },
    #[error("stream {stream}: data after its end at {end}")]
    AfterEnd { stream: u64, end: u64 },
    #[error("stream {stream}: an end at {end}, but {next} bytes have arrived")]
    WrongEnd { stream: u64, end: u64, next: u64 },
    #[error("stream {stream}: a gap from {from} to {to}, but {next} is expected")]
    WrongGap { stream: u64, from: u64, to: u64, next: u64 },
    #[error("stream {stream}: an acknowledgement of {acked}, but only {next} bytes were sent")]
    AckBeyondSent { stream: u64, acked: u64, next: u64 },
    #[error("stream {stream}: {kind} frame against the stream's direction")]
    Direction { stream: u64, kind: &'static str },
    #[error("offset {offset} of stream {stream} is out of range")]
    Overflow { stream: u64, offset: u64 },
}

/// The body of an ack frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Everything below has been consumed and may be forgotten.
    pub consumed: u64,
    /// The sender may send up to here.
    pub up_to: u64,
    /// The end of the stream has been consumed too.
    pub finished: bool,
}

decode_struct!(Ack: consumed, up_to, finished);

/// The body of a fin frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fin {
    pub offset: u64,
}

decode_struct!(Fin: offset);

/// The body of a gap frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    pub from: u64,
    pub to: u64,
}

decode_struct!(Gap: from, to);

/// The sending half.
#[derive(Clone, Debug)]
pub struct Sender {
    pub(crate) next: u64,
    acked: u64,
    up_to: u64,
    /// The end has been sent on this link.
    pub(crate) fin_sent: bool,
    /// The end's offset, if it was ever sent.
    fin_at: Option<u64>,
    fin_acked: bool,
}

impl Sender {
    pub fn new(at: u64) -> Self {
        Self {
            next: at,
            acked: at,
            up_to: at.saturating_add(CREDIT_BYTES_INITIAL),
            fin_sent: false,
            fin_at: None,
            fin_acked: false,
        }
    }

    /// Bytes that may be sent now.
    pub fn credit(&self) -> u64 {
        self.up_to.saturating_sub(self.next)
    }

    pub fn acked(&self) -> u64 {
        self.acked
    }

    pub fn is_done(&self) -> bool {
        self.fin_acked
    }

    /// Whether the end was sent on the last link that this stream lived on: a peer that forgot the
    /// stream afterwards had it all.
    pub fn has_ended(&self) -> bool {
        self.fin_sent
    }

    pub(crate) fn sent_fin(&mut self) {
        self.fin_sent = true;
        self.fin_at = Some(self.next);
    }

    pub fn on_ack(&mut self, stream: StreamId, ack: Ack) -> Result<(), StreamError> {
        if ack.consumed > self.next {
            let (acked, next) = (ack.consumed, self.next);
            return Err(StreamError::AckBeyondSent { stream: stream.0, acked, next });
        }
        self.acked = self.acked.max(ack.consumed);
        self.up_to = self.up_to.max(ack.up_to);
        self.fin_acked |= ack.finished && self.fin_at.is_some_and(|end| end <= self.acked);
        Ok(())
    }

    /// Goes back to the other end's position, on a new link. False if that is impossible: the other
    /// end claims what was never sent, or needs what was already dropped.
    pub fn resume(&mut self, next: u64, up_to: u64, finished: bool) -> bool {
        if next > self.next || next < self.acked || (finished && self.fin_at != Some(next)) {
            return false;
        }
        self.next = next;
        self.up_to = up_to;
        self.fin_sent = finished;
        true
    }
}

/// What a receiver has not acknowledged yet, the least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Debt {
    /// Too little to be reported.
    Small,
    /// The end: the sender keeps nothing but its name.
    End,
    /// So much that a sender with the smallest spool may wait for it.
    Spool,
    /// Half of the window: a sender with any spool will soon have no credit.
    Window,
}

/// The receiving half.
#[derive(Clone, Debug)]
pub struct Receiver {
    next: u64,
    consumed: u64,
    granted: u64,
    window: u64,
    acked: u64,
    fin: Option<u64>,
    fin_acked: bool,
}

/// The meaning of an arrived piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The offset of the first new byte.
    pub offset: u64,
    /// Bytes at the front of the piece that had been received before.
    pub skip: usize,
}

impl Receiver {
    pub fn new(at: u64) -> Self {
        Self {
            next: at,
            consumed: at,
            granted: at.saturating_add(CREDIT_BYTES_INITIAL),
            window: CREDIT_BYTES_INITIAL,
            acked: at,
            fin: None,
            fin_acked: false,
        }
    }

    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn is_finished(&self) -> bool {
        self.fin.is_some()
    }

    /// Everything was received, consumed and acknowledged.
    pub fn is_done(&self) -> bool {
        self.fin_acked
    }

    pub fn on_data(
        &mut self,
        stream: StreamId,
        offset: u64,
        length: usize,
    ) -> Result<Accepted, StreamError> {
        let stream = stream.0;
        let end =
            offset.checked_add(length as u64).ok_or(StreamError::Overflow { stream, offset })?;
        if offset > self.next {
            return Err(StreamError::Hole { stream, offset, next: self.next });
        }
        if end > self.granted {
            return Err(StreamError::BeyondCredit { stream, end, granted: self.granted });
        }
        if let Some(fin) = self.fin
            && end > fin
        {
            return Err(StreamError::AfterEnd { stream, end: fin });
        }
        let accepted =
            Accepted { offset: self.next, skip: (self.next - offset).min(length as u64) as usize };
        self.next = self.next.max(end);
        Ok(accepted)
    }

    /// True when the gap is news.
    pub fn on_gap(&mut self, stream: StreamId, gap: Gap) -> Result<bool, StreamError> {
        let (stream, next) = (stream.0, self.next);
        if gap.to <= next && gap.from <= gap.to {
            return Ok(false);
        }
        if gap.from != next || gap.to < gap.from || self.fin.is_some() {
            return Err(StreamError::WrongGap { stream, from: gap.from, to: gap.to, next });
        }
        if gap.to > u64::MAX / 2 {
            return Err(StreamError::Overflow { stream, offset: gap.to });
        }
        self.next = gap.to;
        Ok(true)
    }

    /// True when the end is news.
    pub fn on_fin(&mut self, stream: StreamId, end: u64) -> Result<bool, StreamError> {
        if end != self.next || self.fin.is_some_and(|fin| fin != end) {
            return Err(StreamError::WrongEnd { stream: stream.0, end, next: self.next });
        }
        Ok(self.fin.replace(end).is_none())
    }

    /// The application has taken everything below `to`. True if that should be sent.
    pub fn on_consumed(&mut self, to: u64) -> bool {
        self.consumed = self.consumed.max(to.min(self.next));
        self.consumed - self.acked >= ACK_EVERY_BYTES || self.owes_end()
    }

    /// How much of the consumed bytes was not reported yet.
    pub fn debt(&self) -> Debt {
        match self.consumed - self.acked {
            debt if debt >= self.window / 2 => Debt::Window,
            ACK_EVERY_BYTES.. => Debt::Spool,
            _ if self.owes_end() => Debt::End,
            _ => Debt::Small,
        }
    }

    /// Whether anything consumed was not reported yet.
    pub(crate) fn owes_any(&self) -> bool {
        self.consumed > self.acked
    }

    /// The acknowledgement that is true now; it counts as sent.
    pub fn ack(&mut self) -> Ack {
        self.acked = self.consumed;
        self.granted = self.granted.max(self.consumed.saturating_add(self.window));
        self.fin_acked = self.fin == Some(self.consumed);
        Ack { consumed: self.consumed, up_to: self.granted, finished: self.fin_acked }
    }

    /// A new link begins: the last acknowledgement may be lost, and with it that of the end.
    pub(crate) fn resume(&mut self) {
        self.fin_acked = false;
    }

    /// What is sent on a new link.
    pub fn position(&self) -> (u64, u64, bool) {
        (self.next, self.granted, self.fin.is_some())
    }

    fn owes_end(&self) -> bool {
        self.fin == Some(self.consumed) && !self.fin_acked
    }
}
