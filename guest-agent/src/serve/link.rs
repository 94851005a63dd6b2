//! One connection: bytes in, bytes out, and neither waits for the other.
//!
//! ```text
//! connected ──hello──▶ greeted ──────────▶ ended
//!     │                   │   goodbye, end of file, error, silence, replaced
//!     └── no hello in time, wrong hello ──▶ ended
//! ```

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use protocol::codec::{FrameBuffer, encode_message};
use protocol::frame::Kind;
use protocol::hello::{Goodbye, GoodbyeReason};
use protocol::limits::{HEARTBEAT, HELLO_DEADLINE, LINK_SILENCE_MAX};
use protocol::mux::ProtocolError;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::handshake;
use crate::agent::Agent;
use crate::limits::{GOODBYE_FLUSH_MAX, TRANSMIT_BYTES, WRITES_PER_TURN};
use crate::peer::Peer;
use crate::router;
use crate::sys::ready;
use crate::task;

/// Serves a connection until it ends.
pub async fn run(agent: &Rc<Agent>, socket: OwnedFd) {
    let Ok(()) = set_nonblocking(&socket) else { return };
    // A device that is unplugged leaves its sockets with an error, and nothing to read.
    let all = Interest::READABLE | Interest::WRITABLE | Interest::ERROR;
    let Ok(socket) = ready::watch(socket, all) else { return };
    let mut link = Link { socket, input: FrameBuffer::new(), output: Output::default() };
    let Ok(Some(peer)) = timeout(HELLO_DEADLINE, link.greet(agent)).await else { return };
    let generation = peer.generation();
    // Looked at first: not one byte of the new link may go out on this one.
    let end = tokio::select! {
        biased;
        () = peer.replaced(generation) => {
            // A frame that was begun is the new link's to send again, and nothing can follow it here.
            if link.output.unsent() == 0 {
                let message = if peer.is_evicted() {
                    "another host has adopted the sandbox"
                } else {
                    "the same client has dialled again"
                };
                link.part(GoodbyeReason::Replaced, message).await;
            }
            return;
        }
        end = link.serve(agent, &peer) => end,
    };
    if peer.generation() != generation {
        return;
    }
    match end {
        End::Left => {
            // What a machine has said last is lost with it, unless the host has taken it.
            if agent.ground.config.machine && peer.is_leaving() {
                timeout(GOODBYE_FLUSH_MAX, link.await_end()).await.ok();
            }
            agent.peers.remove(&peer);
        }
        End::Cut => keep(agent, peer, generation),
        End::Broke(error) => {
            // What it has open is of no use to one that cannot speak.
            agent.peers.remove(&peer);
            let Goodbye { reason, message } = error.goodbye();
            link.part(reason, &message).await;
        }
    }
}

/// Keeps a client's streams until it comes back or its window is over.
fn keep(agent: &Rc<Agent>, peer: Rc<Peer>, generation: u64) {
    peer.cut();
    let agent = agent.clone();
    task::spawn(async move {
        tokio::select! {
            () = sleep(peer.resume_window()) => agent.peers.remove(&peer),
            () = peer.replaced(generation) => {}
        }
    });
}

struct Link {
    socket: AsyncFd<OwnedFd>,
    input: FrameBuffer,
    output: Output,
}

/// Frames on their way out; the first `sent` bytes are gone.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

/// How a link ended.
enum End {
    /// With a goodbye of either side.
    Left,
    /// Without a word; the client may come back.
    Cut,
    /// The client broke the rules.
    Broke(ProtocolError),
}

/// How one go at the socket went.
#[derive(PartialEq, Eq)]
enum Go {
    /// Something moved.
    Moved,
    /// The kernel has nothing, or takes nothing.
    Stuck,
    Ended,
}

impl Link {
    /// Waits for the hello and answers it.
    async fn greet(&mut self, agent: &Rc<Agent>) -> Option<Rc<Peer>> {
        let refusal = loop {
            match self.input.take() {
                Ok(Some(frame)) => match handshake::greet(agent, frame) {
                    Ok((peer, welcome)) => {
                        encode_message(Kind::Welcome, 0, &welcome, &mut self.output.bytes);
                        return Some(peer);
                    }
                    Err(goodbye) => break goodbye,
                },
                Ok(None) => {}
                Err(error) => break ProtocolError::from(error).goodbye(),
            }
            let mut ready = self.socket.readable().await.ok()?;
            match read(&self.socket, &mut self.input) {
                Go::Moved => {}
                Go::Ended => return None,
                Go::Stuck => ready.clear_ready(),
            }
        };
        self.part(refusal.reason, &refusal.message).await;
        None
    }

    async fn serve(&mut self, agent: &Rc<Agent>, peer: &Rc<Peer>) -> End {
        let mut heard = Instant::now();
        let mut spoke = Instant::now();
        loop {
            if let Err(error) = self.handle_frames(agent, peer) {
                return End::Broke(error);
            }
            if peer.has_left() {
                return End::Left;
            }
            if peer.has_overrun() {
                return End::Broke(ProtocolError::NotReading { bytes: self.output.unsent() });
            }
            match self.output.write(&self.socket, peer) {
                Go::Moved => spoke = Instant::now(),
                Go::Stuck => {}
                Go::Ended => return End::Cut,
            }
            if peer.is_leaving() && self.output.unsent() == 0 && !peer.has_work() {
                return End::Left;
            }
            let interest = if self.output.unsent() > 0 {
                Interest::READABLE | Interest::WRITABLE | Interest::ERROR
            } else {
                Interest::READABLE | Interest::ERROR
            };
            // In each turn everybody's work goes on: neither direction waits for the other, and
            // the pumps that fill the streams get their turn between two of ours.
            tokio::select! {
                ready = self.socket.ready(interest) => {
                    let Ok(mut ready) = ready else { return End::Cut };
                    if ready.ready().is_readable() || ready.ready().is_error() {
                        match read(&self.socket, &mut self.input) {
                            Go::Moved => heard = Instant::now(),
                            Go::Stuck => ready.clear_ready_matching(Ready::READABLE | Ready::ERROR),
                            Go::Ended => return End::Cut,
                        }
                    }
                    if ready.ready().is_writable() {
                        match self.output.write(&self.socket, peer) {
                            Go::Moved => spoke = Instant::now(),
                            Go::Stuck => ready.clear_ready_matching(Ready::WRITABLE),
                            Go::Ended => return End::Cut,
                        }
                    }
                }
                () = peer.woken() => {}
                () = sleep_until(spoke + HEARTBEAT) => {
                    peer.ping();
                    spoke = Instant::now();
                }
                () = sleep_until(heard + LINK_SILENCE_MAX) => {
                    // After a pause of this process or machine, what has arrived meanwhile counts.
                    match read(&self.socket, &mut self.input) {
                        Go::Moved => heard = Instant::now(),
                        Go::Stuck | Go::Ended => return End::Cut,
                    }
                }
            }
        }
    }

    /// Hands over every whole frame that has arrived.
    fn handle_frames(&mut self, agent: &Rc<Agent>, peer: &Rc<Peer>) -> Result<(), ProtocolError> {
        while let Some(frame) = self.input.take()? {
            if let Some((id, request)) = peer.accept(frame)? {
                router::handle(agent, peer, id, request);
            }
        }
        Ok(())
    }

    /// Waits until the other end has closed.
    async fn await_end(&mut self) {
        while let Ok(mut ready) = self.socket.readable().await {
            match read(&self.socket, &mut FrameBuffer::new()) {
                Go::Moved => {}
                Go::Stuck => ready.clear_ready(),
                Go::Ended => return,
            }
        }
    }

    /// Says why the link ends, if the other end still listens.
    async fn part(&mut self, reason: GoodbyeReason, message: &str) {
        let goodbye = Goodbye { reason, message: message.to_owned() };
        encode_message(Kind::Goodbye, 0, &goodbye, &mut self.output.bytes);
        let flush = async {
            while self.output.unsent() > 0 {
                let Ok(mut ready) = self.socket.writable().await else { return };
                match self.output.write_some(&self.socket) {
                    Go::Moved => {}
                    Go::Ended => return,
                    Go::Stuck => ready.clear_ready(),
                }
            }
        };
        timeout(GOODBYE_FLUSH_MAX, flush).await.ok();
    }
}

impl Output {
    fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Refills itself when it has run out, and writes until the kernel takes no more or one turn's
    /// worth is gone.
    fn write(&mut self, socket: &AsyncFd<OwnedFd>, peer: &Peer) -> Go {
        let mut go = Go::Stuck;
        for _ in 0..WRITES_PER_TURN {
            if self.unsent() == 0 {
                self.bytes.clear();
                self.sent = 0;
                peer.transmit(&mut self.bytes, TRANSMIT_BYTES);
                if self.bytes.is_empty() {
                    self.bytes.shrink_to(TRANSMIT_BYTES);
                    return go;
                }
            }
            match self.write_some(socket) {
                Go::Moved => go = Go::Moved,
                Go::Stuck => return Go::Stuck,
                Go::Ended => return Go::Ended,
            }
        }
        go
    }

    fn write_some(&mut self, socket: &AsyncFd<OwnedFd>) -> Go {
        loop {
            match nix::unistd::write(socket.as_fd(), &self.bytes[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    return Go::Moved;
                }
                Err(Errno::EAGAIN) => return Go::Stuck,
                Err(Errno::EINTR) => {}
                Err(_) => return Go::Ended,
            }
        }
    }
}

fn set_nonblocking(socket: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL)?);
    fcntl(socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}

fn read(socket: &AsyncFd<OwnedFd>, input: &mut FrameBuffer) -> Go {
    loop {
        match nix::unistd::read(socket.as_fd(), input.space()) {
            Ok(0) => return Go::Ended,
            Ok(count) => {
                input.filled(count);
                return Go::Moved;
            }
            Err(Errno::EAGAIN) => return Go::Stuck,
            Err(Errno::EINTR) => {}
            Err(_) => return Go::Ended,
        }
    }
}
