//! The one task per guest that owns the socket: bytes in, bytes out, heartbeats, and a new link when
//! the old one was cut.
//!
//! Reading never waits for writing nor the other way round: each round writes what the kernel takes,
//! then waits for whatever comes first. `Link` starts it; it ends when the guest is lost or nobody
//! holds a handle any more.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use protocol::codec::{FrameBuffer, encode_message};
use protocol::frame::Kind;
use protocol::hello::{Goodbye, GoodbyeReason};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use super::dial::{Absence, BackOff, Patience};
use super::handshake::{Caller, Met, meet};
use super::limits::{
    GONE_AFTER, GOODBYE_FLUSH_MAX, GOODBYE_HEARD_MAX, HUNG_UP_READ_BYTES, LAST_READS_MAX,
    TRANSMIT_BELOW_BYTES, TRANSMIT_BYTES,
};
use super::state::{Shared, State};
use super::{Address, LinkError, Socket};

/// See the module's description.
pub struct Driver {
    shared: Arc<Shared>,
    /// Where a new link is dialled; without it the first cut is the end.
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
    heard: Instant,
    /// Also moved by a ping that could not be written, so that a stuck link is not pinged at once
    /// again.
    spoke: Instant,
}

/// What ends a wait.
enum Event {
    Readable,
    /// There is something to send, or room for it, or the link shall be closed.
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
        let pulse = Pulse { heard: now, spoke: now };
        let outgoing = Outgoing::default();
        let back_off = BackOff::default();
        Self { shared, address, caller, frames, outgoing, pulse, back_off }
    }

    /// Runs the guest's links, beginning with `socket`, until the guest is lost.
    pub async fn run(mut self, mut socket: Socket) {
        let error = loop {
            // The first try after the cut of a good link follows at once.
            let steady_at = Instant::now() + self.caller.options.timing.steady_after;
            let end = self.serve(&socket).await;
            drop(socket);
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

    /// Runs one link to its end.
    async fn serve(&mut self, socket: &Socket) -> End {
        let now = Instant::now();
        self.pulse = Pulse { heard: now, spoke: now };
        let mut timer = pin!(sleep_until(self.next_tick()));
        // The agent's first frames may have come with its welcome.
        let mut arrived = self.take_frames();
        loop {
            if let Err(error) = arrived {
                return self.refuse(socket, error).await;
            }
            arrived = Ok(());
            if self.fill() {
                return self.leave(socket).await;
            }
            if self.shared.with(State::take_stale) {
                return End::Cut(LinkError::Closed);
            }
            if let Err(error) = self.flush(socket) {
                return self.last_words(socket, error);
            }
            match poll_fn(|cx| self.poll_event(socket, timer.as_mut(), cx)).await {
                Ok(Event::Work) => {}
                Ok(Event::Readable) => match self.read(socket) {
                    Ok(_) => arrived = self.take_frames(),
                    Err(error) => return End::Cut(error),
                },
                Ok(Event::Tick) => {
                    // After a pause of this process or machine, what has arrived meanwhile counts.
                    match self.read(socket) {
                        Ok(true) => arrived = self.take_frames(),
                        Ok(false) => {}
                        Err(error) => return End::Cut(error),
                    }
                    if let Err(error) = self.beat() {
                        return End::Cut(error);
                    }
                    timer.as_mut().reset(self.next_tick());
                }
                Err(error) => return End::Cut(error),
            }
        }
    }

    /// Makes frames ready, when few are. True when the link shall be closed.
    ///
    /// Few are kept ready, because a control frame that comes later waits behind them.
    fn fill(&mut self) -> bool {
        let outgoing = &mut self.outgoing;
        let may_transmit = outgoing.left().len() < TRANSMIT_BELOW_BYTES;
        self.shared.with(|state| {
            if may_transmit {
                outgoing.compact();
                state.transmit(&mut outgoing.bytes, TRANSMIT_BYTES);
            }
            state.is_closing()
        })
    }

    /// Writes what the kernel takes at once.
    fn flush(&mut self, socket: &Socket) -> Result<(), LinkError> {
        while !self.outgoing.left().is_empty() {
            let Some(count) = socket.try_write(self.outgoing.left())? else { return Ok(()) };
            self.outgoing.sent += count;
            self.pulse.spoke = Instant::now();
        }
        Ok(())
    }

    /// One read; false when nothing had arrived. The loop comes back for more, so that a flood from
    /// the guest holds up neither our writes nor the other tasks of the thread.
    fn read(&mut self, socket: &Socket) -> Result<bool, LinkError> {
        match socket.try_read(self.frames.space())? {
            None => Ok(false),
            Some(0) => Err(LinkError::Closed),
            Some(count) => {
                self.frames.filled(count);
                self.pulse.heard = Instant::now();
                Ok(true)
            }
        }
    }

    /// A write failed: the agent has hung up, and its goodbye may still wait to be read.
    fn last_words(&mut self, socket: &Socket, cut: LinkError) -> End {
        for _ in 0..LAST_READS_MAX {
            if !matches!(self.read(socket), Ok(true)) {
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

    /// Gives up a silent link, pings an idle one, and gives its buffers' memory back.
    fn beat(&mut self) -> Result<(), LinkError> {
        let now = Instant::now();
        if self.shared.with(|state| state.held) {
            // Some relays do not survive what they cannot hand to their machine.
            self.pulse = Pulse { heard: now, spoke: now };
            return Ok(());
        }
        let silence = now - self.pulse.heard;
        if silence >= self.caller.options.timing.silence_max {
            return Err(LinkError::Silent { silence });
        }
        if now - self.pulse.spoke >= self.caller.options.timing.heartbeat {
            self.pulse.spoke = now;
            self.shared.with(|state| state.mux.ping());
            if self.frames.is_empty() {
                self.frames.clear();
            }
            if self.outgoing.left().is_empty() {
                self.outgoing = Outgoing::default();
            }
        }
        Ok(())
    }

    fn next_tick(&self) -> Instant {
        let timing = &self.caller.options.timing;
        (self.pulse.spoke + timing.heartbeat).min(self.pulse.heard + timing.silence_max)
    }

    /// Ends a link on which the agent said goodbye or broke the protocol.
    async fn refuse(&mut self, socket: &Socket, error: LinkError) -> End {
        if let Some(goodbye) = error.goodbye() {
            self.say_goodbye(socket, &goodbye).await;
        }
        End::Lost(error)
    }

    /// Ends a link that nobody here wants any more.
    async fn leave(&mut self, socket: &Socket) -> End {
        let goodbye = Goodbye { reason: GoodbyeReason::Finished, message: String::new() };
        self.say_goodbye(socket, &goodbye).await;
        // An agent hangs up when it has heard it: from then on whoever comes finds free what we had.
        // One that stands still hears nothing.
        if !self.shared.with(|state| state.held) {
            timeout(GOODBYE_HEARD_MAX, hung_up(socket)).await.ok();
        }
        End::Lost(LinkError::Closed)
    }

    /// Best effort, for a bounded time: the other end may be past listening.
    async fn say_goodbye(&mut self, socket: &Socket, goodbye: &Goodbye) {
        encode_message(Kind::Goodbye, 0, goodbye, &mut self.outgoing.bytes);
        let flush = socket.write_all(self.outgoing.left());
        timeout(GOODBYE_FLUSH_MAX, flush).await.ok();
    }

    /// Dials until there is a new link, which takes up what was under way, or until the deadline.
    async fn restore(&mut self, cut: LinkError) -> Result<Socket, LinkError> {
        let Some(address) = self.address.clone() else { return Err(cut) };
        let shared = Arc::clone(&self.shared);
        // What this was about has been seen to by the cut.
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
        let Met { socket, frames, welcome } = meet(address, &hello, deadline).await?;
        self.frames = frames;
        self.shared.with(|state| state.begin(&welcome));
        Ok(socket)
    }
}

/// Reads until the other end has hung up. What it still says is for nobody.
async fn hung_up(socket: &Socket) {
    let mut unheard = [0; HUNG_UP_READ_BYTES];
    while matches!(socket.read(&mut unheard).await, Ok(1..)) {}
}

impl Drop for Driver {
    /// A runtime that is shut down drops its tasks; those who wait elsewhere must hear of it.
    fn drop(&mut self) {
        self.shared.finish(&LinkError::Closed);
    }
}

impl Outgoing {
    fn left(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Forgets what was sent.
    fn compact(&mut self) {
        self.bytes.drain(..self.sent);
        self.sent = 0;
    }
}
