//! The sessions of clients over HTTP: whose they are, how many there may be, and when they end.
//!
//! The SDK keeps the sessions themselves. What it does not know is kept here: the key that a session
//! was begun with, without which no other client reaches it, and whether a call is under way. Clients
//! whose protocol has no sessions have one for each key, for as long as they come.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{
    SessionManager, StreamableHttpServerConfig, StreamableHttpService,
};
use tokio::time::Instant;

use super::Handler;
use super::limits::{
    LINE_BYTES_MAX, SESSION_IDLE_MAX, SESSIONS_LOOK_PAUSE, SESSIONS_MAX, SESSIONS_PER_KEY_MAX,
};
use super::server::Server;
use sandbox::Preset;

use super::session::Session;
use crate::{Api, Inner};
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};

pub type Service = StreamableHttpService<Handler, LocalSessionManager>;

/// See the module's description.
pub struct Sessions {
    config: OnceLock<StreamableHttpServerConfig>,
    service: OnceLock<Service>,
    manager: Arc<LocalSessionManager>,
    table: Arc<Mutex<Table>>,
    is_swept: AtomicBool,
}

#[derive(Default)]
struct Table {
    /// By their names in the protocol.
    named: HashMap<String, OpenSession>,
    /// Those of clients without sessions, by the label of their key.
    nameless: HashMap<String, KeySession>,
    /// The labels of keys for which a session is being begun.
    beginning: Vec<String>,
}

struct OpenSession {
    /// The label of its key.
    owner: String,
    used_at: Instant,
    /// Calls under way, and streams that are listened to.
    busy: usize,
    /// Nobody gets in any more; it is gone in a moment.
    is_closing: bool,
}

struct KeySession {
    session: Arc<Session>,
    used_at: Instant,
    busy: usize,
}

/// Which session a call is in.
enum SessionKind {
    Named(String),
    Nameless(String),
}

/// A call under way in a session. Dropping it makes the session idle from then on.
pub struct SessionCall {
    table: Arc<Mutex<Table>>,
    used: SessionKind,
}

/// Room for a session that is being begun. Dropping it gives the room back.
pub struct SessionSlot {
    table: Arc<Mutex<Table>>,
    label: String,
}

impl Default for Sessions {
    fn default() -> Self {
        let mut manager = LocalSessionManager::default();
        // A run that says nothing for long is no reason to end its session; when there is one is known
        // here.
        manager.session_config.keep_alive = None;
        Self {
            config: OnceLock::new(),
            service: OnceLock::new(),
            manager: Arc::new(manager),
            table: Arc::default(),
            is_swept: AtomicBool::new(false),
        }
    }
}

impl Sessions {
    /// The service, after the first request.
    pub fn service(&self, api: &Api) -> &Service {
        self.begin_sweeping(api);
        self.service.get_or_init(|| {
            let weak = Arc::downgrade(&api.0);
            let make = move || {
                let api = weak.upgrade().map(Api);
                let api = api.ok_or_else(|| io::Error::other("the server is stopping"))?;
                let session = Session::new(api.registry().clone(), Preset::default());
                Ok(Handler::from(Server::new(&api, Arc::new(session))))
            };
            StreamableHttpService::new(make, Arc::clone(&self.manager), self.config().clone())
        })
    }

    /// Hosts and origins are looked at before the SDK sees a request.
    fn config(&self) -> &StreamableHttpServerConfig {
        self.config.get_or_init(|| {
            StreamableHttpServerConfig::default()
                .disable_allowed_hosts()
                .disable_allowed_origins()
                .with_json_response(true)
                .with_max_request_body_bytes(LINE_BYTES_MAX)
        })
    }

    /// Ends all of them.
    pub fn end(&self) {
        self.config().cancellation_token.cancel();
        let nameless = std::mem::take(&mut self.table().nameless);
        drop(nameless);
    }

    /// A session that is used by the key of that label; `None` when no session has that name.
    pub fn enter(&self, name: &str, label: &str) -> Result<Option<SessionCall>, Refusal> {
        let mut table = self.table();
        let Some(owned) = table.named.get_mut(name) else { return Ok(None) };
        if owned.owner != label || owned.is_closing {
            return Err(Refusal::not_found("there is no such MCP session")
                .hint("start a new one with `initialize`"));
        }
        owned.busy += 1;
        let busy = SessionCall {
            table: Arc::clone(&self.table),
            used: SessionKind::Named(name.to_owned()),
        };
        Ok(Some(busy))
    }

    /// Whether a session of that name is here, whosever it is.
    pub fn has(&self, name: &str) -> bool {
        self.table().named.contains_key(name)
    }

    /// Finds a place for a new session of a key. One of its own gives way, if need be.
    pub async fn make_room(&self, label: &str) -> Result<SessionSlot, Refusal> {
        let (place, leaving) = {
            let mut table = self.table();
            let leaving = if table.has_room(label) { None } else { Some(table.give_way(label)?) };
            table.beginning.push(label.to_owned());
            let place = SessionSlot { table: Arc::clone(&self.table), label: label.to_owned() };
            (place, leaving)
        };
        if let Some(name) = leaving {
            self.close(&name).await;
        }
        Ok(place)
    }

    /// A session that has begun, and whose it is.
    pub fn begun(&self, name: &str, place: SessionSlot) {
        let owner = place.label.clone();
        let owned = OpenSession { owner, used_at: Instant::now(), busy: 0, is_closing: false };
        self.table().named.insert(name.to_owned(), owned);
        drop(place);
    }

    /// A session that has ended.
    pub fn ended(&self, name: &str) {
        self.table().named.remove(name);
    }

    /// The one session of a key whose client knows of none.
    pub fn nameless(&self, api: &Api, label: &str) -> Result<(Arc<Session>, SessionCall), Refusal> {
        let mut table = self.table();
        let is_full = table.nameless.len() >= SESSIONS_MAX;
        if is_full && !table.nameless.contains_key(label) {
            let message =
                format!("{SESSIONS_MAX} keys use MCP without sessions, which is the limit");
            return Err(Refusal::new(Code::Unavailable, message).retry_after(BUSY_PAUSE));
        }
        let entry = table.nameless.entry(label.to_owned()).or_insert_with(|| {
            let session = Arc::new(Session::new(api.registry().clone(), Preset::default()));
            KeySession { session, used_at: Instant::now(), busy: 0 }
        });
        entry.busy += 1;
        let busy = SessionCall {
            table: Arc::clone(&self.table),
            used: SessionKind::Nameless(label.to_owned()),
        };
        Ok((Arc::clone(&entry.session), busy))
    }

    /// Ends a session that began without a place.
    pub async fn refuse(&self, name: &str) {
        self.close(name).await;
    }

    async fn close(&self, name: &str) {
        close(&self.manager, &self.table, name).await;
    }

    /// Ends sessions that were not used for long, while the server runs.
    fn begin_sweeping(&self, api: &Api) {
        if self.is_swept.swap(true, Ordering::Relaxed) {
            return;
        }
        let (api, manager) = (Arc::downgrade(&api.0), Arc::clone(&self.manager));
        let table = Arc::clone(&self.table);
        tokio::spawn(async move { sweep(&api, &manager, &table).await });
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

async fn sweep(api: &Weak<Inner>, manager: &LocalSessionManager, table: &Mutex<Table>) {
    while api.strong_count() > 0 {
        tokio::time::sleep(SESSIONS_LOOK_PAUSE).await;
        let (idle, all): (Vec<String>, Vec<String>) = {
            let mut table = lock(table);
            let is_old = |used_at: Instant| used_at.elapsed() > SESSION_IDLE_MAX;
            table.nameless.retain(|_, one| one.busy > 0 || !is_old(one.used_at));
            let mut idle = Vec::new();
            for (name, one) in &mut table.named {
                if one.busy == 0 && !one.is_closing && is_old(one.used_at) {
                    // A call that comes between here and its end finds no session.
                    one.is_closing = true;
                    idle.push(name.clone());
                }
            }
            (idle, table.named.keys().cloned().collect())
        };
        for name in idle {
            close(manager, table, &name).await;
        }
        for name in all {
            // The SDK ends those that never finish the handshake.
            if !matches!(manager.has_session(&name.as_str().into()).await, Ok(true)) {
                lock(table).named.remove(&name);
            }
        }
    }
}

impl Table {
    fn has_room(&self, label: &str) -> bool {
        let open = || self.named.values().filter(|one| !one.is_closing);
        let own = open().filter(|one| one.owner == label).count();
        let own = own + self.beginning.iter().filter(|one| *one == label).count();
        open().count() + self.beginning.len() < SESSIONS_MAX && own < SESSIONS_PER_KEY_MAX
    }

    /// The session of a key that is idle longest, which takes no more calls.
    fn give_way(&mut self, label: &str) -> Result<String, Refusal> {
        let is_idle = |one: &OpenSession| one.owner == label && one.busy == 0 && !one.is_closing;
        let idle = self.named.iter_mut().filter(|(_, one)| is_idle(one));
        let Some((name, one)) = idle.min_by_key(|(_, one)| one.used_at) else {
            let message =
                format!("{SESSIONS_MAX} MCP sessions are open, or this key has as many as it may");
            return Err(Refusal::new(Code::Unavailable, message)
                .hint("end one with DELETE /mcp, or try again later")
                .retry_after(BUSY_PAUSE));
        };
        one.is_closing = true;
        Ok(name.clone())
    }
}

async fn close(manager: &LocalSessionManager, table: &Mutex<Table>, name: &str) {
    // One that is gone already is as good as closed.
    let _ = manager.close_session(&name.into()).await;
    lock(table).named.remove(name);
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // Nothing in it is ever half-changed.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for SessionCall {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        let (busy, used_at) = match &self.used {
            SessionKind::Named(name) => match table.named.get_mut(name) {
                Some(one) => (&mut one.busy, &mut one.used_at),
                None => return,
            },
            SessionKind::Nameless(label) => match table.nameless.get_mut(label) {
                Some(one) => (&mut one.busy, &mut one.used_at),
                None => return,
            },
        };
        // The same key may have opened another since all were ended.
        *busy = busy.saturating_sub(1);
        *used_at = Instant::now();
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let beginning = &mut lock(&self.table).beginning;
        if let Some(at) = beginning.iter().position(|label| *label == self.label) {
            beginning.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn begin(sessions: &Sessions, name: &str, label: &str) {
        let place = sessions.make_room(label).await.unwrap();
        sessions.begun(name, place);
    }

    #[tokio::test]
    async fn a_session_is_its_keys_alone() {
        let sessions = Sessions::default();
        begin(&sessions, "s1", "key-a").await;
        assert!(sessions.enter("s1", "key-a").unwrap().is_some());
        assert!(sessions.enter("s2", "key-a").unwrap().is_none());
        let Err(refused) = sessions.enter("s1", "key-b") else { panic!("it was let in") };
        assert_eq!(refused.code, Code::NotFound);
        sessions.ended("s1");
        assert!(sessions.enter("s1", "key-b").unwrap().is_none());
    }

    #[tokio::test]
    async fn the_one_that_is_idle_longest_gives_way_to_a_new_one_of_its_key() {
        let sessions = Sessions::default();
        for number in 0..SESSIONS_PER_KEY_MAX {
            begin(&sessions, &format!("s{number}"), "key").await;
        }
        let busy = sessions.enter("s0", "key").unwrap();
        drop(sessions.make_room("other").await.unwrap());
        assert_eq!(sessions.table().named.len(), SESSIONS_PER_KEY_MAX);
        drop(sessions.make_room("key").await.unwrap());
        assert_eq!(sessions.table().named.len(), SESSIONS_PER_KEY_MAX - 1);
        assert!(sessions.table().named.contains_key("s0"), "it is busy");
        drop(busy);
    }

    #[tokio::test]
    async fn nothing_gives_way_that_is_busy() {
        let sessions = Sessions::default();
        let mut busy = Vec::new();
        for number in 0..SESSIONS_PER_KEY_MAX {
            let name = format!("s{number}");
            begin(&sessions, &name, "key").await;
            busy.push(sessions.enter(&name, "key").unwrap());
        }
        let Err(refused) = sessions.make_room("key").await else { panic!("there was room") };
        assert_eq!(refused.code, Code::Unavailable);
    }

    #[tokio::test]
    async fn sessions_that_begin_at_once_are_no_more_than_there_may_be() {
        let sessions = Sessions::default();
        let mut places = Vec::new();
        for _ in 0..SESSIONS_PER_KEY_MAX {
            places.push(sessions.make_room("key").await.unwrap());
        }
        assert!(sessions.make_room("key").await.is_err());
        drop(places.pop());
        assert!(sessions.make_room("key").await.is_ok(), "what came to nothing leaves its place");
    }

    #[tokio::test]
    async fn nobody_gets_into_a_session_that_gives_way() {
        let sessions = Sessions::default();
        begin(&sessions, "s1", "key").await;
        assert_eq!(sessions.table().give_way("key").unwrap(), "s1");
        assert!(sessions.enter("s1", "key").is_err());
        assert!(sessions.table().give_way("key").is_err(), "it gives way once");
    }
}
