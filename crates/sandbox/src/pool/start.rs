//! Starts machines for a shelf as long as it has room.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::repl::ContextState;
use protocol::{ContextName, requests};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

use super::record::Pooled;
use super::{Entry, Inner, PoolEvent, Shape};
use crate::SandboxError;
use crate::limits::{POOL_REHEARSAL_MAX, POOL_WARM_DEADLINE, POOL_WARM_LOOK_PAUSE};
use agent_client::guest::contexts::open;
use agent_client::guest::{Guest, GuestError};
use agent_client::program::{Program, draw_session};
use host::instant::now_ms;
use host::paths::make_private_directory;
use machine::{Directories, MachineError, Running, SandboxId};

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
    #[error("the {language} interpreter could not be opened: {source}")]
    Context { language: ContextName, source: GuestError },
    #[error("the {language} interpreter did not start{}", .why.as_deref().map_or_else(String::new, |why| format!(": {why}")))]
    Cold { language: ContextName, why: Option<String> },
}

/// Fills one shelf until the pool closes.
pub(super) async fn refill(pool: Arc<Inner>, number: usize) {
    let mut closing = pool.closing.subscribe();
    let next = async {
        loop {
            pool.shelves[number].next_place().await;
            // A place that waits for its turn is a start as far as others can see.
            let permit = Arc::clone(&pool.starts).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            pool.quiet().await;
            pool.spawn_start(number, permit);
        }
    };
    tokio::select! {
        biased;
        _ = closing.wait_for(|closing| *closing) => {}
        () = next => {}
    }
}

impl Inner {
    pub(super) async fn start(self: Arc<Self>, number: usize, permit: OwnedSemaphorePermit) {
        let mut closing = self.closing.subscribe();
        let entry = &self.shelves[number].entry;
        let started = match self.draw() {
            Err(error) => Err(error),
            Ok((id, directories)) => {
                let started = tokio::select! {
                    biased;
                    _ = closing.wait_for(|closing| *closing) => None,
                    started = self.bring_up(entry, &id, &directories) => Some(started),
                };
                match started {
                    Some(Ok(started)) if !self.is_closing() => Ok(Some((id, started))),
                    // Its directories lead to everything that was made of it.
                    Some(Ok((_, running))) => {
                        self.end(entry.machine, &id, Some(&running)).await;
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
            Ok(Some((id, (shape, running)))) => {
                self.shelve(number, id.clone(), shape, running, now_ms());
                self.tell(PoolEvent::Ready { id, image: entry.name.clone() });
            }
            Ok(None) => self.shelves[number].give_up_start(),
            Err(error) => {
                let why = error.to_string();
                let pause = self.shelves[number].stock().failed(why.clone());
                self.shelves[number].give_up_start();
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
    ) -> Result<(Shape, Arc<dyn Running>), StartError> {
        let own = Some(directories.clone());
        let spec = entry.machine_spec(id.clone(), &self.paths, &self.files, own).await;
        let spec = spec.map_err(Box::new)?;
        let shape = entry.shape(&self.paths, &self.files).ok_or(StartError::Silent)?;
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
        Ok((shape, running))
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
