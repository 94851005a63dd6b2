//! The table of apps: taken names and ports, and the state that each keeper publishes. A seat is
//! taken before anything is done for an app, and released when nothing of it is left.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::SessionId;
use tokio::sync::{Notify, watch};

use super::limits::{APPS_MAX, APPS_PER_SANDBOX_MAX, PORTS_TRIED_MAX};
use super::listening::Listening;
use super::note::Note;
use super::tail::SharedTail;
use super::{App, AppError, AppName, Kind, State};
use host::id::RandomId;
use host::instant::now_ms;
use sandbox::costs::APP_SESSION_PREFIX;
use sandbox::{Record, SandboxId, SandboxRef};

/// See the module's description. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<Entries>>);

type Entries = BTreeMap<(SandboxRef, AppName), Entry>;

#[derive(Debug)]
struct Entry {
    sandbox: SandboxId,
    session: SessionId,
    shown: watch::Receiver<App>,
    stop: Arc<Notify>,
    tail: SharedTail,
    /// In the sandbox, once it is chosen.
    port: Option<u16>,
}

/// An app that was looked for.
pub struct FoundApp {
    pub shown: watch::Receiver<App>,
    pub stop: Arc<Notify>,
    pub tail: SharedTail,
}

/// The result of reserving a seat.
pub enum SlotResult {
    Seat(Box<AppSlot>),
    /// An ended app has that name.
    Over(AppName),
}

/// A place in the table. Dropping it gives it up.
#[derive(Debug)]
pub struct AppSlot {
    table: Table,
    key: (SandboxRef, AppName),
    pub session: SessionId,
    pub shown: watch::Sender<App>,
    pub stop: Arc<Notify>,
    pub tail: SharedTail,
}

impl Table {
    /// Takes a seat for a new app, under the next name that is free if it has none.
    pub fn sit(
        &self,
        record: &Record,
        name: Option<&AppName>,
        kind: Kind,
    ) -> Result<SlotResult, AppError> {
        let drawn = RandomId::draw().map_err(AppError::Draw)?;
        let which = record.which();
        let mut entries = self.entries();
        let name = match name {
            Some(name) => name.clone(),
            None => free_name(&entries, record, kind),
        };
        let key = (which.clone(), name);
        match entries.get(&key) {
            Some(entry) if entry.sandbox != record.id => {}
            Some(entry) if entry.shown.borrow().state.is_over() => {
                return Ok(SlotResult::Over(key.1));
            }
            Some(_) => return Err(AppError::NameTaken { which, name: key.1 }),
            None => {}
        }
        let of_sandbox = entries.values().filter(|entry| entry.sandbox == record.id).count();
        if of_sandbox >= APPS_PER_SANDBOX_MAX {
            return Err(AppError::TooManyOfSandbox { which, limit: APPS_PER_SANDBOX_MAX });
        }
        if entries.len() >= APPS_MAX {
            return Err(AppError::TooMany { limit: APPS_MAX });
        }
        let session = format!("{APP_SESSION_PREFIX}.{}.{drawn}", key.1);
        let session: SessionId = session.parse().expect("the limits leave room for it");
        let app = App {
            which,
            name: key.1.clone(),
            kind,
            state: State::Starting,
            session,
            pid: None,
            port: None,
            host_port: None,
            started_at_ms: now_ms(),
            exit: None,
            warnings: Vec::new(),
        };
        Ok(SlotResult::Seat(Box::new(self.enter(&mut entries, record, app))))
    }

    /// Takes the seat of an app of an earlier bridge; `None` if its name is taken.
    pub fn sit_again(&self, record: &Record, note: &Note) -> Option<AppSlot> {
        let mut entries = self.entries();
        let key = (record.which(), note.name.clone());
        if entries.contains_key(&key) || entries.len() >= APPS_MAX {
            return None;
        }
        let app = App {
            which: key.0,
            name: key.1,
            kind: note.kind,
            state: State::Starting,
            session: note.session.clone(),
            pid: None,
            port: Some(note.port),
            host_port: None,
            started_at_ms: note.started_at_ms,
            exit: None,
            warnings: Vec::new(),
        };
        Some(self.enter(&mut entries, record, app))
    }

    fn enter(&self, entries: &mut Entries, record: &Record, app: App) -> AppSlot {
        let key = (app.which.clone(), app.name.clone());
        let (session, port) = (app.session.clone(), app.port);
        let (sender, shown) = watch::channel(app);
        let (stop, tail) = (Arc::new(Notify::new()), SharedTail::default());
        let sandbox = record.id.clone();
        let entry = Entry {
            sandbox,
            session: session.clone(),
            shown,
            stop: Arc::clone(&stop),
            tail: tail.clone(),
            port,
        };
        entries.insert(key.clone(), entry);
        AppSlot { table: self.clone(), key, session, shown: sender, stop, tail }
    }

    pub fn get(&self, which: &SandboxRef, name: &AppName) -> Option<FoundApp> {
        let entries = self.entries();
        entries.get(&(which.clone(), name.clone())).map(|entry| FoundApp {
            shown: entry.shown.clone(),
            stop: Arc::clone(&entry.stop),
            tail: entry.tail.clone(),
        })
    }

    pub fn shown(&self, is_wanted: impl Fn(&SandboxRef) -> bool) -> Vec<App> {
        let entries = self.entries();
        let wanted = entries.iter().filter(|((which, _), _)| is_wanted(which));
        wanted.map(|(_, entry)| entry.shown.borrow().clone()).collect()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Nothing in it is ever half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppSlot {
    /// Takes a port in the sandbox: the one that is asked for, or the next free one from the usual.
    pub fn take_port(
        &self,
        requested: Option<u16>,
        listening: &Listening,
    ) -> Result<u16, AppError> {
        let which = &self.key.0;
        let usual = self.shown.borrow().kind.usual_port();
        let mut entries = self.table.entries();
        // Also those of apps that do not listen yet.
        let others: Vec<u16> = entries
            .iter()
            .filter(|((other, _), entry)| other == which && entry.session != self.session)
            .filter_map(|(_, entry)| entry.port)
            .collect();
        let is_free = |port: &u16| !listening.has(*port) && !others.contains(port);
        let port = match requested {
            Some(port) if is_free(&port) => port,
            Some(port) => return Err(AppError::PortTaken { which: which.clone(), port }),
            None => {
                let last = usual + (PORTS_TRIED_MAX - 1);
                let mut tried = usual..=last;
                let none = || AppError::NoPort { which: which.clone(), first: usual, last };
                tried.find(is_free).ok_or_else(none)?
            }
        };
        if let Some(entry) = entries.get_mut(&self.key).filter(|it| it.session == self.session) {
            entry.port = Some(port);
        }
        drop(entries);
        self.shown.send_modify(|app| app.port = Some(port));
        Ok(port)
    }

    /// The app has ended: its port is another's to take.
    pub fn leave_port(&self) {
        let mut entries = self.table.entries();
        if let Some(entry) = entries.get_mut(&self.key).filter(|it| it.session == self.session) {
            entry.port = None;
        }
    }
}

impl Drop for AppSlot {
    fn drop(&mut self) {
        let mut entries = self.table.entries();
        // A new sandbox with the same name may have taken its place.
        if entries.get(&self.key).is_some_and(|entry| entry.session == self.session) {
            entries.remove(&self.key);
        }
    }
}

/// The name of the kind, or the first with a number after it that no living app has.
fn free_name(entries: &Entries, record: &Record, kind: Kind) -> AppName {
    let which = record.which();
    let mut name = kind.name().to_owned();
    for number in 2..=APPS_PER_SANDBOX_MAX + 1 {
        let parsed = name.parse().expect("kinds are names");
        let entry = entries.get(&(which.clone(), parsed));
        if entry.is_none_or(|it| it.sandbox != record.id || it.shown.borrow().state.is_over()) {
            break;
        }
        name.truncate(kind.name().len());
        // Writing to a String cannot fail.
        let _ = write!(name, "-{number}");
    }
    name.parse().expect("kinds and numbers are names")
}
