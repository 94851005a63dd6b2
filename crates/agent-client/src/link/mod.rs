//! One guest's link: dialling, the handshake, frames, heartbeats, and resuming after a cut.
//!
//! ```text
//!  guest::* ──▶ Link (handles) ──▶ Shared<State> ◀── Driver (one task) ──▶ Socket
//! ```
//!
//! `guest` is the only caller and gives every request and stream its type; here they are requests, answers
//! and bytes. The guest is hostile: whatever arrives is bounded, and a frame that breaks the protocol ends
//! the guest with a typed error. Nothing here knows sandboxes, machines or people.

mod address;
mod dial;
mod driver;
mod due;
mod error;
mod handshake;
pub mod home;
pub mod limits;
mod random;
mod relink;
pub mod serial;
mod socket;
mod state;
mod stream;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use protocol::hello::AgentInfo;
use protocol::limits::{
    HEARTBEAT, HEARTBEAT_LOCAL, HELLO_DEADLINE, LINK_SILENCE_LOCAL_MAX, LINK_SILENCE_MAX,
    RESUME_WINDOW,
};
use protocol::{AgentId, ClientId, Reply, Request, RequestId, StreamId};
use tokio::time::{Instant, sleep_until};

pub use address::{Address, InvalidAddress};
pub use dial::dial;
pub use error::{Failure, LinkError};
pub use state::{Begins, Opening, RequestError};
pub use stream::Piece;

use dial::{Absence, BackOff, Patience};
use driver::Driver;
use handshake::{Caller, OpenLink, greet, meet};
use socket::Socket;
use state::{Shared, State};
use stream::Placed;

/// Options of a link.
#[derive(Clone, Debug)]
pub struct Options {
    /// Our identity, if an earlier process had the same: the agent drops everything of that one as soon as
    /// this one greets it. Random if absent.
    pub client: Option<ClientId>,
    /// Sent to the agent, for its logs and for clients whose keyboard is taken: `burrow attach`.
    pub name: String,
    /// How long the agent keeps our streams after a cut. Zero for clients that do not come back.
    pub resume_window: Duration,
    /// How long the first link is tried; zero means once.
    pub connect_deadline: Duration,
    /// How much of that time the socket may have no listener: its owner may not be up yet.
    pub absence_max: Duration,
    /// How long a cut link is dialled again before the guest counts as lost.
    pub dial_deadline: Duration,
    /// How long the agent may take for its welcome.
    pub welcome_deadline: Duration,
    /// The pulse of the link; only tests have a reason to quicken it.
    pub timing: Timing,
}

/// See `protocol::limits` for the defaults.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub heartbeat: Duration,
    pub silence_max: Duration,
    /// See [`limits::STEADY_AFTER`].
    pub steady_after: Duration,
}

impl Timing {
    /// Of an agent that may die without a word, as one in a virtual machine.
    pub const REMOTE: Self = Self {
        heartbeat: HEARTBEAT,
        silence_max: LINK_SILENCE_MAX,
        steady_after: limits::STEADY_AFTER,
    };
    /// Of an agent on this kernel, whose death ends its socket.
    pub const LOCAL: Self =
        Self { heartbeat: HEARTBEAT_LOCAL, silence_max: LINK_SILENCE_LOCAL_MAX, ..Self::REMOTE };
}

impl Options {
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            client: None,
            name: name.into(),
            resume_window: RESUME_WINDOW,
            connect_deadline: Duration::ZERO,
            absence_max: Duration::MAX,
            dial_deadline: RESUME_WINDOW,
            welcome_deadline: HELLO_DEADLINE,
            timing: Timing::REMOTE,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::named(concat!("host-bridge ", env!("CARGO_PKG_VERSION")))
    }
}

/// A guest's link. Clones are the same link, which lasts as long as the last of them.
#[derive(Clone, Debug)]
pub struct Link(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    next_stream: AtomicU64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(State::close);
    }
}

impl Link {
    /// Dials an agent. After a cut it is dialled there again.
    pub async fn connect(address: Address, options: Options) -> Result<Self, LinkError> {
        let (connect, welcome) = (options.connect_deadline, options.welcome_deadline);
        let mut absence = Absence::of_at_most(options.absence_max);
        let mut patience = if connect.is_zero() {
            Patience::of_one_try(welcome)
        } else {
            Patience::of_many_tries(welcome)
        };
        let mut caller = Caller::new(options);
        let deadline = Instant::now() + connect;
        let mut back_off = BackOff::default();
        let mut next = Instant::now() + back_off.pause();
        loop {
            sleep_until(next).await;
            let error = match meet(&address, &caller.hello(None), patience.take()).await {
                Ok(met) => return Ok(Self::start(met, Some(address), caller)),
                Err(error) => error,
            };
            next = Instant::now() + back_off.pause();
            if error.is_replaced() && caller.draw_another() {
                continue;
            }
            if !error.is_passing() || next >= deadline || absence.lasts_too_long(&error) {
                return Err(error);
            }
        }
    }

    /// Uses a connected socket. After a cut the agent is dialled at `then`; without an address it
    /// is lost.
    pub async fn over(
        stream: UnixStream,
        then: Option<Address>,
        options: Options,
    ) -> Result<Self, LinkError> {
        let socket = Socket::new(stream.into())?;
        let deadline = options.welcome_deadline;
        let mut caller = Caller::new(options);
        let met = greet(socket, &caller.hello(None), deadline).await?;
        Ok(Self::start(met, then, caller))
    }

    fn start(met: OpenLink, address: Option<Address>, caller: Caller) -> Self {
        let OpenLink { socket, frames, welcome } = met;
        let shared = Arc::new(Shared::new(&welcome));
        let driver = Driver::new(Arc::clone(&shared), address, caller, frames);
        tokio::spawn(driver.run(socket));
        Self(Arc::new(Handle { shared, next_stream: AtomicU64::new(0) }))
    }

    pub fn agent(&self) -> AgentId {
        self.with(|state| state.agent)
    }

    /// The agent's description of itself when the link was last made.
    pub fn info(&self) -> AgentInfo {
        self.with(|state| state.info.clone())
    }

    /// Resolves when the guest is gone for good. Does not keep the link.
    pub fn lost(&self) -> impl Future<Output = LinkError> + Send + use<> {
        let mut over = self.0.shared.over.subscribe();
        async move {
            match over.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(error)) => error.clone(),
                // The sender is dropped only with a link that is over.
                Ok(None) | Err(_) => LinkError::Closed,
            }
        }
    }

    /// Says goodbye, and waits until that is out or the guest was lost in another way.
    pub async fn close(self) {
        self.with(State::close);
        self.lost().await;
    }

    /// Says that the agent's machine is gone: the cut that follows, or has followed, is the end.
    pub fn machine_ended(&self) {
        self.with(State::machine_ended);
    }

    /// The agent's machine is paused: its silence is no loss, and it is not dialled.
    pub fn machine_paused(&self) {
        self.with(State::machine_paused);
    }

    /// It resumes. With `reconnects` the link is cut and dialled again, because the machine has lost its
    /// end of it.
    pub fn machine_resumed(&self, reconnects: bool) {
        self.with(|state| state.machine_resumed(reconnects));
    }

    /// Moves the link to the calling thread if that is a home: see [`home`].
    pub fn move_here(&self) {
        self.with(State::move_here);
    }

    /// A number for a stream that is about to be opened. Even, like all of the host's.
    pub fn next_stream(&self) -> StreamId {
        StreamId(self.0.next_stream.fetch_add(2, Ordering::Relaxed))
    }

    /// What is queued while the result lives goes out together. It is not to be held across an `await`.
    pub fn batch(&self) -> Batch<'_> {
        self.with(State::begin_batch);
        Batch(self)
    }

    /// Queues a request. Its answer is `expects` or a fault; anything else costs the agent its link.
    pub fn request(
        &self,
        request: Request,
        expects: &'static str,
        opening: Option<Opening>,
    ) -> Result<RequestId, RequestError> {
        self.with(|state| state.request(request, expects, opening))
    }

    /// The same without an answer that anybody waits for: it goes out with the next frame, or a little
    /// later. It keeps its place before all that is queued after it.
    pub fn request_later(
        &self,
        request: Request,
        expects: &'static str,
    ) -> Result<(), RequestError> {
        self.with(|state| state.request_later(request, expects))
    }

    pub fn poll_answer(&self, id: RequestId, cx: &mut Context<'_>) -> Poll<Result<Reply, Failure>> {
        self.with(|state| state.poll_answer(id, cx))
    }

    /// Nobody will poll for this answer any more.
    pub fn ignore_answer(&self, id: RequestId) {
        self.with(|state| state.ignore_answer(id));
    }

    /// The next piece of a stream, after everything below `taken` has been acknowledged.
    pub fn poll_piece(
        &self,
        stream: StreamId,
        taken: Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Piece> {
        self.with(|state| state.poll_piece(stream, taken, cx))
    }

    /// Acknowledges everything below `to`.
    pub fn consumed(&self, stream: StreamId, to: u64) {
        self.with(|state| state.consumed(stream, to));
    }

    /// Takes as much of `bytes` as there is room for.
    pub fn poll_write(
        &self,
        stream: StreamId,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Failure>> {
        self.with(|state| state.poll_write(stream, bytes, cx))
    }

    /// Says that nothing more will be written.
    pub fn close_outbox(&self, stream: StreamId) {
        self.with(|state| state.close_outbox(stream));
    }

    /// The end's offset, once the agent has everything.
    pub fn poll_done(&self, stream: StreamId, cx: &mut Context<'_>) -> Poll<Result<u64, Failure>> {
        self.with(|state| state.poll_done(stream, cx))
    }

    /// The offset of the next written byte, once the agent has reported it.
    pub fn write_offset(&self, stream: StreamId) -> Option<u64> {
        self.with(|state| state.outbox(stream)?.end_offset())
    }

    /// Calls this once the offset of the end is known, or cannot be known any more. It is called where that is
    /// learned, and must not wait. Nothing more may be written.
    pub fn when_placed(&self, stream: StreamId, call: impl FnOnce(Option<u64>) + Send + 'static) {
        self.with(|state| state.when_placed(stream, Placed::new(call)));
    }

    /// The offset below which the agent has all bytes. See [`Outbox::taken`](stream::Outbox::taken).
    pub fn taken_offset(&self, stream: StreamId) -> Option<u64> {
        self.with(|state| state.outbox(stream)?.taken())
    }

    pub fn drop_inbox(&self, stream: StreamId) {
        self.with(|state| state.drop_inbox(stream));
    }

    pub fn drop_outbox(&self, stream: StreamId) {
        self.with(|state| state.drop_outbox(stream));
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        self.0.shared.with(act)
    }
}

/// See [`Link::batch`].
#[derive(Debug)]
pub struct Batch<'a>(&'a Link);

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.0.with(State::end_batch);
    }
}

#[cfg(test)]
pub(crate) mod tests;
