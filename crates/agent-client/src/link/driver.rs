//! The one task per guest that owns the socket: bytes in, bytes out, heartbeats, and a new link when
//! the old one was cut.
//!
//! The task moves to the thread that its requests come from ([`super::home`]): the socket changes the
//! runtime, and everything else stays as it is.
//!
//! Reading never waits for writing, nor the other way round: each round writes what the kernel accepts, then
//! waits for whatever comes first. `Link` starts it; it ends when the guest is lost or all handles are
//! dropped.

use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use host::together::together;
use protocol::codec::{FrameBuffer, encode_message};
use protocol::frame::Kind;
use protocol::hello::{Goodbye, GoodbyeReason};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use super::dial::{Absence, BackOff, Patience};
use super::handshake::{Caller, OpenLink, meet};
use super::home::Home;
use super::limits::{
    BEATS_APART, GONE_AFTER, GOODBYE_FLUSH_MAX, GOODBYE_HEARD_MAX, HUNG_UP_READ_BYTES,
    LAST_READS_MAX, TRANSMIT_BELOW_BYTES, TRANSMIT_BYTES,
};
use super::state::{Shared, State};
use super::{Address, LinkError, Socket};

/// See the module's description.
pub struct Driver {
    shared: Arc<Shared>,
    /// The address for a new link; without one the first cut is the end.
    address: Option<Address>,
    caller: Caller,
    frames: FrameBuffer,
    outgoing: Outgoing,
    pulse: Pulse,
    back_off: BackOff,
}

/// Frames on their way into the socket.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

/// When something last went over the link.
struct Pulse {
    received_at: Instant,
    /// A ping that could not be written also moves it, so that a stuck link is not pinged again at
    /// once.
    sent_at: Instant,
    /// When what is queued for later goes out, if it has not by then.
    later: Option<Instant>,
}

impl Pulse {
    fn begin(now: Instant) -> Self {
        Self { received_at: now, sent_at: now, later: None }
    }
}

/// What [`Driver::fill`] has found.
struct Filled {
    /// The link must be closed.
    is_closing: bool,
    /// How long what was not made ready may wait.
    pause: Option<Duration>,
}

/// What ends a wait.
enum Event {
    Readable,
    /// There is something to send, or room for it, or the link should be closed.
    Work,
    /// Time for a heartbeat, or for giving up.
    Tick,
}

/// Why a link is over.
enum End {
    /// It was cut; a new one may be dialled.
    Cut(LinkError),
    /// The guest is lost.
    Lost(LinkError),
}

impl Driver {
    pub fn new(
        shared: Arc<Shared>,
        address: Option<Address>,
        caller: Caller,
        frames: FrameBuffer,
    ) -> Self {
        let now = Instant::now();
        let pulse = Pulse::begin(now);
        let outgoing = Outgoing::default();
        let back_off = BackOff::default();
        Self { shared, address, caller, frames, outgoing, pulse, back_off }
    }

    /// Runs the guest's links, beginning with `socket`, until the guest is lost.
    pub async fn run(mut self, mut socket: Socket) {
        let error = loop {
            // The first try after the cut of a good link follows at once.
            let steady_at = Instant::now() + self.caller.options.timing.steady_after;
            let end = match self.serve(&socket).await {
                Ok(home) => {
                    home.runtime.spawn(self.continue_with(socket.release()));
                    return;
                }
                Err(end) => {
                    drop(socket);
                    end
                }
            };
            if Instant::now() >= steady_at {
                self.back_off = BackOff::default();
            }
            self.shared.with(State::cut);
            self.outgoing = Outgoing::default();
            match end {
                End::Lost(error) => break error,
                End::Cut(error) => match self.restore(error).await {
                    Ok(restored) => socket = restored,
                    Err(error) => break error,
                },
            }
        };
        self.shared.finish(&error);
    }

    /// Continues with a socket of another runtime. (Boxed, since it runs what spawns it.)
    fn continue_with(self, socket: OwnedFd) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            match Socket::new(socket) {
                Ok(socket) => self.run(socket).await,
                Err(error) => self.shared.finish(&error.into()),
            }
        })
    }

    /// Runs one link to its end, or until it moves to another thread.
    async fn serve(&mut self, socket: &Socket) -> Result<Home, End> {
        let now = Instant::now();
        self.pulse = Pulse::begin(now);
        let mut timer = pin!(sleep_until(self.next_tick()));
        // The agent's first frames may have arrived with its welcome.
        let mut arrived = self.take_frames();
        loop {
            if let Err(error) = arrived {
                return Err(self.refuse(socket, error).await);
            }
            arrived = Ok(());
            let Filled { is_closing, pause } = self.fill();
            if is_closing {
                return Err(self.leave(socket).await);
            }
            if let Some(pause) = pause {
                self.pulse.later = Some(Instant::now() + pause);
                timer.as_mut().reset(self.next_tick());
            }
            if self.shared.with(State::take_stale) {
                return Err(End::Cut(LinkError::Closed));
            }
            if let Err(error) = self.flush(socket) {
                return Err(self.last_words(socket, error));
            }
            if let Some(home) = self.shared.with(State::take_move) {
                return Ok(home);
            }
            match poll_fn(|cx| self.poll_event(socket, timer.as_mut(), cx)).await {
                Ok(Event::Work) => {}
                Ok(Event::Readable) => match self.read(socket) {
                    Ok(_) => arrived = self.take_frames(),
                    Err(error) => return Err(End::Cut(error)),
                },
                Ok(Event::Tick) if Instant::now() < self.next_beat() => {
                    if self.pulse.later.take_if(|later| *later <= Instant::now()).is_some() {
                        self.shared.with(State::hurry);
                    } else {
                        self.give_back();
                    }
                    timer.as_mut().reset(self.next_tick());
                }
                Ok(Event::Tick) => {
                    // After a pause of this process or machine, what has arrived meanwhile counts.
                    if Instant::now() >= self.silent_at() {
                        match self.read_unreported(socket) {
                            Ok(true) => arrived = self.take_frames(),
                            Ok(false) => {}
                            Err(error) => return Err(End::Cut(error)),
                        }
                    }
                    if let Err(error) = self.beat() {
                        return Err(End::Cut(error));
                    }
                    if self.outgoing.left().is_empty() {
                        socket.calm();
                    }
                    timer.as_mut().reset(self.next_tick());
                }
                Err(error) => return Err(End::Cut(error)),
            }
        }
    }

    /// Makes frames ready, when few are.
    ///
    /// Only a few are prepared, because a later control frame waits behind them.
    fn fill(&mut self) -> Filled {
        let outgoing = &mut self.outgoing;
        let may_transmit = outgoing.left().len() < TRANSMIT_BELOW_BYTES;
        self.shared.with(|state| {
            if may_transmit {
                outgoing.compact();
                state.transmit(&mut outgoing.bytes, TRANSMIT_BYTES);
            }
            Filled { is_closing: state.is_closing(), pause: state.take_pause() }
        })
    }

    /// Writes what the kernel accepts at once.
    fn flush(&mut self, socket: &Socket) -> Result<(), LinkError> {
        while !self.outgoing.left().is_empty() {
            let Some(count) = socket.try_write(self.outgoing.left())? else { return Ok(()) };
            self.outgoing.sent += count;
            self.pulse.sent_at = Instant::now();
        }
        Ok(())
    }

    /// One read; false when nothing had arrived. The loop comes back for more, so that a flood from
    /// the guest holds up neither our writes nor the other tasks of the thread.
    fn read(&mut self, socket: &Socket) -> Result<bool, LinkError> {
        let read = socket.try_read(self.frames.space())?;
        self.take_in(read)
    }

    /// Reads without relying on readiness: the kernel's notification may not have arrived yet.
    fn read_unreported(&mut self, socket: &Socket) -> Result<bool, LinkError> {
        let read = socket.read_unreported(self.frames.space())?;
        self.take_in(read)
    }

    fn take_in(&mut self, read: Option<usize>) -> Result<bool, LinkError> {
        match read {
            None => Ok(false),
            Some(0) => Err(LinkError::Closed),
            Some(count) => {
                self.frames.filled(count);
                self.pulse.received_at = Instant::now();
                Ok(true)
            }
        }
    }

    /// A write failed: the agent has hung up, and its goodbye may still be unread.
    fn last_words(&mut self, socket: &Socket, cut: LinkError) -> End {
        for _ in 0..LAST_READS_MAX {
            if !matches!(self.read_unreported(socket), Ok(true)) {
                break;
            }
            if let Err(error) = self.take_frames() {
                return End::Lost(error);
            }
        }
        End::Cut(cut)
    }

    /// Takes in all whole frames, under one lock.
    fn take_frames(&mut self) -> Result<(), LinkError> {
        let frames = &mut self.frames;
        self.shared.with(|state| {
            while let Some(frame) = frames.take()? {
                state.accept(frame)?;
            }
            Ok(())
        })
    }

    fn poll_event(
        &self,
        socket: &Socket,
        timer: Pin<&mut Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Event, LinkError>> {
        let left = self.outgoing.left().len();
        let may_transmit = left < TRANSMIT_BELOW_BYTES;
        if self.shared.with(|state| state.poll_work(may_transmit, cx)).is_ready() {
            return Poll::Ready(Ok(Event::Work));
        }
        // Before the timer: after a suspension of this process, what has arrived counts.
        if let Poll::Ready(ready) = socket.poll_readable(cx) {
            return Poll::Ready(ready.map(|()| Event::Readable).map_err(LinkError::from));
        }
        if left > 0
            && let Poll::Ready(ready) = socket.poll_writable(cx)
        {
            return Poll::Ready(ready.map(|()| Event::Work).map_err(LinkError::from));
        }
        timer.poll(cx).map(|()| Ok(Event::Tick))
    }

    /// Gives up a silent link, and pings an idle one.
    fn beat(&mut self) -> Result<(), LinkError> {
        let now = Instant::now();
        self.give_back();
        if self.shared.with(|state| state.held) {
            // Some relays do not survive data that they cannot pass to their machine.
            self.pulse = Pulse::begin(now);
            return Ok(());
        }
        let silence = now - self.pulse.received_at;
        if silence >= self.caller.options.timing.silence_max {
            return Err(LinkError::Silent { silence });
        }
        if now >= self.next_ping() {
            self.pulse.sent_at = now;
            self.shared.with(|state| {
                state.mux.ping();
                state.hurry();
            });
        }
        Ok(())
    }

    /// Gives the memory of buffers back that hold nothing: there are hundreds of quiet links, and those of machines
    /// that sleep.
    fn give_back(&mut self) {
        if self.frames.is_empty() {
            self.frames.clear();
        }
        if self.outgoing.left().is_empty() {
            self.outgoing = Outgoing::default();
        }
    }

    /// When the next heartbeat is due, or the link given up.
    fn next_beat(&self) -> Instant {
        self.next_ping().min(self.silent_at())
    }

    fn next_ping(&self) -> Instant {
        let heartbeat = self.caller.options.timing.heartbeat;
        together(self.pulse.sent_at + heartbeat, heartbeat / BEATS_APART)
    }

    /// When silence has lasted for too long.
    fn silent_at(&self) -> Instant {
        self.pulse.received_at + self.caller.options.timing.silence_max
    }

    fn next_tick(&self) -> Instant {
        self.pulse.later.map_or(self.next_beat(), |later| later.min(self.next_beat()))
    }

    /// Ends a link on which the agent sent a farewell or broke the protocol.
    async fn refuse(&mut self, socket: &Socket, error: LinkError) -> End {
        if let Some(goodbye) = error.goodbye() {
            self.say_goodbye(socket, &goodbye).await;
        }
        End::Lost(error)
    }

    /// Ends a link that nobody here needs any more.
    async fn leave(&mut self, socket: &Socket) -> End {
        let goodbye = Goodbye { reason: GoodbyeReason::Finished, message: String::new() };
        self.say_goodbye(socket, &goodbye).await;
        // An agent hangs up when it has read the goodbye: from then on our resources are free for the next
        // client. A paused one reads nothing.
        if !self.shared.with(|state| state.held) {
            timeout(GOODBYE_HEARD_MAX, hung_up(socket)).await.ok();
        }
        End::Lost(LinkError::Closed)
    }

    /// Best effort, for a bounded time: the other end may not read any more.
    async fn say_goodbye(&mut self, socket: &Socket, goodbye: &Goodbye) {
        encode_message(Kind::Goodbye, 0, goodbye, &mut self.outgoing.bytes);
        let flush = socket.write_all(self.outgoing.left());
        timeout(GOODBYE_FLUSH_MAX, flush).await.ok();
    }

    /// Dials until there is a new link, which resumes requests and streams, or until the deadline.
    async fn restore(&mut self, cut: LinkError) -> Result<Socket, LinkError> {
        let Some(address) = self.address.clone() else { return Err(cut) };
        let shared = Arc::clone(&self.shared);
        // The cut has made this request obsolete.
        shared.with(State::take_stale);
        poll_fn(|cx| shared.with(|state| state.poll_released(cx))).await;
        let closing = poll_fn(|cx| shared.with(|state| state.poll_work(false, cx)));
        tokio::select! {
            () = closing => Err(LinkError::Closed),
            restored = self.redial(&address, cut) => restored,
        }
    }

    async fn redial(&mut self, address: &Address, cut: LinkError) -> Result<Socket, LinkError> {
        let mut deadline = Instant::now() + self.caller.options.dial_deadline;
        let mut error = cut;
        let mut absence = Absence::of_at_most(GONE_AFTER);
        let mut patience = Patience::of_many_tries(self.caller.options.welcome_deadline);
        loop {
            if self.shared.with(|state| state.held) {
                poll_fn(|cx| self.shared.with(|state| state.poll_released(cx))).await;
                deadline = Instant::now() + self.caller.options.dial_deadline;
            }
            let next = Instant::now() + self.back_off.pause();
            if !error.is_passing() || next >= deadline || absence.lasts_too_long(&error) {
                return Err(error);
            }
            sleep_until(next).await;
            let trying = self.try_restore(address, patience.take());
            error = match timeout_at(deadline, trying).await {
                Ok(Ok(socket)) => return Ok(socket),
                Ok(Err(error)) => error,
                Err(_) => LinkError::NoWelcome { waited: self.caller.options.dial_deadline },
            };
        }
    }

    async fn try_restore(
        &mut self,
        address: &Address,
        deadline: Duration,
    ) -> Result<Socket, LinkError> {
        let resume = self.shared.with(|state| state.resume());
        let hello = self.caller.hello(Some(resume));
        let OpenLink { socket, frames, welcome } = meet(address, &hello, deadline).await?;
        self.frames = frames;
        self.shared.with(|state| state.begin(&welcome));
        Ok(socket)
    }
}

/// Reads until the other end has hung up, and discards everything.
async fn hung_up(socket: &Socket) {
    let mut unheard = [0; HUNG_UP_READ_BYTES];
    while matches!(socket.read(&mut unheard).await, Ok(1..)) {}
}

impl Drop for Driver {
    /// A runtime that shuts down drops its tasks; waiters elsewhere must learn of it.
    fn drop(&mut self) {
        self.shared.finish(&LinkError::Closed);
    }
}

impl Outgoing {
    fn left(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Drops what was sent.
    fn compact(&mut self) {
        self.bytes.drain(..self.sent);
        self.sent = 0;
    }
}
