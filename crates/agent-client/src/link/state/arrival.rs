//! What an arrived frame does to the state: one match over everything that can arrive.
//!
//! Called by the driver, under the lock. The bytes come from a hostile guest: every fault found here
//! costs it its link, and nothing here panics or allocates beyond a named limit.

use protocol::codec::decode_body;
use protocol::frame::{Frame, Kind};
use protocol::message::{Answer, Reply};
use protocol::mux::{Direction, Incoming, ProtocolError};
use protocol::stream::StreamError;
use protocol::{Fault, FaultCode, RequestId, StreamId};

use super::super::limits::PIECES_MAX;
use super::super::stream::TooManyPieces;
use super::super::{Failure, LinkError};
use super::{Begins, Opening, State};

/// Offsets beyond are refused, as `protocol::stream` does for gaps: no sum of two then overflows.
const OFFSET_MAX: u64 = u64::MAX / 2;

pub fn accept(state: &mut State, frame: Frame<'_>) -> Result<(), LinkError> {
    match state.mux.accept(frame)? {
        Incoming::Nothing => {}
        // The mux of a host lets no request through; a match must handle it anyway.
        Incoming::Request { .. } => {
            return Err(ProtocolError::Unexpected { kind: Kind::Request.name() }.into());
        }
        Incoming::Reply { id, body } => return accept_reply(state, id, body),
        Incoming::Data { stream, offset, bytes } => {
            if let Some(inbox) = state.streams.get_mut(&stream).and_then(|slot| slot.inbox.as_mut())
            {
                let pushed = inbox.push_bytes(offset, bytes);
                state.woken.extend(pushed.map_err(|error| too_many(error, stream))?);
            }
        }
        Incoming::Gap { stream, from, to } => {
            if let Some(inbox) = state.streams.get_mut(&stream).and_then(|slot| slot.inbox.as_mut())
            {
                let pushed = inbox.push_gap(from, to);
                state.woken.extend(pushed.map_err(|error| too_many(error, stream))?);
            }
        }
        Incoming::Fin { stream } => {
            if let Some(inbox) = state.streams.get_mut(&stream).and_then(|slot| slot.inbox.as_mut())
            {
                state.woken.extend(inbox.end());
            }
        }
        Incoming::Acked { stream, offset, done } => {
            if let Some(outbox) = state.outbox(stream) {
                let waker = outbox.acked(offset, done);
                state.woken.extend(waker);
            }
            state.sweep(stream);
        }
        Incoming::Reset { stream, fault } => state.fail_stream(stream, &fault.into()),
        Incoming::Goodbye(goodbye) => return Err(goodbye.into()),
    }
    Ok(())
}

fn too_many(_: TooManyPieces, stream: StreamId) -> LinkError {
    LinkError::TooManyPieces { stream: stream.0, pieces: PIECES_MAX + 1 }
}

fn accept_reply(state: &mut State, id: RequestId, body: &[u8]) -> Result<(), LinkError> {
    // A reply to an unknown request is no fault: a request that was sent again may be answered
    // twice.
    if !state.calls.answered(id) {
        return Ok(());
    }
    let answer: Answer = decode_body(Kind::Reply, body)?;
    let Some(call) = state.requests.get(&id) else { return Ok(()) };
    let opening = call.opening;
    let answer = match answer {
        Answer::Ok(reply) if reply.name() != call.expects => {
            return Err(LinkError::WrongReply { request: call.request, reply: reply.name() });
        }
        Answer::Ok(reply) => {
            // Whether or not anybody waits for the answer: the next link begins with it.
            if let Reply::Adopted(adopted) = &reply {
                state.agent = adopted.agent;
                state.token = adopted.token;
            }
            if let Some(opening) = opening {
                opened(state, opening, &reply)?;
            }
            Ok(reply)
        }
        Answer::Fault(fault) => {
            let failure = Failure::from(fault);
            if let Some(opening) = opening {
                refused(state, opening, &failure);
            }
            Err(failure)
        }
    };
    state.settle(id, answer);
    Ok(())
}

/// The agent has opened a stream: bytes may flow.
fn opened(state: &mut State, opening: Opening, reply: &Reply) -> Result<(), LinkError> {
    let stream = opening.stream;
    let at = match (opening.begins, reply) {
        // Everything has arrived; the other direction continues.
        (Begins::Now, _) if opening.direction == Direction::Both => return Ok(()),
        (Begins::Now, _) => {
            // The answer confirms that all has arrived; the acknowledgement that confirms the same
            // may have been lost with a link.
            state.mux.forget(stream);
            state.complete(stream);
            return Ok(());
        }
        (Begins::At(at), _) => at,
        (Begins::Answered, Reply::Subscribed(subscribed)) => subscribed.from,
        (Begins::Answered, Reply::Input(input)) => input.at,
        // No other request reports its beginning.
        (Begins::Answered, _) => 0,
    };
    if at > OFFSET_MAX {
        let stream = stream.0;
        return Err(ProtocolError::from(StreamError::Overflow { stream, offset: at }).into());
    }
    let wanted = state.streams.contains_key(&stream);
    if opening.begins == Begins::Answered {
        // The limit of streams may have been reached meanwhile.
        let opened = state.mux.open(stream, opening.direction, at);
        if !wanted {
            let why = "the stream was given up before it was open";
            state.mux.reset(stream, Fault::new(FaultCode::Gone, why));
        } else if let Err(error) = opened {
            state.fail_stream(stream, &Fault::from(error).into());
        }
    }
    if let Some(outbox) = state.outbox(stream) {
        outbox.begin(at);
        let told = outbox.take_placed();
        state.told.extend(told);
        state.mux.wake(stream);
    }
    Ok(())
}

/// The agent has not opened a stream, or has dropped it halfway; either way it no longer has it.
fn refused(state: &mut State, opening: Opening, failure: &Failure) {
    state.mux.forget(opening.stream);
    state.fail_stream(opening.stream, failure);
}
