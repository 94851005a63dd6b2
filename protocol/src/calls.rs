//! Requests and answers that survive a lost link: each request is carried out once and answered once,
//! however often the link is lost in between.
//!
//! The host keeps a request until its answer has arrived. The agent keeps an answer until the host
//! confirms it: in the next request (`done`), or when a new link begins (`unanswered`). At the
//! beginning of a new link each end says what it has, and repeats what the other lacks:
//!
//! ```text
//! host                              agent
//!  │── hello: unanswered ───────────▶│  forgets all other requests        Answers::retain
//!  │◀─────────────── welcome: taken ─│  those of them that had arrived     Answers::taken
//!  │── requests that are not taken ─▶│                                    Calls::resend
//!  │◀───── answers that were kept ───│  before any data of streams         Answers::resend
//! ```

use crate::codec::encode_body;
use crate::fault::{Fault, FaultCode};
use crate::frame::{HEADER_BYTES, Kind};
use crate::ids::{RequestId, StreamId};
use crate::limits::{CONTROL_BYTES_MAX, FRAME_BYTES_MAX, REQUESTS_PENDING_MAX};
use crate::message::{Answer, Request, RequestBody};
use crate::mux::Mux;
use crate::sorted::{SortedMap, SortedSet};

/// More requests await their answers than [`REQUESTS_PENDING_MAX`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{REQUESTS_PENDING_MAX} requests await their answers, which is the limit")]
pub struct TooManyRequests;

/// The host's half: requests without an answer.
#[derive(Debug, Default)]
pub struct Calls {
    next: u64,
    pending: SortedMap<RequestId, Pending>,
    /// Answered requests that the agent does not know about yet. At most as many as were pending,
    /// because each further request takes them along.
    done: Vec<RequestId>,
}

#[derive(Debug)]
struct Pending {
    request: Request,
    /// The stream that this request opens and that this end has opened already; the agent does not
    /// know it before the request has arrived.
    opens: Option<StreamId>,
}

impl Calls {
    /// Queues a request on `mux` and keeps it for a new link. `opens` is the stream that this end
    /// has opened for it; `None` if it opens one only with the answer, which has the offset.
    pub fn send(
        &mut self,
        request: Request,
        opens: Option<StreamId>,
        mux: &mut Mux,
    ) -> Result<RequestId, TooManyRequests> {
        if self.pending.len() >= REQUESTS_PENDING_MAX {
            return Err(TooManyRequests);
        }
        let id = RequestId(self.next);
        self.next += 1;
        let body = RequestBody { done: std::mem::take(&mut self.done), request };
        mux.control(Kind::Request, id.0, &body);
        self.pending.insert(id, Pending { request: body.request, opens });
        Ok(id)
    }

    /// Removes an answered request; false if nobody asked.
    pub fn answered(&mut self, id: RequestId) -> bool {
        let known = self.pending.remove(&id).is_some();
        if known {
            self.done.push(id);
        }
        known
    }

    /// The beginning of a new link: the requests that still need their answers.
    pub fn unanswered(&self) -> Vec<RequestId> {
        self.pending.keys().copied().collect()
    }

    /// Streams whose opening request has not arrived at the agent, which has `taken` on the rest.
    pub fn unopened(&self, taken: &[RequestId]) -> SortedSet<StreamId> {
        let taken: SortedSet<_> = taken.iter().collect();
        let lost = self.pending.iter().filter(|(id, _)| !taken.contains(id));
        lost.filter_map(|(_, pending)| pending.opens).collect()
    }

    /// Queues everything again that has not arrived at the agent, in order.
    pub fn resend(&mut self, taken: &[RequestId], mux: &mut Mux) {
        self.done.clear();
        let taken: SortedSet<_> = taken.iter().collect();
        for (id, pending) in self.pending.iter() {
            if !taken.contains(id) {
                let body = RequestBody { done: Vec::new(), request: pending.request.clone() };
                mux.control(Kind::Request, id.0, &body);
            }
            if let Some(stream) = pending.opens {
                mux.repeat_reset(stream);
            }
        }
    }

    /// Drops all requests, because their agent is gone.
    pub fn abandon(&mut self) -> Vec<RequestId> {
        self.done.clear();
        std::mem::take(&mut self.pending).into_keys().collect()
    }
}

/// What the agent does with a request that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Carry it out.
    New,
    /// It is being carried out, or its answer has been queued again.
    Repeated,
    /// The client has more requests under way than it may, and loses its link.
    Refused,
}

/// The agent's half: requests of one client that were taken on.
#[derive(Debug, Default)]
pub struct Answers {
    taken: SortedMap<RequestId, AcceptedRequest>,
    kept_bytes: usize,
}

#[derive(Debug, Default)]
struct AcceptedRequest {
    /// The encoded answer; `None` while the work is going on.
    answer: Option<Vec<u8>>,
    /// The stream that was opened for it.
    opened: Option<StreamId>,
}

impl Answers {
    /// Looks at a request that arrived; a known answer is queued on `mux` again.
    pub fn admit(&mut self, id: RequestId, done: &[RequestId], mux: &mut Mux) -> Admission {
        for id in done {
            self.forget(*id);
        }
        match self.taken.get(&id) {
            None if self.taken.len() >= REQUESTS_PENDING_MAX => Admission::Refused,
            None => {
                self.taken.insert(id, AcceptedRequest::default());
                Admission::New
            }
            Some(taken) => {
                taken.repeat(id, mux);
                Admission::Repeated
            }
        }
    }

    /// Says that `stream` was opened for request `id`, so that it outlives a cut before the host
    /// has the answer.
    pub fn opened(&mut self, id: RequestId, stream: StreamId) {
        if let Some(taken) = self.taken.get_mut(&id) {
            taken.opened = Some(stream);
        }
    }

    /// A new link begins: only these requests still need their answers.
    pub fn retain(&mut self, unanswered: &[RequestId]) {
        let wanted: SortedSet<_> = unanswered.iter().collect();
        let done: Vec<_> = self.taken.keys().filter(|id| !wanted.contains(id)).copied().collect();
        for id in done {
            self.forget(id);
        }
    }

    /// For the welcome: the requests that need not be sent again.
    pub fn taken(&self) -> Vec<RequestId> {
        self.taken.keys().copied().collect()
    }

    /// Whether the host may still lack the answer of a request that was taken on.
    pub fn is_taken(&self, id: RequestId) -> bool {
        self.taken.contains_key(&id)
    }

    /// Streams that the host may not have opened yet, because the answer was lost.
    pub fn unopened(&self) -> SortedSet<StreamId> {
        self.taken.values().filter_map(|taken| taken.opened).collect()
    }

    /// Queues all answers again that the host does not have. Control frames precede data, so that
    /// the host knows about a stream before it receives bytes of it.
    pub fn resend(&self, mux: &mut Mux) {
        for (id, taken) in self.taken.iter() {
            taken.repeat(*id, mux);
        }
    }

    /// Queues an answer and keeps it until the host has it. False if the kept answers take more
    /// than [`CONTROL_BYTES_MAX`]: the host does not acknowledge, and loses its link.
    #[must_use]
    pub fn answer(&mut self, id: RequestId, answer: &Answer, mux: &mut Mux) -> bool {
        let Some(taken) = self.taken.get_mut(&id) else { return true };
        let body = encode_answer(answer);
        mux.control_encoded(Kind::Reply, id.0, &body);
        self.kept_bytes += body.len();
        taken.answer = Some(body);
        self.kept_bytes <= CONTROL_BYTES_MAX
    }

    fn forget(&mut self, id: RequestId) {
        if let Some(taken) = self.taken.remove(&id) {
            self.kept_bytes -= taken.answer.map_or(0, |body| body.len());
        }
    }
}

impl AcceptedRequest {
    fn repeat(&self, id: RequestId, mux: &mut Mux) {
        let Some(body) = &self.answer else { return };
        mux.control_encoded(Kind::Reply, id.0, body);
        if let Some(stream) = self.opened {
            mux.repeat_reset(stream);
        }
    }
}

/// An answer that no frame can carry would cost the link again on every new one, so it becomes a
/// fault.
fn encode_answer(answer: &Answer) -> Vec<u8> {
    let body = encode_body(answer);
    let bytes = HEADER_BYTES + body.len();
    if bytes <= FRAME_BYTES_MAX {
        return body;
    }
    let message = format!("the answer takes {bytes} bytes, and a frame holds {FRAME_BYTES_MAX}");
    encode_body(&Answer::Fault(Fault::new(FaultCode::Limit, message)))
}

#[cfg(test)]
mod tests;
