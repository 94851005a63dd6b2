//! Request bodies, read up to a limit and within a time. Response bodies are in
//! [`response`](super::response).

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, EXPECT, HeaderMap};
use tokio::time::timeout;

use super::budget::Share;
use super::limits::{BODY_PAUSE_MAX, REFUSED_BODY_TIME_MAX};
use sandbox::refusal::{Code, Refusal};

pub use super::response::{
    Gone, Hold, JSON, NDJSON, OCTETS, Outgoing, Response, Sink, Streamed, counted, json_response,
    respond,
};

/// What arrives.
#[derive(Debug)]
pub struct Received {
    incoming: Option<Incoming>,
    /// A body that was read already.
    whole: Option<Bytes>,
    announced_bytes: Option<u64>,
    unread: Unread,
    /// How long the next piece may take.
    pause_max: Duration,
}

/// Where a body goes that its call did not read to the end.
#[derive(Clone, Debug, Default)]
pub struct Unread(Arc<Mutex<Option<Incoming>>>);

impl Unread {
    /// Reads and drops the rest, within bounds: a client that is still writing when its connection
    /// is closed would never read why. A client that waits for `100 Continue` does not get it.
    pub async fn drain(&self, headers: &HeaderMap, bytes_max: u64) {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(incoming) = left.filter(|_| !headers.contains_key(EXPECT)) else { return };
        let mut body = Received::new(incoming, headers);
        let reading = async {
            let mut room = bytes_max;
            while let Ok(Some(bytes)) = body.chunk().await {
                match room.checked_sub(bytes.len() as u64) {
                    Some(rest) => room = rest,
                    None => return,
                }
            }
        };
        // A client that is too slow is cut off nevertheless.
        let _ = timeout(REFUSED_BODY_TIME_MAX, reading).await;
    }
}

/// As the body of a request that is passed on. Its pace is that of whom it is passed to.
impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let me = self.get_mut();
        match (me.whole.take(), &mut me.incoming) {
            (Some(whole), _) if !whole.is_empty() => Poll::Ready(Some(Ok(Frame::data(whole)))),
            (_, Some(incoming)) => Pin::new(incoming).poll_frame(cx),
            (_, None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.whole.as_ref().is_none_or(Bytes::is_empty)
            && self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.whole, &self.incoming) {
            (Some(whole), _) => SizeHint::with_exact(whole.len() as u64),
            (None, Some(incoming)) => incoming.size_hint(),
            (None, None) => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take().filter(|body| !body.is_end_stream()) {
            *self.unread.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(incoming);
        }
    }
}

impl Received {
    pub fn new(incoming: Incoming, headers: &HeaderMap) -> Self {
        let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let announced_bytes = announced.and_then(|text| text.parse().ok());
        let incoming = Some(incoming);
        Self {
            incoming,
            whole: None,
            announced_bytes,
            unread: Unread::default(),
            pause_max: BODY_PAUSE_MAX,
        }
    }

    pub fn of(bytes: Bytes) -> Self {
        let announced_bytes = Some(bytes.len() as u64);
        Self {
            incoming: None,
            announced_bytes,
            whole: Some(bytes),
            unread: Unread::default(),
            pause_max: BODY_PAUSE_MAX,
        }
    }

    /// Lets the client pause for so long: one that types sends when it has something.
    pub fn be_patient(&mut self, pause_max: Duration) {
        self.pause_max = pause_max;
    }

    /// The length that the client has announced.
    pub fn announced_bytes(&self) -> Option<u64> {
        self.announced_bytes
    }

    /// Where the rest is found when the call is over.
    pub fn unread(&self) -> Unread {
        self.unread.clone()
    }

    /// The next piece; `None` at the end. One that does not come in time is given up.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Refusal> {
        if let Some(bytes) = self.whole.take() {
            return Ok(Some(bytes));
        }
        let Some(incoming) = &mut self.incoming else { return Ok(None) };
        loop {
            let Ok(frame) = timeout(self.pause_max, incoming.frame()).await else {
                let seconds = self.pause_max.as_secs();
                let message = format!("no byte of the body arrived for {seconds} s");
                return Err(Refusal::new(Code::RequestTimeout, message));
            };
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => {
                    return Err(Refusal::invalid(format!("the body was cut off: {error}")));
                }
            }
        }
    }

    /// The whole body, if it is no larger than `bytes_max` and `memory` has room for it.
    pub async fn read(&mut self, bytes_max: u64, memory: &Share) -> Result<Bytes, Refusal> {
        if self.announced_bytes.is_some_and(|bytes| bytes > bytes_max) {
            return Err(too_large(bytes_max));
        }
        if let Some(bytes) = self.whole.take() {
            // It was counted when it was read.
            return Ok(bytes);
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        memory.grow(first.len())?;
        let Some(second) = self.next_within(first.len(), bytes_max, memory).await? else {
            return Ok(first);
        };
        let mut all = BytesMut::with_capacity(first.len() + second.len());
        all.extend_from_slice(&first);
        all.extend_from_slice(&second);
        while let Some(more) = self.next_within(all.len(), bytes_max, memory).await? {
            all.extend_from_slice(&more);
        }
        Ok(all.freeze())
    }

    async fn next_within(
        &mut self,
        have: usize,
        bytes_max: u64,
        memory: &Share,
    ) -> Result<Option<Bytes>, Refusal> {
        if have as u64 > bytes_max {
            return Err(too_large(bytes_max));
        }
        let next = self.chunk().await?;
        if let Some(more) = &next {
            if (have + more.len()) as u64 > bytes_max {
                return Err(too_large(bytes_max));
            }
            memory.grow(more.len())?;
        }
        Ok(next)
    }
}

pub fn too_large(bytes_max: u64) -> Refusal {
    let message = format!("the body is larger than the limit of {bytes_max} bytes");
    Refusal::new(Code::TooLarge, message)
        .hint("send a smaller body, or raise `body_bytes_max` in the server's configuration")
        .details(serde_json::json!({ "limit": bytes_max }))
}
