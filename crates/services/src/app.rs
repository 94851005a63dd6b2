//! Web apps: programs in sandboxes that are started, awaited until they answer HTTP, reached at a port of
//! this host, and ended without leftovers.
//!
//! ```text
//!  starting ─▶ running ─▶ exited · failed ─▶ (gone)
//!     │           │                            ▲
//!     │           └─ stopped, sandbox ended ───┤
//!     └─ ended, silent, stopped, unwanted ─────┘   nothing is left, and the caller gets the reason
//! ```
//!
//! An app is a session of its sandbox's agent, a directory with its code, a forwarded port and a note for the
//! next bridge. One task, its [`keeper`], owns all four throughout; this module holds the table of the
//! keepers' states. `api` calls it; it knows nothing about callers.

mod adopt;
mod error;
mod following;
mod keeper;
mod kind;
pub mod limits;
mod listening;
mod name;
mod note;
mod python;
mod ready;
mod seat;
mod spec;
mod tail;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::{ExitRecord, SessionId};
use tokio::sync::{oneshot, watch};

pub use error::AppError;
pub use kind::Kind;
pub use name::{AppName, InvalidAppName};
pub use ready::NotReadyReason;
pub use spec::{AppSpec, Program};
pub use tail::Shown;

use keeper::Keeper;
use seat::{SlotResult, Table};

use crate::forwards::Forwards;
use sandbox::{Registry, SandboxError, SandboxRef, Visit};

/// All apps of a bridge. Clones are the same.
#[derive(Clone, Debug)]
pub struct Apps(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    forwards: Forwards,
    table: Table,
    /// Starts that succeeded, and those that failed.
    started: AtomicU64,
    failed: AtomicU64,
    /// Set when the bridge ends: running apps are left for the next one.
    ending: watch::Sender<bool>,
}

/// The state of an app. Only its keeper changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not answered yet.
    Starting,
    Running,
    /// It ended by itself with code 0.
    Exited,
    /// It ended in any other way, or its sandbox's agent no longer answers.
    Failed,
}

/// The present state of an app.
#[derive(Clone, Debug)]
pub struct App {
    pub which: SandboxRef,
    pub name: AppName,
    pub kind: Kind,
    pub state: State,
    pub session: SessionId,
    /// There once its program has been started.
    pub pid: Option<u32>,
    /// In the sandbox; there once it is chosen.
    pub port: Option<u16>,
    /// On this host, while it is forwarded.
    pub host_port: Option<u16>,
    pub started_at_ms: u64,
    pub exit: Option<ExitRecord>,
    /// What was requested and is not available there.
    pub warnings: Vec<String>,
}

impl State {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Exited | Self::Failed)
    }
}

impl Apps {
    /// Apps that are reached by forwards of this table.
    pub fn new(forwards: Forwards) -> Self {
        let (ending, _) = watch::channel(false);
        let (started, failed) = (AtomicU64::default(), AtomicU64::default());
        Self(Arc::new(Inner { forwards, table: Table::default(), started, failed, ending }))
    }

    /// Starts an app and waits until it answers. If the caller is gone, or the app never answers,
    /// nothing of it is left. An ended app with the name is replaced.
    pub async fn start(&self, registry: &Registry, spec: AppSpec) -> Result<App, AppError> {
        let app = self.begin(registry, spec).await;
        let count = if app.is_ok() { &self.0.started } else { &self.0.failed };
        count.fetch_add(1, Ordering::Relaxed);
        app
    }

    /// How many starts succeeded since this bridge began, and how many failed.
    pub fn starts(&self) -> (u64, u64) {
        (self.0.started.load(Ordering::Relaxed), self.0.failed.load(Ordering::Relaxed))
    }

    async fn begin(&self, registry: &Registry, spec: AppSpec) -> Result<App, AppError> {
        spec.check()?;
        let Visit { guest, activity: _activity, .. } = registry.visit(&spec.which).await?;
        let record = registry.get(&spec.which)?;
        let seat = loop {
            match self.0.table.sit(&record, spec.name.as_ref(), spec.kind())? {
                SlotResult::Seat(seat) => break seat,
                SlotResult::Over(name) => {
                    self.stop(registry, &spec.which, &name).await.or_else(gone)?;
                }
            }
        };
        let keeper = Keeper::new(self.clone(), registry.clone(), record, guest, *seat)?;
        let (reply, answer) = oneshot::channel();
        tokio::spawn(keeper.start(spec, reply));
        answer.await.unwrap_or(Err(AppError::Ending))
    }

    /// The apps of a sandbox, by name.
    pub fn of(&self, which: &SandboxRef) -> Vec<App> {
        self.matching(|other| other == which)
    }

    /// The apps of all sandboxes that are wanted, by sandbox and name.
    pub fn matching(&self, is_wanted: impl Fn(&SandboxRef) -> bool) -> Vec<App> {
        let apps = self.0.table.shown(is_wanted);
        apps.into_iter().map(|app| self.with_forward(app)).collect()
    }

    pub fn get(&self, which: &SandboxRef, name: &AppName) -> Result<App, AppError> {
        let seen = self.0.table.get(which, name).map(|found| found.shown.borrow().clone());
        seen.map(|app| self.with_forward(app)).ok_or_else(|| not_found(which, name))
    }

    /// The newest output of an app.
    pub fn log(
        &self,
        which: &SandboxRef,
        name: &AppName,
        bytes_max: usize,
    ) -> Result<Shown, AppError> {
        let found = self.0.table.get(which, name).ok_or_else(|| not_found(which, name))?;
        Ok(found.tail.show(bytes_max))
    }

    /// Ends an app and all that it has started, and waits until nothing is left of it.
    pub async fn stop(
        &self,
        registry: &Registry,
        which: &SandboxRef,
        name: &AppName,
    ) -> Result<(), AppError> {
        let mut found = self.0.table.get(which, name).ok_or_else(|| not_found(which, name))?;
        let visit = registry.visit(which).await;
        if let Err(error @ (SandboxError::Paused { .. } | SandboxError::Held { .. })) = visit {
            return Err(error.into());
        }
        found.stop.notify_one();
        // Its keeper publishes its state until the end.
        while found.shown.changed().await.is_ok() {}
        Ok(())
    }

    /// Takes up the apps that an earlier bridge has left in sandboxes that run on.
    pub async fn adopt(&self, registry: &Registry) {
        adopt::adopt(self, registry).await;
    }

    /// The bridge ends: no app is started any more, and running ones are left.
    pub fn end(&self) {
        self.0.ending.send_replace(true);
    }

    /// A forward is one of the sandbox's ports, and may have been closed separately.
    fn with_forward(&self, mut app: App) -> App {
        let open = self.0.forwards.of(&app.which);
        let is_open = |port: &u16| open.iter().any(|forward| forward.address.port() == *port);
        app.host_port = app.host_port.filter(is_open);
        app
    }

    fn forwards(&self) -> &Forwards {
        &self.0.forwards
    }

    /// Resolves when the bridge ends.
    async fn ended(&self) {
        let mut ending = self.0.ending.subscribe();
        // It is not dropped while this is held.
        let _ = ending.wait_for(|is_ending| *is_ending).await;
    }
}

fn not_found(which: &SandboxRef, name: &AppName) -> AppError {
    AppError::NotFound { which: which.clone(), name: name.clone() }
}

/// Somebody else has removed it, which is fine.
fn gone(error: AppError) -> Result<(), AppError> {
    match error {
        AppError::NotFound { .. } => Ok(()),
        error => Err(error),
    }
}
