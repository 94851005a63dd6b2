//! The task that owns a notebook while it is used: runs one after another, and what is saved between
//! them.
//!
//! ```text
//!          ┌── enter: sandbox? ─▶ interpreter ours? ─no─▶ claim, put back what is kept ─┐
//!  idle ───┤                            └──────yes──────────────────────────────────────┤
//!   ▲ ▲    │                                                                             ▼
//!   │ └────┼── history ◀── heard to its end, or given up ◀──────────────────────────── turn
//!   │      └── save: the keeper forks, its child writes (the next turn may begin) ─▶ fetch, seal
//!   └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A run is answered before its variables are saved, and runs that follow each other put a save off,
//! but not for long. An interpreter is known by a token that it was given: one that has not got it
//! has not the notebook's variables, and nothing of it is saved over what is kept.

use std::fs::File;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::Inner;
use super::error::NotebookError;
use super::keeper::{BegunState, Keeper, Orders};
use super::limits::{LAST_SAVE_MAX, SAVE_PAUSE_MAX, TASK_IDLE_MAX};
use super::manifest::{DAMAGE, Kept, Manifest, Unavailable};
use super::place::Place;
use super::seal::SealError;
use super::transfer::{self, Fetched};
use super::turn::{Ask, Heard, Reopened, Turn};
use super::vault::{Stamp, Vault};
use crate::guest::Guest;
use crate::guest::contexts::open;
use crate::machine::BoxId;
use crate::sandbox::SandboxRef;
use crate::store::notebooks::NotebookRow;

pub type Answer<T> = oneshot::Sender<Result<T, NotebookError>>;

/// What is asked of a notebook.
pub enum Order {
    Enter(Ask, Answer<Turn>),
    Save(Answer<Saved>),
    /// Lets go of all variables: those in the interpreter too.
    Reset(Answer<()>),
    Forget(Vec<String>, Answer<()>),
    /// Compiled forms that the interpreter has; with `true` it lets go of them.
    Compiled(bool, Answer<u64>),
    /// The task ends, once what is unsaved is saved, if that goes quickly.
    End(oneshot::Sender<()>),
    /// The same, for a notebook that is being removed: nothing is saved.
    Remove(Answer<()>),
}

/// The interpreter that has the variables, as the store remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    pub sandbox: SandboxRef,
    pub id: BoxId,
    pub token: String,
    /// The keeper's own count of what it has written there.
    pub generation: u64,
}

impl Seat {
    fn directory(&self) -> String {
        format!("/var/tmp/.burrow-{}", self.token)
    }
}

/// What is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    pub version: u64,
    /// The last run whose variables are in it.
    pub run: u64,
    pub saved_ms: u64,
    pub bytes: u64,
    #[serde(flatten)]
    pub kept: Kept,
}

/// See the module's description.
pub struct Owner {
    pub inner: Arc<Inner>,
    pub row: NotebookRow,
    pub keeper: Keeper,
    pub vault: Vault,
    pub place: Place,
    pub seat: Option<Seat>,
    pub saved: Option<Saved>,
    /// Since when the interpreter has variables that are not on disk.
    dirty: Option<Instant>,
    saving: Option<Saving>,
    _lock: Flock<File>,
}

/// A save that is under way.
struct Saving {
    run: u64,
    version: u64,
    task: JoinHandle<Result<Fetched, NotebookError>>,
}

/// What the task goes on with.
enum Next {
    Order(Option<Order>),
    Saved(Result<Fetched, NotebookError>),
    Save,
    Idle,
}

impl Owner {
    /// `row` was read under the lock.
    pub fn new(
        inner: Arc<Inner>,
        vault: Vault,
        lock: Flock<File>,
        row: NotebookRow,
    ) -> Result<Self, NotebookError> {
        let unreadable = |column| {
            move |source| NotebookError::Store(crate::store::StoreError::Column { column, source })
        };
        let keeper = Keeper::of(&row.language)
            .ok_or_else(|| NotebookError::Language { language: row.language.clone() })?;
        let place = serde_json::from_str(&row.place).map_err(unreadable("place"))?;
        let seat = row.seat.as_deref().map(serde_json::from_str).transpose();
        let saved = row.saved.as_deref().map(serde_json::from_str).transpose();
        Ok(Self {
            keeper,
            vault,
            place,
            seat: seat.map_err(unreadable("seat"))?,
            saved: saved.map_err(unreadable("saved"))?,
            inner,
            row,
            dirty: None,
            saving: None,
            _lock: lock,
        })
    }

    /// Obeys until it is ended, or nothing has been asked for long.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        // What a bridge before this one has not saved may still be in the interpreter.
        if self.seat.is_some() && self.unsaved_runs() > 0 {
            self.dirty = Some(Instant::now());
        }
        let mut idle_until = Instant::now() + TASK_IDLE_MAX;
        loop {
            match self.next(&mut orders, idle_until).await {
                Next::Order(Some(order)) => {
                    idle_until = Instant::now() + TASK_IDLE_MAX;
                    if self.is_overdue() {
                        let _ = self.begin_save().await;
                    }
                    if self.obey(order).await {
                        return;
                    }
                }
                Next::Saved(fetched) => {
                    let _ = self.end_save(fetched).await;
                }
                Next::Save => {
                    let _ = self.begin_save().await;
                }
                Next::Idle if orders.is_empty() => {
                    // Whoever comes from now on makes another task.
                    orders.close();
                    idle_until = Instant::now() + TASK_IDLE_MAX;
                }
                Next::Order(None) | Next::Idle => return,
            }
        }
    }

    async fn next(&mut self, orders: &mut mpsc::Receiver<Order>, idle_until: Instant) -> Next {
        let wants_save = self.dirty.is_some() && self.saving.is_none();
        tokio::select! {
            biased;
            order = orders.recv() => Next::Order(order),
            fetched = joined(&mut self.saving) => Next::Saved(fetched),
            () = std::future::ready(()), if wants_save => Next::Save,
            () = sleep_until(idle_until), if self.saving.is_none() => Next::Idle,
        }
    }

    /// Whether runs have put a save off for too long.
    fn is_overdue(&self) -> bool {
        self.saving.is_none() && self.dirty.is_some_and(|since| since.elapsed() > SAVE_PAUSE_MAX)
    }

    /// Carries an order out, and says whether it was the last one.
    async fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Enter(ask, answer) => self.enter(ask, answer).await,
            Order::Save(answer) => {
                let _ = answer.send(self.save().await);
            }
            Order::Reset(answer) => {
                let _ = answer.send(self.reset().await);
            }
            Order::Forget(names, answer) => {
                let _ = answer.send(self.forget(&names).await);
            }
            Order::Compiled(clear, answer) => {
                let _ = answer.send(self.compiled(clear).await);
            }
            Order::End(answer) => {
                let _ = timeout(LAST_SAVE_MAX, self.save()).await;
                let _ = answer.send(());
                return true;
            }
            Order::Remove(answer) => {
                let _ = answer.send(self.remove().await);
                return true;
            }
        }
        false
    }

    async fn enter(&mut self, ask: Ask, answer: Answer<Turn>) {
        let mut turn = match self.turn(ask).await {
            Ok(turn) => turn,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let (over, ended) = oneshot::channel();
        turn.over = Some(over);
        // One that nobody takes is over at once, and nothing ran in it.
        if answer.send(Ok(turn)).is_err() {
            return;
        }
        let Ok((heard, waits)) = ended.await else { return };
        self.note(heard).await;
        // Whoever waited may be gone.
        let _ = waits.map(|waits| waits.send(()));
    }

    async fn turn(&mut self, ask: Ask) -> Result<Turn, NotebookError> {
        let (which, id, guest) = self.place.enter(&self.inner.registry).await?;
        let context = self.context(&which);
        let reopened = self.sit(&which, id, &guest, &context).await?;
        Ok(Turn {
            which,
            context,
            number: self.row.totals.runs + 1,
            reopened,
            heard: Heard::new(ask, now_ms()),
            over: None,
        })
    }

    /// Writes a run into the history, and has its variables saved.
    async fn note(&mut self, heard: Heard) {
        if heard.may_have_changed() {
            self.dirty.get_or_insert_with(Instant::now);
        }
        let Some(seat) = &self.seat else { return };
        let sandbox = seat.sandbox.to_string();
        let row = heard.row(self.row.namespace.clone(), self.row.id.clone(), sandbox);
        let (hit, us) = (row.cache_hit, row.duration_us);
        match self.inner.store.add_run(row).await {
            Ok(Some(number)) => {
                let totals = &mut self.row.totals;
                totals.runs = number;
                totals.runs_us = totals.runs_us.saturating_add(us);
                totals.cache_hits += u64::from(hit == Some(true));
                totals.cache_misses += u64::from(hit == Some(false));
            }
            Ok(None) => {}
            Err(error) => self.trouble(&format!("its history: {error}")),
        }
    }

    /// Sees to it that the context's interpreter has the notebook's variables.
    async fn sit(
        &mut self,
        which: &SandboxRef,
        id: BoxId,
        guest: &Guest,
        context: &protocol::repl::OpenContext,
    ) -> Result<Option<Reopened>, NotebookError> {
        if let Some(seat) = &self.seat
            && seat.id == id
            && seat.sandbox == *which
            && self.orders(guest, context, &seat.token).is_ours().await?
        {
            return Ok(None);
        }
        // What is being saved of the interpreter that is gone still counts.
        self.settle().await;
        self.dirty = None;
        if let Some(old) = &self.seat
            && old.id == id
        {
            transfer::clear(guest, &old.directory()).await;
        }
        let token = BoxId::draw().map_err(crate::sandbox::SandboxError::Draw)?;
        let second = BoxId::draw().map_err(crate::sandbox::SandboxError::Draw)?;
        let token = format!("{token}{second}");
        let mut seat = Seat { sandbox: which.clone(), id, token, generation: 0 };
        let kept = self.kept().await;
        let reopened = match kept {
            Ok(None) if self.unsaved_runs() == 0 => None,
            Ok(None) => Some(Reopened { unsaved_runs: self.unsaved_runs(), ..Reopened::default() }),
            Ok(Some((stamp, bytes))) => {
                let orders = self.orders(guest, context, &seat.token);
                let (restored, generation) =
                    self.put_back(&orders, &seat.directory(), &bytes).await?;
                seat.generation = generation;
                let unsaved_runs = self.row.totals.runs.saturating_sub(stamp.run);
                Some(Reopened { as_of_run: stamp.run, unsaved_runs, ..restored })
            }
            Err(error) => return Err(error),
        };
        let orders = self.orders(guest, context, &seat.token);
        if reopened.as_ref().is_none_or(|back| back.as_of_run == 0) && self.keeper.comes_first() {
            orders.install().await?;
        }
        orders.claim().await?;
        let text = serde_json::to_string(&seat).unwrap_or_default();
        self.inner.store.set_seat(&self.row.namespace, &self.row.id, Some(text)).await?;
        self.seat = Some(seat);
        Ok(reopened)
    }

    /// The state on disk, if it is the one that was written last.
    async fn kept(&self) -> Result<Option<(Stamp, Vec<u8>)>, NotebookError> {
        let vault = self.vault.clone();
        let read = tokio::task::spawn_blocking(move || vault.state()).await;
        let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error).into()));
        let expected = self.saved.as_ref().map_or(0, |saved| saved.version);
        match read {
            Ok(None) if expected == 0 => Ok(None),
            Ok(None) => Err(NotebookError::Damaged { why: "it is not there any more".to_owned() }),
            Ok(Some((stamp, _))) if stamp.version < expected => {
                let why = format!("it is version {}, and {expected} was written", stamp.version);
                Err(NotebookError::Damaged { why })
            }
            Ok(state) => Ok(state),
            Err(error @ SealError::Broken) => {
                Err(NotebookError::Damaged { why: error.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn put_back(
        &self,
        orders: &Orders<'_>,
        directory: &str,
        bytes: &[u8],
    ) -> Result<(Reopened, u64), NotebookError> {
        let manifest = Manifest::parse(bytes)?;
        let damaged = transfer::put(orders.guest, directory, &self.vault, bytes, &manifest).await?;
        orders.install().await?;
        let restored = orders.restore(directory).await?;
        let told = manifest.tell(&damaged);
        let is_damaged = |name: &str| {
            told.unavailable.iter().any(|away| away.name == name && away.reason == DAMAGE)
        };
        let unavailable = restored.unavailable.iter().map(|away| {
            let name = &away.name;
            if is_damaged(name) {
                Unavailable { name: name.clone(), reason: DAMAGE.to_owned() }.clipped()
            } else {
                away.clipped()
            }
        });
        let failure = (restored.state != "restored").then(|| {
            format!(
                "the keeper found the state to be {:?}",
                restored.state.chars().take(40).collect::<String>()
            )
        });
        let reopened = Reopened {
            restored: restored.names,
            lost: restored.lost.iter().map(super::manifest::LostName::clipped).collect(),
            depends: restored.depends.iter().map(super::manifest::Dependent::clipped).collect(),
            unavailable: unavailable.collect(),
            directory_lost: restored.cwd,
            failure,
            ..Reopened::default()
        };
        Ok((reopened, manifest.generation))
    }

    /// Orders a save. What comes of it is [`Owner::end_save`]'s.
    async fn begin_save(&mut self) -> Result<(), NotebookError> {
        // Should it fail, the next run or whoever asks tries again; by itself it would fail for ever.
        self.dirty = None;
        let ordered = self.order_save().await;
        if let Err(error) = &ordered {
            self.trouble(&format!("its variables: {error}"));
        }
        ordered
    }

    /// Of an interpreter that is gone there is nothing to save.
    async fn order_save(&mut self) -> Result<(), NotebookError> {
        let Some(seat) = self.seat.clone() else { return Ok(()) };
        let registry = &self.inner.registry;
        let Ok(record) = registry.get(&seat.sandbox) else { return Ok(()) };
        if record.id != seat.id || record.state.is_over() {
            return Ok(());
        }
        let guest = registry.guest(&seat.sandbox)?;
        let context = self.context(&seat.sandbox);
        let directory = seat.directory();
        let orders = self.orders(&guest, &context, &seat.token);
        let mut state = orders.save(&directory).await?;
        if state == BegunState::Bare {
            orders.install().await?;
            state = orders.save(&directory).await?;
        }
        match state {
            BegunState::Started | BegunState::Done => {}
            BegunState::Foreign => return Ok(()),
            BegunState::Again | BegunState::Bare => {
                return Err(NotebookError::NotSaved {
                    what: "a save before it is still under way".to_owned(),
                });
            }
        }
        let (run, vault) = (self.row.totals.runs, self.vault.clone());
        let version = self.saved.as_ref().map_or(0, |saved| saved.version) + 1;
        let stamp = Stamp { version, run };
        let generation = seat.generation;
        let task = tokio::spawn(async move {
            transfer::fetch(&guest, &directory, generation, &vault, stamp).await
        });
        self.saving = Some(Saving { run, version, task });
        Ok(())
    }

    async fn end_save(
        &mut self,
        fetched: Result<Fetched, NotebookError>,
    ) -> Result<(), NotebookError> {
        let Some(Saving { run, version, .. }) = self.saving.take() else { return Ok(()) };
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                self.trouble(&format!("its variables: {error}"));
                return Err(error);
            }
        };
        let saved =
            Saved { version, run, saved_ms: now_ms(), bytes: fetched.bytes, kept: fetched.kept };
        if let Some(seat) = &mut self.seat {
            seat.generation = fetched.generation;
            let text = serde_json::to_string(seat).unwrap_or_default();
            self.inner.store.set_seat(&self.row.namespace, &self.row.id, Some(text)).await?;
        }
        let text = serde_json::to_string(&saved).unwrap_or_default();
        self.saved = Some(saved);
        self.inner.store.set_saved(&self.row.namespace, &self.row.id, text).await?;
        Ok(())
    }

    /// Waits for a save that is under way.
    async fn settle(&mut self) {
        if self.saving.is_some() {
            let fetched = joined(&mut self.saving).await;
            let _ = self.end_save(fetched).await;
        }
    }

    /// Saves what is not saved, and waits for it.
    async fn save(&mut self) -> Result<Saved, NotebookError> {
        self.settle().await;
        if self.dirty.is_some() || self.unsaved_runs() > 0 {
            self.begin_save().await?;
            if self.saving.is_some() {
                let fetched = joined(&mut self.saving).await;
                self.end_save(fetched).await?;
            }
        }
        Ok(self.saved.clone().unwrap_or_default())
    }

    fn unsaved_runs(&self) -> u64 {
        let saved = self.saved.as_ref().map_or(0, |saved| saved.run);
        self.row.totals.runs.saturating_sub(saved)
    }

    async fn reset(&mut self) -> Result<(), NotebookError> {
        self.settle().await;
        self.dirty = None;
        if let Some(seat) = self.seat.take()
            && let Ok(guest) = self.inner.registry.guest(&seat.sandbox)
        {
            transfer::clear(&guest, &seat.directory()).await;
            let context = self.context(&seat.sandbox).context;
            let closed = guest.close_context(&context).await;
            if let Err(error) = closed
                && error.fault_code() != Some(protocol::FaultCode::NotFound)
            {
                return Err(error.into());
            }
        }
        self.vault.remove().map_err(SealError::from)?;
        self.saved = Some(Saved {
            version: 0,
            run: self.row.totals.runs,
            saved_ms: now_ms(),
            ..Saved::default()
        });
        let text = serde_json::to_string(&self.saved).unwrap_or_default();
        self.inner.store.set_saved(&self.row.namespace, &self.row.id, text).await?;
        self.inner.store.set_seat(&self.row.namespace, &self.row.id, None).await?;
        Ok(())
    }

    async fn forget(&mut self, names: &[String]) -> Result<(), NotebookError> {
        self.settle().await;
        let Some(seat) = self.seat.clone() else { return Ok(()) };
        let guest = self.inner.registry.guest(&seat.sandbox)?;
        let context = self.context(&seat.sandbox);
        let orders = self.orders(&guest, &context, &seat.token);
        if orders.is_ours().await? {
            orders.forget(&seat.directory(), names).await?;
            self.dirty.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    async fn compiled(&mut self, clear: bool) -> Result<u64, NotebookError> {
        let Some(seat) = self.seat.clone() else { return Ok(0) };
        // An interpreter that is gone has none.
        let Ok(guest) = self.inner.registry.guest(&seat.sandbox) else { return Ok(0) };
        let context = self.context(&seat.sandbox);
        self.orders(&guest, &context, &seat.token).compiled(clear).await
    }

    async fn remove(&mut self) -> Result<(), NotebookError> {
        self.reset().await?;
        self.place.leave(&self.inner.registry).await?;
        self.inner.store.remove_notebook(&self.row.namespace, &self.row.id).await?;
        Ok(())
    }

    fn context(&self, which: &SandboxRef) -> protocol::repl::OpenContext {
        let mut context = open(super::context_name(&self.row.id), self.keeper.language());
        let record = self.inner.registry.get(which).ok();
        context.cwd = record.and_then(|record| record.workdir).map(Into::into);
        context
    }

    fn orders<'a>(
        &self,
        guest: &'a Guest,
        context: &'a protocol::repl::OpenContext,
        token: &'a str,
    ) -> Orders<'a> {
        Orders { keeper: self.keeper, guest, context, token }
    }

    fn trouble(&self, what: &str) {
        let what = format!("the notebook {}/{}: {what}", self.row.namespace, self.row.id);
        (self.inner.trouble)(what);
    }
}

/// The end of a save; never without one.
async fn joined(saving: &mut Option<Saving>) -> Result<Fetched, NotebookError> {
    match saving {
        Some(saving) => (&mut saving.task).await.unwrap_or_else(|error| {
            Err(NotebookError::NotSaved { what: format!("the bridge gave it up: {error}") })
        }),
        None => std::future::pending().await,
    }
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
