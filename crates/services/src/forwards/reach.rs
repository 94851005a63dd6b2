//! One connection to a port inside a sandbox, as bytes to read and to write.
//!
//! A stream that breaks is an error and never an end: who reads to the end of it has everything.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::Forwards;
use super::limits::{CONNECT_MAX, CONNECTIONS_PER_SANDBOX_MAX, PLACE_WAIT_MAX, SILENCE_MAX};
use agent_client::guest::{Guest, GuestError, Output, Piece, Writer};
use sandbox::{Activity, SandboxId};

/// Why nobody is reached at a port.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error(
        "there are {limit} connections into this sandbox, which is the limit, and none has ended \
         for a while"
    )]
    Full { limit: usize },
    #[error("nothing listens on port {port} of the sandbox")]
    NobodyListens { port: u16 },
    #[error("port {port} of the sandbox did not accept a connection in {} s", CONNECT_MAX.as_secs())]
    Slow { port: u16 },
    #[error(transparent)]
    Guest(#[from] GuestError),
}

/// Both names of the sandbox itself: a server that listens on `localhost` may have taken either.
const LOOPBACKS: [Option<&str>; 2] = [None, Some("::1")];

impl Forwards {
    /// Connects to a port of a sandbox. Waits for a place, and then for the program, within bounds.
    /// The sandbox counts as busy until the connection is dropped.
    pub async fn reach(
        &self,
        sandbox: &SandboxId,
        guest: Guest,
        activity: Option<Activity>,
        port: u16,
    ) -> Result<Reached, ReachError> {
        let full = || ReachError::Full { limit: CONNECTIONS_PER_SANDBOX_MAX };
        let place = timeout(PLACE_WAIT_MAX, self.places(sandbox).acquire_owned()).await;
        let place = place.map_err(|_| full())?.map_err(|_| full())?;
        let connecting = timeout(CONNECT_MAX, connect(&guest, port)).await;
        let (writer, output) = connecting.map_err(|_| ReachError::Slow { port })??;
        // A connection must not keep a link that everybody else has dropped.
        drop(guest);
        Ok(Reached {
            output,
            writer,
            unread: Vec::new(),
            read: 0,
            moved_at: Instant::now(),
            silence: Box::pin(sleep_until(Instant::now() + SILENCE_MAX)),
            _place: place,
            _activity: activity,
        })
    }
}

async fn connect(guest: &Guest, port: u16) -> Result<(Writer, Output), ReachError> {
    for address in LOOPBACKS {
        match guest.forward(address.map(str::to_owned), port).await {
            Err(GuestError::Fault(fault)) if nobody_listens(fault.errno) => {}
            connected => return Ok(connected?),
        }
    }
    Err(ReachError::NobodyListens { port })
}

/// A sandbox without the newer loopback address has nobody listening there either.
fn nobody_listens(errno: Option<i32>) -> bool {
    use nix::libc::{EADDRNOTAVAIL, EAFNOSUPPORT, ECONNREFUSED, ENETUNREACH};
    errno.is_some_and(|no| [ECONNREFUSED, EADDRNOTAVAIL, EAFNOSUPPORT, ENETUNREACH].contains(&no))
}

/// See the module's description. Dropping it before both ends are done breaks the connection.
pub struct Reached {
    output: Output,
    writer: Writer,
    /// The piece that was read last, and how much of it has been handed on.
    unread: Vec<u8>,
    read: usize,
    /// When a byte last moved, either way.
    moved_at: Instant,
    silence: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
    _activity: Option<Activity>,
}

impl Reached {
    /// Resolves when nothing has moved for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            ready!(self.silence.as_mut().poll(cx));
            let ends_at = self.moved_at + SILENCE_MAX;
            if ends_at <= Instant::now() {
                let message = format!("no byte moved for {} s", SILENCE_MAX.as_secs());
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            self.silence.as_mut().reset(ends_at);
        }
    }
}

impl AsyncRead for Reached {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        while me.read == me.unread.len() {
            let Poll::Ready(piece) = me.output.poll_next(cx) else {
                return me.poll_silence(cx).map(Err);
            };
            (me.unread, me.read) = match piece {
                Piece::Bytes { bytes, .. } => (bytes, 0),
                Piece::Gap { from, to } => {
                    let message = format!("bytes {from} to {to} no longer exist");
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
                }
                Piece::End => return Poll::Ready(Ok(())),
                Piece::Failed(error) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, error)));
                }
            };
        }
        me.moved_at = Instant::now();
        let count = buffer.remaining().min(me.unread.len() - me.read);
        buffer.put_slice(&me.unread[me.read..me.read + count]);
        me.read += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Reached {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let wrote = ready!(me.writer.poll_write(bytes, cx));
        me.moved_at = Instant::now();
        Poll::Ready(wrote.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.close();
        Poll::Ready(Ok(()))
    }
}
