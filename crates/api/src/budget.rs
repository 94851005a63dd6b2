//! How much memory all calls may hold together for what clients and programs say: bodies that are
//! read whole, outputs that are kept for an answer, what waits for a client that does not read. Each
//! has its own bound; without this one their number would have none.
//!
//! ```text
//!  Budget (the bridge) ──▶ Key (all calls of one key) ──▶ Share (one call) ──▶ Portion (a part of it)
//! ```
//!
//! Code that keeps bytes for a call grows its share, by what they take here and by what they will take
//! on the wire. It comes back when the last who holds the share is done: the call, the feeding of a
//! program, the sending of the answer. Where there is no room in the key or the bridge, the share
//! reports it to the waiter in [`Share::exceeded`], and the call is refused.
//!
//! Half of a key's room is for one of its calls, the first that takes any: without that many calls
//! that begin at once could use up the room together, and all be refused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::SetOnce;

use super::caller::Caller;
use super::limits::MEMORY_STEP_BYTES;
use agent_client::program::Memory;
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};

/// The memory for all. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Bridge>);

#[derive(Debug)]
struct Bridge {
    room: Room,
    key_bytes_max: u64,
    /// The keys that have calls; the others are not in it.
    keys: Mutex<HashMap<String, Weak<Key>>>,
}

/// What all calls of one key hold.
#[derive(Debug)]
struct Key {
    bridge: Arc<Bridge>,
    label: String,
    bytes_max: u64,
    taken: Mutex<Taken>,
    /// How many shares there have been: the next one's number.
    shares: AtomicU64,
}

/// What the calls of a key have taken.
#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    /// The share that has half of the room to itself.
    first: Option<First>,
}

#[derive(Debug)]
struct First {
    number: u64,
    bytes: u64,
}

/// So many bytes, and how many of them are taken.
#[derive(Debug)]
struct Room {
    bytes_max: u64,
    taken_bytes: AtomicU64,
}

/// What one call holds. Clones are the same, and the last one gives it back.
#[derive(Clone, Debug)]
pub struct Share(Arc<Held>);

#[derive(Debug)]
struct Held {
    key: Arc<Key>,
    /// Which of the key's shares it is.
    number: u64,
    account: Mutex<Account>,
    /// The room that there was not, once something had to be kept that cannot be.
    exceeded: SetOnce<Exceeded>,
}

#[derive(Debug, Default)]
struct Account {
    /// What is held.
    used_bytes: u64,
    /// What was taken from key and bridge for it, in whole steps. The first step is free: most calls
    /// need no more, and so have room whatever others hold.
    taken_bytes: u64,
}

/// A part of a share, which is given back to all when it is dropped.
#[derive(Debug)]
pub struct Portion {
    share: Share,
    bytes: usize,
}

/// Whose room was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    Key { limit: u64 },
    Bridge { limit: u64 },
}

impl Budget {
    /// So much for all, and for each key.
    pub fn new(bytes_max: u64, key_bytes_max: u64) -> Self {
        let room = Room::new(bytes_max);
        Self(Arc::new(Bridge { room, key_bytes_max, keys: Mutex::default() }))
    }

    /// An empty share. A caller who may do everything has no neighbours, and may use all.
    pub fn share(&self, caller: &Caller) -> Share {
        match caller {
            Caller::Local => self.of(&caller.label(), self.0.room.bytes_max),
            Caller::Anybody | Caller::Visitor(_) | Caller::Holder(_) => {
                self.of(&caller.label(), self.0.key_bytes_max)
            }
        }
    }

    fn of(&self, label: &str, bytes_max: u64) -> Share {
        let mut keys = self.0.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let key = keys.get(label).and_then(Weak::upgrade).unwrap_or_else(|| {
            let (bridge, label) = (Arc::clone(&self.0), label.to_owned());
            let (taken, shares) = (Mutex::default(), AtomicU64::new(0));
            let key = Arc::new(Key { bridge, label, bytes_max, taken, shares });
            keys.insert(key.label.clone(), Arc::downgrade(&key));
            key
        });
        drop(keys);
        let number = key.shares.fetch_add(1, Ordering::Relaxed);
        Share(Arc::new(Held { key, number, account: Mutex::default(), exceeded: SetOnce::new() }))
    }

    /// What all calls have taken.
    pub fn taken_bytes(&self) -> u64 {
        self.0.room.taken_bytes.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    fn bytes_max(&self) -> u64 {
        self.0.room.bytes_max
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let mut keys = self.bridge.keys.lock().unwrap_or_else(PoisonError::into_inner);
        // Meanwhile there may be another in its place.
        if keys.get(&self.label).is_some_and(|key| key.strong_count() == 0) {
            keys.remove(&self.label);
        }
    }
}

impl Key {
    /// So much more for a share that has taken `held_bytes`.
    fn take(&self, share: u64, held_bytes: u64, bytes: u64) -> Result<(), Exceeded> {
        let mut taken = self.taken();
        let room = self.bytes_max - taken.kept_from(share, self.bytes_max / 2);
        let sum = taken.bytes.checked_add(bytes).filter(|sum| *sum <= room);
        let sum = sum.ok_or(Exceeded::Key { limit: self.bytes_max })?;
        if !self.bridge.room.take(bytes) {
            return Err(Exceeded::Bridge { limit: self.bridge.room.bytes_max });
        }
        taken.bytes = sum;
        let first = taken.first.get_or_insert(First { number: share, bytes: held_bytes });
        if first.number == share {
            first.bytes += bytes;
        }
        Ok(())
    }

    fn give_back(&self, share: u64, bytes: u64) {
        let mut taken = self.taken();
        taken.bytes -= bytes;
        if let Some(first) = taken.first.as_mut().filter(|first| first.number == share) {
            first.bytes -= bytes;
        }
        // The next one that takes something is the first.
        taken.first.take_if(|first| first.bytes == 0);
        self.bridge.room.give_back(bytes);
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// What this share must leave of the room for the first one, which has `reserved_bytes` to itself.
    fn kept_from(&self, share: u64, reserved_bytes: u64) -> u64 {
        let first = self.first.as_ref().filter(|first| first.number != share);
        first.map_or(0, |first| reserved_bytes.saturating_sub(first.bytes))
    }
}

impl Room {
    fn new(bytes_max: u64) -> Self {
        Self { bytes_max, taken_bytes: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.taken_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Share {
    /// Takes so much more for what can also be left out. Where there is no room nothing is taken.
    pub fn try_grow(&self, bytes: usize) -> bool {
        self.take(bytes).is_ok()
    }

    /// Takes so much more for what the call cannot do without: where there is no room, it is refused.
    pub fn grow(&self, bytes: usize) -> Result<(), Refusal> {
        self.take(bytes).map_err(|exceeded| {
            // The first one is what the call is refused with.
            let _ = self.0.exceeded.set(exceeded);
            exceeded.problem()
        })
    }

    /// The same for a while.
    pub fn portion(&self, bytes: usize) -> Result<Portion, Refusal> {
        self.grow(bytes)?;
        Ok(Portion { share: self.clone(), bytes })
    }

    /// The same for what can also be done without.
    pub fn try_portion(&self, bytes: usize) -> Option<Portion> {
        self.try_grow(bytes).then(|| Portion { share: self.clone(), bytes })
    }

    fn take(&self, bytes: usize) -> Result<(), Exceeded> {
        let mut account = self.0.account.lock().unwrap_or_else(PoisonError::into_inner);
        let used = account.used_bytes.saturating_add(bytes as u64);
        let missing = steps(used).saturating_sub(account.taken_bytes);
        if missing > 0 {
            self.0.key.take(self.0.number, account.taken_bytes, missing)?;
            account.taken_bytes += missing;
        }
        account.used_bytes = used;
        Ok(())
    }

    /// So much of it is not held any more, and is there for others.
    pub fn shrink(&self, bytes: usize) {
        let mut account = self.0.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.used_bytes = account.used_bytes.saturating_sub(bytes as u64);
        let excess = account.taken_bytes.saturating_sub(steps(account.used_bytes));
        if excess > 0 {
            account.taken_bytes -= excess;
            self.0.key.give_back(self.0.number, excess);
        }
    }

    /// Resolves when there was no room for something that the call cannot do without.
    pub async fn exceeded(&self) -> Refusal {
        self.0.exceeded.wait().await.problem()
    }

    /// The same at the moment.
    pub fn refusal(&self) -> Option<Refusal> {
        self.0.exceeded.get().map(|exceeded| exceeded.problem())
    }

    /// Whether it has taken anything from the others.
    pub fn is_free(&self) -> bool {
        self.0.account.lock().unwrap_or_else(PoisonError::into_inner).taken_bytes == 0
    }
}

/// What is taken from the others for so much: whole steps, without the first.
fn steps(used_bytes: u64) -> u64 {
    let beyond = used_bytes.saturating_sub(MEMORY_STEP_BYTES);
    // What overflows is more than there is, in whichever way it is rounded.
    beyond.checked_next_multiple_of(MEMORY_STEP_BYTES).unwrap_or(u64::MAX)
}

impl Exceeded {
    fn problem(self) -> Refusal {
        let (of, limit, message) = match self {
            Self::Key { limit } => {
                ("key", limit, "the calls in progress of this key use all the memory that it may")
            }
            Self::Bridge { limit } => {
                ("bridge", limit, "the calls in progress use all the memory reserved for calls")
            }
        };
        Refusal::new(Code::LimitReached, format!("{message} ({limit} bytes)"))
            .hint(
                "read large output as a stream (`Accept: application/x-ndjson`), ask for less of it, \
                 or make fewer calls at once",
            )
            .details(serde_json::json!({ "of": of, "limit": limit }))
            .retry_after(BUSY_PAUSE)
    }
}

/// Outputs that are kept for an answer of JSON.
impl Memory for Share {
    fn try_keep(&self, bytes: &[u8]) -> bool {
        self.grow(bytes.len().saturating_add(json_bytes(bytes))).is_ok()
    }
}

/// What bytes take as text in JSON. What is not UTF-8 takes more, and base64 besides: see
/// [`unreadable_bytes`].
pub fn json_bytes(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_some = |some: &[u8]| -> usize {
        some.iter().map(|byte| usize::from(ESCAPED_BYTES[usize::from(*byte)])).sum()
    };
    let of_word = |word: &[u8; 8]| if is_plain(*word) { word.len() } else { of_some(word) };
    words.iter().map(of_word).sum::<usize>() + of_some(rest)
}

/// Whether none of eight bytes is escaped in JSON. All of an output is asked this, so the eight are looked at
/// together: each test leaves the highest bit of the bytes that pass it.
fn is_plain(word: [u8; 8]) -> bool {
    const HIGHEST: u64 = u64::from_ne_bytes([0x80; 8]);
    let word = u64::from_ne_bytes(word);
    // The sum of the lower bits stays within its byte, and reaches the highest bit from the bound on.
    let at_least =
        |word: u64, bound: u8| ((word & !HIGHEST) + u64::from_ne_bytes([0x80 - bound; 8])) | word;
    let differs = |byte: u8| at_least(word ^ u64::from_ne_bytes([byte; 8]), 1);
    at_least(word, 0x20) & differs(b'"') & differs(b'\\') & HIGHEST == HIGHEST
}

/// What bytes that are not UTF-8 take beyond that: U+FFFD for each of them here and on the wire, and
/// base64 in both.
pub fn unreadable_bytes(bytes: &[u8]) -> usize {
    let foreign = bytes.iter().filter(|byte| !byte.is_ascii()).count();
    bytes.len() + 6 * foreign + 2 * (bytes.len().div_ceil(3) * 4)
}

/// How many characters each byte has in a JSON string.
const ESCAPED_BYTES: [u8; 256] = {
    let mut table = [1; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = 6;
        byte += 1;
    }
    let short = b"\"\\\x08\x09\x0a\x0c\x0d";
    let mut at = 0;
    while at < short.len() {
        table[short[at] as usize] = 2;
        at += 1;
    }
    table
};

impl Drop for Portion {
    fn drop(&mut self) {
        self.share.shrink(self.bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let account = self.account.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.key.give_back(self.number, account.taken_bytes);
    }
}

#[cfg(test)]
impl Share {
    /// The share of a call that is alone with so much.
    pub fn within(bytes_max: u64) -> Self {
        Budget::new(bytes_max, bytes_max).of("alone", bytes_max)
    }
}

#[cfg(test)]
mod tests;
