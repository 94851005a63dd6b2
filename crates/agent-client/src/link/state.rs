//! Everything known about a guest at one moment: its link's phase, the mux, pending requests and streams. The
//! handles and the driver share it behind one lock.
//!
//! Nothing here does I/O or waits. Wakers, and what else is called, are collected and run by [`Shared::with`] after the
//! lock is released, so that nobody is woken only to wait for it.
//!
//! ```text
//!            cut               no address, or too long
//!   Up ──────────────▶ Down ──────────────────────────▶ Over
//!    ◀────────────── resumed                             ▲
//!    └──── closed by us, goodbye, protocol error ────────┘
//! ```

mod arrival;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use protocol::calls::{Calls, TooManyRequests};
use protocol::frame::Frame;
use protocol::hello::{AgentInfo, Welcome};
use protocol::message::{Reply, Request};
use protocol::mux::{Direction, Fetched, Mux, OpenError, Side, Source};
use protocol::spool::Budget;
use protocol::{AgentId, Fault, FaultCode, RequestId, StreamId, Token};
use tokio::sync::watch;

use super::due::{Due, DueTime};
use super::home::{Home, Residence};
use super::limits::WRITERS_BYTES_MAX;
use super::stream::{Base, Inbox, Outbox, Piece, Placed, Rest, Slot, park};
use super::{Failure, LinkError};

/// A stream that a request opens.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    pub stream: StreamId,
    pub direction: Direction,
    pub begins: Begins,
}

/// Where a stream begins, and when it may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// The answer has the offset; nothing flows before it.
    Answered,
    /// At 0 or another known offset. It is read from there, and written to once the request has
    /// been answered.
    At(u64),
    /// At 0, and the bytes follow the request at once: the answer comes when all has arrived. A
    /// two-way stream continues from the agent.
    Now,
}

/// Why a request was not even queued.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    TooMany(#[from] TooManyRequests),
    #[error(transparent)]
    Stream(#[from] OpenError),
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A request that was sent or is queued.
#[derive(Debug)]
pub struct Call {
    /// The reply that it may get besides a fault.
    pub expects: &'static str,
    pub request: &'static str,
    pub opening: Option<Opening>,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Awaited(Option<Waker>),
    Known(Box<Result<Reply, Failure>>),
    /// The caller is gone.
    Unwanted,
}

/// See the module's description.
#[derive(Debug)]
pub struct State {
    pub(super) phase: Phase,
    pub(super) mux: Mux,
    pub(super) calls: Calls,
    pub(super) requests: HashMap<RequestId, Call>,
    pub(super) streams: HashMap<StreamId, Slot>,
    pub(super) agent: AgentId,
    /// The right to resume; the agent changes it when it is adopted.
    pub(super) token: Token,
    pub(super) info: AgentInfo,
    budget: Budget,
    /// The other end is gone for good: the next cut is the last.
    pub(super) forsaken: bool,
    /// The other end's machine is paused: its silence means nothing, and it is not dialled.
    pub(super) held: bool,
    /// The link must be made again, because the other end has lost its half of it.
    pub(super) stale: bool,
    /// When the queued control frames and acknowledgements go out. Data goes at once.
    due: DueTime,
    /// Batches that are not complete yet: nothing goes out meanwhile.
    batches: u32,
    /// Which thread the driver is on.
    residence: Residence,
    /// The driver's, while it has nothing to do.
    driver: Option<Waker>,
    pub(super) woken: Vec<Waker>,
    told: Vec<(Placed, Option<u64>)>,
}

#[derive(Clone, Debug)]
pub enum Phase {
    /// Frames flow.
    Up,
    /// The link was cut and is being dialled again; requests and writes are kept.
    Down,
    /// This end is closing.
    Closing,
    Over(LinkError),
}

/// The state and the news of its end.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    pub over: watch::Sender<Option<LinkError>>,
}

impl Shared {
    pub fn new(welcome: &Welcome) -> Self {
        let state = State {
            phase: Phase::Up,
            mux: Mux::new(Side::Host),
            calls: Calls::default(),
            requests: HashMap::new(),
            streams: HashMap::new(),
            agent: welcome.agent,
            token: welcome.token,
            info: welcome.info.clone(),
            budget: Budget::new(WRITERS_BYTES_MAX),
            forsaken: false,
            held: false,
            stale: false,
            due: DueTime::default(),
            batches: 0,
            residence: Residence::here(),
            driver: None,
            woken: Vec::new(),
            told: Vec::new(),
        };
        Self { state: Mutex::new(state), over: watch::Sender::new(None) }
    }

    /// Runs `act` on the state, then wakes the affected tasks.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // A panic in here would be a bug that the panicking task reports; the others continue.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let value = act(&mut state);
        let woken = std::mem::take(&mut state.woken);
        let told = std::mem::take(&mut state.told);
        drop(state);
        for (placed, end) in told {
            placed.tell(end);
        }
        woken.into_iter().for_each(Waker::wake);
        value
    }

    /// The guest is gone for good.
    pub fn finish(&self, error: &LinkError) {
        self.with(|state| state.finish(error));
        self.over.send_if_modified(|over| {
            let news = over.is_none();
            over.get_or_insert_with(|| error.clone());
            news
        });
    }
}

/// For handles.
impl State {
    /// Queues a request and opens the stream that goes with it.
    pub fn request(
        &mut self,
        request: Request,
        expects: &'static str,
        opening: Option<Opening>,
    ) -> Result<RequestId, RequestError> {
        self.send(request, expects, opening, Due::Now)
    }

    /// Queues a request that nobody waits for.
    pub fn request_later(
        &mut self,
        request: Request,
        expects: &'static str,
    ) -> Result<(), RequestError> {
        let id = self.send(request, expects, None, Due::Later)?;
        self.ignore_answer(id);
        Ok(())
    }

    fn send(
        &mut self,
        request: Request,
        expects: &'static str,
        opening: Option<Opening>,
        due: Due,
    ) -> Result<RequestId, RequestError> {
        match &self.phase {
            Phase::Up | Phase::Down => {}
            Phase::Closing => return Err(LinkError::Closed.into()),
            Phase::Over(error) => return Err(error.clone().into()),
        }
        if let Some(opening) = opening {
            self.open(opening)?;
        }
        let name = request.name();
        let open_already = opening.filter(|opening| opening.begins != Begins::Answered);
        let opens = open_already.map(|opening| opening.stream);
        let id = match self.calls.send(request, opens, &mut self.mux) {
            Ok(id) => id,
            Err(error) => {
                if let Some(opening) = opening {
                    self.mux.forget(opening.stream);
                    self.streams.remove(&opening.stream);
                }
                return Err(error.into());
            }
        };
        let outcome = Outcome::Awaited(None);
        self.requests.insert(id, Call { expects, request: name, opening, outcome });
        self.residence.called();
        self.queued(due);
        Ok(id)
    }

    fn open(&mut self, opening: Opening) -> Result<(), OpenError> {
        let base = match opening.begins {
            Begins::Answered => Base::Unanswered,
            Begins::At(at) => Base::Closed(at),
            Begins::Now => Base::Open(0),
        };
        if let Base::Closed(at) | Base::Open(at) = base {
            self.mux.open(opening.stream, opening.direction, at)?;
        }
        let inbox = (opening.direction != Direction::Out).then(Inbox::default);
        let outbox =
            (opening.direction != Direction::In).then(|| Outbox::new(base, self.budget.clone()));
        self.streams.insert(opening.stream, Slot { inbox, outbox });
        Ok(())
    }

    /// Moves the link to the calling thread.
    pub fn move_here(&mut self) {
        self.residence.move_here();
        if self.residence.is_moving() {
            self.wake_driver();
        }
    }

    pub fn poll_answer(
        &mut self,
        id: RequestId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Reply, Failure>> {
        let Some(call) = self.requests.get_mut(&id) else {
            return Poll::Ready(Err(LinkError::Closed.into()));
        };
        if let Outcome::Awaited(waker) = &mut call.outcome {
            park(waker, cx);
            return Poll::Pending;
        }
        match self.requests.remove(&id).map(|call| call.outcome) {
            Some(Outcome::Known(answer)) => Poll::Ready(*answer),
            _ => Poll::Ready(Err(LinkError::Closed.into())),
        }
    }

    /// The caller no longer waits for this answer. The request itself is not taken back.
    pub fn ignore_answer(&mut self, id: RequestId) {
        match self.requests.get_mut(&id) {
            Some(Call { outcome: outcome @ Outcome::Awaited(_), .. }) => {
                *outcome = Outcome::Unwanted;
            }
            Some(Call { outcome: Outcome::Known(_), .. }) => {
                self.requests.remove(&id);
            }
            Some(Call { outcome: Outcome::Unwanted, .. }) | None => {}
        }
    }

    /// The next piece of a stream, after everything below `taken` has been acknowledged.
    pub fn poll_piece(
        &mut self,
        stream: StreamId,
        taken: Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Piece> {
        if let Some(to) = taken {
            self.consumed(stream, to);
        }
        match self.streams.get_mut(&stream).and_then(|slot| slot.inbox.as_mut()) {
            Some(inbox) => inbox.poll_next(cx),
            None => Poll::Ready(Piece::Failed(LinkError::Closed.into())),
        }
    }

    pub fn consumed(&mut self, stream: StreamId, to: u64) {
        self.mux.consumed(stream, to);
        if let Some(due) = Due::of(self.mux.debt(stream)) {
            self.queued(due);
        }
    }

    pub fn poll_write(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Failure>> {
        let Some(outbox) = self.outbox(stream) else {
            return Poll::Ready(Err(LinkError::Closed.into()));
        };
        let written = outbox.poll_write(bytes, cx);
        if matches!(written, Poll::Ready(Ok(_))) {
            self.mux.wake(stream);
            self.wake_driver();
        }
        written
    }

    /// Says that the writer has written everything.
    pub fn close_outbox(&mut self, stream: StreamId) {
        if let Some(outbox) = self.outbox(stream) {
            outbox.close();
            self.mux.wake(stream);
            self.wake_driver();
        }
    }

    /// The end's offset goes there as soon as it is known.
    pub fn when_placed(&mut self, stream: StreamId, placed: Placed) {
        let Some(outbox) = self.outbox(stream) else { return self.told.push((placed, None)) };
        outbox.when_placed(placed);
        let told = outbox.take_placed();
        self.told.extend(told);
    }

    pub fn poll_done(
        &mut self,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, Failure>> {
        match self.outbox(stream) {
            Some(outbox) => outbox.poll_done(cx),
            None => Poll::Ready(Err(LinkError::Closed.into())),
        }
    }

    pub fn outbox(&mut self, stream: StreamId) -> Option<&mut Outbox> {
        self.streams.get_mut(&stream)?.outbox.as_mut()
    }

    /// The reader is gone. A stream that was not read to its end is given up.
    pub fn drop_inbox(&mut self, stream: StreamId) {
        let Some(inbox) = self.streams.get_mut(&stream).and_then(|slot| slot.inbox.take()) else {
            return;
        };
        match inbox.rest() {
            Rest::Taken => self.consumed(stream, u64::MAX),
            Rest::Failed => {}
            Rest::More => self.give_up(stream, "its reader is gone"),
        }
        self.sweep(stream);
    }

    /// The writer is gone. A stream that was closed continues until the agent has all of it; any other is
    /// dropped.
    pub fn drop_outbox(&mut self, stream: StreamId) {
        let Some(outbox) = self.outbox(stream) else { return };
        outbox.attended = false;
        if !outbox.is_closed() && !outbox.is_over() {
            self.give_up(stream, "its writer is gone");
        }
        self.sweep(stream);
    }

    /// Resets a stream on this end's behalf.
    fn give_up(&mut self, stream: StreamId, why: &str) {
        let fault = Fault::new(FaultCode::Gone, format!("the stream was given up: {why}"));
        self.mux.reset(stream, fault.clone());
        self.fail_stream(stream, &Failure::Fault(fault));
        self.queued(Due::Now);
    }

    /// Closes this end.
    pub fn close(&mut self) {
        if matches!(self.phase, Phase::Up | Phase::Down) {
            self.phase = Phase::Closing;
            self.queued(Due::Now);
        }
    }

    /// Nobody is left to dial. What has arrived still counts, so an existing link is read to its
    /// end.
    pub fn machine_ended(&mut self) {
        self.forsaken = true;
        if matches!(self.phase, Phase::Down) {
            self.close();
        }
    }

    /// The other end's machine is paused from now on.
    pub fn machine_paused(&mut self) {
        self.held = true;
        // Do not send it to a machine that no longer listens.
        self.hurry();
    }

    /// It resumes. With `reconnects` the link is cut first, even if it looks intact.
    pub fn machine_resumed(&mut self, reconnects: bool) {
        self.held = false;
        self.stale |= reconnects && matches!(self.phase, Phase::Up);
        self.wake_driver();
    }
}

/// For the driver.
impl State {
    /// Resolves when the other end's machine is not paused, or this end closes.
    pub fn poll_released(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.held || self.is_closing() {
            return Poll::Ready(());
        }
        park(&mut self.driver, cx);
        Poll::Pending
    }

    /// Takes the request to make the link again.
    pub fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Takes the thread that the link should move to.
    pub fn take_move(&mut self) -> Option<Home> {
        self.residence.take_move()
    }

    /// Appends frames to `out` until it holds `target` bytes or there is nothing to send, if anything is
    /// to go out now.
    pub fn transmit(&mut self, out: &mut Vec<u8>, target: usize) {
        if !self.is_due() {
            return;
        }
        self.mux.transmit(&mut Outboxes(&self.streams), out, target);
        self.sweep_completed();
        if !self.mux.has_work() {
            self.due = DueTime::default();
        }
    }

    fn is_due(&self) -> bool {
        self.batches == 0 && (self.due.is_now() || self.mux.has_data())
    }

    pub fn begin_batch(&mut self) {
        self.batches += 1;
    }

    pub fn end_batch(&mut self) {
        self.batches -= 1;
        if self.is_due() {
            self.wake_driver();
        }
    }

    /// What is queued goes out now, whatever it is.
    pub fn hurry(&mut self) {
        self.queued(Due::Now);
    }

    /// How long queued data may still wait, if the driver has not been woken for it yet.
    pub fn take_pause(&mut self) -> Option<Duration> {
        self.due.take_pause()
    }

    /// Whether there is something to do; if not, the driver is woken when there is.
    pub fn poll_work(&mut self, may_transmit: bool, cx: &mut Context<'_>) -> Poll<()> {
        let closing = matches!(self.phase, Phase::Closing);
        // One that is being dialled goes, and sends, when it is up again.
        let is_up = matches!(self.phase, Phase::Up);
        let moves = is_up && self.residence.is_moving();
        let has_work = self.is_due() && self.mux.has_work();
        let has_pause = is_up && self.due.has_pause();
        if closing || self.stale || moves || has_pause || (may_transmit && has_work) {
            return Poll::Ready(());
        }
        park(&mut self.driver, cx);
        Poll::Pending
    }

    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    /// Takes in a frame that arrived.
    pub fn accept(&mut self, frame: Frame<'_>) -> Result<(), LinkError> {
        let control_bytes = self.mux.control_bytes();
        arrival::accept(self, frame)?;
        self.sweep_completed();
        if self.mux.control_bytes() > control_bytes {
            self.queued(Due::Now);
        } else if self.mux.has_work() {
            // The end of a stream that was read already.
            self.queued(Due::Later);
        }
        Ok(())
    }

    /// Takes an answer to its caller, if there still is one.
    pub(super) fn settle(&mut self, id: RequestId, answer: Result<Reply, Failure>) {
        let Some(call) = self.requests.get_mut(&id) else { return };
        match std::mem::replace(&mut call.outcome, Outcome::Known(Box::new(answer))) {
            Outcome::Awaited(waker) => self.woken.extend(waker),
            Outcome::Known(_) | Outcome::Unwanted => {
                self.requests.remove(&id);
            }
        }
    }

    pub(super) fn fail_stream(&mut self, stream: StreamId, failure: &Failure) {
        if let Some(slot) = self.streams.get_mut(&stream) {
            if let Some(inbox) = &mut slot.inbox {
                self.woken.extend(inbox.fail(failure.clone()));
            }
            if let Some(outbox) = &mut slot.outbox {
                self.woken.extend(outbox.fail(failure.clone()));
                self.told.extend(outbox.take_placed());
            }
        }
        self.sweep(stream);
    }

    fn sweep_completed(&mut self) {
        for stream in self.mux.take_completed() {
            self.complete(stream);
        }
    }

    /// The agent has all that was written to a stream.
    pub(super) fn complete(&mut self, stream: StreamId) {
        if let Some(outbox) = self.outbox(stream) {
            let waker = outbox.complete();
            self.woken.extend(waker);
        }
        self.sweep(stream);
    }

    /// Removes a stream that nobody here waits for.
    pub(super) fn sweep(&mut self, stream: StreamId) {
        if let Some(slot) = self.streams.get_mut(&stream) {
            if slot.outbox.as_ref().is_some_and(|outbox| !outbox.attended && outbox.is_over()) {
                slot.outbox = None;
            }
            if slot.inbox.is_none() && slot.outbox.is_none() {
                self.streams.remove(&stream);
            }
        }
    }

    /// Something was queued that goes out then, or earlier.
    fn queued(&mut self, due: Due) {
        if self.due.add(due) {
            self.wake_driver();
        }
    }

    fn wake_driver(&mut self) {
        self.woken.extend(self.driver.take());
    }
}

/// The outgoing bytes of all streams.
struct Outboxes<'a>(&'a HashMap<StreamId, Slot>);

impl Source for Outboxes<'_> {
    fn fetch(&mut self, stream: StreamId, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        match self.0.get(&stream).and_then(|slot| slot.outbox.as_ref()) {
            Some(outbox) => outbox.fetch(from, max, out),
            None => Fetched::Nothing,
        }
    }
}
