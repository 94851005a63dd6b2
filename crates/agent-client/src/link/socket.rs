//! One connected socket of any family: non-blocking reads and writes, and readiness.
//!
//! The driver and the handshake use it; it knows nothing of frames.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

/// See the module's description.
///
/// The type for Unix sockets serves the other families too: reading, writing and waiting are the same
/// system calls for each, and nothing here asks for an address.
///
/// It is registered for reading only. Whenever the agent reads from a Unix socket, the kernel reports room
/// for writing, and a thread would wake up for news that nobody waits for. It is registered for writing only
/// after the kernel has refused a write, until [`Socket::calm`].
#[derive(Debug)]
pub struct Socket {
    readable: AsyncFd<StdStream>,
    writable: Mutex<Option<AsyncFd<StdStream>>>,
}

impl TryFrom<UnixStream> for Socket {
    type Error = io::Error;

    fn try_from(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream.into_std()?.into())
    }
}

impl Socket {
    /// Takes over a connected socket; called inside a runtime.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let stream = StdStream::from(descriptor);
        stream.set_nonblocking(true)?;
        let readable = register(stream, Interest::READABLE)?;
        Ok(Self { readable, writable: Mutex::default() })
    }

    /// Gives the socket back, for another runtime.
    pub fn release(self) -> OwnedFd {
        self.calm();
        self.readable.into_inner().into()
    }

    /// Reads what has arrived: `None` if nothing has, 0 if the other end has closed.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut count = None;
        let tried = settle(|| {
            self.readable.try_io(Interest::READABLE, |mut stream| {
                let read = stream.read(into)?;
                count = Some(read);
                // A short read has emptied the socket, and the kernel reports what arrives after it. A close
                // of the other end stays known.
                let is_short = read > 0 && read < into.len();
                if is_short { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(read) }
            })
        });
        match count {
            Some(count) => Ok(Some(count)),
            None => tried,
        }
    }

    /// Reads by asking the kernel, even without a notification.
    pub fn read_unreported(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        settle(|| self.readable.get_ref().read(into))
    }

    /// Writes what the kernel accepts: `None` if it accepts nothing now.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match &*self.writable() {
            Some(writable) => {
                settle(|| writable.try_io(Interest::WRITABLE, |mut stream| stream.write(bytes)))
            }
            None => settle(|| self.readable.get_ref().write(bytes)),
        }
    }

    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.readable.poll_read_ready(cx).map_ok(drop)
    }

    /// Resolves when the kernel takes more, after it took nothing.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut registered = self.writable();
        let writable = match &mut *registered {
            Some(writable) => writable,
            none => {
                let stream = self.readable.get_ref().try_clone()?;
                none.insert(register(stream, Interest::WRITABLE)?)
            }
        };
        writable.poll_write_ready(cx).map_ok(drop)
    }

    /// Stops notifications about room for writing, once nothing is left to write.
    pub fn calm(&self) {
        *self.writable() = None;
    }

    /// Waits for bytes and reads them.
    pub async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(count) = self.try_read(into)? {
                return Ok(count);
            }
            let _ = self.readable.readable().await?;
        }
    }

    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes)? {
                Some(count) => bytes = &bytes[count..],
                None => poll_fn(|cx| self.poll_writable(cx)).await?,
            }
        }
        Ok(())
    }

    fn writable(&self) -> MutexGuard<'_, Option<AsyncFd<StdStream>>> {
        self.writable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for types whose number may change, and this is none"
)]
fn register(stream: StdStream, interest: Interest) -> io::Result<AsyncFd<StdStream>> {
    AsyncFd::with_interest(stream, interest)
}

fn settle(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    fn pair() -> (Socket, StdStream) {
        let (ours, theirs) = StdStream::pair().unwrap();
        (Socket::new(ours.into()).unwrap(), theirs)
    }

    async fn soon<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("it comes soon")
    }

    #[tokio::test]
    async fn an_end_that_came_with_the_last_bytes_is_found_behind_a_short_read() {
        let (socket, mut other) = pair();
        other.write_all(b"the last").unwrap();
        drop(other);
        let mut bytes = [0; 64];
        assert_eq!(soon(socket.read(&mut bytes)).await.unwrap(), 8);
        assert_eq!(soon(socket.read(&mut bytes)).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn bytes_can_be_read_before_the_event_loop_reports_them() {
        let (socket, mut other) = pair();
        let mut bytes = [0; 64];
        other.write_all(b"one").unwrap();
        assert_eq!(soon(socket.read(&mut bytes)).await.unwrap(), 3);
        other.write_all(b"a goodbye").unwrap();
        assert_eq!(socket.try_read(&mut bytes).unwrap(), None);
        assert_eq!(socket.read_unreported(&mut bytes).unwrap(), Some(9));
    }

    #[tokio::test]
    async fn a_short_read_waits_for_the_next_notification() {
        let (socket, mut other) = pair();
        let mut bytes = [0; 64];
        for word in [&b"one"[..], b"more", b"and more"] {
            other.write_all(word).unwrap();
            assert_eq!(soon(socket.read(&mut bytes)).await.unwrap(), word.len());
            let mut cx = Context::from_waker(Waker::noop());
            assert!(socket.poll_readable(&mut cx).is_pending(), "there was nothing more");
        }
    }

    #[tokio::test]
    async fn a_writer_that_found_no_room_is_woken_for_room_and_then_no_more() {
        let (socket, mut other) = pair();
        let content: Vec<u8> = (0..1_000_000_u32).map(|at| at as u8).collect();
        for _ in 0..2 {
            let mut writing = pin!(socket.write_all(&content));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(writing.as_mut().poll(&mut cx).is_pending(), "it does not fit into the socket");
            let count = content.len();
            let mut reader = other.try_clone().unwrap();
            let reading = tokio::task::spawn_blocking(move || {
                let mut read = vec![0; count];
                reader.read_exact(&mut read).map(|()| read)
            });
            soon(writing).await.unwrap();
            assert!(soon(reading).await.unwrap().unwrap() == content, "every byte once");
            assert!(socket.writable().is_some());
            socket.calm();
            assert!(socket.writable().is_none());
        }
        other.write_all(b"x").unwrap();
        assert_eq!(soon(socket.read(&mut [0; 2])).await.unwrap(), 1);
    }
}
