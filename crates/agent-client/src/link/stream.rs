//! A link's state of one stream: pieces that arrived and were not taken, bytes that were written
//! and not acknowledged.
//!
//! Pure state behind the link's lock. Nothing here wakes anybody: a method that has news returns
//! the waker of the waiting task.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll, Waker};

use protocol::limits::CREDIT_BYTES_INITIAL;
use protocol::mux::Fetched;
use protocol::requests::SpoolPolicy;
use protocol::spool::{Budget, Spool};
use protocol::{Fault, FaultCode};

use super::Failure;
use super::limits::{PIECE_BYTES_MAX, PIECES_MAX, WRITER_BYTES};

/// A part of an incoming stream, in order.
#[derive(Clone, Debug)]
pub enum Piece {
    Bytes {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Bytes that no longer exist.
    Gap {
        from: u64,
        to: u64,
    },
    /// The stream ended properly; nothing follows.
    End,
    /// The stream is gone; nothing follows.
    Failed(Failure),
}

/// More pieces wait than an honest guest's credit can leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPieces;

/// The incoming half.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Bytes and gaps alone.
    pieces: VecDeque<Piece>,
    held_bytes: usize,
    /// What follows the pieces, forever.
    last: Option<Piece>,
    waker: Option<Waker>,
}

impl Inbox {
    /// Takes in bytes that follow everything before.
    pub fn push_bytes(
        &mut self,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Option<Waker>, TooManyPieces> {
        self.held_bytes += bytes.len();
        debug_assert!(
            self.held_bytes as u64 <= CREDIT_BYTES_INITIAL,
            "the mux lets in no more than the credit, which grows by what was taken"
        );
        match self.pieces.back_mut() {
            // Crumbs are joined: a hostile guest could otherwise make a piece of every byte, and an
            // honest one's many small writes would each cost an allocation.
            Some(Piece::Bytes { bytes: before, .. })
                if before.len() + bytes.len() <= PIECE_BYTES_MAX =>
            {
                before.extend_from_slice(bytes);
            }
            _ => self.push(Piece::Bytes { offset, bytes: bytes.to_vec() })?,
        }
        Ok(self.waker.take())
    }

    pub fn push_gap(&mut self, from: u64, to: u64) -> Result<Option<Waker>, TooManyPieces> {
        match self.pieces.back_mut() {
            Some(Piece::Gap { to: before, .. }) => *before = to,
            _ => self.push(Piece::Gap { from, to })?,
        }
        Ok(self.waker.take())
    }

    fn push(&mut self, piece: Piece) -> Result<(), TooManyPieces> {
        if self.pieces.len() >= PIECES_MAX {
            return Err(TooManyPieces);
        }
        self.pieces.push_back(piece);
        Ok(())
    }

    /// No byte will follow.
    pub fn end(&mut self) -> Option<Waker> {
        self.last.get_or_insert(Piece::End);
        self.waker.take()
    }

    /// No byte will follow those that are here, and that is not how it should have ended.
    pub fn fail(&mut self, failure: Failure) -> Option<Waker> {
        self.last.get_or_insert(Piece::Failed(failure));
        self.waker.take()
    }

    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        if let Some(piece) = self.pieces.pop_front() {
            if let Piece::Bytes { bytes, .. } = &piece {
                self.held_bytes -= bytes.len();
            }
            return Poll::Ready(piece);
        }
        if let Some(last) = &self.last {
            return Poll::Ready(last.clone());
        }
        park(&mut self.waker, cx);
        Poll::Pending
    }

    /// What is left for the reader.
    pub fn rest(&self) -> Rest {
        match &self.last {
            Some(Piece::Failed(_)) => Rest::Failed,
            Some(_) if self.pieces.is_empty() => Rest::Taken,
            _ => Rest::More,
        }
    }
}

/// See [`Inbox::rest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The stream is not over, or not all of it has been taken.
    More,
    /// All of it has been taken, the end included.
    Taken,
    Failed,
}

/// Where a stream begins: the stream's offset of its spool's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The agent will report it.
    Unanswered,
    /// Known, but the agent is not ready for bytes.
    Closed(u64),
    Open(u64),
}

/// The outgoing half. Its spool counts from 0; the stream may begin elsewhere.
#[derive(Debug)]
pub struct Outbox {
    base: Base,
    spool: Spool,
    acked: u64,
    /// No more bytes will be written.
    closed: bool,
    /// The agent has all of it, the end included.
    done: bool,
    failed: Option<Failure>,
    /// Whether the writer is still there.
    pub attended: bool,
    waker: Option<Waker>,
    placed: Option<Placed>,
}

/// Gets the offset of a stream's end once that is known, or nothing if it never will be.
pub struct Placed(Box<dyn FnOnce(Option<u64>) + Send>);

impl Placed {
    pub fn new(call: impl FnOnce(Option<u64>) + Send + 'static) -> Self {
        Self(Box::new(call))
    }

    pub fn tell(self, end: Option<u64>) {
        (self.0)(end);
    }
}

impl fmt::Debug for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Placed")
    }
}

impl Outbox {
    pub fn new(base: Base, budget: Budget) -> Self {
        Self {
            base,
            spool: Spool::new(0, WRITER_BYTES, SpoolPolicy::Block, budget),
            acked: 0,
            closed: false,
            done: false,
            failed: None,
            attended: true,
            waker: None,
            placed: None,
        }
    }

    /// The agent is ready for bytes from offset `base` on.
    pub fn begin(&mut self, base: u64) {
        self.base = Base::Open(base);
    }

    /// Keeps this until the end's offset is known; nothing more is written.
    pub fn when_placed(&mut self, placed: Placed) {
        self.placed = Some(placed);
    }

    /// Who learns of the end's offset now, and what it is.
    pub fn take_placed(&mut self) -> Option<(Placed, Option<u64>)> {
        let end = self.end_offset();
        if end.is_none() && self.failed.is_none() {
            return None;
        }
        self.placed.take().map(|placed| (placed, end))
    }

    /// The offset after the last written byte, once the beginning is known.
    pub fn end_offset(&self) -> Option<u64> {
        self.base.offset().map(|base| base.saturating_add(self.spool.end()))
    }

    /// The agent has all bytes below this offset. Once it has reset the stream, it has no others.
    pub fn taken(&self) -> Option<u64> {
        self.base.offset().map(|base| base.saturating_add(self.acked))
    }

    /// Takes as much of `bytes` as there is room for.
    pub fn poll_write(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Failure>> {
        if let Some(failure) = &self.failed {
            return Poll::Ready(Err(failure.clone()));
        }
        if self.done {
            let why = "the agent has closed the stream before its end";
            return Poll::Ready(Err(Fault::new(FaultCode::Gone, why).into()));
        }
        let count = self.spool.push(bytes, Some(self.acked));
        if count == 0 && !bytes.is_empty() {
            park(&mut self.waker, cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(count))
    }

    pub fn close(&mut self) {
        self.closed = true;
    }

    /// The end's offset, once the agent has everything.
    pub fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<u64, Failure>> {
        if self.done {
            return Poll::Ready(Ok(self.end_offset().unwrap_or(0)));
        }
        if let Some(failure) = &self.failed {
            return Poll::Ready(Err(failure.clone()));
        }
        park(&mut self.waker, cx);
        Poll::Pending
    }

    /// The agent has everything below `offset`.
    pub fn acked(&mut self, offset: u64, done: bool) -> Option<Waker> {
        let base = self.base.offset().unwrap_or(0);
        self.acked = self.acked.max(offset.saturating_sub(base).min(self.spool.end()));
        self.done |= done;
        self.waker.take()
    }

    /// The agent has everything, and says so other than by an acknowledgement.
    pub fn complete(&mut self) -> Option<Waker> {
        self.acked = self.spool.end();
        self.done = true;
        self.waker.take()
    }

    pub fn fail(&mut self, failure: Failure) -> Option<Waker> {
        if !self.done {
            self.failed.get_or_insert(failure);
        }
        self.waker.take()
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it is finished.
    pub fn is_over(&self) -> bool {
        self.done || self.failed.is_some()
    }

    pub fn fetch(&self, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        let Base::Open(base) = self.base else { return Fetched::Nothing };
        let from = from.saturating_sub(base);
        if self.closed && from >= self.spool.end() {
            return Fetched::End;
        }
        match self.spool.read(from, max, out) {
            Ok(0) => Fetched::Nothing,
            Ok(count) => Fetched::Bytes(count),
            // The spool keeps unacknowledged bytes, and the mux never goes back below those.
            Err(discarded) => Fetched::Gap { to: base.saturating_add(discarded.to) },
        }
    }
}

impl Base {
    fn offset(self) -> Option<u64> {
        match self {
            Self::Unanswered => None,
            Self::Closed(offset) | Self::Open(offset) => Some(offset),
        }
    }
}

/// Both halves of a stream, as far as it has them and their readers and writers are there.
#[derive(Debug, Default)]
pub struct Slot {
    pub inbox: Option<Inbox>,
    pub outbox: Option<Outbox>,
}

/// Keeps the waker of the one task that waits.
pub fn park(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *place = Some(cx.waker().clone()),
    }
}
