//! One connection. Reading and writing never wait for each other.
//!
//! It makes as few system calls as possible. Data is written at once, and the socket is only watched for room
//! after it has accepted no more: otherwise each read of the host would wake the agent. A read that fills
//! less than its buffer has emptied the socket, so it is not repeated.
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
use protocol::limits::{HELLO_DEADLINE, LINK_SILENCE_LOCAL_MAX};
use protocol::mux::ProtocolError;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::handshake;
use crate::agent::Agent;
use crate::limits::{
    AWAY_MIN, GOODBYE_FLUSH_MAX, HEARTBEAT_AGENT, TRANSMIT_BYTES, WRITES_PER_TURN,
};
use crate::peer::Peer;
use crate::router;
use crate::sys::ready;
use crate::task;

/// The sockets of an unplugged device have an error and nothing to read.
const READING: Interest = Interest::READABLE.add(Interest::ERROR);

/// Serves a connection until it ends.
pub async fn run(agent: &Rc<Agent>, socket: OwnedFd) {
    let Ok(()) = set_nonblocking(&socket) else { return };
    let Ok(socket) = ready::watch(socket, READING) else { return };
    let mut link = Link { socket, input: FrameBuffer::new(), output: Output::default() };
    let Ok(Some(peer)) = timeout(HELLO_DEADLINE, link.greet(agent)).await else { return };
    let generation = peer.generation();
    // Checked first: no byte of the new link may be sent on this one.
    let end = tokio::select! {
        biased;
        () = peer.replaced(generation) => {
            // After a partial frame nothing can be sent here. The new link sends that frame again.
            if link.output.unsent() == 0 {
                let message = if peer.is_evicted() {
                    "another host has adopted the sandbox"
                } else {
                    "the same client has dialled again"
                };
                link.send_goodbye(GoodbyeReason::Replaced, message).await;
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
            // The last bytes of a machine are lost with it unless the host has read them.
            if agent.ground.config.machine && peer.is_leaving() {
                timeout(GOODBYE_FLUSH_MAX, link.await_end()).await.ok();
            }
            agent.peers.remove(&peer);
        }
        End::Cut => keep(agent, peer, generation),
        End::Broke(error) => {
            // A client that breaks the protocol cannot use its streams.
            agent.peers.remove(&peer);
            let Goodbye { reason, message } = error.goodbye();
            link.send_goodbye(reason, &message).await;
        }
    }
}

/// Keeps a client's streams until it returns or its resume window is over.
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

/// Frames to send, of which the first `sent` bytes are written.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// The kernel has accepted no more.
    is_blocked: bool,
    /// A second handle to the socket, watched for room. It exists from the first time that the kernel accepts
    /// no more until everything is written.
    room: Option<AsyncFd<OwnedFd>>,
}

/// How a link ended.
enum End {
    /// One side said goodbye.
    Left,
    /// The connection was lost; the client may return.
    Cut,
    /// The client broke the rules.
    Broke(ProtocolError),
}

/// The result of one read or write.
#[derive(PartialEq, Eq)]
enum Progress {
    /// Bytes were read or written.
    Moved,
    /// Bytes were read, and there are no more.
    Drained,
    /// The call would block.
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
                Progress::Moved => {}
                Progress::Ended => return None,
                Progress::Drained | Progress::Stuck => ready.clear_ready(),
            }
        };
        self.send_goodbye(refusal.reason, &refusal.message).await;
        None
    }

    async fn serve(&mut self, agent: &Rc<Agent>, peer: &Rc<Peer>) -> End {
        let mut received_at = Instant::now();
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
                Progress::Moved | Progress::Drained => spoke = Instant::now(),
                Progress::Stuck => {}
                Progress::Ended => return End::Cut,
            }
            if peer.is_leaving() && self.output.unsent() == 0 && !peer.has_work() {
                return End::Left;
            }
            // Each turn reads and writes a little, so that neither direction waits for the other and
            // the pumps that fill the streams run in between.
            tokio::select! {
                ready = self.socket.ready(READING) => {
                    let Ok(mut ready) = ready else { return End::Cut };
                    match read(&self.socket, &mut self.input) {
                        Progress::Moved => received_at = Instant::now(),
                        Progress::Drained => {
                            received_at = Instant::now();
                            ready.clear_ready_matching(Ready::READABLE | Ready::ERROR);
                        }
                        Progress::Stuck => ready.clear_ready_matching(Ready::READABLE | Ready::ERROR),
                        Progress::Ended => return End::Cut,
                    }
                }
                may_go_on = self.output.room(&self.socket), if self.output.unsent() > 0 => {
                    if !may_go_on {
                        return End::Cut;
                    }
                }
                () = peer.woken() => {}
                () = sleep_until(spoke + HEARTBEAT_AGENT) => {
                    peer.ping();
                    spoke = Instant::now();
                }
                () = sleep_until(received_at + LINK_SILENCE_LOCAL_MAX) => {
                    // This process or machine may have been paused: bytes that arrived meanwhile count, and
                    // a host that was silent for as long gets its time again.
                    let late = (received_at + LINK_SILENCE_LOCAL_MAX).elapsed();
                    match read(&self.socket, &mut self.input) {
                        Progress::Moved | Progress::Drained => received_at = Instant::now(),
                        Progress::Stuck if late >= AWAY_MIN => received_at = Instant::now(),
                        Progress::Stuck | Progress::Ended => return End::Cut,
                    }
                }
            }
        }
    }

    /// Handles every complete frame that has arrived.
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
                Progress::Moved => {}
                Progress::Drained | Progress::Stuck => ready.clear_ready(),
                Progress::Ended => return,
            }
        }
    }

    /// Sends a goodbye, if the other end still reads.
    async fn send_goodbye(&mut self, reason: GoodbyeReason, message: &str) {
        let goodbye = Goodbye { reason, message: message.to_owned() };
        encode_message(Kind::Goodbye, 0, &goodbye, &mut self.output.bytes);
        let flush = async {
            while self.output.unsent() > 0
                && self.output.write_some(&self.socket) != Progress::Ended
                && self.output.room(&self.socket).await
            {}
        };
        timeout(GOODBYE_FLUSH_MAX, flush).await.ok();
    }
}

impl Output {
    fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Writes until the kernel accepts no more or this turn's share is written, and refills itself when it is
    /// empty.
    fn write(&mut self, socket: &AsyncFd<OwnedFd>, peer: &Peer) -> Progress {
        let mut go = Progress::Stuck;
        if self.is_blocked {
            return go;
        }
        for _ in 0..WRITES_PER_TURN {
            if self.unsent() == 0 {
                self.bytes.clear();
                self.sent = 0;
                self.room = None;
                peer.transmit(&mut self.bytes, TRANSMIT_BYTES);
                if self.bytes.is_empty() {
                    self.bytes.shrink_to(TRANSMIT_BYTES);
                    return go;
                }
            }
            match self.write_some(socket) {
                Progress::Moved | Progress::Drained => go = Progress::Moved,
                Progress::Stuck => return Progress::Stuck,
                Progress::Ended => return Progress::Ended,
            }
        }
        go
    }

    /// Resolves when more may be written: once others had their turn, or once the kernel has room again
    /// if it had none. `false` means never.
    async fn room(&mut self, socket: &AsyncFd<OwnedFd>) -> bool {
        if !self.is_blocked {
            tokio::task::yield_now().await;
            return true;
        }
        if self.room.is_none() {
            let again = socket.as_fd().try_clone_to_owned();
            self.room = again.and_then(|again| ready::watch(again, Interest::WRITABLE)).ok();
        }
        let Some(room) = &self.room else { return false };
        let Ok(mut ready) = room.writable().await else { return false };
        ready.clear_ready();
        self.is_blocked = false;
        true
    }

    fn write_some(&mut self, socket: &AsyncFd<OwnedFd>) -> Progress {
        loop {
            match nix::unistd::write(socket.as_fd(), &self.bytes[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    return Progress::Moved;
                }
                Err(Errno::EAGAIN) => {
                    self.is_blocked = true;
                    return Progress::Stuck;
                }
                Err(Errno::EINTR) => {}
                Err(_) => return Progress::Ended,
            }
        }
    }
}

fn set_nonblocking(socket: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL)?);
    fcntl(socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}

fn read(socket: &AsyncFd<OwnedFd>, input: &mut FrameBuffer) -> Progress {
    loop {
        let space = input.space();
        let room = space.len();
        match nix::unistd::read(socket.as_fd(), space) {
            Ok(0) => return Progress::Ended,
            Ok(count) => {
                input.filled(count);
                return if count < room { Progress::Drained } else { Progress::Moved };
            }
            Err(Errno::EAGAIN) => return Progress::Stuck,
            Err(Errno::EINTR) => {}
            Err(_) => return Progress::Ended,
        }
    }
}
