//! Whether a WebSocket's client lives: by what it sends, and by what it reads.
//!
//! A ping waits behind all earlier messages. While the client takes them slowly, no pong
//! can come, and it is not missed; one that takes nothing at all is given up by its connection.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::super::limits::SOCKET_SILENCE_MAX;

/// What is known of a client, for both directions of its socket.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<Mutex<PulseState>>);

#[derive(Debug, Default)]
struct PulseState {
    /// The first ping behind which there was no sign of life.
    pinged_at: Option<Instant>,
    /// More was sent than the client has taken.
    is_held_up: bool,
}

impl Pulse {
    /// A ping is on its way.
    pub fn ask(&self) {
        self.signs().pinged_at.get_or_insert_with(Instant::now);
    }

    /// Whether the client counts as gone.
    pub fn is_lost(&self) -> bool {
        let signs = self.signs();
        !signs.is_held_up && signs.pinged_at.is_some_and(|at| at.elapsed() > SOCKET_SILENCE_MAX)
    }

    fn has_come(&self) {
        self.signs().pinged_at = None;
    }

    fn watch<T>(&self, sent: Poll<T>) -> Poll<T> {
        let mut signs = self.signs();
        if signs.is_held_up && sent.is_ready() {
            // It has taken something.
            signs.pinged_at = None;
        }
        signs.is_held_up = sent.is_pending();
        sent
    }

    fn signs(&self) -> MutexGuard<'_, PulseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a socket, under a pulse.
#[derive(Debug)]
pub struct PulsedStream<S> {
    stream: S,
    pulse: Pulse,
}

impl<S> PulsedStream<S> {
    pub fn new(stream: S, pulse: Pulse) -> Self {
        Self { stream, pulse }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PulsedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut me.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            me.pulse.has_come();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PulsedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let polled = Pin::new(&mut me.stream).poll_write(cx, bytes);
        me.pulse.watch(polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let polled = Pin::new(&mut me.stream).poll_flush(cx);
        me.pulse.watch(polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::advance;

    use super::*;
    use crate::limits::WRITE_PAUSE_MAX;

    const PIPE_BYTES: usize = 16;
    const TOO_LONG: Duration = SOCKET_SILENCE_MAX.saturating_add(Duration::from_secs(1));

    #[tokio::test(start_paused = true)]
    async fn who_is_not_asked_may_be_silent_and_who_is_asked_may_not() {
        let pulse = Pulse::default();
        let (mut client, ours) = duplex(PIPE_BYTES);
        let mut ours = PulsedStream::new(ours, pulse.clone());
        advance(TOO_LONG).await;
        assert!(!pulse.is_lost());
        pulse.ask();
        advance(TOO_LONG / 2).await;
        // Another question does not give it more time.
        pulse.ask();
        assert!(!pulse.is_lost());
        advance(TOO_LONG / 2).await;
        assert!(pulse.is_lost());
        client.write_all(b"!").await.unwrap();
        ours.read_u8().await.unwrap();
        assert!(!pulse.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_slowly_what_is_sent_lives() {
        let pulse = Pulse::default();
        let (mut client, ours) = duplex(PIPE_BYTES);
        let mut ours = PulsedStream::new(ours, pulse.clone());
        pulse.ask();
        let writer = tokio::spawn(async move {
            ours.write_all(&[0; PIPE_BYTES * 2]).await.unwrap();
            ours
        });
        tokio::task::yield_now().await;
        advance(WRITE_PAUSE_MAX / 2).await;
        assert!(!pulse.is_lost(), "no pong can come");
        client.read_exact(&mut [0; PIPE_BYTES * 2]).await.unwrap();
        let _ours = writer.await.unwrap();
        assert!(!pulse.is_lost(), "it has just taken something");
        pulse.ask();
        advance(TOO_LONG).await;
        assert!(pulse.is_lost(), "nothing holds its pong up any more");
    }
}
