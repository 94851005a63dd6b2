//! Watches of directories: followed over a stream, or asked for their events now and then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use protocol::message::{Change, FileKind, WatchEvent};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::account::accounts;
use super::connect::{Enveloped, Message, done, keepalive, stream, timeout};
use super::entry::{entry_at, memory_bytes};
use super::limits::{WATCH_EVENTS_MAX, WATCH_UNASKED_MAX, WATCHES_PER_SANDBOX_MAX};
use super::seat::{self, Seat};
use crate::budget::Share;
use crate::call::{Call, passed};
use crate::entries::Passwd;
use crate::refusal::of_file as refused;
use crate::shape::{Nothing, Raw};
use agent_client::guest::{Guest, Watcher};
use host::id::RandomId;
use machine::SandboxId;
use sandbox::Activity;
use sandbox::refusal::{Code, Refusal};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchAsk {
    path: String,
    recursive: bool,
    #[serde(alias = "include_entry")]
    include_entry: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatcherAsk {
    #[serde(alias = "watcher_id")]
    watcher_id: String,
}

/// Watches that wait to be asked.
#[derive(Default)]
pub struct Watches(Mutex<HashMap<String, Kept>>);

struct Kept {
    sandbox: SandboxId,
    seen: Arc<Mutex<Seen>>,
    task: AbortHandle,
    asked_at: Instant,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Seen {
    events: Vec<Value>,
    /// What the events take of the key's memory.
    bytes: usize,
    memory: Share,
    /// Why there are no more.
    failure: Option<Refusal>,
}

impl Seen {
    fn new(memory: Share) -> Self {
        Self { events: Vec::new(), bytes: 0, memory, failure: None }
    }

    /// Adds events that nobody has asked for yet, and says whether more may come.
    fn add(&mut self, events: Vec<Value>) -> bool {
        let bytes = events.iter().map(memory_bytes).sum();
        if self.events.len() >= WATCH_EVENTS_MAX {
            let message = "more happened than is kept; watch again";
            self.failure = Some(Refusal::new(Code::LimitReached, message));
            return false;
        }
        if let Err(refusal) = self.memory.grow(bytes) {
            self.failure = Some(refusal);
            return false;
        }
        self.bytes += bytes;
        self.events.extend(events);
        true
    }

    /// All events, which are the call's from here on.
    fn take(&mut self, call: &Share) -> Result<Vec<Value>, Refusal> {
        call.grow(self.bytes)?;
        self.memory.shrink(std::mem::take(&mut self.bytes));
        Ok(std::mem::take(&mut self.events))
    }
}

/// A directory that is watched.
struct Watched {
    watcher: Watcher,
    guest: Guest,
    passwd: Arc<Passwd>,
    path: String,
    with_entries: bool,
    /// A sandbox that is watched is not idle.
    _activity: Option<Activity>,
}

impl Watched {
    async fn open(call: &Call, ask: &WatchAsk) -> Result<Self, Refusal> {
        let Seat { inside, account } = Seat::of(call).await?;
        let path = account.path(&ask.path)?;
        let found = inside.guest.stat(path.as_str(), true).await.map_err(refused)?;
        if found.kind != FileKind::Directory {
            return Err(Refusal::invalid(format!("{path:?} is no directory")));
        }
        let passwd = accounts(&call.api, &inside).await?;
        let watcher = inside.guest.watch(path.as_str(), ask.recursive).await.map_err(refused)?;
        let (guest, activity) = (inside.guest, inside.activity);
        let with_entries = ask.include_entry;
        Ok(Self { watcher, guest, passwd, path, with_entries, _activity: activity })
    }

    /// What happened next, as one event or two; `None` when the directory is gone. Loses nothing when it
    /// is cancelled while it waits.
    async fn next(&mut self) -> Result<Option<Vec<Value>>, Refusal> {
        let Some(event) = self.watcher.next().await.map_err(refused)? else { return Ok(None) };
        if event.change == Change::Overflow {
            let message = "changes were lost: look at everything again";
            return Err(Refusal::new(Code::Internal, message));
        }
        let mut events = Vec::new();
        for (kind, name) in kinds(&event) {
            let mut shown = json!({ "name": name, "type": kind });
            let has_entry = !matches!(kind, "EVENT_TYPE_REMOVE" | "EVENT_TYPE_RENAME");
            if self.with_entries && has_entry {
                let path = format!("{}/{name}", self.path.trim_end_matches('/'));
                // It may be gone by now.
                if let Ok(entry) = entry_at(&self.guest, &self.passwd, &path).await {
                    shown["entry"] = entry;
                }
            }
            events.push(shown);
        }
        Ok(Some(events))
    }
}

/// The events of E2B that a change is. Those of the directory itself are none.
fn kinds(event: &WatchEvent) -> Vec<(&'static str, String)> {
    let name = event.path.to_string();
    let old = event.from.as_ref().map(ToString::to_string);
    let is_itself = name.is_empty();
    match event.change {
        _ if is_itself => Vec::new(),
        Change::Created => vec![("EVENT_TYPE_CREATE", name)],
        Change::Modified => vec![("EVENT_TYPE_WRITE", name)],
        Change::Attributes => vec![("EVENT_TYPE_CHMOD", name)],
        Change::Removed => vec![("EVENT_TYPE_REMOVE", name)],
        Change::Moved => {
            let gone = old.map(|old| ("EVENT_TYPE_RENAME", old));
            gone.into_iter().chain([("EVENT_TYPE_CREATE", name)]).collect()
        }
        Change::Overflow => Vec::new(),
    }
}

pub async fn follow(
    mut call: Call,
    _: Nothing,
    Enveloped(ask): Enveloped<WatchAsk>,
) -> Result<Raw, Refusal> {
    let mut watched = Watched::open(&call, &ask).await?;
    let pause = keepalive(&call.headers)?;
    let limit = timeout(&call.headers)?;
    let deadline = limit.map(|limit| tokio::time::Instant::now() + limit);
    let response = stream(&mut call, move |messages| async move {
        let mut sent = messages.send(&json!({ "start": {} })).await;
        while sent.is_ok() {
            sent = tokio::select! {
                event = watched.next() => match event? {
                    None => return Ok(()),
                    Some(events) => {
                        let mut sent = Ok(());
                        for event in events {
                            sent = sent.and(messages.send(&json!({ "filesystem": event })).await);
                        }
                        sent
                    }
                },
                () = sleep(pause) => messages.send(&json!({ "keepalive": {} })).await,
                () = passed(deadline) => {
                    let message = "the time of this watch is over";
                    return Err(Refusal::new(Code::DeadlineExceeded, message));
                }
            };
        }
        Ok(())
    })?;
    Ok(Raw(response))
}

pub async fn create(
    call: Call,
    _: Nothing,
    Message(ask): Message<WatchAsk>,
) -> Result<Raw, Refusal> {
    let sandbox = seat::inside(&call).await?.id;
    let mut watched = Watched::open(&call, &ask).await?;
    let drawn = RandomId::draw().map_err(|error| Refusal::of(Code::Internal, &error))?;
    let id = format!("w{}", drawn.as_str());
    let seen = Arc::new(Mutex::new(Seen::new(call.memory.clone())));
    let mut kept = call.api.e2b().watches.lock();
    kept.retain(|_, watch| watch.asked_at.elapsed() < WATCH_UNASKED_MAX);
    if kept.values().filter(|watch| watch.sandbox == sandbox).count() >= WATCHES_PER_SANDBOX_MAX {
        let message = format!("a sandbox has at most {WATCHES_PER_SANDBOX_MAX} watches");
        return Err(Refusal::new(Code::LimitReached, message));
    }
    let filled = Arc::clone(&seen);
    let task = tokio::spawn(async move {
        loop {
            let next = watched.next().await;
            let mut seen = filled.lock().unwrap_or_else(PoisonError::into_inner);
            match next {
                Ok(Some(events)) => {
                    if !seen.add(events) {
                        return;
                    }
                }
                Ok(None) => return,
                Err(refusal) => {
                    seen.failure = Some(refusal);
                    return;
                }
            }
        }
    });
    let task = task.abort_handle();
    kept.insert(id.clone(), Kept { sandbox, seen, task, asked_at: Instant::now() });
    Ok(done(&json!({ "watcherId": id })))
}

pub async fn events(
    call: Call,
    _: Nothing,
    Message(ask): Message<WatcherAsk>,
) -> Result<Raw, Refusal> {
    let sandbox = seat::inside(&call).await?.id;
    let mut kept = call.api.e2b().watches.lock();
    let watch = of_sandbox(&mut kept, &sandbox, &ask.watcher_id)?;
    watch.asked_at = Instant::now();
    let mut seen = watch.seen.lock().unwrap_or_else(PoisonError::into_inner);
    let events = seen.take(&call.memory)?;
    match seen.failure.clone().filter(|_| events.is_empty()) {
        Some(refusal) => Err(refusal),
        None => Ok(done(&json!({ "events": events }))),
    }
}

pub async fn remove(
    call: Call,
    _: Nothing,
    Message(ask): Message<WatcherAsk>,
) -> Result<Raw, Refusal> {
    let sandbox = seat::inside(&call).await?.id;
    let mut kept = call.api.e2b().watches.lock();
    of_sandbox(&mut kept, &sandbox, &ask.watcher_id)?;
    kept.remove(&ask.watcher_id);
    Ok(done(&json!({})))
}

/// A watch, if it is one of this sandbox.
fn of_sandbox<'a>(
    kept: &'a mut HashMap<String, Kept>,
    sandbox: &SandboxId,
    id: &str,
) -> Result<&'a mut Kept, Refusal> {
    let watch = kept.get_mut(id).filter(|watch| watch.sandbox == *sandbox);
    watch.ok_or_else(|| Refusal::not_found(format!("there is no watcher {id:?}")))
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_nobody_asks_for_are_of_the_keys_memory() {
        let event = || vec![json!({ "name": "x".repeat(1 << 20), "type": "EVENT_TYPE_WRITE" })];
        let (watch, call) = (Share::within(8 << 20), Share::within(8 << 20));
        let mut seen = Seen::new(watch);
        let kept = (0..100).take_while(|_| seen.add(event())).count();
        assert!((1..=4).contains(&kept), "{kept} events of 2 MiB in 8 MiB");
        assert_eq!(seen.failure.as_ref().map(|why| why.code), Some(Code::LimitReached));
        assert_eq!(seen.take(&call).unwrap().len(), kept);
        assert!(seen.add(event()), "what was taken made room");
    }
}
