//! Sources of an interpreter's output: its own two pipes, and those of each run.
//!
//! [`actor`](super::actor) reads them; each is labelled with the run that began it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use nix::errno::Errno;
use protocol::message::Channel;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys::{pipe, ready};

/// The run of a source that belongs to the interpreter itself.
pub const NO_RUN: u64 = 0;

/// The reading end of a pipe.
pub struct Source {
    end: End,
    /// The run that it was made for.
    pub run: u64,
    pub channel: Channel,
}

/// Most runs end before anybody waits for their pipes, so a pipe is only registered with the event
/// loop when it is first awaited.
enum End {
    Plain(OwnedFd),
    Watched(AsyncFd<OwnedFd>),
    /// The event loop has refused it.
    Lost,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Bytes(usize),
    /// Nothing at the moment.
    Drained,
    /// All writers are gone.
    Ended,
}

impl Source {
    /// Takes over a non-blocking descriptor.
    pub fn new(fd: OwnedFd, run: u64, channel: Channel) -> Self {
        Self { end: End::Plain(fd), run, channel }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            End::Plain(fd) => Some(fd.as_fd()),
            End::Watched(fd) => Some(fd.get_ref().as_fd()),
            End::Lost => None,
        }
    }

    /// Bytes that were written to it and not read yet.
    pub fn unread(&self) -> usize {
        self.fd().map_or(0, |fd| pipe::unread_bytes(fd) as usize)
    }

    pub fn is_watched(&self) -> bool {
        !matches!(self.end, End::Plain(_))
    }

    /// Takes it from the event loop until it is waited for again: each write would wake the agent.
    pub fn rest(&mut self) {
        if let End::Watched(_) = self.end
            && let End::Watched(fd) = std::mem::replace(&mut self.end, End::Lost)
        {
            self.end = End::Plain(fd.into_inner());
        }
    }

    /// Whether there may be something to read.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let End::Plain(_) = self.end
            && let End::Plain(fd) = std::mem::replace(&mut self.end, End::Lost)
            && let Ok(fd) = ready::watch(fd, Interest::READABLE)
        {
            self.end = End::Watched(fd);
        }
        match &self.end {
            // An error shows when it is read.
            End::Watched(fd) => fd.poll_read_ready(cx).map(drop),
            End::Plain(_) | End::Lost => Poll::Ready(()),
        }
    }

    /// Reads into `space`, which is not empty.
    pub fn read(&self, space: &mut [u8]) -> Read {
        let Some(fd) = self.fd() else { return Read::Ended };
        loop {
            return match nix::unistd::read(fd, space) {
                Ok(0) => Read::Ended,
                Ok(count) => Read::Bytes(count),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    self.clear_readable();
                    Read::Drained
                }
                Err(_) => Read::Ended,
            };
        }
    }

    fn clear_readable(&self) {
        let mut idle = Context::from_waker(std::task::Waker::noop());
        if let End::Watched(fd) = &self.end
            && let Poll::Ready(Ok(mut guard)) = fd.poll_read_ready(&mut idle)
        {
            guard.clear_ready();
        }
    }
}
