//! One client: its streams, its requests, and the bytes to be sent to it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use protocol::calls::{Admission, Answers};
use protocol::frame::{Frame, Kind};
use protocol::hello::{Goodbye, GoodbyeReason, Resume, StreamPosition};
use protocol::message::{Answer, RequestBody};
use protocol::mux::{
    Direction, Ended, Fetched, Incoming, Mux, OpenError, ProtocolError, Side, Source,
};
use protocol::sorted::SortedMap;
use protocol::{ClientId, Fault, FaultCode, Reply, Request, RequestId, StreamId, Token};
use tokio::sync::Notify;

use crate::flow::{Inlet, Outlet, Tap, Wire};
use crate::session::Session;

/// See the module's description. It is shared by its link, the work that it has requested, and the taps
/// of its streams.
pub struct Peer {
    pub client: ClientId,
    token: Cell<Token>,
    /// Tokens from before an adoption, each with the request whose answer the client may not have.
    retired: RefCell<Vec<(RequestId, Token)>>,
    /// The name that the client gives itself.
    pub name: String,
    this: Weak<Peer>,
    mux: RefCell<Mux>,
    answers: RefCell<Answers>,
    streams: RefCell<SortedMap<StreamId, Binding>>,
    /// Notified when there is something to send.
    wake: Notify,
    /// Grows with every link, so that an older link notices that it was replaced.
    generation: Cell<u64>,
    /// The client's own count of its links.
    dial: Cell<u64>,
    linked: Cell<bool>,
    replaced: Notify,
    resume_window: Cell<Duration>,
    leaving: Cell<bool>,
    /// Another client has adopted the agent.
    evicted: Cell<bool>,
    /// The client has sent its farewell.
    left: Cell<bool>,
    /// The client has not read its answers for too long, so its link must end.
    overrun: Cell<bool>,
}

/// What a stream is connected to.
#[derive(Default)]
struct Binding {
    outlet: Option<Outlet>,
    inlet: Option<Inlet>,
    /// The session whose keyboard the inlet is.
    keyboard_of: Option<Rc<Session>>,
}

impl Peer {
    pub fn new(client: ClientId, token: Token, name: String) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            client,
            token: Cell::new(token),
            retired: RefCell::default(),
            name,
            this: this.clone(),
            mux: RefCell::new(Mux::new(Side::Agent)),
            answers: RefCell::default(),
            streams: RefCell::default(),
            wake: Notify::new(),
            generation: Cell::new(0),
            dial: Cell::new(0),
            linked: Cell::new(false),
            replaced: Notify::new(),
            resume_window: Cell::new(Duration::ZERO),
            leaving: Cell::new(false),
            evicted: Cell::new(false),
            left: Cell::new(false),
            overrun: Cell::new(false),
        })
    }

    /// Begins a new link, which replaces any earlier one.
    pub fn begin_link(&self, dial: u64, resume_window: Duration) {
        self.dial.set(dial);
        self.linked.set(true);
        self.resume_window.set(resume_window);
        self.generation.set(self.generation.get() + 1);
        self.replaced.notify_waiters();
    }

    pub fn token(&self) -> Token {
        self.token.get()
    }

    /// Changes the token. The answer of request `id` carries the new one.
    pub fn rotate(&self, id: RequestId, token: Token) {
        let answers = self.answers.borrow();
        let mut retired = self.retired.borrow_mut();
        retired.retain(|(id, _)| answers.is_taken(*id));
        retired.push((id, self.token.replace(token)));
    }

    /// Whether the client of this `resume` may continue with the streams here. An older token is valid as
    /// long as the answer with the newer one may have been lost.
    pub fn accepts(&self, resume: &Resume) -> bool {
        let may_lack = |id| resume.unanswered.contains(id) && self.answers.borrow().is_taken(*id);
        let retired = self.retired.borrow();
        let mut older = retired.iter().filter(|(_, token)| is_same(*token, resume.token));
        is_same(self.token(), resume.token) || older.any(|(id, _)| may_lack(id))
    }

    /// Closes everything, the link included: another host has adopted the agent.
    pub fn evict(&self) {
        self.close_all();
        self.evicted.set(true);
        self.generation.set(self.generation.get() + 1);
        self.replaced.notify_waiters();
    }

    pub fn is_evicted(&self) -> bool {
        self.evicted.get()
    }

    pub fn dial(&self) -> u64 {
        self.dial.get()
    }

    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    pub fn resume_window(&self) -> Duration {
        self.resume_window.get()
    }

    /// Resolves when a newer link than `generation` has begun.
    pub async fn replaced(&self, generation: u64) {
        while self.generation.get() == generation {
            self.replaced.notified().await;
        }
    }

    /// Resolves when there may be something to send.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Resumes after a lost link. Returns the positions of this end's streams and the client's
    /// unanswered requests that have arrived, both for the welcome.
    pub fn resume(&self, resume: &Resume) -> (Vec<StreamPosition>, Vec<RequestId>) {
        let mut mux = self.mux.borrow_mut();
        let mut answers = self.answers.borrow_mut();
        answers.retain(&resume.unanswered);
        let ended = mux.resume(&resume.streams, &answers.unopened());
        answers.resend(&mut mux);
        // After the resume, so that the host does not see closed streams as open.
        let positions = mux.positions();
        let taken = answers.taken();
        drop((mux, answers));
        for (stream, end) in ended {
            match end {
                Ended::Complete => self.disconnect_completed(stream),
                Ended::Lost => self.unbind(stream, abandoned()),
                Ended::Reset(fault) => self.unbind(stream, fault),
            }
        }
        (positions, taken)
    }

    /// The link is lost. Streams and answers wait for the next one.
    pub fn cut(&self) {
        self.linked.set(false);
        self.mux.borrow_mut().cut();
    }

    /// Queues the last frame of the link.
    pub fn say_goodbye(&self, reason: GoodbyeReason, message: &str) {
        let goodbye = Goodbye { reason, message: message.to_owned() };
        self.mux.borrow_mut().control(Kind::Goodbye, 0, &goodbye);
        self.leaving.set(true);
        self.wake.notify_one();
    }

    /// Whether everything is sent, including the output of sessions.
    pub fn is_flushed(&self) -> bool {
        let outputs = self.streams.borrow();
        let mut outlets = outputs.values().filter_map(|binding| binding.outlet.as_ref());
        !self.mux.borrow().has_work() && !outlets.any(Outlet::is_output)
    }

    /// Whether the client is connected at the moment.
    pub fn is_linked(&self) -> bool {
        self.linked.get()
    }

    /// Whether a goodbye has been queued: the link ends when everything before it was sent.
    pub fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// Whether the client has sent its farewell, so that nothing is kept for it.
    pub fn has_left(&self) -> bool {
        self.left.get()
    }

    /// Handles one frame. Returns the request in it, if it is a new one.
    pub fn accept(&self, frame: Frame<'_>) -> Result<Option<(RequestId, Request)>, ProtocolError> {
        let incoming = self.mux.borrow_mut().accept(frame)?;
        match incoming {
            Incoming::Nothing | Incoming::Reply { .. } => {}
            Incoming::Request { id, body } => return self.admit(id, body),
            Incoming::Data { stream, bytes, .. } => {
                if let Some(inlet) = self.inlet(stream) {
                    inlet.push(bytes);
                }
            }
            Incoming::Gap { stream, .. } => {
                // The host never discards input, so a gap breaks the rules.
                self.reset(stream, Fault::new(FaultCode::Invalid, "input cannot have gaps"));
            }
            Incoming::Fin { stream } => {
                if let Some(inlet) = self.inlet(stream) {
                    inlet.finish();
                }
            }
            Incoming::Acked { stream, offset, .. } => self.acked(stream, offset),
            Incoming::Reset { stream, fault } => self.unbind(stream, fault),
            Incoming::Goodbye(_) => self.left.set(true),
        }
        Ok(None)
    }

    fn admit(
        &self,
        id: RequestId,
        body: &[u8],
    ) -> Result<Option<(RequestId, Request)>, ProtocolError> {
        let body: RequestBody = protocol::codec::decode_body(Kind::Request, body)?;
        let mut mux = self.mux.borrow_mut();
        let admission = self.answers.borrow_mut().admit(id, &body.done, &mut mux);
        mux.check_peer_reads()?;
        match admission {
            Admission::New => Ok(Some((id, body.request))),
            Admission::Repeated => Ok(None),
            Admission::Refused => Err(ProtocolError::NotReading { bytes: 0 }),
        }
    }

    fn acked(&self, stream: StreamId, offset: u64) {
        let outlet = self.streams.borrow().get(&stream).and_then(|bound| bound.outlet.clone());
        if let Some(outlet) = outlet {
            outlet.acked(&self.tap(stream), offset);
        }
        self.unbind_completed();
    }

    fn unbind_completed(&self) {
        let completed = self.mux.borrow_mut().take_completed();
        for stream in completed {
            self.disconnect_completed(stream);
        }
    }

    /// Answers a request. If the client is gone, the answer is dropped.
    pub fn answer(&self, id: RequestId, result: Result<Reply, Fault>) {
        let answer = match result {
            Ok(reply) => Answer::Ok(reply),
            Err(fault) => Answer::Fault(fault),
        };
        let is_new = self.answers.borrow_mut().answer(id, &answer, &mut self.mux.borrow_mut());
        if !is_new {
            self.overrun.set(true);
        }
        self.wake.notify_one();
    }

    /// Whether more unread answers have piled up than are kept.
    pub fn has_overrun(&self) -> bool {
        self.overrun.get() || self.mux.borrow().check_peer_reads().is_err()
    }

    /// Whether [`Peer::transmit`] may have something.
    pub fn has_work(&self) -> bool {
        self.mux.borrow().has_work()
    }

    /// Appends frames to `out`, up to about `target` bytes in all.
    pub fn transmit(&self, out: &mut Vec<u8>, target: usize) {
        self.mux.borrow_mut().transmit(&mut Outlets(&self.streams.borrow()), out, target);
        self.unbind_completed();
    }

    /// Keeps a silent link alive.
    pub fn ping(&self) {
        self.mux.borrow_mut().ping();
    }

    /// Opens a stream of `direction` at offset `at` for request `id`. It is not connected to anything
    /// yet.
    pub fn open(
        &self,
        id: RequestId,
        stream: StreamId,
        direction: Direction,
        at: u64,
    ) -> Result<Tap, OpenError> {
        self.mux.borrow_mut().open(stream, direction, at)?;
        self.answers.borrow_mut().opened(id, stream);
        self.streams.borrow_mut().insert(stream, Binding::default());
        Ok(self.tap(stream))
    }

    pub fn bind_outlet(&self, stream: StreamId, outlet: &Outlet) {
        if let Some(binding) = self.streams.borrow_mut().get_mut(&stream) {
            binding.outlet = Some(outlet.clone());
        }
        self.wake(stream);
    }

    pub fn bind_inlet(&self, stream: StreamId, inlet: &Inlet, keyboard_of: Option<Rc<Session>>) {
        if let Some(binding) = self.streams.borrow_mut().get_mut(&stream) {
            binding.inlet = Some(inlet.clone());
            binding.keyboard_of = keyboard_of;
        }
    }

    /// Closes a stream whose request failed. The answer of the request carries the fault.
    pub fn forget(&self, stream: StreamId) {
        self.mux.borrow_mut().forget(stream);
        self.unbind(stream, abandoned());
    }

    /// Closes every stream: the client will not return.
    pub fn close_all(&self) {
        let streams: Vec<_> = self.streams.borrow().keys().copied().collect();
        for stream in streams {
            self.forget(stream);
        }
    }

    fn inlet(&self, stream: StreamId) -> Option<Inlet> {
        self.streams.borrow().get(&stream).and_then(|binding| binding.inlet.clone())
    }

    /// Disconnects a complete stream. Its consumer has read the end, or still will.
    fn disconnect_completed(&self, stream: StreamId) {
        let binding = self.streams.borrow_mut().remove(&stream);
        if let Some(outlet) = binding.and_then(|binding| binding.outlet) {
            outlet.detach(&self.tap(stream));
        }
    }

    /// Disconnects a closed stream.
    fn unbind(&self, stream: StreamId, fault: Fault) {
        let Some(binding) = self.streams.borrow_mut().remove(&stream) else { return };
        let tap = self.tap(stream);
        if let Some(outlet) = binding.outlet {
            outlet.detach(&tap);
        }
        if let Some(inlet) = binding.inlet {
            inlet.fail(fault);
        }
        if let Some(session) = binding.keyboard_of {
            session.leave_keyboard(&tap);
        }
    }

    fn tap(&self, stream: StreamId) -> Tap {
        let this = self.this.upgrade().expect("a method runs only on a living peer");
        Tap { wire: this, stream }
    }
}

impl Wire for Peer {
    fn wake(&self, stream: StreamId) {
        self.mux.borrow_mut().wake(stream);
        self.wake.notify_one();
    }

    fn consumed(&self, stream: StreamId, to: u64) {
        let owed = self.mux.borrow_mut().consumed(stream, to);
        if owed {
            self.wake.notify_one();
        }
    }

    fn reset(&self, stream: StreamId, fault: Fault) {
        self.mux.borrow_mut().reset(stream, fault.clone());
        self.unbind(stream, fault);
        self.wake.notify_one();
    }
}

/// The outlets of a peer's streams, as the source of its link.
struct Outlets<'a>(&'a SortedMap<StreamId, Binding>);

impl Source for Outlets<'_> {
    fn fetch(&mut self, stream: StreamId, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        let outlet = self.0.get(&stream).and_then(|binding| binding.outlet.as_ref());
        outlet.map_or(Fetched::Nothing, |outlet| outlet.fetch(from, max, out))
    }
}

/// Compares in constant time.
fn is_same(own: Token, given: Token) -> bool {
    own.0.iter().zip(given.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

fn abandoned() -> Fault {
    Fault::new(FaultCode::Gone, "the client has closed the stream")
}
