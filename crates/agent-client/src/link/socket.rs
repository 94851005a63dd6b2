//! One connected socket, whatever its family: non-blocking reads and writes, and readiness.
//!
//! The driver and the handshake use it; it knows nothing of frames.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::task::{Context, Poll};

use tokio::net::UnixStream;

/// See the module's description.
///
/// Tokio's type for Unix sockets serves the other families too: reading, writing and waiting are
/// the same system calls for each, and nothing here asks for an address.
#[derive(Debug)]
pub struct Socket(UnixStream);

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self(stream)
    }
}

impl Socket {
    /// Takes over a connected socket; called inside a runtime.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let stream = StdStream::from(descriptor);
        stream.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(stream)?))
    }

    /// Reads what has arrived: `None` when nothing has, 0 when the other end has closed.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        settle(|| self.0.try_read(into))
    }

    /// Writes what the kernel takes: `None` when it takes nothing now.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        settle(|| self.0.try_write(bytes))
    }

    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx)
    }

    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(cx)
    }

    /// Waits for bytes and reads them.
    pub async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(count) = self.try_read(into)? {
                return Ok(count);
            }
            self.0.readable().await?;
        }
    }

    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes)? {
                Some(count) => bytes = &bytes[count..],
                None => self.0.writable().await?,
            }
        }
        Ok(())
    }
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
