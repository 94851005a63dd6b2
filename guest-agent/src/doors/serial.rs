//! Links over a virtio-serial port, which has no connections of its own. Each link that a host begins becomes
//! a pair of sockets, and `serve` has the other end.
//!
//! `doors` starts it. There is one link at a time: a new one cuts the one before, whose client may resume
//! as after any lost link.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{read, write};
use protocol::serial::Intake;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

use crate::agent::Agent;
use crate::host::serial::Port;
use crate::serve;
use crate::sys::ready;

/// The most bytes that are copied at once in either direction; the port accepts no more.
const CHUNK_BYTES: usize = 32 * 1024;

/// How often to check for a host while there is none: the kernel keeps reporting its absence, which
/// hides its arrival.
const ABSENCE_PAUSE: Duration = Duration::from_millis(100);

/// Carries links for as long as the agent lives. One that has begun is served at once.
pub fn answer(agent: Rc<Agent>, port: Port) -> impl Future<Output = ()> + 'static {
    let Port { mut file, intake, received, is_linked } = port;
    let mut carrier = Carrier {
        agent,
        intake,
        link: None,
        inbound: Vec::new(),
        outbound: Vec::new(),
        buffer: vec![0; CHUNK_BYTES],
    };
    if is_linked {
        carrier.begin();
        carrier.inbound = received;
    }
    async move {
        // A port that cannot be watched is gone.
        while let Ok(port) = ready::watch(file, Interest::READABLE | Interest::WRITABLE) {
            while carrier.carry(&port) {
                carrier.wait(&port).await;
            }
            carrier.link = None;
            sleep(ABSENCE_PAUSE).await;
            file = port.into_inner();
        }
    }
}

struct Carrier {
    agent: Rc<Agent>,
    intake: Intake,
    /// Our end of the pair; `serve` has the other.
    link: Option<AsyncFd<OwnedFd>>,
    /// Bytes from the host that the link has not accepted. Nothing more is read before it has.
    inbound: Vec<u8>,
    /// Copies in the other direction.
    outbound: Vec<u8>,
    buffer: Vec<u8>,
}

impl Carrier {
    /// Begins a link, and ends the one before.
    fn begin(&mut self) {
        (self.inbound, self.outbound, self.link) = (Vec::new(), Vec::new(), None);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Without free descriptors the host gets no answer to its hello and tries again.
        let pair = socketpair(AddressFamily::Unix, SockType::Stream, None, flags);
        if let Ok((ours, theirs)) = pair
            && let Ok(ours) = ready::watch(ours, Interest::READABLE | Interest::WRITABLE)
        {
            self.link = Some(ours);
            serve::accept(&self.agent, theirs);
        }
    }

    /// Copies as much as possible at once. False if no host is there.
    fn carry(&mut self, port: &AsyncFd<OwnedFd>) -> bool {
        if self.inbound.is_empty() {
            let buffer = &mut self.buffer;
            match attempt(port, Interest::READABLE, &mut |port| read(port, buffer)) {
                Some(count @ 1..) => self.received(count),
                Some(_) => return false,
                None => {}
            }
        }
        if let Some(link) = &self.link
            && !self.inbound.is_empty()
        {
            let bytes = &self.inbound;
            match attempt(link, Interest::WRITABLE, &mut |link| write(link, bytes)) {
                Some(count @ 1..) => drop(self.inbound.drain(..count)),
                // Nobody reads it any more. The agent's last bytes are still unread.
                Some(_) => self.inbound.clear(),
                None => {}
            }
        }
        if let Some(link) = &self.link
            && self.outbound.is_empty()
        {
            let buffer = &mut self.buffer;
            match attempt(link, Interest::READABLE, &mut |link| read(link, buffer)) {
                Some(count @ 1..) => self.outbound.extend_from_slice(&self.buffer[..count]),
                Some(_) => self.hang_up(),
                None => {}
            }
        }
        if !self.outbound.is_empty() {
            let bytes = &self.outbound;
            match attempt(port, Interest::WRITABLE, &mut |port| write(port, bytes)) {
                Some(count @ 1..) => drop(self.outbound.drain(..count)),
                Some(_) => return false,
                None => {}
            }
        }
        true
    }

    /// Handles the bytes from the host, which are in the buffer.
    fn received(&mut self, count: usize) {
        let mut at = 0;
        while let (taken, begun) = self.intake.take(&self.buffer[at..count], &mut self.inbound)
            && let Some(link) = begun
        {
            at += taken;
            self.begin();
            self.outbound = link.answer();
        }
        if self.link.is_none() {
            self.inbound.clear();
        }
    }

    /// The agent has ended the link. Its last bytes are still unsent.
    fn hang_up(&mut self) {
        self.link = None;
        self.inbound.clear();
    }

    /// Waits until there may be something to carry.
    async fn wait(&self, port: &AsyncFd<OwnedFd>) {
        let (reads, writes) = (self.inbound.is_empty(), !self.outbound.is_empty());
        tokio::select! {
            () = ready(Some(port), reads, writes) => {}
            () = ready(self.link.as_ref(), !writes, !reads) => {}
        }
    }
}

/// Resolves when the descriptor is ready for one of these.
async fn ready(descriptor: Option<&AsyncFd<OwnedFd>>, reads: bool, writes: bool) {
    let interest = match (reads, writes) {
        (true, true) => Interest::READABLE | Interest::WRITABLE,
        (true, false) => Interest::READABLE,
        (false, true) => Interest::WRITABLE,
        (false, false) => return std::future::pending().await,
    };
    match descriptor {
        Some(descriptor) => drop(descriptor.ready(interest).await),
        None => std::future::pending().await,
    }
}

/// Reads or writes without blocking. Returns how many bytes, or 0 if the other end is gone.
fn attempt(
    descriptor: &AsyncFd<OwnedFd>,
    interest: Interest,
    work: &mut dyn FnMut(&OwnedFd) -> nix::Result<usize>,
) -> Option<usize> {
    match descriptor.try_io(interest, |descriptor| work(descriptor).map_err(io::Error::from)) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        result => Some(result.unwrap_or(0)),
    }
}
