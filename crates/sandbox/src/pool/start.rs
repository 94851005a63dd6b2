//! Starts machines for a shelf as long as it has room.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::repl::ContextState;
use protocol::{ContextName, requests};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

use super::entry::HOSTNAME;
use super::record::Pooled;
use super::shelf::{Made, Shelf};
use super::warmed::WarmSnapshot;
use super::{Entry, Inner, Personal, PoolEvent, Shape, personal};
use crate::SandboxError;
use crate::limits::{POOL_REHEARSAL_MAX, POOL_WARM_DEADLINE, POOL_WARM_LOOK_PAUSE};
use crate::snapshot::{Nameless, Snapshot};
use crate::startup::{self, StartupError};
use crate::stored::HeldImage;
use agent_client::guest::contexts::open;
use agent_client::guest::{Guest, GuestError};
use agent_client::program::{Program, draw_session};
use host::instant::now_ms;
use host::paths::make_private_directory;
use machine::limits::WAKE_DEADLINE;
use machine::{Capability, Directories, MachineError, MachineSpec, Running, SandboxId};

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
    #[error("its agent could not be given another identity: {0}")]
    Adopt(GuestError),
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
                    started = self.bring_up(&shelf, &id, &directories) => Some(started),
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
        shelf: &Shelf,
        id: &SandboxId,
        directories: &Directories,
    ) -> Result<Made, StartError> {
        let entry = &shelf.entry;
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
        let running = if let Some(running) = self.restore(shelf, &shape, &spec).await {
            running
        } else {
            let running = self.machines.get(entry.machine).start(spec.clone()).await?;
            make_ready(&running, entry, image.as_ref()).await?;
            if entry.is_warmed() {
                self.write_down(shelf, &shape, &spec, &running).await?;
            }
            running
        };
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

    /// Restores a machine from the shelf's snapshot. `None` if there is none, or it fails, which is reported.
    async fn restore(
        &self,
        shelf: &Shelf,
        shape: &Shape,
        spec: &MachineSpec,
    ) -> Option<Arc<dyn Running>> {
        let kept = shelf.warmed.of(shape)?;
        match kept.restore(self.machines.get(shelf.entry.machine).as_ref(), spec).await {
            Ok(running) => {
                shelf.warmed.has_restored();
                Some(running)
            }
            Err(error) => {
                self.not_restored(shelf, &kept, &error);
                None
            }
        }
    }

    /// Drops a snapshot from which no machine could be restored.
    pub(super) fn not_restored(
        &self,
        shelf: &Shelf,
        broken: &Arc<WarmSnapshot>,
        error: &MachineError,
    ) {
        shelf.warmed.drop_broken(broken);
        let (image, why) = (shelf.entry.name.clone(), error.to_string());
        self.tell(PoolEvent::NotRestored { image, why });
    }

    /// Writes a machine that is ready as the snapshot of its shelf. Where that cannot be, the machine is as good
    /// as before, and later ones are booted.
    async fn write_down(
        &self,
        shelf: &Shelf,
        shape: &Shape,
        spec: &MachineSpec,
        running: &Arc<dyn Running>,
    ) -> Result<(), StartError> {
        let Some(writing) = shelf.warmed.begin() else { return Ok(()) };
        let entry = &shelf.entry;
        let written = self.write_snapshot(entry, spec, running).await;
        match written {
            Ok((snapshot, files)) => writing.keep(shape.clone(), snapshot, files),
            Err(error) => {
                drop(writing);
                let why = error.to_string();
                if shelf.warmed.refused(&why) {
                    self.tell(PoolEvent::NotWritten { image: entry.name.clone(), why });
                }
            }
        }
        // Those that are restored know the state of its random numbers and interpreters.
        let personal = Personal {
            hostname: HOSTNAME.to_owned(),
            env: spec.env.clone(),
            ..Personal::default()
        };
        let guest = running.guest().ok_or(StartError::Silent)?;
        let adopting = personal::personalise(&guest, &personal, &[], true);
        match timeout(WAKE_DEADLINE, adopting).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(source)) => Err(StartError::Adopt(source)),
            Err(_) => Err(StartError::Silent),
        }
    }

    async fn write_snapshot(
        &self,
        entry: &Entry,
        spec: &MachineSpec,
        running: &Arc<dyn Running>,
    ) -> Result<(Snapshot, Nameless), SandboxError> {
        let lacks = || MachineError::lacks(entry.machine, Capability::Snapshot, "be snapshotted");
        let suspend = running.suspend().ok_or_else(lacks)?;
        suspend.may_snapshot()?;
        let (Some(reserve), Some(directories)) = (self.reserve.get(), &spec.directories) else {
            return Err(SandboxError::Stopping);
        };
        let mut draft = reserve(&entry.record(spec.id.clone()), &directories.state)?;
        let files = draft.nameless();
        suspend.snapshot(&draft.machine()).await?;
        let finishing = tokio::task::spawn_blocking(move || draft.finish());
        let snapshot = finishing.await.unwrap_or(Err(SandboxError::Stopping))?;
        Ok((snapshot, files))
    }
}

/// Starts what a machine has when it is ready.
async fn make_ready(
    running: &Arc<dyn Running>,
    entry: &Entry,
    image: Option<&HeldImage>,
) -> Result<(), StartError> {
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
        let place = entry.place(image);
        startup::run(&guest, startup, &place).await?;
    }
    Ok(())
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
