//! Responses and their bodies: sent whole, or as they come.

use std::any::Any;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::limits::{CHUNKS_BYTES_MAX, CHUNKS_WAITING_MAX, JOINED_BYTES_MAX, PIECES_WAITING_MAX};

pub type Response = hyper::Response<Outgoing>;

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
pub const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// What is sent.
pub enum Outgoing {
    /// In the parts that it was made in, none of which is empty.
    Whole(VecDeque<Bytes>),
    Stream(Streamed),
}

/// A body whose bytes come from elsewhere. Dropping it, as happens when the client is gone, closes
/// the other end.
pub struct Streamed {
    chunks: mpsc::Receiver<Waiting>,
    /// Bytes still to come, where that is known. One that ends short of it cuts the connection, so
    /// that the client cannot take a part for the whole.
    left: Option<u64>,
    /// What has been taken from the channel at once, and the room for that.
    ready: VecDeque<Waiting>,
    arrived: Vec<Waiting>,
    /// How many chunks that may be made of.
    joined_max: usize,
    /// Whether an end of the chunks is the end of the body.
    is_whole: Arc<AtomicBool>,
    /// Kept until the body is sent or given up.
    held: Vec<Hold>,
}

/// A value that must live as long as an answer is under way.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// The other end of a [`Streamed`] body.
#[derive(Clone, Debug)]
pub struct Sink {
    chunks: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
    is_whole: Arc<AtomicBool>,
}

/// A chunk on its way, with the room that it takes.
struct Waiting {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// Bytes, and the memory that they are counted against.
struct Counted {
    bytes: Bytes,
    _memory: Hold,
}

/// Bytes that keep a value alive.
pub fn counted(bytes: impl Into<Bytes>, memory: Hold) -> Bytes {
    Bytes::from_owner(Counted { bytes: bytes.into(), _memory: memory })
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The client is gone, or has been given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client disconnected")]
pub struct Gone;

impl Sink {
    /// Sends one chunk, as soon as there is room for it. One that is larger than all the room goes
    /// alone.
    pub async fn send(&self, bytes: impl Into<Bytes>) -> Result<(), Gone> {
        let bytes = bytes.into();
        let cost = bytes.len().clamp(1, CHUNKS_BYTES_MAX) as u32;
        let room = Arc::clone(&self.room).acquire_many_owned(cost);
        let room = tokio::select! {
            room = room => room.map_err(|_| Gone)?,
            () = self.chunks.closed() => return Err(Gone),
        };
        self.chunks.send(Waiting { bytes, _room: room }).await.map_err(|_| Gone)
    }

    /// Resolves when the reader is gone.
    pub async fn closed(&self) {
        self.chunks.closed().await;
    }

    /// Says that not everything will be sent: the client must not take a part for the whole.
    pub fn cut(&self) {
        self.is_whole.store(false, Ordering::Release);
    }

    /// Says that everything has been sent. See [`Outgoing::pieces`].
    pub fn finish(self) {
        self.is_whole.store(true, Ordering::Release);
    }
}

/// Marks an answer whose headers are those of a program in a sandbox, and stay as they are.
#[derive(Clone, Copy, Debug)]
pub struct Foreign;

/// Why a streamed body was cut off.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body ended before it was complete")]
pub struct CutOff;

impl Outgoing {
    pub fn empty() -> Self {
        Self::Whole(VecDeque::new())
    }

    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::parts([bytes.into()])
    }

    /// A whole in parts, so that they need not be copied into one.
    pub fn parts(parts: impl IntoIterator<Item = Bytes>) -> Self {
        Self::Whole(parts.into_iter().filter(|part| !part.is_empty()).collect())
    }

    /// Keeps a value until this body is sent. A body that is whole counts as sent.
    pub fn hold(&mut self, held: Hold) {
        if let Self::Stream(streamed) = self {
            streamed.held.push(held);
        }
    }

    /// Counts a whole body against the memory of its call until the last of it is sent: a client that
    /// reads slowly holds it as long as that takes.
    pub fn count(&mut self, memory: &Hold) {
        if let Self::Whole(whole) = self {
            for part in whole {
                let (bytes, memory) = (std::mem::take(part), Arc::clone(memory));
                *part = counted(bytes, memory);
            }
        }
    }

    /// A body that is written to while it is sent. `length` is announced, and kept to.
    pub fn stream(length: Option<u64>) -> (Sink, Self) {
        Self::streamed(length, CHUNKS_WAITING_MAX, CHUNKS_WAITING_MAX, true)
    }

    /// The same for chunks so large that few of them may wait and none are joined. It is whole only
    /// after [`Sink::finish`]: any other end cuts the connection.
    pub fn pieces(length: Option<u64>) -> (Sink, Self) {
        Self::streamed(length, PIECES_WAITING_MAX, 1, false)
    }

    fn streamed(
        left: Option<u64>,
        waiting_max: usize,
        joined_max: usize,
        is_whole: bool,
    ) -> (Sink, Self) {
        let (sender, chunks) = mpsc::channel(waiting_max);
        let is_whole = Arc::new(AtomicBool::new(is_whole));
        let room = Arc::new(Semaphore::new(CHUNKS_BYTES_MAX));
        let sink = Sink { chunks: sender, room, is_whole: Arc::clone(&is_whole) };
        let (ready, arrived) = (VecDeque::new(), Vec::new());
        let held = Vec::new();
        (sink, Self::Stream(Streamed { chunks, left, ready, arrived, joined_max, is_whole, held }))
    }
}

impl Streamed {
    /// The next chunk as it was sent, for those who are not an HTTP connection.
    pub async fn next(&mut self) -> Option<Bytes> {
        Some(self.chunks.recv().await?.bytes)
    }

    /// The next bytes to send. Small chunks that wait are joined; a large one goes as it is, because
    /// a copy of it costs more than a frame of its own.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Self { chunks, ready, arrived, joined_max, .. } = self;
        if ready.is_empty() {
            let Poll::Ready(_) = chunks.poll_recv_many(cx, arrived, *joined_max) else {
                return Poll::Pending;
            };
            ready.extend(arrived.drain(..));
        }
        let is_small = |chunk: &Waiting| chunk.bytes.len() < JOINED_BYTES_MAX;
        let count = ready.iter().take_while(|chunk| is_small(chunk)).count();
        if count < 2 {
            return Poll::Ready(ready.pop_front().map(|chunk| chunk.bytes));
        }
        let length = ready.iter().take(count).map(|chunk| chunk.bytes.len()).sum::<usize>();
        let mut joined = BytesMut::with_capacity(length);
        ready.drain(..count).for_each(|chunk| joined.extend_from_slice(&chunk.bytes));
        Poll::Ready(Some(joined.freeze()))
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let streamed = match self.get_mut() {
            Self::Whole(parts) => {
                return Poll::Ready(parts.pop_front().map(|part| Ok(Frame::data(part))));
            }
            Self::Stream(streamed) => streamed,
        };
        let Poll::Ready(chunk) = streamed.poll_chunk(cx) else { return Poll::Pending };
        Poll::Ready(match (chunk, &mut streamed.left) {
            (None, Some(left)) if *left > 0 => Some(Err(CutOff)),
            (None, _) if !streamed.is_whole.load(Ordering::Acquire) => Some(Err(CutOff)),
            (None, _) => None,
            (Some(bytes), Some(left)) => match left.checked_sub(bytes.len() as u64) {
                Some(rest) => {
                    *left = rest;
                    Some(Ok(Frame::data(bytes)))
                }
                None => Some(Err(CutOff)),
            },
            (Some(bytes), None) => Some(Ok(Frame::data(bytes))),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(parts) => parts.is_empty(),
            Self::Stream(streamed) => streamed.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(parts) => {
                SizeHint::with_exact(parts.iter().map(Bytes::len).sum::<usize>() as u64)
            }
            Self::Stream(streamed) => {
                streamed.left.map_or_else(SizeHint::new, SizeHint::with_exact)
            }
        }
    }
}

/// A response whose body is a value as JSON.
pub fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    let written = serde_json::to_vec(value);
    // The types of this API are written without fail: their maps have strings for keys.
    let bytes = written.unwrap_or_else(|_| b"null".to_vec());
    respond(status, JSON, Outgoing::whole(bytes))
}

pub fn respond(status: StatusCode, kind: HeaderValue, body: Outgoing) -> Response {
    let mut response = hyper::Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn small_chunks_are_joined_and_a_large_one_goes_as_it_is() {
        let (sink, mut body) = Outgoing::stream(None);
        let large = Bytes::from(vec![7; JOINED_BYTES_MAX]);
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        for chunk in [a.clone(), b.clone(), large.clone(), a, b] {
            sink.send(chunk).await.unwrap();
        }
        drop(sink);
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            frames.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(frames, [Bytes::from_static(b"ab"), large.clone(), Bytes::from_static(b"ab")]);
        assert_eq!(frames[1].as_ptr(), large.as_ptr(), "it was not copied");
    }
}
