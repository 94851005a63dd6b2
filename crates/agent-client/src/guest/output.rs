//! The reading end of a stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use protocol::StreamId;

use super::GuestError;
use super::horizon::Horizon;
use crate::link::{self, Failure, Link, LinkError};

/// A part of a stream, in order.
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
    /// The stream ended properly; later calls return the same.
    End,
    /// The stream is gone; later calls return the same.
    Failed(GuestError),
}

/// Counts the bytes of output from a guest. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct OutputCounter(Arc<AtomicU64>);

impl OutputCounter {
    /// So far; it never decreases.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The reading end of a stream. Dropping it gives the stream up, unless it was read to its end.
///
/// A piece is acknowledged when the next one is requested: a reader that stores a piece before the next call
/// loses nothing when it dies in between. [`Output::manual`] leaves this to the reader.
#[derive(Debug)]
pub struct Output {
    link: Link,
    stream: StreamId,
    manual: bool,
    /// Where its bytes are counted, if at all.
    counter: Option<OutputCounter>,
    /// The end of the piece that was read last, until it is acknowledged.
    read_to: Option<u64>,
    /// How far it may be read, where that is limited.
    horizon: Option<Arc<Horizon>>,
    /// What has come and is not all within the horizon.
    held_back: Option<link::Piece>,
}

impl Output {
    pub(super) fn new(link: Link, stream: StreamId) -> Self {
        Self {
            link,
            stream,
            manual: false,
            counter: None,
            read_to: None,
            horizon: None,
            held_back: None,
        }
    }

    /// Acknowledges only what is passed to [`Output::consumed`].
    #[must_use]
    pub fn manual(mut self) -> Self {
        self.manual = true;
        self
    }

    /// Counts its bytes as output of the guest's programs. Only one reader of each output does this.
    #[must_use]
    pub fn counted(mut self, counter: &OutputCounter) -> Self {
        self.counter = Some(counter.clone());
        self
    }

    #[must_use]
    pub(super) fn within(mut self, horizon: Option<Arc<Horizon>>) -> Self {
        self.horizon = horizon;
        self
    }

    /// How far it may be read now, where only what is durable may be.
    pub fn horizon(&self) -> Option<u64> {
        self.horizon.as_ref().map(|horizon| horizon.reach())
    }

    /// Whether something has come that may not be read yet.
    pub fn is_held_back(&self) -> bool {
        self.held_back.is_some()
    }

    /// Says that everything below `up_to` is in safe hands: the sender may forget it and send more.
    pub fn consumed(&mut self, up_to: u64) {
        self.link.consumed(self.stream, up_to);
    }

    /// The next piece. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Piece {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The rest of it. `None` if it is not complete: there is a gap, or more than this many bytes.
    pub async fn whole(mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, GuestError> {
        let mut whole = Vec::new();
        loop {
            match self.next().await {
                Piece::Bytes { bytes, .. } if whole.len() + bytes.len() <= bytes_max => {
                    whole.extend(bytes);
                }
                Piece::Bytes { .. } | Piece::Gap { .. } => return Ok(None),
                Piece::End => return Ok(Some(whole)),
                Piece::Failed(error) => return Err(error),
            }
        }
    }

    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        self.poll_within(cx).map(|piece| match piece {
            link::Piece::Bytes { offset, bytes } => {
                self.note(offset.saturating_add(bytes.len() as u64));
                if let Some(counter) = &self.counter {
                    counter.add(bytes.len());
                }
                Piece::Bytes { offset, bytes }
            }
            link::Piece::Gap { from, to } => {
                self.note(to);
                Piece::Gap { from, to }
            }
            link::Piece::End => Piece::End,
            link::Piece::Failed(failure) => Piece::Failed(failure.into()),
        })
    }

    /// The next piece, as far as it may be read.
    fn poll_within(&mut self, cx: &mut Context<'_>) -> Poll<link::Piece> {
        let held_back = if let Some(piece) = self.held_back.take() {
            self.settle();
            piece
        } else {
            let taken = self.read_to.take();
            std::task::ready!(self.link.poll_piece(self.stream, taken, cx))
        };
        let Some(horizon) = &self.horizon else { return Poll::Ready(held_back) };
        let from = match &held_back {
            link::Piece::Bytes { offset, .. } => *offset,
            link::Piece::Gap { from, .. } => *from,
            link::Piece::End | link::Piece::Failed(_) => return Poll::Ready(held_back),
        };
        match horizon.poll_beyond(from, cx) {
            Poll::Ready(Some(to)) => {
                let (seen, rest) = split(held_back, to);
                self.held_back = rest;
                Poll::Ready(seen)
            }
            // What made it durable is gone, as if the guest were.
            Poll::Ready(None) => {
                self.held_back = Some(held_back);
                Poll::Ready(link::Piece::Failed(Failure::Link(LinkError::Closed)))
            }
            Poll::Pending => {
                self.held_back = Some(held_back);
                Poll::Pending
            }
        }
    }

    /// Acknowledges the piece that was read last, for readers that will not ask for another.
    pub(crate) fn settle(&mut self) {
        if let Some(to) = self.read_to.take() {
            self.consumed(to);
        }
    }

    fn note(&mut self, to: u64) {
        if !self.manual {
            self.read_to = Some(to);
        }
    }
}

/// The part of a piece that is before `to`, which is after its beginning, and what follows.
fn split(piece: link::Piece, to: u64) -> (link::Piece, Option<link::Piece>) {
    match piece {
        link::Piece::Bytes { offset, mut bytes } if to - offset < bytes.len() as u64 => {
            let rest = bytes.split_off((to - offset) as usize);
            let rest = link::Piece::Bytes { offset: to, bytes: rest };
            (link::Piece::Bytes { offset, bytes }, Some(rest))
        }
        link::Piece::Gap { from, to: end } if to < end => {
            (link::Piece::Gap { from, to }, Some(link::Piece::Gap { from: to, to: end }))
        }
        whole => (whole, None),
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.link.drop_inbox(self.stream);
    }
}
