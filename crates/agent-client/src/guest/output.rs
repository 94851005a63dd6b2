//! The reading end of a stream.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use protocol::StreamId;

use super::GuestError;
use crate::link::{self, Link};

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
    /// The stream ended properly; whoever asks again is told the same.
    End,
    /// The stream is gone; whoever asks again is told the same.
    Failed(GuestError),
}

/// How many bytes of output have been taken from a guest, for those who keep account of it. Clones
/// are the same.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<AtomicU64>);

impl Heard {
    /// So far; it never falls.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The reading end of a stream. Dropping it gives the stream up, unless it was read to its end.
///
/// What was read is acknowledged when the next piece is asked for: a reader that has written a piece
/// somewhere before it asks again loses nothing when it dies in between. [`Output::manual`] leaves
/// that to the reader.
#[derive(Debug)]
pub struct Output {
    link: Link,
    stream: StreamId,
    manual: bool,
    /// Where its bytes are counted, if they are.
    heard: Option<Heard>,
    /// The end of the piece that was read last, until it is acknowledged.
    read_to: Option<u64>,
}

impl Output {
    pub(super) fn new(link: Link, stream: StreamId) -> Self {
        Self { link, stream, manual: false, heard: None, read_to: None }
    }

    /// Acknowledges only what [`Output::consumed`] is told of.
    #[must_use]
    pub fn manual(mut self) -> Self {
        self.manual = true;
        self
    }

    /// Counts what comes as output of the guest's programs. Of the readers of one output one alone does.
    #[must_use]
    pub fn counted(mut self, heard: &Heard) -> Self {
        self.heard = Some(heard.clone());
        self
    }

    /// Says that everything below `up_to` is in safe hands: the sender may forget it and send more.
    pub fn consumed(&mut self, up_to: u64) {
        self.link.consumed(self.stream, up_to);
    }

    /// The next piece. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Piece {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// All that is left of it. None where that is not whole: there is a gap, or more than so many bytes.
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
        let taken = self.read_to.take();
        self.link.poll_piece(self.stream, taken, cx).map(|piece| match piece {
            link::Piece::Bytes { offset, bytes } => {
                self.note(offset.saturating_add(bytes.len() as u64));
                if let Some(heard) = &self.heard {
                    heard.add(bytes.len());
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

impl Drop for Output {
    fn drop(&mut self) {
        self.link.drop_inbox(self.stream);
    }
}
