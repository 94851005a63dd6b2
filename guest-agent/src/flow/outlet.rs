//! Bytes to clients: a spool, and the taps that read it.
//!
//! A session's output has many taps and keeps history. A transfer has one tap and drops bytes once they
//! are acknowledged.

use std::cell::RefCell;
use std::rc::Rc;

use protocol::Fault;
use protocol::exit::RECORDER;
use protocol::mux::Fetched;
use protocol::requests::SpoolPolicy;
use protocol::sorted::SortedMap;
use protocol::spool::{Budget, Spool};
use tokio::sync::Notify;

use super::digest::{Digested, RunningDigest};
use super::tap::Tap;

/// Nobody will read the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned;

/// Which unacknowledged bytes a tap keeps in the spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// `None`: the tap is an observer.
    None,
    /// The bytes of this tap, while it is attached.
    Tap,
    /// The bytes of the named holder, whether or not a tap is attached.
    Holder(String),
}

/// See the module's description. Clones are the same outlet.
#[derive(Clone)]
pub struct Outlet(Rc<Inner>);

struct Inner {
    state: RefCell<State>,
    /// Notified when there is room or the last tap has gone.
    room: Notify,
}

struct State {
    spool: Spool,
    readers: Vec<Reader>,
    holders: SortedMap<String, u64>,
    kind: Kind,
    closed: bool,
    /// The offset below which a reader has been sent everything.
    sent: u64,
    /// Of an output that is recorded.
    digest: Option<RunningDigest>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// History is kept for readers that come late.
    Output,
    /// The session was released. Its readers may continue, and there will be no new ones. Without readers
    /// the bytes are dropped, so that the program can still write.
    Released,
    /// One reader, no history.
    Transfer { abandoned: bool },
}

struct Reader {
    tap: Tap,
    pin: Pin,
    acked: u64,
}

impl Outlet {
    /// An output of a session, whose named holders begin at its first byte.
    pub fn output(bytes: usize, policy: SpoolPolicy, budget: &Budget, holders: &[String]) -> Self {
        let holders = holders.iter().map(|name| (name.clone(), 0)).collect();
        Self::new(Spool::new(0, bytes, policy, budget.clone()), holders, Kind::Output)
    }

    /// A transfer whose first byte is at offset `at`.
    pub fn transfer(at: u64, bytes: usize, budget: &Budget) -> Self {
        let spool = Spool::new(at, bytes, SpoolPolicy::Block, budget.clone());
        Self::new(spool, SortedMap::new(), Kind::Transfer { abandoned: false })
    }

    fn new(spool: Spool, holders: SortedMap<String, u64>, kind: Kind) -> Self {
        let sent = spool.start();
        let digest = holders.contains_key(RECORDER).then(RunningDigest::new);
        let state =
            State { spool, readers: Vec::new(), holders, kind, closed: false, sent, digest };
        Self(Rc::new(Inner { state: RefCell::new(state), room: Notify::new() }))
    }

    /// Lets `fill` write into the available room (an empty slice if there is none) and returns its
    /// result; the count in it is added.
    pub fn fill_with<E>(
        &self,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut state = self.0.state.borrow_mut();
        let pin = state.pin();
        let State { spool, digest, .. } = &mut *state;
        let space = spool.space(pin);
        let count = fill(space)?;
        if count > 0 {
            if let Some(digest) = digest {
                digest.update(&space[..count]);
            }
            state.spool.commit(count, pin);
            state.drop_unwanted();
            state.wake_readers();
        }
        Ok(count)
    }

    /// Waits until there is room, or until there never will be.
    pub async fn room(&self) -> Result<(), Abandoned> {
        loop {
            {
                let state = self.0.state.borrow();
                if state.kind == (Kind::Transfer { abandoned: true }) {
                    return Err(Abandoned);
                }
                if state.spool.has_room(state.pin()) {
                    return Ok(());
                }
            }
            self.0.room.notified().await;
        }
    }

    /// Writes all of `bytes`, waiting for room as often as needed.
    pub async fn write(&self, mut bytes: &[u8]) -> Result<(), Abandoned> {
        while !bytes.is_empty() {
            self.room().await?;
            let count = self.fill_with(|space| {
                let count = space.len().min(bytes.len());
                space[..count].copy_from_slice(&bytes[..count]);
                Ok::<_, Abandoned>(count)
            })?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Writes as much of `bytes` as fits and returns how much. If nobody will read them, they all count as
    /// written.
    pub fn push(&self, bytes: &[u8]) -> usize {
        if self.is_abandoned() {
            return bytes.len();
        }
        let mut state = self.0.state.borrow_mut();
        let pin = state.pin();
        let count = state.spool.push(bytes, pin);
        if count > 0 {
            state.drop_unwanted();
            state.wake_readers();
        }
        count
    }

    /// Whether nobody will read the rest of a transfer.
    pub fn is_abandoned(&self) -> bool {
        self.0.state.borrow().kind == (Kind::Transfer { abandoned: true })
    }

    /// Resolves when nobody will read the rest of a transfer.
    pub async fn abandoned(&self) {
        while !self.is_abandoned() {
            self.0.room.notified().await;
        }
    }

    /// Resolves when all of a transfer so far has been sent, or nobody will read the rest.
    pub async fn sent(&self) {
        while !self.is_abandoned() && self.0.state.borrow().sent < self.end() {
            self.0.room.notified().await;
        }
    }

    /// The output ends here.
    pub fn close(&self) {
        let mut state = self.0.state.borrow_mut();
        state.closed = true;
        state.wake_readers();
    }

    /// Ends the transfer with a fault instead of an end. What has not been sent by then is lost.
    pub fn fail(&self, fault: &Fault) {
        let readers = {
            let mut state = self.0.state.borrow_mut();
            state.closed = true;
            std::mem::take(&mut state.readers)
        };
        for reader in readers {
            reader.tap.wire.reset(reader.tap.stream, fault.clone());
        }
    }

    /// Adds a reader that begins at `from`.
    pub fn attach(&self, tap: Tap, pin: Pin, from: u64) {
        let mut state = self.0.state.borrow_mut();
        state.readers.push(Reader { tap, pin, acked: from });
    }

    /// Removes a reader. Bytes that only it has kept may be dropped.
    pub fn detach(&self, tap: &Tap) {
        let mut state = self.0.state.borrow_mut();
        state.readers.retain(|reader| !reader.tap.is(tap));
        if let Kind::Transfer { abandoned } = &mut state.kind {
            *abandoned = true;
        }
        state.drop_unwanted();
        drop(state);
        self.0.room.notify_waiters();
    }

    /// A reader has acknowledged everything below `offset`.
    pub fn acked(&self, tap: &Tap, offset: u64) {
        let mut guard = self.0.state.borrow_mut();
        let state = &mut *guard;
        let Some(reader) = state.readers.iter_mut().find(|reader| reader.tap.is(tap)) else {
            return;
        };
        reader.acked = reader.acked.max(offset);
        if let Pin::Holder(name) = &reader.pin
            && let Some(holder) = state.holders.get_mut(name)
        {
            *holder = (*holder).max(offset);
        }
        if matches!(state.kind, Kind::Transfer { .. }) {
            state.spool.discard_below(offset);
        }
        drop(guard);
        self.0.room.notify_waiters();
    }

    /// Releases a holder. Bytes that only it has kept may be dropped.
    pub fn release(&self, holder: &str) {
        self.0.state.borrow_mut().holders.remove(holder);
        self.0.room.notify_waiters();
    }

    /// The session is forgotten. Only its present readers receive what follows.
    pub fn release_all(&self) {
        let mut state = self.0.state.borrow_mut();
        state.kind = Kind::Released;
        state.holders.clear();
        state.drop_unwanted();
        drop(state);
        self.0.room.notify_waiters();
    }

    /// The next bytes for a reader at `from`. See [`protocol::mux::Source::fetch`].
    pub fn fetch(&self, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        let mut state = self.0.state.borrow_mut();
        let end = state.spool.end();
        if state.closed && from >= end {
            return Fetched::End;
        }
        match state.spool.read(from, max, out) {
            Err(discarded) => Fetched::Gap { to: discarded.to },
            Ok(0) => Fetched::Nothing,
            Ok(count) => {
                state.sent = state.sent.max(from + count as u64);
                if state.sent == end {
                    self.0.room.notify_waiters();
                }
                Fetched::Bytes(count)
            }
        }
    }

    /// The end of the program's own output is at this offset; nothing behind it is digested.
    pub fn end_digest_at(&self, offset: u64) {
        if let Some(digest) = &mut self.0.state.borrow_mut().digest {
            digest.end_at(offset);
        }
    }

    /// The digest of a recorded output, once all of it has been read.
    pub fn digest(&self) -> Option<Digested> {
        let state = self.0.state.borrow();
        state.digest.as_ref()?.result(state.closed)
    }

    pub fn is_closed(&self) -> bool {
        self.0.state.borrow().closed
    }

    /// Whether this is a session's output, not a transfer.
    pub fn is_output(&self) -> bool {
        matches!(self.0.state.borrow().kind, Kind::Output | Kind::Released)
    }

    pub fn start(&self) -> u64 {
        self.0.state.borrow().spool.start()
    }

    pub fn end(&self) -> u64 {
        self.0.state.borrow().spool.end()
    }

    pub fn dropped(&self) -> u64 {
        self.0.state.borrow().spool.dropped()
    }

    pub fn reader_count(&self) -> usize {
        self.0.state.borrow().readers.len()
    }
}

impl State {
    /// The lowest offset that a reader still needs.
    fn pin(&self) -> Option<u64> {
        let readers = self.readers.iter().filter_map(|reader| match reader.pin {
            Pin::Tap => Some(reader.acked),
            Pin::None | Pin::Holder(_) => None,
        });
        let held = readers.chain(self.holders.values().copied()).min();
        match self.kind {
            // A transfer keeps everything that has not been acknowledged.
            Kind::Transfer { .. } => Some(self.spool.start()),
            Kind::Output | Kind::Released => held,
        }
    }

    fn drop_unwanted(&mut self) {
        if self.kind == Kind::Released && self.readers.is_empty() {
            let end = self.spool.end();
            self.spool.discard_below(end);
        }
    }

    fn wake_readers(&self) {
        for reader in &self.readers {
            reader.tap.wire.wake(reader.tap.stream);
        }
    }
}
