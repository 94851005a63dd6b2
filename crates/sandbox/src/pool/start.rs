//! Starts machines for a shelf as long as it has room.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::repl::ContextState;
use protocol::{ContextName, requests};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

use super::record::Pooled;
use super::shelf::{Made, Shelf};
use super::{Entry, Inner, PoolEvent};
use crate::SandboxError;
use crate::limits::{POOL_REHEARSAL_MAX, POOL_WARM_DEADLINE, POOL_WARM_LOOK_PAUSE};
use crate::startup::{self, StartupError};
use agent_client::guest::contexts::open;
use agent_client::guest::{Guest, GuestError};
use agent_client::program::{Program, draw_session};
use host::instant::now_ms;
use host::paths::make_private_directory;
use machine::{Directories, MachineError, SandboxId};

/// The program that each machine runs once before it is ready.
const REHEARSED: &str = "true";

/// Why a machine is not ready.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Sandbox(#[from] Box<SandboxError>),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("could not {action} {path:?}: {source}")]
    Files { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot make a random id: {0}")]
    Draw(io::Error),
    #[error("its agent does not answer")]
    Silent,
    #[error(transparent)]
    Startup(#[from] StartupError),
    #[error("the {language} interpreter could not be opened: {source}")]
    Context { language: ContextName, source: GuestError },
    #[error("the {language} interpreter did not start{}", .why.as_deref().map_or_else(String::new, |why| format!(": {why}")))]
    Cold { language: ContextName, why: Option<String> },
}

/// Fills one shelf until the pool closes.
pub(super) async fn refill(pool: Arc<Inner>, shelf: Arc<Shelf>) {
    let mut closing = pool.closing.subscribe();
    let next = async {
        loop {
            shelf.next_place().await;
            // A place that waits for its turn is a start as far as others can see.
            let permit = Arc::clone(&pool.starts).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            pool.quiet().await;
            pool.spawn_start(&shelf, permit);
        }
    };
    tokio::select! {
        biased;
        _ = closing.wait_for(|closing| *closing) => {}
        () = shelf.until_closed() => {}
        () = next => {}
    }
}

impl Inner {
    pub(super) async fn start(self: Arc<Self>, shelf: Arc<Shelf>, permit: OwnedSemaphorePermit) {
        let mut closing = self.closing.subscribe();
        let entry = &shelf.entry;
        let started = match self.draw() {
            Err(error) => Err(error),
            Ok((id, directories)) => {
                let started = tokio::select! {
                    biased;
                    _ = closing.wait_for(|closing| *closing) => None,
                    () = shelf.until_closed() => None,
                    started = self.bring_up(entry, &id, &directories) => Some(started),
                };
                match started {
                    Some(Ok(made)) if !self.is_closing() && !shelf.is_closed() => {
                        Ok(Some((id, made)))
                    }
                    // Its directories lead to everything that was made of it.
                    Some(Ok(made)) => {
                        self.end(entry.machine, &id, Some(&made.running)).await;
                        Ok(None)
                    }
                    None => {
                        self.end(entry.machine, &id, None).await;
                        Ok(None)
                    }
                    Some(Err(error)) => {
                        self.end(entry.machine, &id, None).await;
                        Err(error)
                    }
                }
            }
        };
        drop(permit);
        match started {
            Ok(Some((id, made))) => {
                self.shelve(&shelf, id.clone(), made, now_ms());
                if shelf.is_closed() {
                    // It was closed meanwhile, and its emptying may have come first.
                    for ready in shelf.empty() {
                        self.spawn_end(&shelf, ready);
                    }
                }
                self.tell(PoolEvent::Ready { id, image: entry.name.clone() });
            }
            Ok(None) => shelf.give_up_start(),
            Err(error) => {
                let why = error.to_string();
                let pause = shelf.stock().failed(why.clone());
                shelf.give_up_start();
                self.tell(PoolEvent::Failed { image: entry.name.clone(), why, pause });
            }
        }
    }

    /// An id that nothing on this host has, with its directories.
    fn draw(&self) -> Result<(SandboxId, Directories), StartError> {
        let failed = |action, path: &PathBuf| {
            let path = path.clone();
            move |source| StartError::Files { action, path, source }
        };
        loop {
            let id = SandboxId::draw().map_err(StartError::Draw)?;
            let directories = super::super::directories::directories(&self.paths, &id);
            if directories.state.exists() || directories.runtime.exists() {
                continue;
            }
            for path in [&directories.state, &directories.runtime] {
                make_private_directory(path).map_err(failed("make", path))?;
            }
            return Ok((id, directories));
        }
    }

    /// Starts a machine and its interpreters, and records it as ready.
    async fn bring_up(
        &self,
        entry: &Entry,
        id: &SandboxId,
        directories: &Directories,
    ) -> Result<Made, StartError> {
        let own = Some(directories.clone());
        let spec = entry.machine_spec(id.clone(), &self.paths, &self.files, own).await;
        let mut spec = spec.map_err(Box::new)?;
        let shape = entry.shape(&self.paths, &self.files).ok_or(StartError::Silent)?;
        let image = match entry.wanted(&self.source) {
            Some(wanted) => {
                wanted.fetch().await.map_err(|error| Box::new(error.into()))?;
                wanted.furnish(&mut spec).await.map_err(Box::new)?
            }
            None => None,
        };
        let running = self.machines.get(entry.machine).start(spec).await?;
        let guest = running.guest().ok_or(StartError::Silent)?;
        for language in &entry.contexts {
            let opened = guest.open_context(&open(language.clone(), language.as_str())).await;
            opened.map_err(|source| StartError::Context { language: language.clone(), source })?;
        }
        for language in &entry.contexts {
            warm(&guest, language).await?;
        }
        rehearse(&guest).await;
        if let Some(startup) = entry.startup() {
            let place = entry.place(image.as_ref());
            startup::run(&guest, startup, &place).await?;
        }
        let pooled = Pooled {
            id: id.clone(),
            shape: shape.clone(),
            contexts: entry.contexts.clone(),
            trace: running.trace(),
            ready_at_ms: now_ms(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let path = directories.state.clone();
        let written = pooled.write(&path);
        written.map_err(|source| StartError::Files { action: "write to", path, source })?;
        Ok(Made { shape, running, image })
    }
}

/// Runs a program that does nothing: the first one that an agent starts takes longer than later ones. It
/// leaves nothing, and an image may not have it.
async fn rehearse(guest: &Guest) {
    let Ok(session) = draw_session() else { return };
    let program = Program::new(session, requests::Program::argv([REHEARSED]));
    let Ok(mut running) = program.begin(guest) else { return };
    let _ = timeout(POOL_REHEARSAL_MAX, running.collect(&[], &mut (drop_bytes, drop_bytes))).await;
}

fn drop_bytes(_: &[u8]) {}

/// Waits until an interpreter can take code.
async fn warm(guest: &Guest, language: &ContextName) -> Result<(), StartError> {
    let named = || language.clone();
    let looked = timeout(POOL_WARM_DEADLINE, async {
        loop {
            let contexts = guest.contexts().await;
            let contexts =
                contexts.map_err(|source| StartError::Context { language: named(), source })?;
            let found = contexts.into_iter().find(|context| context.context == *language);
            match found {
                Some(context) if context.state == ContextState::Idle => return Ok(()),
                Some(context) if context.state == ContextState::Starting => {}
                found => {
                    let why = found.and_then(|context| context.lost);
                    return Err(StartError::Cold { language: named(), why });
                }
            }
            sleep(POOL_WARM_LOOK_PAUSE).await;
        }
    });
    looked.await.unwrap_or_else(|_| Err(StartError::Cold { language: named(), why: None }))
}
