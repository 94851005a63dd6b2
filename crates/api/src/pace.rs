//! A connection's bytes, held to a pace: a head that has begun must be whole within its time, so
//! that a client which sends it drop by drop does not keep a place; and a client must take what is
//! sent to it now and then, if slowly.
//!
//! hyper bounds the time until a head is whole from when it begins to wait for one, which is also
//! how long a connection may be idle; this bounds the time from a head's first byte.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::limits::WRITE_PAUSE_MAX;

/// What a connection's service reports of it.
#[derive(Clone, Debug, Default)]
pub struct Serving(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    /// A request is being served.
    serving: AtomicBool,
    /// The connection must close.
    leaving: AtomicBool,
}

impl Serving {
    pub fn set(&self, serving: bool) {
        self.0.serving.store(serving, Ordering::Relaxed);
    }

    /// Takes no more heads, not even the rest of one that has begun. The connection must be polled
    /// again for it.
    pub fn leave(&self) {
        self.0.leaving.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.serving.load(Ordering::Relaxed)
    }

    fn is_leaving(&self) -> bool {
        self.0.leaving.load(Ordering::Relaxed)
    }
}

/// See the module's description.
pub struct PacedStream<S> {
    stream: S,
    serving: Serving,
    head_time_max: Duration,
    /// Runs since the first byte of a head.
    head: Option<Pin<Box<Sleep>>>,
    /// Runs since the other end has taken nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> PacedStream<S> {
    pub fn new(stream: S, serving: Serving, head_time_max: Duration) -> Self {
        Self { stream, serving, head_time_max, head: None, stalled: None }
    }
}

impl<S> PacedStream<S> {
    /// Gives up a client that has taken nothing for too long.
    fn watch<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE_PAUSE_MAX)));
        if stalled.as_mut().poll(cx).is_ready() {
            let stands = "the client reads nothing of what is sent to it";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, stands)));
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut me.stream).poll_read(cx, buffer);
        if me.serving.get() {
            me.head = None;
            return polled;
        }
        if buffer.filled().len() > before && me.head.is_none() {
            me.head = Some(Box::pin(sleep(me.head_time_max)));
        }
        if polled.is_pending()
            && let Some(head) = &mut me.head
            && (me.serving.is_leaving() || head.as_mut().poll(cx).is_ready())
        {
            let slow = "the head of a request took too long to arrive";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, slow)));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let polled = Pin::new(&mut me.stream).poll_write(cx, bytes);
        me.watch(polled, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let polled = Pin::new(&mut me.stream).poll_write_vectored(cx, slices);
        me.watch(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let polled = Pin::new(&mut me.stream).poll_flush(cx);
        me.watch(polled, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
