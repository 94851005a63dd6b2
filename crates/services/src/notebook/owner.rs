//! The task that owns a notebook while it is used: it runs one run after another, and saves variables between
//! them.
//!
//! ```text
//!          ┌── enter: sandbox? ─▶ interpreter ours? ─no─▶ claim, put back what is kept ─┐
//!  idle ───┤                            └──────yes──────────────────────────────────────┤
//!   ▲ ▲    │                                                                             ▼
//!   │ └────┼── history ◀── read to its end, or dropped ◀─────────────────────────────── turn
//!   │      └── save: the keeper forks, its child writes (the next turn may begin) ─▶ fetch, seal
//!   └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A run is answered before its variables are saved, and consecutive runs delay a save, but not for long. A
//! token identifies an interpreter: one without the token does not have the notebook's variables, and never
//! overwrites the saved ones.

mod count;
mod save;

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::Inner;
use super::error::NotebookError;
use super::keeper::{Keeper, Orders};
use super::limits::{LAST_SAVE_MAX, NAMES_MAX, SAVE_PAUSE_MAX, TASK_IDLE_MAX};
use super::manifest::{DAMAGE, Manifest, SavedVariables, Unavailable};
use super::place::NotebookSandbox;
use super::seal::SealError;
use super::transfer::{self, FetchedSave};
use super::turn::{Reopened, RunTranscript, Turn, TurnRequest};
use super::vault::{Stamp, Vault};
use crate::store::history::RunRow;
use crate::store::notebooks::NotebookRow;
use agent_client::guest::Guest;
use agent_client::guest::contexts::open;
use host::id::RandomId;
use host::instant::now_ms;
use machine::SandboxId;
use sandbox::{SandboxError, SandboxRef, Visit};
use save::{Saving, joined};

/// How much of a keeper's message is shown.
const STATE_CHARS_MAX: usize = 40;

pub type Answer<T> = oneshot::Sender<Result<T, NotebookError>>;

/// An order to a notebook's task.
pub enum Order {
    Enter(TurnRequest, Answer<Turn>),
    Save(Answer<Saved>),
    /// Deletes all variables, also those in the interpreter.
    Reset(Answer<()>),
    Forget(Vec<String>, Answer<()>),
    /// Continues in another place, with its variables.
    Move(Box<NotebookSandbox>, Answer<()>),
    /// The task saves unsaved changes, if that is quick, and ends.
    End(oneshot::Sender<()>),
    /// The task ends without saving, because the notebook is being removed.
    Remove(Answer<()>),
}

/// The interpreter that has the variables, as the store remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterpreterRef {
    pub sandbox: SandboxRef,
    pub id: SandboxId,
    pub token: String,
}

impl InterpreterRef {
    fn directory(&self) -> String {
        format!("/var/tmp/.burrow-{}", self.token)
    }
}

/// Where the store finds [`Saved::bytes`] in its JSON.
pub const SAVED_BYTES: &str = "$.bytes";

/// What is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    pub version: u64,
    /// The last run whose variables are in it.
    pub run: u64,
    pub saved_ms: u64,
    pub bytes: u64,
    /// Nothing is: the variables were deleted.
    #[serde(default)]
    pub is_none: bool,
    #[serde(flatten)]
    pub variables: SavedVariables,
}

/// See the module's description.
pub struct Owner {
    pub inner: Arc<Inner>,
    pub row: NotebookRow,
    pub keeper: Keeper,
    pub vault: Vault,
    pub place: NotebookSandbox,
    pub seat: Option<InterpreterRef>,
    pub saved: Option<Saved>,
    /// Since when the interpreter has variables that are not on disk.
    dirty: Option<Instant>,
    saving: Option<Saving>,
    /// The report of the last reopening, until a run has begun whose caller got it.
    untold: Option<Reopened>,
    /// A run that is not in the history yet, because the disk was full. There is at most one: the next run
    /// waits for it.
    unwritten: Option<RunRow>,
    /// When to retry what failed on a full disk.
    try_again: Option<Instant>,
}

/// What the task handles next.
enum OwnerEvent {
    Order(Option<Order>),
    Saved(Result<FetchedSave, NotebookError>),
    Save,
    TryAgain,
    Idle,
}

impl Owner {
    /// `row` was read under the vault's lock.
    pub fn new(inner: Arc<Inner>, vault: Vault, row: NotebookRow) -> Result<Self, NotebookError> {
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
            untold: None,
            unwritten: None,
            try_again: None,
        })
    }

    /// Obeys until it is ended, or nothing has been asked for long.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        // Changes that an earlier bridge has not saved may still be in the interpreter.
        if self.seat.is_some() && self.row.unsaved_runs > 0 {
            self.dirty = Some(Instant::now());
        }
        let mut idle_until = Instant::now() + TASK_IDLE_MAX;
        loop {
            match self.next(&mut orders, idle_until).await {
                OwnerEvent::Order(Some(order)) => {
                    idle_until = Instant::now() + TASK_IDLE_MAX;
                    if self.is_overdue() {
                        let _ = self.begin_save().await;
                    }
                    if self.carry_out(order).await {
                        return;
                    }
                }
                OwnerEvent::Saved(fetched) => {
                    let _ = self.end_save(fetched).await;
                }
                OwnerEvent::Save => {
                    let _ = self.begin_save().await;
                }
                OwnerEvent::TryAgain => self.make_up().await,
                OwnerEvent::Idle => {
                    // Later callers start another task; orders that were sent already are carried out.
                    orders.close();
                    idle_until = Instant::now() + TASK_IDLE_MAX;
                }
                OwnerEvent::Order(None) => {
                    let _ = timeout(LAST_SAVE_MAX, self.save()).await;
                    return;
                }
            }
        }
    }

    async fn next(
        &mut self,
        orders: &mut mpsc::Receiver<Order>,
        idle_until: Instant,
    ) -> OwnerEvent {
        let wants_save = self.dirty.is_some() && self.saving.is_none();
        tokio::select! {
            biased;
            order = orders.recv() => OwnerEvent::Order(order),
            fetched = joined(&mut self.saving) => OwnerEvent::Saved(fetched),
            () = std::future::ready(()), if wants_save => OwnerEvent::Save,
            () = sleep_until(self.try_again.unwrap_or(idle_until)),
                if self.try_again.is_some() && self.saving.is_none() => OwnerEvent::TryAgain,
            () = sleep_until(idle_until), if self.saving.is_none() => OwnerEvent::Idle,
        }
    }

    /// Whether runs have put a save off for too long.
    fn is_overdue(&self) -> bool {
        self.saving.is_none() && self.dirty.is_some_and(|since| since.elapsed() > SAVE_PAUSE_MAX)
    }

    /// Carries an order out, and says whether it was the last one.
    async fn carry_out(&mut self, order: Order) -> bool {
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
            Order::Move(place, answer) => {
                let _ = answer.send(self.move_to(*place).await);
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

    async fn enter(&mut self, ask: TurnRequest, answer: Answer<Turn>) {
        let mut turn = match self.turn(ask).await {
            Ok(turn) => turn,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let (over, ended) = oneshot::channel();
        turn.over = Some(over);
        // If nobody takes the turn, it is over at once.
        if answer.send(Ok(turn)).is_err() {
            return self.abandon().await;
        }
        let Ok((transcript, waits)) = ended.await else { return };
        self.note(transcript).await;
        // The caller may be gone.
        let _ = waits.map(|waits| waits.send(()));
    }

    async fn turn(&mut self, ask: TurnRequest) -> Result<Turn, NotebookError> {
        let (which, _, context) = self.ensure_seat().await?;
        let now = now_ms();
        let number = self.count_run(now).await?;
        Ok(Turn {
            _activity: self.inner.registry.activity(&which),
            which,
            context,
            number,
            reopened: self.untold.clone(),
            recording: RunTranscript::new(ask, now),
            over: None,
        })
    }

    /// The notebook's current seat, with its variables restored if they were missing.
    async fn ensure_seat(
        &mut self,
    ) -> Result<(SandboxRef, Guest, protocol::repl::OpenContext), NotebookError> {
        let (which, id, guest) = self.place.enter(&self.inner.registry).await?;
        // A restore may take longer than the sandbox lives idly.
        let _activity = self.inner.registry.activity(&which);
        let context = self.context(&which);
        if let Some(reopened) = self.sit(&which, id, &guest, &context).await? {
            self.inner.counts.reopened(reopened.unsaved_runs);
            self.untold = Some(reopened);
        }
        Ok((which, guest, context))
    }

    /// Writes a run into the history, and has its variables saved.
    async fn note(&mut self, transcript: RunTranscript) {
        if !transcript.has_begun() {
            return self.abandon().await;
        }
        let number = self.row.totals.runs;
        if self.untold.take().is_some() {
            // What it reports as lost is settled.
            let (space, id, run) = (&self.row.namespace, &self.row.id, number.saturating_sub(1));
            if let Err(error) = self.inner.store.set_saved_run(space, id, run).await {
                self.trouble(&format!("its history: {error}"));
            }
        }
        if transcript.may_have_changed() {
            self.dirty.get_or_insert_with(Instant::now);
        }
        let sandbox =
            self.seat.as_ref().map_or_else(|| self.place.which(), |seat| seat.sandbox.clone());
        let (space, id) = (self.row.namespace.clone(), self.row.id.clone());
        let row = RunRow { number, ..transcript.row(space, id, sandbox.to_string()) };
        let totals = &mut self.row.totals;
        totals.runs_us = totals.runs_us.saturating_add(row.duration_us);
        totals.cache_hits += u64::from(row.cache_hit == Some(true));
        totals.cache_misses += u64::from(row.cache_hit == Some(false));
        self.unwritten = Some(row);
        if let Err(error) = self.write_unwritten().await {
            self.trouble(&format!("run {number} is not in its history yet: {error}"));
            self.try_later(&error);
        }
    }

    /// Ensures that the context's interpreter has the notebook's variables.
    async fn sit(
        &mut self,
        which: &SandboxRef,
        id: SandboxId,
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
        // A running save of the interpreter that is gone still counts.
        self.settle().await;
        self.dirty = None;
        if let Some(old) = &self.seat
            && old.id == id
        {
            transfer::clear(guest, &old.directory()).await;
        }
        // Another context under this name has other variables, and must not mix with ours.
        close(guest, context).await?;
        let token = RandomId::draw().map_err(SandboxError::Draw)?;
        let second = RandomId::draw().map_err(SandboxError::Draw)?;
        let token = format!("{token}{second}");
        let seat = InterpreterRef { sandbox: which.clone(), id, token };
        let mut is_restored = false;
        let reopened = match self.read_saved().await? {
            None => {
                // After a reset, if there was one: earlier changes were deleted.
                let run = self.saved.as_ref().map_or(0, |saved| saved.run);
                let unsaved_runs = self.changes_behind(run).await?;
                (unsaved_runs > 0).then(|| Reopened { unsaved_runs, ..Reopened::default() })
            }
            Some((stamp, bytes)) => {
                let orders = self.orders(guest, context, &seat.token);
                let directory = seat.directory();
                let put_back = self.put_back(&orders, &directory, &bytes).await;
                if put_back.is_err() {
                    transfer::clear(guest, &directory).await;
                }
                let restored = put_back?;
                is_restored = true;
                let unsaved_runs = self.changes_behind(stamp.run).await?;
                Some(Reopened { as_of_run: stamp.run, unsaved_runs, ..restored })
            }
        };
        let orders = self.orders(guest, context, &seat.token);
        if !is_restored && self.keeper.comes_first() {
            orders.install().await?;
        }
        orders.claim().await?;
        let text = serde_json::to_string(&seat).unwrap_or_default();
        self.inner.store.set_seat(&self.row.namespace, &self.row.id, Some(text)).await?;
        self.seat = Some(seat);
        Ok(reopened)
    }

    /// The state on disk, if it is the one that was written last.
    async fn read_saved(&self) -> Result<Option<(Stamp, Vec<u8>)>, NotebookError> {
        let vault = self.vault.clone();
        let read = tokio::task::spawn_blocking(move || vault.state()).await;
        let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error).into()));
        let expected = self.saved.as_ref().map_or(0, |saved| saved.version);
        let is_none = self.saved.as_ref().is_some_and(|saved| saved.is_none);
        match read {
            Ok(None) if self.saved.as_ref().is_none_or(|saved| saved.is_none) => Ok(None),
            Ok(None) => Err(NotebookError::Damaged { why: "it no longer exists".to_owned() }),
            // It was reset, and the disk refused to remove its files.
            Ok(Some((stamp, _))) if is_none && stamp.version < expected => Ok(None),
            Ok(Some((stamp, _))) if stamp.version < expected => {
                let why =
                    format!("it is version {}, but version {expected} was written", stamp.version);
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
    ) -> Result<Reopened, NotebookError> {
        let manifest = Manifest::parse(bytes)?;
        let damaged = transfer::put(orders.guest, directory, &self.vault, bytes, &manifest).await?;
        orders.install().await?;
        let restored = orders.restore(directory).await?;
        if restored.state != "restored" {
            let state: String = restored.state.chars().take(STATE_CHARS_MAX).collect();
            return Err(NotebookError::Damaged { why: format!("its keeper found it {state:?}") });
        }
        let summary = manifest.summary(&damaged);
        let broken: HashSet<_> = summary
            .unavailable
            .iter()
            .filter(|away| away.reason == DAMAGE)
            .map(|away| away.name.as_str())
            .collect();
        let unavailable = restored.unavailable.iter().take(NAMES_MAX).map(|away| {
            if broken.contains(away.name.as_str()) {
                Unavailable { name: away.name.clone(), reason: DAMAGE.to_owned() }.clipped()
            } else {
                away.clipped()
            }
        });
        Ok(Reopened {
            restored: restored.names,
            lost: restored
                .lost
                .iter()
                .take(NAMES_MAX)
                .map(super::manifest::LostName::clipped)
                .collect(),
            depends: restored
                .depends
                .iter()
                .take(NAMES_MAX)
                .map(super::manifest::Dependent::clipped)
                .collect(),
            unavailable: unavailable.collect(),
            directory_lost: restored.cwd,
            ..Reopened::default()
        })
    }

    /// How many runs after this one may have changed something.
    async fn changes_behind(&self, run: u64) -> Result<u64, NotebookError> {
        Ok(self.inner.store.changes_behind(&self.row.namespace, &self.row.id, run).await?)
    }

    /// Whether there are changes whose fate is unknown.
    async fn owes(&self) -> Result<bool, NotebookError> {
        let row = self.inner.row(&self.row.namespace, &self.row.id).await?;
        Ok(row.unsaved_runs > 0)
    }

    async fn reset(&mut self) -> Result<(), NotebookError> {
        if let Some(saving) = self.saving.take() {
            saving.task.abort();
            // Its write has succeeded or failed, and no more follows.
            let _ = saving.task.await;
        }
        (self.dirty, self.untold) = (None, None);
        self.leave_seat().await?;
        // The count continues, so that nothing older is taken for the saved state.
        let version = self.saved.as_ref().map_or(0, |saved| saved.version) + 1;
        let run = self.row.totals.runs;
        let none = Saved { version, run, saved_ms: now_ms(), is_none: true, ..Saved::default() };
        self.write_saved(none).await?;
        self.vault.clear().map_err(SealError::from)?;
        Ok(())
    }

    /// Closes the notebook's context where it is, if that still exists.
    async fn leave_seat(&mut self) -> Result<(), NotebookError> {
        let Some(seat) = &self.seat else { return Ok(()) };
        match self.inner.registry.visit(&seat.sandbox).await {
            Ok(Visit { guest, activity: _activity, .. }) => {
                transfer::clear(&guest, &seat.directory()).await;
                close(&guest, &self.context(&seat.sandbox)).await?;
            }
            // It takes the context with it.
            Err(SandboxError::NotFound { .. } | SandboxError::NotRunning { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.seat = None;
        self.inner.store.set_seat(&self.row.namespace, &self.row.id, None).await?;
        Ok(())
    }

    async fn move_to(&mut self, place: NotebookSandbox) -> Result<(), NotebookError> {
        if place == self.place {
            return Ok(());
        }
        // The next opening reports what cannot be saved.
        let _ = self.save().await;
        // A place that is out of reach must not keep it from leaving.
        let _ = self.leave_seat().await;
        let _ = self.place.leave(&self.inner.registry).await;
        (self.seat, self.dirty) = (None, None);
        self.inner.store.set_seat(&self.row.namespace, &self.row.id, None).await?;
        let text = serde_json::to_string(&place).unwrap_or_default();
        self.inner.store.set_place(&self.row.namespace, &self.row.id, text).await?;
        self.place = place;
        Ok(())
    }

    async fn forget(&mut self, names: &[String]) -> Result<(), NotebookError> {
        self.settle().await;
        // Only an interpreter that has tried knows what cannot be loaded.
        let (_, guest, context) = self.ensure_seat().await?;
        let Some(seat) = &self.seat else { return Ok(()) };
        let orders = self.orders(&guest, &context, &seat.token);
        orders.forget(&seat.directory(), names).await?;
        self.dirty.get_or_insert_with(Instant::now);
        Ok(())
    }

    async fn remove(&mut self) -> Result<(), NotebookError> {
        self.reset().await?;
        self.vault.remove().map_err(SealError::from)?;
        self.place.leave(&self.inner.registry).await?;
        self.inner.store.remove_notebook(&self.row.namespace, &self.row.id).await?;
        Ok(())
    }

    fn context(&self, which: &SandboxRef) -> protocol::repl::OpenContext {
        let mut context = open(super::context_name(&self.row.id), self.keeper.language());
        let record = self.inner.registry.get(which).ok();
        if let Some(record) = record {
            (context.cwd, context.user) = (record.workdir.map(Into::into), record.user);
        }
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

/// Closes a context, if it is there.
async fn close(guest: &Guest, context: &protocol::repl::OpenContext) -> Result<(), NotebookError> {
    match guest.close_context(&context.context).await {
        Err(error) if error.fault_code() != Some(protocol::FaultCode::NotFound) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}
