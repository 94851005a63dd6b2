//! Webhooks: each event of chosen namespaces and kinds as a signed request to a program elsewhere.
//!
//! ```text
//!  the logs on disk ──Reader──▶ one task per hook ──POST──▶ the receiver
//!                                 │ 2xx: its place is written
//!                                 │ else: again, with longer pauses; then to the dead letters
//! ```
//!
//! A hook reads the logs like every other reader, so a receiver that is slow or gone costs one waiting
//! task, and delays no sandbox and no other hook. It sends one event at a time, in the order of each
//! namespace, and writes its place behind each: what is sent twice after a crash has the same id. It
//! follows no redirect, and connects to addresses of private networks and of this host only where the
//! configuration says so.

pub mod limits;
mod place;
mod request;
mod signature;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::events::{Entry, EntryJson, Events, Filter, From, Reader};
use host::instant::now_ms;
use host::secret::{Reach, Secrets};
use image::registry::Url;
use limits::{BATCH_MAX, PLACE_RETRY_PAUSE, RETRY_PAUSE_FIRST, RETRY_PAUSE_MAX};
use place::Place;
use request::Sender;
use sandbox::Name;
use sandbox::event::Kind;

pub use place::{DeadLetter, dead_letters};
pub use signature::signature;

/// A hook as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub url: Url,
    /// The name of the secret that requests are signed with.
    pub secret: String,
    pub namespaces: Reach,
    /// Empty for all.
    pub kinds: Vec<Kind>,
    /// Whether its host may have an address of a private network, or of this host.
    pub allow_private: bool,
    /// Files of certificates that are trusted besides the host's own.
    pub ca: Vec<PathBuf>,
    /// Attempts at one event.
    pub attempts: u32,
}

/// Called when a hook begins to fail and when it works again.
pub type Trouble = Arc<dyn Fn(String) + Send + Sync>;

/// The tasks of all hooks. They end with this.
pub struct Webhooks(#[expect(dead_code, reason = "held so that the tasks live")] JoinSet<()>);

impl Webhooks {
    /// Begins to send. `directory` has a directory for each hook, with its place in each namespace.
    pub fn start(
        hooks: impl IntoIterator<Item = (String, Webhook)>,
        events: &Events,
        secrets: &Secrets,
        directory: &Path,
        trouble: &Trouble,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for (name, hook) in hooks {
            let task = Task {
                sender: Sender::new(hook.url.clone(), hook.allow_private, hook.ca.clone()),
                filter: Filter { sandboxes: Vec::new(), kinds: hook.kinds.clone() },
                directory: directory.join(&name),
                name,
                hook,
                events: events.clone(),
                secrets: secrets.clone(),
                trouble: Arc::clone(trouble),
                is_failing: false,
            };
            tasks.spawn(task.run());
        }
        Self(tasks)
    }
}

/// What one hook's task has.
struct Task {
    name: String,
    hook: Webhook,
    filter: Filter,
    sender: Sender,
    directory: PathBuf,
    events: Events,
    secrets: Secrets,
    trouble: Trouble,
    is_failing: bool,
}

impl Task {
    async fn run(mut self) {
        let mut ends = self.events.ends();
        let mut place = loop {
            // A hook that is new begins with what happens from here on.
            let known = ends.borrow_and_update().clone();
            match Place::open(&self.directory, &known) {
                Ok(place) => break place,
                Err(error) => self.fail(&format!("its place cannot be read: {error}")),
            }
            tokio::time::sleep(PLACE_RETRY_PAUSE).await;
        };
        let mut readers: HashMap<Name, Reader> = HashMap::new();
        loop {
            let known = ends.borrow_and_update().clone();
            // A log that is gone begins again above its old offsets, if it does.
            readers.retain(|namespace, _| known.contains_key(namespace));
            place.retain(&known);
            let mut has_more = false;
            for (namespace, end) in known {
                if !self.hook.namespaces.covers(namespace.as_str()) {
                    continue;
                }
                let reader = readers.entry(namespace.clone()).or_insert_with(|| {
                    let from = match place.next(&namespace) {
                        Some(next) if next <= end => From::Offset(next),
                        // A namespace that began later, or a log that is not the one it has read.
                        _ => From::Oldest,
                    };
                    self.events.reader(&namespace, from)
                });
                has_more |= self.advance(&namespace, reader, &mut place).await;
            }
            if !has_more && ends.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sends some events of a namespace, and says whether there may be more.
    async fn advance(&mut self, namespace: &Name, reader: &mut Reader, place: &mut Place) -> bool {
        let (mut here, filter) = (reader.clone(), self.filter.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let read = here.read(&filter, BATCH_MAX);
            (here, read)
        });
        let Ok((back, read)) = reading.await else { return false };
        let batch = match read {
            Ok(batch) => batch,
            Err(error) => {
                self.fail(&format!("events cannot be read: {error}"));
                tokio::time::sleep(PLACE_RETRY_PAUSE).await;
                return true;
            }
        };
        *reader = back;
        for entry in &batch.entries {
            self.deliver(namespace, entry, place).await;
            self.keep(place, namespace, entry.offset + 1);
        }
        if let Some(next) = reader.next().filter(|next| place.next(namespace) != Some(*next)) {
            self.keep(place, namespace, next);
        }
        !batch.is_at_end
    }

    /// Sends an event until it is taken, or the attempts are used up and it is a dead letter.
    async fn deliver(&mut self, namespace: &Name, entry: &Entry, place: &Place) {
        // Names and numbers are always JSON.
        let body = serde_json::to_vec(&EntryJson { namespace, entry }).unwrap_or_default();
        let id = format!("{namespace}/{}", entry.offset);
        let mut last = String::new();
        for attempt in 1..=self.hook.attempts {
            match self.send(&id, &body).await {
                Ok(()) => {
                    if std::mem::take(&mut self.is_failing) {
                        (self.trouble)(format!("webhook {}: it is delivered to again", self.name));
                    }
                    return;
                }
                Err(error) => {
                    self.fail(&error);
                    last = error;
                }
            }
            if attempt < self.hook.attempts {
                tokio::time::sleep(pause_after(attempt)).await;
            }
        }
        let letter = DeadLetter {
            hook: self.name.clone(),
            at_ms: now_ms(),
            attempts: self.hook.attempts,
            error: last,
            event: serde_json::from_slice(&body).unwrap_or_default(),
        };
        // What is neither delivered nor kept would be lost.
        while let Err(error) = place.bury(&letter) {
            self.fail(&format!("a dead letter cannot be written: {error}"));
            tokio::time::sleep(PLACE_RETRY_PAUSE).await;
        }
    }

    async fn send(&mut self, id: &str, body: &[u8]) -> Result<(), String> {
        let secret = self.secrets.own(&self.hook.secret).await;
        let secret = secret.map_err(|error| error.to_string())?;
        let seconds = now_ms() / 1000;
        let signed = signature(secret.expose().as_bytes(), id, seconds, body)?;
        self.sender.post(id, seconds, &signed, body).await.map_err(|error| error.to_string())
    }

    fn keep(&mut self, place: &mut Place, namespace: &Name, next: u64) {
        if let Err(error) = place.keep(namespace, next) {
            self.fail(&format!("its place cannot be written: {error}"));
        }
    }

    fn fail(&mut self, what: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            (self.trouble)(format!("webhook {}: {what}", self.name));
        }
    }
}

/// Twice as long after each attempt, up to a bound.
fn pause_after(attempt: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
    RETRY_PAUSE_FIRST.saturating_mul(doubled).min(RETRY_PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let seconds: Vec<_> = (1..9).map(|attempt| pause_after(attempt).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause_after(u32::MAX), RETRY_PAUSE_MAX);
    }
}
