//! The control channel: packets ↔ messages of one interpreter.
//!
//! [`actor`](super::actor) owns it. Packets without the token are ignored: the code of a run shares the
//! descriptor and may write to it by accident.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, recv, sendmsg, shutdown,
    socketpair,
};
use protocol::msgpack;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::limits::{MESSAGE_BYTES_MAX, PACKET_BYTES_MAX, PACKETS_WAITING_MAX, PART_BYTES_MAX};
use super::message::{FromDriver, ToDriver};
use crate::sys::{entropy, ready};

pub const TOKEN_BYTES: usize = 16;
pub type Token = [u8; TOKEN_BYTES];

/// The flag of a message's last packet, and of those before it.
const LAST: u8 = 0;
const MORE: u8 = 1;

/// The agent's end.
pub struct Channel {
    socket: AsyncFd<OwnedFd>,
    token: Token,
    outgoing: VecDeque<Packet>,
    /// The parts of a message that is not complete.
    incoming: Vec<u8>,
    buffer: Vec<u8>,
}

struct Packet {
    bytes: Vec<u8>,
    /// Descriptors that go with it.
    handed: Vec<OwnedFd>,
}

/// The result of a read.
pub enum Received {
    Message(Box<FromDriver>),
    /// Garbage, or a part of a message.
    Nothing,
    /// Nothing at the moment.
    Drained,
    /// The other end is closed.
    Closed,
    /// A packet has the token and breaks the rules.
    Broken,
}

impl Channel {
    /// A channel and its other end, which becomes the interpreter's descriptor.
    pub fn open() -> io::Result<(Self, OwnedFd)> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let mut token = Token::default();
        entropy::fill(&mut token)?;
        // A shell's output ends a write at each newline, and a packet is one write.
        token.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b'\r');
        let channel = Self {
            // Each call sets its own flag not to block: the flag of the open file is left alone,
            // because the other end shares nothing with it.
            socket: ready::watch(ours, Interest::READABLE | Interest::WRITABLE)?,
            token,
            outgoing: VecDeque::new(),
            incoming: Vec::new(),
            buffer: vec![0; PACKET_BYTES_MAX],
        };
        Ok((channel, theirs))
    }

    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Queues a message.
    pub fn send(&mut self, message: &ToDriver<'_>) {
        self.send_with(message, Vec::new());
    }

    /// Queues a message with descriptors.
    pub fn send_with(&mut self, message: &ToDriver<'_>, handed: Vec<OwnedFd>) {
        let mut body = Vec::with_capacity(256);
        msgpack::encode(message, &mut body);
        self.send_raw(&body, handed);
    }

    /// Queues a message that is encoded already.
    pub fn send_raw(&mut self, body: &[u8], mut handed: Vec<OwnedFd>) {
        let mut rest = body;
        loop {
            let (part, left) = rest.split_at(rest.len().min(PART_BYTES_MAX));
            rest = left;
            let flag = if rest.is_empty() { LAST } else { MORE };
            let bytes = [&[flag], part].concat();
            self.outgoing.push_back(Packet { bytes, handed: std::mem::take(&mut handed) });
            if rest.is_empty() {
                break;
            }
        }
        self.flush();
    }

    /// Queues one packet that is not a message.
    pub fn send_byte(&mut self, byte: u8) {
        self.outgoing.push_back(Packet { bytes: vec![byte], handed: Vec::new() });
        self.flush();
    }

    /// Closes the channel for writing. The other end can still send.
    pub fn shut_down_writing(&mut self) {
        // The other end may be gone already.
        shutdown(self.socket.as_raw_fd(), Shutdown::Write).ok();
    }

    /// Whether more is queued than a driver that reads can leave unread.
    pub fn is_deaf(&self) -> bool {
        self.outgoing.len() > PACKETS_WAITING_MAX
    }

    pub fn is_flushed(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Resolves when more can be sent.
    pub async fn writable(&self) {
        // An error shows when the next packet is sent, or read.
        if let Ok(mut guard) = self.socket.writable().await {
            guard.clear_ready();
        }
    }

    /// Sends as much as the socket accepts. If the other end is gone the rest is dropped; reading the
    /// channel shows it.
    pub fn flush(&mut self) {
        while let Some(packet) = self.outgoing.front() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let raw: Vec<_> = packet.handed.iter().map(AsRawFd::as_raw_fd).collect();
            let rights = [ControlMessage::ScmRights(&raw)];
            let rights = if raw.is_empty() { &rights[..0] } else { &rights[..] };
            let bytes = [io::IoSlice::new(&packet.bytes)];
            let socket = self.socket.as_raw_fd();
            match sendmsg::<()>(socket, &bytes, rights, flags, None) {
                Ok(_) => {
                    self.outgoing.pop_front();
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => self.outgoing.clear(),
            }
        }
    }

    /// Resolves when there may be something to receive.
    pub async fn readable(&self) {
        // Either way, receiving shows what there is.
        drop(self.socket.readable().await);
    }

    /// Receives one packet.
    pub fn receive(&mut self) -> Received {
        let socket = self.socket.get_ref().as_fd();
        let read = loop {
            match recv(socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EINTR) => {}
                read => break read,
            }
        };
        let length = match read {
            Err(Errno::EAGAIN) => {
                self.clear_readable();
                return Received::Drained;
            }
            // An empty packet reads like the end. Only after the real end does every read return it.
            Ok(0) if self.is_hung_up() => return Received::Closed,
            Ok(length) => length,
            Err(_) => return Received::Closed,
        };
        let Some((flag, part)) = parse_packet(&self.buffer[..length], &self.token) else {
            return Received::Nothing;
        };
        if self.incoming.len() + part.len() > MESSAGE_BYTES_MAX {
            return Received::Broken;
        }
        match flag {
            MORE => {
                self.incoming.extend_from_slice(part);
                Received::Nothing
            }
            LAST if self.incoming.is_empty() => decoded(part),
            LAST => {
                self.incoming.extend_from_slice(part);
                decoded(&std::mem::take(&mut self.incoming))
            }
            _ => Received::Broken,
        }
    }

    fn clear_readable(&self) {
        let mut idle = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(Ok(mut guard)) = self.socket.poll_read_ready(&mut idle) {
            guard.clear_ready();
        }
    }

    fn is_hung_up(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut watched = [PollFd::new(self.socket.get_ref().as_fd(), PollFlags::POLLIN)];
        let polled = poll(&mut watched, PollTimeout::ZERO);
        let hung = watched[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
        polled.is_err() || hung
    }
}

/// The flag and the part of a packet that has the token.
fn parse_packet<'a>(packet: &'a [u8], token: &Token) -> Option<(u8, &'a [u8])> {
    let (named, rest) = packet.split_first_chunk::<TOKEN_BYTES>()?;
    let (flag, part) = rest.split_first()?;
    (named == token).then_some((*flag, part))
}

/// Bytes as a shell can hold them.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

fn decoded(body: &[u8]) -> Received {
    msgpack::decode(body).map_or(Received::Broken, |message| Received::Message(Box::new(message)))
}
