//! The link's state machine, the same for both ends: many streams and the control frames over one
//! link that may be cut at any byte and begun again.
//!
//! It is pure. The owner hands in frames that arrived ([`Mux::accept`]) and asks for bytes to send
//! ([`Mux::transmit`]); stored bytes stay with the owner, who gives them out through [`Source`].
//! Control frames go first, then acknowledgements, then one chunk of each ready stream in turn, so
//! that a flood on one stream delays nothing else by more than a chunk per stream.

mod entry;
mod error;

use std::collections::VecDeque;

use crate::codec::{BodyError, decode_body, encode_message};
use crate::data;
use crate::fault::{Fault, FaultCode};
use crate::frame::{self, Frame, HEADER_BYTES, Kind};
use crate::hello::{Goodbye, StreamPosition};
use crate::ids::{RequestId, StreamId};
use crate::limits::{CHUNK_BYTES_MAX, CONTROL_BYTES_MAX, STREAMS_MAX};
use crate::sorted::{SortedMap, SortedSet, sort_by};
use crate::stream::{Ack, Debt, Fin, Gap, Receiver, Sender, StreamError};

pub use entry::Ended;
use entry::Stream;
pub use error::{OpenError, ProtocolError};

/// Faults of reset streams that are remembered, in case the link was cut before they were sent.
const TOMBSTONES_MAX: usize = 64;

/// Which end this is; it decides which frames may arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Host,
    Agent,
}

/// Which way a stream carries bytes, seen from this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Out,
    In,
    Both,
}

/// What an arrived frame means for the owner.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// Bookkeeping; nothing to do.
    Nothing,
    /// The body is a [`crate::message::RequestBody`].
    Request {
        id: RequestId,
        body: &'a [u8],
    },
    /// The body is a [`crate::message::Answer`].
    Reply {
        id: RequestId,
        body: &'a [u8],
    },
    /// New bytes, in order.
    Data {
        stream: StreamId,
        offset: u64,
        bytes: &'a [u8],
    },
    /// Bytes that no longer exist; the stream continues at `to`.
    Gap {
        stream: StreamId,
        from: u64,
        to: u64,
    },
    /// The stream has ended; no byte will follow.
    Fin {
        stream: StreamId,
    },
    /// The peer has consumed everything below; `done` when that was the whole stream.
    Acked {
        stream: StreamId,
        offset: u64,
        done: bool,
    },
    /// The peer has given the stream up. It is closed.
    Reset {
        stream: StreamId,
        fault: Fault,
    },
    Goodbye(Goodbye),
}

/// What a source has at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// Nothing yet; the owner will [`Mux::wake`] the stream.
    Nothing,
    /// This many bytes were appended.
    Bytes(usize),
    /// The bytes up to here no longer exist.
    Gap { to: u64 },
    /// The stream ends exactly here.
    End,
}

/// Where the bytes of outgoing streams are kept.
pub trait Source {
    /// Appends at most `max` bytes of `stream` from offset `from` on to `out`.
    fn fetch(&mut self, stream: StreamId, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched;
}

/// See the module's description.
#[derive(Debug)]
pub struct Mux {
    side: Side,
    streams: SortedMap<StreamId, Stream>,
    /// Encoded control frames, oldest first.
    control: VecDeque<u8>,
    /// Streams that may have something to send, in turn.
    ready: VecDeque<StreamId>,
    /// Streams whose receiver has something to acknowledge.
    owed: VecDeque<StreamId>,
    tombstones: VecDeque<(StreamId, Fault)>,
    /// Completed streams, for the owner to drop.
    completed: Vec<StreamId>,
    pings: u64,
}

impl Mux {
    pub fn new(side: Side) -> Self {
        Self {
            side,
            streams: SortedMap::new(),
            control: VecDeque::new(),
            ready: VecDeque::new(),
            owed: VecDeque::new(),
            tombstones: VecDeque::new(),
            completed: Vec::new(),
            pings: 0,
        }
    }

    /// Opens a stream whose first byte, in either direction, is at offset `at`.
    pub fn open(&mut self, id: StreamId, direction: Direction, at: u64) -> Result<(), OpenError> {
        if self.streams.contains_key(&id) {
            return Err(OpenError::Taken(id.0));
        }
        if self.streams.len() >= STREAMS_MAX {
            return Err(OpenError::TooMany);
        }
        let sender = (direction != Direction::In).then(|| Sender::new(at));
        let receiver = (direction != Direction::Out).then(|| Receiver::new(at));
        self.streams.insert(
            id,
            Stream { sender, receiver, known_to_peer: false, queued: false, ack_owed: false },
        );
        self.wake(id);
        Ok(())
    }

    pub fn is_open(&self, id: StreamId) -> bool {
        self.streams.contains_key(&id)
    }

    /// The source of `id` may have something new.
    pub fn wake(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.sender.is_some()
            && !stream.queued
        {
            stream.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Everything of `id` below `to` has been taken. True if an acknowledgement is now queued.
    pub fn consumed(&mut self, id: StreamId, to: u64) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        let Some(receiver) = &mut stream.receiver else { return false };
        if !receiver.on_consumed(to) || stream.ack_owed {
            return false;
        }
        stream.ack_owed = true;
        self.owed.push_back(id);
        true
    }

    /// How urgent it is that an acknowledgement of `id` goes out.
    pub fn debt(&self, id: StreamId) -> Debt {
        let receiver = self.streams.get(&id).and_then(|stream| stream.receiver.as_ref());
        receiver.map_or(Debt::Small, Receiver::debt)
    }

    /// Resets a stream and sends the peer the reason. What was consumed is acknowledged before it: nothing
    /// else of the stream follows.
    pub fn reset(&mut self, id: StreamId, fault: Fault) {
        if let Some(stream) = self.streams.remove(&id) {
            if let Some(mut receiver) = stream.receiver.filter(Receiver::owes_any) {
                self.control(Kind::Ack, id.0, &receiver.ack());
            }
            self.control(Kind::Reset, id.0, &fault);
            if self.tombstones.len() == TOMBSTONES_MAX {
                self.tombstones.pop_front();
            }
            self.tombstones.push_back((id, fault));
        }
    }

    /// Repeats that `id` was given up, if it was: for a request or an answer that is sent again
    /// and would make the peer count on the stream.
    pub(crate) fn repeat_reset(&mut self, id: StreamId) {
        if self.streams.contains_key(&id) {
            return;
        }
        let reset = self.tombstones.iter().find(|(stream, _)| *stream == id);
        let fault = reset.map_or_else(
            || Fault::new(FaultCode::Gone, format!("stream {} was given up", id.0)),
            |(_, fault)| fault.clone(),
        );
        self.control(Kind::Reset, id.0, &fault);
    }

    /// Drops a stream silently: the peer knows already.
    pub fn forget(&mut self, id: StreamId) {
        self.streams.remove(&id);
    }

    /// Streams that have become complete in both directions since the last call. To be asked for
    /// after [`Mux::accept`] and [`Mux::transmit`].
    pub fn take_completed(&mut self) -> Vec<StreamId> {
        std::mem::take(&mut self.completed)
    }

    /// Queues a control frame.
    pub fn control<T: serde::Serialize>(&mut self, kind: Kind, id: u64, body: &T) {
        let mut encoded = Vec::new();
        encode_message(kind, id, body, &mut encoded);
        self.control.extend(encoded);
    }

    /// Queues a control frame whose body is encoded already.
    pub fn control_encoded(&mut self, kind: Kind, id: u64, body: &[u8]) {
        let mut encoded = Vec::with_capacity(HEADER_BYTES + body.len());
        frame::encode_frame(kind, id, body, &mut encoded);
        self.control.extend(encoded);
    }

    /// Queues a heartbeat.
    pub fn ping(&mut self) {
        self.pings += 1;
        self.control_encoded(Kind::Ping, self.pings, &[]);
    }

    /// Whether [`Mux::transmit`] would have something to look at.
    pub fn has_work(&self) -> bool {
        !self.control.is_empty() || !self.owed.is_empty() || !self.ready.is_empty()
    }

    /// Whether a stream may have bytes to send.
    pub fn has_data(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Control frames that wait, in bytes.
    pub fn control_bytes(&self) -> usize {
        self.control.len()
    }

    /// Takes in a frame that arrived.
    pub fn accept<'a>(&mut self, frame: Frame<'a>) -> Result<Incoming<'a>, ProtocolError> {
        let stream = StreamId(frame.id);
        let request = RequestId(frame.id);
        match (frame.kind, self.side) {
            (Kind::Request, Side::Agent) => Ok(Incoming::Request { id: request, body: frame.body }),
            (Kind::Reply, Side::Host) => Ok(Incoming::Reply { id: request, body: frame.body }),
            (Kind::Data, _) => self.accept_data(stream, frame.body),
            (Kind::Ack, _) => self.accept_ack(stream, decode_body(frame.kind, frame.body)?),
            (Kind::Fin, _) => self.accept_fin(stream, decode_body(frame.kind, frame.body)?),
            (Kind::Gap, _) => self.accept_gap(stream, decode_body(frame.kind, frame.body)?),
            (Kind::Reset, _) => {
                let fault = decode_body(frame.kind, frame.body)?;
                match self.streams.remove(&stream) {
                    Some(_) => Ok(Incoming::Reset { stream, fault }),
                    None => Ok(Incoming::Nothing),
                }
            }
            (Kind::Ping, _) => {
                self.control_encoded(Kind::Pong, frame.id, &[]);
                self.check_peer_reads()?;
                Ok(Incoming::Nothing)
            }
            (Kind::Pong, _) => Ok(Incoming::Nothing),
            (Kind::Goodbye, _) => Ok(Incoming::Goodbye(decode_body(frame.kind, frame.body)?)),
            (Kind::Hello | Kind::Welcome | Kind::Boot, _)
            | (Kind::Request, Side::Host)
            | (Kind::Reply, Side::Agent) => {
                Err(ProtocolError::Unexpected { kind: frame.kind.name() })
            }
        }
    }

    /// Refuses to queue for a peer that sends and does not read.
    pub fn check_peer_reads(&self) -> Result<(), ProtocolError> {
        let bytes = self.control.len();
        if bytes > CONTROL_BYTES_MAX {
            return Err(ProtocolError::NotReading { bytes });
        }
        Ok(())
    }

    /// Appends frames to `out` until it holds `target` bytes or there is nothing to send. The last
    /// frame may go beyond `target`.
    pub fn transmit(&mut self, source: &mut impl Source, out: &mut Vec<u8>, target: usize) {
        self.transmit_control(out, target);
        while out.len() < target
            && let Some(id) = self.owed.pop_front()
        {
            self.transmit_ack(id, out);
        }
        while out.len() < target
            && let Some(id) = self.ready.pop_front()
        {
            self.transmit_data(id, source, out);
        }
    }

    /// What this end reports on a new link: how far each stream has come.
    pub fn positions(&self) -> Vec<StreamPosition> {
        let mut positions: Vec<_> = self
            .streams
            .iter()
            .map(|(&stream, state)| {
                let (next, up_to, finished) =
                    state.receiver.as_ref().map_or((0, 0, false), Receiver::position);
                StreamPosition { stream, next, up_to, finished, gone: None }
            })
            .collect();
        positions.extend(self.tombstones.iter().map(|(stream, fault)| StreamPosition {
            stream: *stream,
            next: 0,
            up_to: 0,
            finished: false,
            gone: Some(fault.clone()),
        }));
        sort_by(&mut positions, |one, other| one.stream < other.stream);
        positions
    }

    /// Drops what was queued for a link that is gone. Streams stay.
    pub fn cut(&mut self) {
        self.control.clear();
        self.ready.clear();
        self.owed.clear();
        for stream in self.streams.values_mut() {
            stream.queued = false;
            stream.ack_owed = false;
        }
    }

    /// Begins a new link with a peer at these positions. Streams that only one end still has are
    /// closed and returned with the reason. Streams in `unopened` that the peer has never mentioned
    /// are new to it, because the request that opens them or its answer was lost, and begin again.
    pub fn resume(
        &mut self,
        theirs: &[StreamPosition],
        unopened: &SortedSet<StreamId>,
    ) -> Vec<(StreamId, Ended)> {
        self.cut();
        let theirs: SortedMap<StreamId, &StreamPosition> =
            theirs.iter().map(|position| (position.stream, position)).collect();
        // A fault has arrived when the peer no longer counts on the stream, and no request or
        // answer that is still to come can make it. That it was sent is not enough: the link may be
        // cut again before the peer reads it.
        let counted_on =
            |id: &StreamId| theirs.get(id).is_some_and(|position| position.gone.is_none());
        self.tombstones.retain(|(id, _)| counted_on(id) || unopened.contains(id));
        // It may have been reset after our own position was sent.
        for (id, fault) in &self.tombstones {
            if counted_on(id) {
                let mut reset = Vec::new();
                encode_message(Kind::Reset, id.0, fault, &mut reset);
                self.control.extend(reset);
            }
        }
        let mut ended = Vec::new();
        let mut ids: Vec<StreamId> = self.streams.keys().copied().collect();
        sort_by(&mut ids, |one, other| one < other);
        for id in ids {
            let stream = self.streams.get_mut(&id).expect("the key was just read");
            let end = match theirs.get(&id) {
                Some(position) => stream.resume(position),
                None if unopened.contains(&id) && !stream.known_to_peer => stream.restart(),
                None => Some(stream.after_peer_forgot()),
            };
            if let Some(end) = end {
                self.streams.remove(&id);
                ended.push((id, end));
                continue;
            }
            if let Some(receiver) = &mut stream.receiver {
                receiver.resume();
                stream.ack_owed = true;
                self.owed.push_back(id);
            }
            self.wake(id);
        }
        ended
    }

    fn accept_data<'a>(
        &mut self,
        id: StreamId,
        body: &'a [u8],
    ) -> Result<Incoming<'a>, ProtocolError> {
        let (offset, bytes) = data::parse_data(body).ok_or_else(|| BodyError {
            kind: Kind::Data.name(),
            reason: "it is not an array of an offset and a binary".to_owned(),
        })?;
        if bytes.len() > CHUNK_BYTES_MAX {
            let reason = format!("{} bytes exceed the limit of {CHUNK_BYTES_MAX}", bytes.len());
            return Err(BodyError { kind: Kind::Data.name(), reason }.into());
        }
        let Some(receiver) = self.receiver(id, Kind::Data)? else { return Ok(Incoming::Nothing) };
        let accepted = receiver.on_data(id, offset, bytes.len())?;
        let bytes = &bytes[accepted.skip..];
        if bytes.is_empty() {
            return Ok(Incoming::Nothing);
        }
        Ok(Incoming::Data { stream: id, offset: accepted.offset, bytes })
    }

    fn accept_ack(&mut self, id: StreamId, ack: Ack) -> Result<Incoming<'static>, ProtocolError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(Incoming::Nothing) };
        stream.known_to_peer = true;
        let Some(sender) = &mut stream.sender else {
            return Err(StreamError::Direction { stream: id.0, kind: Kind::Ack.name() }.into());
        };
        let before = (sender.acked(), sender.is_done());
        sender.on_ack(id, ack)?;
        let (offset, done) = (sender.acked(), sender.is_done());
        if stream.is_done() {
            self.streams.remove(&id);
            self.completed.push(id);
        } else {
            self.wake(id);
        }
        // Every new link begins with acknowledgements that may say nothing new.
        if (offset, done) == before {
            return Ok(Incoming::Nothing);
        }
        Ok(Incoming::Acked { stream: id, offset, done })
    }

    fn accept_fin(&mut self, id: StreamId, fin: Fin) -> Result<Incoming<'static>, ProtocolError> {
        let Some(receiver) = self.receiver(id, Kind::Fin)? else { return Ok(Incoming::Nothing) };
        let news = receiver.on_fin(id, fin.offset)?;
        // If everything before it has been taken already, nobody will report that again.
        self.consumed(id, 0);
        Ok(if news { Incoming::Fin { stream: id } } else { Incoming::Nothing })
    }

    fn accept_gap(&mut self, id: StreamId, gap: Gap) -> Result<Incoming<'static>, ProtocolError> {
        let Some(receiver) = self.receiver(id, Kind::Gap)? else { return Ok(Incoming::Nothing) };
        let news = receiver.on_gap(id, gap)?;
        Ok(if news {
            Incoming::Gap { stream: id, from: gap.from, to: gap.to }
        } else {
            Incoming::Nothing
        })
    }

    /// The receiving half of a stream. Frames of streams that this end has closed are still on
    /// their way and mean nothing.
    fn receiver(&mut self, id: StreamId, kind: Kind) -> Result<Option<&mut Receiver>, StreamError> {
        match self.streams.get_mut(&id) {
            None => Ok(None),
            Some(stream) => {
                stream.known_to_peer = true;
                let direction = StreamError::Direction { stream: id.0, kind: kind.name() };
                stream.receiver.as_mut().map(Some).ok_or(direction)
            }
        }
    }

    /// Frames are taken whole, so that `out` is always a sequence of frames.
    fn transmit_control(&mut self, out: &mut Vec<u8>, target: usize) {
        while out.len() < target && !self.control.is_empty() {
            let mut length = [0; 4];
            for (byte, queued) in length.iter_mut().zip(self.control.iter()) {
                *byte = *queued;
            }
            let total = u32::from_be_bytes(length) as usize + 4;
            out.extend(self.control.drain(..total));
        }
        if self.control.is_empty() {
            self.control.shrink_to(CHUNK_BYTES_MAX);
        }
    }

    fn transmit_ack(&mut self, id: StreamId, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.ack_owed = false;
        let Some(receiver) = &mut stream.receiver else { return };
        encode_message(Kind::Ack, id.0, &receiver.ack(), out);
        if stream.is_done() {
            self.streams.remove(&id);
            self.completed.push(id);
        }
    }

    fn transmit_data(&mut self, id: StreamId, source: &mut impl Source, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.queued = false;
        let Some(sender) = &mut stream.sender else { return };
        if sender.fin_sent {
            return;
        }
        let max = sender.credit().min(CHUNK_BYTES_MAX as u64) as usize;
        let start = frame::begin_frame(Kind::Data, id.0, out);
        data::encode_prefix(sender.next, 0, out);
        let body = out.len();
        let fetched = source.fetch(id, sender.next, max, out);
        match fetched {
            Fetched::Bytes(count) if count > 0 => {
                debug_assert_eq!(out.len() - body, count, "a source appends what it says");
                let length = (count as u32).to_be_bytes();
                out[body - length.len()..body].copy_from_slice(&length);
                frame::finish_frame(start, out);
                sender.next += count as u64;
                stream.queued = true;
                self.ready.push_back(id);
            }
            Fetched::Bytes(_) | Fetched::Nothing => out.truncate(start),
            // Without credit a gap waits: by the time of the acknowledgement it may have grown, and
            // a stalled viewer is not sent a gap for every write.
            Fetched::Gap { .. } if max == 0 => out.truncate(start),
            Fetched::Gap { to } => {
                debug_assert!(to > sender.next, "a gap goes forward");
                out.truncate(start);
                encode_message(Kind::Gap, id.0, &Gap { from: sender.next, to }, out);
                sender.next = to;
                stream.queued = true;
                self.ready.push_back(id);
            }
            Fetched::End => {
                out.truncate(start);
                encode_message(Kind::Fin, id.0, &Fin { offset: sender.next }, out);
                sender.sent_fin();
            }
        }
    }
}

#[cfg(test)]
mod tests;
