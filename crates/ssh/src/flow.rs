//! What a client has sent and programs have not taken, and the connection that waits for it.
//!
//! The library enlarges the window of a channel when bytes arrive, not when a program takes them, and it stops all
//! of a connection while a handler waits: a client that fills the input of a program which waits for its own
//! output to be read would never end. So bytes are queued here without waiting, and the queue is bounded by
//! the windows instead:
//!
//! ```text
//!  open ──bytes reach INPUT_BYTES_FULL──▶ full: windows of a few bytes, a read each FULL_PAUSE
//!    ▲                                      │
//!    └───────bytes below INPUT_BYTES_LOW────┘
//! ```
//!
//! Signals, sizes of windows and grants of the client still arrive while it is full. Who sends beyond
//! `INPUT_BYTES_MAX` has ignored its windows, and is cut off.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::limits::{
    FULL_PAUSE, INPUT_BYTES_FULL, INPUT_BYTES_LOW, INPUT_BYTES_MAX, PIECE_BYTES, WINDOW_BYTES,
    WINDOW_BYTES_FULL,
};

/// The bytes of one connection that wait. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Flow(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    queued: AtomicUsize,
    is_full: AtomicBool,
    is_cut: AtomicBool,
    /// Of the tasks that read and write the connection.
    wakers: Mutex<[Option<Waker>; 2]>,
}

/// Sending beyond the bound.
#[derive(Debug)]
pub struct Flood;

impl Flow {
    /// The two ends of a channel's input.
    pub fn input(&self) -> (InputSender, Input) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (InputSender(sender), Input { receiver, flow: self.clone() })
    }

    /// The window that channels should have.
    pub fn window(&self) -> u32 {
        if self.is_full() { WINDOW_BYTES_FULL } else { WINDOW_BYTES }
    }

    /// Ends the connection without a word.
    pub fn cut(&self) {
        self.0.is_cut.store(true, Ordering::Release);
        self.wake();
    }

    fn is_full(&self) -> bool {
        self.0.is_full.load(Ordering::Acquire)
    }

    fn add(&self, bytes: usize) -> Result<(), Flood> {
        let queued = self.0.queued.fetch_add(bytes, Ordering::AcqRel) + bytes;
        if queued >= INPUT_BYTES_FULL {
            self.0.is_full.store(true, Ordering::Release);
        }
        if queued > INPUT_BYTES_MAX { Err(Flood) } else { Ok(()) }
    }

    fn take(&self, bytes: usize) {
        let queued = self.0.queued.fetch_sub(bytes, Ordering::AcqRel) - bytes;
        if queued < INPUT_BYTES_LOW && self.0.is_full.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        let mut wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }

    /// Fails when the connection is cut; otherwise the task is woken when that or the flow changes.
    fn watch(&self, end: usize, cx: &Context<'_>) -> io::Result<()> {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner)[end] =
            Some(cx.waker().clone());
        if self.0.is_cut.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

/// Where the connection puts a channel's bytes. Dropping it is the end of the input.
#[derive(Debug)]
pub struct InputSender(mpsc::UnboundedSender<Vec<u8>>);

impl InputSender {
    pub fn send(&self, flow: &Flow, bytes: &[u8]) -> Result<(), Flood> {
        flow.add(bytes.len() + PIECE_BYTES)?;
        if let Err(unsent) = self.0.send(bytes.to_vec()) {
            // Nobody takes it any more.
            flow.take(unsent.0.len() + PIECE_BYTES);
        }
        Ok(())
    }
}

/// What a channel's client sends.
#[derive(Debug)]
pub struct Input {
    receiver: mpsc::UnboundedReceiver<Vec<u8>>,
    flow: Flow,
}

impl Input {
    /// The next piece; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let piece = self.receiver.recv().await?;
        self.flow.take(piece.len() + PIECE_BYTES);
        Some(piece)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.receiver.close();
        while let Ok(piece) = self.receiver.try_recv() {
            self.flow.take(piece.len() + PIECE_BYTES);
        }
    }
}

/// The connection, as slow as its flow wants.
#[derive(Debug)]
pub struct Paced {
    stream: TcpStream,
    flow: Flow,
    pause: Pin<Box<Sleep>>,
}

/// Which waker is whose.
const READER: usize = 0;
const WRITER: usize = 1;

impl Paced {
    pub fn new(stream: TcpStream, flow: Flow) -> Self {
        Self { stream, flow, pause: Box::pin(sleep_until(Instant::now())) }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.flow.watch(READER, cx)?;
        if me.flow.is_full() {
            if me.pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            me.pause.as_mut().reset(Instant::now() + FULL_PAUSE);
        }
        Pin::new(&mut me.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        me.flow.watch(WRITER, cx)?;
        Pin::new(&mut me.stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn windows_close_when_nobody_takes_and_open_when_somebody_has() {
        let flow = Flow::default();
        let (sender, mut input) = flow.input();
        let piece = vec![7; 64 * 1024];
        while flow.window() == WINDOW_BYTES {
            sender.send(&flow, &piece).unwrap();
        }
        assert!(flow.0.queued.load(Ordering::Relaxed) >= INPUT_BYTES_FULL);
        while flow.window() == WINDOW_BYTES_FULL {
            assert_eq!(input.next().await.as_ref(), Some(&piece));
        }
        assert!(flow.0.queued.load(Ordering::Relaxed) < INPUT_BYTES_LOW);
        drop(input);
        assert_eq!(flow.0.queued.load(Ordering::Relaxed), 0);
        sender.send(&flow, &piece).unwrap();
        assert_eq!(flow.0.queued.load(Ordering::Relaxed), 0, "nobody takes it");
    }

    #[tokio::test]
    async fn who_ignores_the_windows_is_cut_off_at_a_bound() {
        let flow = Flow::default();
        let (sender, _input) = flow.input();
        let piece = vec![7; 64 * 1024];
        let mut sent = 0;
        while sender.send(&flow, &piece).is_ok() {
            sent += 1;
        }
        assert!(sent * piece.len() <= INPUT_BYTES_MAX, "{sent}");
    }
}
