//! Notebooks: contexts whose variables outlive their interpreter, their sandbox and the bridge.
//!
//! ```text
//!  Notebooks ──▶ owner (a task for each that is used) ──▶ place   its sandbox, made if need be
//!                  │        │        │                    keeper  beside the code, in the interpreter
//!                  ▼        ▼        ▼
//!                store    vault    transfer               files of the guest, sealed on the host
//! ```
//!
//! After each run the changed variables are written to a file in the guest, without blocking it, and fetched.
//! Only an interpreter in a guest reads them: here they are bytes, sealed with a key that no guest has. What
//! cannot be kept is listed by name, with the reason. `api` decides who may use which notebook, and what is
//! shown of a run.

mod carry;
pub mod error;
mod figures;
mod keeper;
pub mod limits;
pub mod manifest;
mod owner;
mod place;
mod seal;
mod transfer;
pub mod turn;
mod vault;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use protocol::ContextName;
use protocol::repl::{ContextState, Grace};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

pub use error::NotebookError;
pub use figures::NotebookFigures;
pub use owner::Saved;
pub use place::NotebookSandbox;
pub use turn::{Reopened, Turn, TurnRequest};

use crate::store::Store;
use crate::store::history::{RunFilter, RunRow};
use crate::store::notebooks::{NotebookInsert, NotebookRow, Totals};
use agent_client::guest::contexts::open;
use host::instant::now_ms;
use host::paths::Paths;
use keeper::{Keeper, Orders};
use limits::{BUSY_LOOK, BUSY_PATIENCE, CACHE_KEY_BYTES_MAX, ID_BYTES_MAX, REMOVAL_SAVE_MAX};
use limits::{LOCK_PATIENCE, LOCK_PAUSE, ORDERS_WAITING_MAX};
use machine::SandboxId;
use owner::{InterpreterRef, Order, Owner};
use sandbox::{CarriedContexts, Name, Registry, SandboxError, SandboxRef};
use seal::SealKey;
use vault::Vault;

/// Stands before a notebook's name where its sandbox or context is named.
const PREFIX: &str = "notebook-";

/// All notebooks of a bridge. Clones are the same.
#[derive(Clone)]
pub struct Notebooks(Arc<Inner>);

struct Inner {
    paths: Paths,
    registry: Registry,
    store: Store,
    key: OnceLock<SealKey>,
    /// The tasks of those that are used; `None` when the bridge is stopping.
    tasks: Mutex<Option<Tasks>>,
    /// Held while a task is made, so that there is one for each.
    making: tokio::sync::Mutex<()>,
    counts: figures::Counts,
    /// Receives failures that no caller waits for.
    trouble: Box<dyn Fn(String) + Send + Sync>,
}

type Tasks = HashMap<(String, String), mpsc::Sender<Order>>;

/// A notebook as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notebook {
    pub namespace: String,
    pub id: String,
    pub language: String,
    pub created_ms: u64,
    pub used_ms: u64,
    pub sandbox: SandboxRef,
    /// Whether the notebook owns the sandbox.
    pub is_own: bool,
    pub totals: Totals,
    /// Runs whose changes are not on disk, unless a client has learned that they are lost.
    pub unsaved_runs: u64,
    /// What is saved; absent in lists.
    pub saved: Option<Saved>,
}

impl Notebooks {
    pub fn new(
        paths: Paths,
        registry: Registry,
        store: Store,
        trouble: impl Fn(String) + Send + Sync + 'static,
    ) -> Self {
        let notebooks = Self(Arc::new(Inner {
            paths,
            registry,
            store,
            key: OnceLock::new(),
            tasks: Mutex::new(Some(HashMap::new())),
            making: tokio::sync::Mutex::new(()),
            counts: figures::Counts::default(),
            trouble: Box::new(trouble),
        }));
        let saving = Arc::downgrade(&notebooks.0);
        notebooks.0.registry.save_with(Box::new(move |which, id| {
            let saving = saving.upgrade().map(Self);
            Box::pin(async move {
                match saving {
                    Some(notebooks) => notebooks.save_in(&which, &id).await,
                    None => Ok(()),
                }
            })
        }));
        let carrying = Arc::downgrade(&notebooks.0);
        notebooks.0.registry.carry_with(Box::new(move |source, forks| {
            let carrying = carrying.upgrade().map(Self);
            Box::pin(async move {
                match carrying {
                    Some(notebooks) => notebooks.carry(&source, &forks).await,
                    None => CarriedContexts::default(),
                }
            })
        }));
        notebooks
    }

    /// Saves the notebooks that have their interpreters in a sandbox, and names those whose runs remain
    /// unsaved.
    async fn save_in(&self, which: &SandboxRef, id: &SandboxId) -> Result<(), String> {
        // If the store does not answer, nothing is known, and the sandbox must not suffer for it.
        let rows = self.0.store.notebooks(Some(which.namespace.to_string())).await;
        let mut unsaved = Vec::new();
        for row in rows.unwrap_or_default() {
            let is_here = seat(&row).ok().flatten().is_some_and(|seat| seat.id == *id);
            let Some(name) = row.id.parse().ok().filter(|_| is_here && row.unsaved_runs > 0) else {
                continue;
            };
            let saving = timeout(REMOVAL_SAVE_MAX, self.save(&which.namespace, &name)).await;
            let why = match saving {
                // The interpreter's state is lost already; the next opening reports it.
                Ok(Ok(_) | Err(NotebookError::InterpreterEnded)) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("it was busy for {} s", REMOVAL_SAVE_MAX.as_secs()),
            };
            let runs = if row.unsaved_runs == 1 { "run" } else { "runs" };
            unsaved.push(format!("{name}, {} {runs} ({why})", row.unsaved_runs));
        }
        if unsaved.is_empty() { Ok(()) } else { Err(unsaved.join("; ")) }
    }

    /// Creates a notebook, in the default place unless another is given, or finds the one with that name. An
    /// existing one is moved if another place is given.
    pub async fn open(
        &self,
        namespace: &Name,
        id: &Name,
        language: Option<&str>,
        place: Option<NotebookSandbox>,
        usual: NotebookSandbox,
    ) -> Result<Notebook, NotebookError> {
        if id.as_str().len() > ID_BYTES_MAX {
            return Err(NotebookError::Name { id: id.to_string() });
        }
        let name = language.unwrap_or(agent_client::guest::contexts::language::DEFAULT);
        let keeper = Keeper::of(name)
            .ok_or_else(|| NotebookError::Language { language: name.to_owned() })?;
        let now = now_ms();
        let written = place.clone().unwrap_or(usual);
        let row = NotebookRow {
            namespace: namespace.to_string(),
            id: id.to_string(),
            language: keeper.language().to_owned(),
            created_ms: now,
            used_ms: now,
            place: serde_json::to_string(&written).unwrap_or_default(),
            seat: None,
            saved: None,
            unsaved_runs: 0,
            totals: Totals::default(),
        };
        match self.0.store.add_notebook(row.clone()).await? {
            NotebookInsert::Made => view(row),
            NotebookInsert::Full { max } => {
                Err(NotebookError::Full { namespace: namespace.to_string(), max })
            }
            NotebookInsert::Found(found) => {
                if language.is_some() && found.language != keeper.language() {
                    let language = found.language.clone();
                    return Err(NotebookError::OtherLanguage { id: id.to_string(), language });
                }
                let mut found = *found;
                if let Some(place) = place.filter(|_| found.place != row.place) {
                    let moved = |answer| Order::Move(Box::new(place), answer);
                    self.ask(namespace, id, moved).await?;
                    found = self.0.row(&found.namespace, &found.id).await?;
                }
                view(found)
            }
        }
    }

    /// Counts since this bridge began, and what is kept.
    pub async fn figures(&self) -> Result<NotebookFigures, NotebookError> {
        let kept_bytes = self.0.store.sum_of_saved(owner::SAVED_BYTES).await?;
        let tasks = self.0.tasks();
        let open = tasks.iter().flat_map(HashMap::values).filter(|orders| !orders.is_closed());
        Ok(self.0.counts.read(open.count(), kept_bytes))
    }

    /// The runs, the newest first.
    pub async fn history(&self, filter: RunFilter) -> Result<Vec<RunRow>, NotebookError> {
        Ok(self.0.store.history(filter).await?)
    }

    pub async fn get(&self, namespace: &Name, id: &Name) -> Result<Notebook, NotebookError> {
        view(self.0.row(namespace.as_str(), id.as_str()).await?)
    }

    pub async fn list(&self, namespace: Option<&Name>) -> Result<Vec<Notebook>, NotebookError> {
        let rows = self.0.store.notebooks(namespace.map(Name::to_string)).await?;
        rows.into_iter().map(view).collect()
    }

    /// Waits for its turn, and brings the variables back if the interpreter is a new one.
    pub async fn enter(
        &self,
        namespace: &Name,
        id: &Name,
        ask: TurnRequest,
    ) -> Result<Turn, NotebookError> {
        if let Some(key) = &ask.cache_key
            && key.len() > CACHE_KEY_BYTES_MAX
        {
            return Err(NotebookError::CacheKey { bytes: key.len() });
        }
        self.ask(namespace, id, |answer| Order::Enter(ask, answer)).await
    }

    /// Saves unsaved changes, and waits for it.
    pub async fn save(&self, namespace: &Name, id: &Name) -> Result<Saved, NotebookError> {
        self.ask(namespace, id, Order::Save).await
    }

    /// Deletes all variables, and ends the interpreter.
    pub async fn reset(&self, namespace: &Name, id: &Name) -> Result<(), NotebookError> {
        self.ask(namespace, id, Order::Reset).await
    }

    /// Deletes variables that are kept and cannot be loaded.
    pub async fn forget(
        &self,
        namespace: &Name,
        id: &Name,
        names: Vec<String>,
    ) -> Result<(), NotebookError> {
        self.ask(namespace, id, |answer| Order::Forget(names, answer)).await
    }

    /// How many compiled forms the interpreter caches; with `clear` it drops them. Returns nothing while the
    /// interpreter is busy with somebody's run. It waits for a moment, because a run that was just answered
    /// may not have quite ended.
    pub async fn compiled(
        &self,
        namespace: &Name,
        id: &Name,
        clear: bool,
    ) -> Result<Option<u64>, NotebookError> {
        let row = self.0.row(namespace.as_str(), id.as_str()).await?;
        let keeper = Keeper::of(&row.language);
        let (Some(seat), Some(keeper)) = (seat(&row)?, keeper) else { return Ok(Some(0)) };
        let registry = &self.0.registry;
        // A look wakes nobody.
        let visit = if clear { Some(registry.visit(&seat.sandbox).await) } else { None };
        let guest = match visit.map(|visit| visit.map(|visit| visit.guest)) {
            Some(guest) => guest,
            None => registry.guest(&seat.sandbox),
        };
        let guest = match guest {
            Ok(guest) => guest,
            Err(SandboxError::Paused { .. } | SandboxError::Held { .. }) => return Ok(None),
            // An interpreter that is gone has none.
            Err(_) => return Ok(Some(0)),
        };
        let name = context_name(&row.id);
        let began = Instant::now();
        let info = loop {
            let contexts = guest.contexts().await?;
            let Some(info) = contexts.into_iter().find(|info| info.context == name) else {
                return Ok(Some(0));
            };
            match info.state {
                ContextState::Cold => return Ok(Some(0)),
                ContextState::Idle if info.queued == 0 => break info,
                // Runs without a number are the host's own, such as a save: they are short, and
                // worth waiting for.
                ContextState::Running if info.running.is_none() && info.queued == 0 => break info,
                _ if began.elapsed() >= BUSY_PATIENCE => return Ok(None),
                _ => tokio::time::sleep(BUSY_LOOK).await,
            }
        };
        let mut context = open(name, keeper.language());
        context.cwd = info.cwd;
        let orders = Orders { keeper, guest: &guest, context: &context, token: &seat.token };
        orders.compiled(clear).await.map(Some)
    }

    /// Ends the run that is on, and says which it is in its context.
    pub async fn interrupt(
        &self,
        namespace: &Name,
        id: &Name,
        grace: Grace,
    ) -> Result<Option<u64>, NotebookError> {
        let row = self.0.row(namespace.as_str(), id.as_str()).await?;
        let Some(seat) = seat(&row)? else { return Ok(None) };
        let guest = self.0.registry.visit(&seat.sandbox).await?.guest;
        let context = context_name(&row.id);
        let ask = protocol::repl::Interrupt { context, run: None, grace };
        Ok(guest.interrupt(ask).await?)
    }

    /// Removes everything of a notebook: its interpreter, and its own sandbox.
    pub async fn remove(&self, namespace: &Name, id: &Name) -> Result<(), NotebookError> {
        self.ask(namespace, id, Order::Remove).await
    }

    /// Ends all tasks after saving unsaved changes, if that is quick. No new task begins.
    pub async fn end(&self) {
        let tasks = self.0.tasks().take().unwrap_or_default();
        let mut ends = Vec::new();
        for orders in tasks.into_values() {
            let (answer, ended) = oneshot::channel();
            if orders.try_send(Order::End(answer)).is_ok() {
                ends.push(ended);
            }
        }
        let all = async {
            for ended in ends {
                let _ = ended.await;
            }
        };
        // What takes longer is reported as unsaved by the next opening.
        let _ = timeout(limits::LAST_SAVE_MAX, all).await;
    }

    async fn ask<T>(
        &self,
        namespace: &Name,
        id: &Name,
        order: impl FnOnce(oneshot::Sender<Result<T, NotebookError>>) -> Order,
    ) -> Result<T, NotebookError> {
        let (answer, answered) = oneshot::channel();
        let mut order = order(answer);
        loop {
            let orders = self.orders(namespace.as_str(), id.as_str()).await?;
            match orders.try_send(order) {
                Ok(()) => break,
                Err(mpsc::error::TrySendError::Full(_)) => return Err(NotebookError::Busy),
                // It has just ended for want of orders: another is made.
                Err(mpsc::error::TrySendError::Closed(back)) => order = back,
            }
        }
        answered.await.map_err(|_| NotebookError::Closed)?
    }

    /// The task of a notebook, which is begun if there is none.
    async fn orders(
        &self,
        namespace: &str,
        id: &str,
    ) -> Result<mpsc::Sender<Order>, NotebookError> {
        let key = (namespace.to_owned(), id.to_owned());
        let find = || match self.0.tasks().as_ref() {
            None => Err(NotebookError::Closed),
            Some(tasks) => Ok(tasks.get(&key).filter(|orders| !orders.is_closed()).cloned()),
        };
        if let Some(orders) = find()? {
            return Ok(orders);
        }
        let _making = self.0.making.lock().await;
        if let Some(orders) = find()? {
            return Ok(orders);
        }
        self.0.row(namespace, id).await?;
        let vault = self.0.vault(namespace, id)?;
        let vault = locked(vault, id).await?;
        let row = self.0.row(namespace, id).await?;
        let owner = Owner::new(Arc::clone(&self.0), vault, row)?;
        let (orders, received) = mpsc::channel(ORDERS_WAITING_MAX);
        match self.0.tasks().as_mut() {
            None => return Err(NotebookError::Closed),
            Some(tasks) => {
                tasks.retain(|_, orders| !orders.is_closed());
                tasks.insert(key, orders.clone());
            }
        }
        tokio::spawn(owner.run(received));
        Ok(orders)
    }
}

impl Inner {
    fn tasks(&self) -> std::sync::MutexGuard<'_, Option<Tasks>> {
        // Nothing in the map is ever half-changed.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn row(&self, namespace: &str, id: &str) -> Result<NotebookRow, NotebookError> {
        let found = self.store.notebook(namespace, id).await?;
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        found.ok_or(NotebookError::Unknown { namespace, id })
    }

    fn vault(&self, namespace: &str, id: &str) -> Result<Vault, NotebookError> {
        let key = if let Some(key) = self.key.get() {
            key.clone()
        } else {
            let key = SealKey::open(&vault::key_path(&self.paths.state))?;
            self.key.get_or_init(|| key).clone()
        };
        let unknown =
            || NotebookError::Unknown { namespace: namespace.to_owned(), id: id.to_owned() };
        let namespace_name: Name = namespace.parse().map_err(|_| unknown())?;
        let id_name: Name = id.parse().map_err(|_| unknown())?;
        Ok(Vault::new(&self.paths, key, &namespace_name, &id_name))
    }
}

/// The own sandbox of a notebook.
pub fn own_sandbox(namespace: &Name, id: &Name) -> Result<SandboxRef, NotebookError> {
    let name = format!("{PREFIX}{id}").parse();
    let name = name.map_err(|_| NotebookError::Name { id: id.to_string() })?;
    Ok(SandboxRef { namespace: namespace.clone(), name })
}

/// A notebook's context in its sandbox.
fn context_name(id: &str) -> ContextName {
    format!("{PREFIX}{id}").parse().expect("names of notebooks are shorter than those of contexts")
}

/// A vault with its lock, which a task that has just ended may still hold for a moment.
async fn locked(vault: Vault, id: &str) -> Result<Vault, NotebookError> {
    let give_up_at = Instant::now() + LOCK_PATIENCE;
    loop {
        if let Some(locked) = vault.lock()? {
            return Ok(locked);
        }
        if Instant::now() > give_up_at {
            return Err(NotebookError::Elsewhere { id: id.to_owned() });
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

fn seat(row: &NotebookRow) -> Result<Option<InterpreterRef>, NotebookError> {
    read("seat", row.seat.as_deref())
}

fn view(row: NotebookRow) -> Result<Notebook, NotebookError> {
    let saved = read("saved", row.saved.as_deref())?;
    let place: Option<NotebookSandbox> = read("place", Some(&row.place))?;
    let is_own = matches!(place, Some(NotebookSandbox::Own(_)));
    let unknown =
        || NotebookError::Unknown { namespace: row.namespace.clone(), id: row.id.clone() };
    let sandbox = place.ok_or_else(unknown)?.which();
    Ok(Notebook {
        namespace: row.namespace,
        id: row.id,
        language: row.language,
        created_ms: row.created_ms,
        used_ms: row.used_ms,
        sandbox,
        is_own,
        totals: row.totals,
        unsaved_runs: row.unsaved_runs,
        saved,
    })
}

fn read<T: serde::de::DeserializeOwned>(
    column: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, NotebookError> {
    let read = text.map(serde_json::from_str).transpose();
    read.map_err(|source| crate::store::StoreError::Column { column, source }.into())
}
