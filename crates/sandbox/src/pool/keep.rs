//! Watches one ready machine: it must live, answer, be young, and be what would be started today.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use protocol::repl::ContextState;
use tokio::time::{Instant, sleep, timeout};

use super::{Entry, Inner, Shape, Shelf};
use crate::limits::POOL_CHECK_DEADLINE;
use crate::owner::reached;
use crate::startup;
use agent_client::guest::{Guest, GuestError};
use agent_client::link::LinkError;
use machine::{MachineExit, Running, SandboxId};

/// Why a ready machine cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RetireReason {
    #[error("{0}")]
    Ended(MachineExit),
    #[error("its agent is lost: {0}")]
    Lost(LinkError),
    #[error("its agent does not answer")]
    Silent,
    #[error("its agent refused: {0}")]
    Refused(GuestError),
    #[error("its {language} interpreter has ended")]
    Interpreter { language: String },
    #[error("its start command has ended with {how}")]
    Start { how: String },
    #[error("its record cannot be moved: {0}")]
    Record(io::Error),
    #[error("it was too old")]
    Old,
    #[error("its image has changed")]
    Outdated,
}

impl RetireReason {
    /// Whether the next one may fare no better.
    pub fn is_its_own_fault(&self) -> bool {
        !matches!(self, Self::Old | Self::Outdated)
    }
}

/// A watched machine.
pub(super) struct Watched {
    pub id: SandboxId,
    pub shape: Shape,
    /// How long it has been ready already.
    pub age_ms: u64,
}

/// Watches a machine until it must be removed. A claim ends this first.
pub(super) async fn keep(
    pool: Weak<Inner>,
    shelf: Arc<Shelf>,
    watched: Watched,
    running: Arc<dyn Running>,
) {
    let gone = until_gone(&pool, &shelf, &watched, &running).await;
    let Some((pool, gone)) = pool.upgrade().zip(gone) else { return };
    // A machine that is not on its shelf was claimed, and its end does not concern the pool.
    if let Some(ready) = shelf.take(|ready| ready.id == watched.id) {
        pool.discard(&shelf, ready, &gone);
    }
}

/// `None` when the pool is gone.
async fn until_gone(
    pool: &Weak<Inner>,
    shelf: &Shelf,
    watched: &Watched,
    running: &Arc<dyn Running>,
) -> Option<RetireReason> {
    let options = pool.upgrade()?.options.clone();
    let lived = Duration::from_millis(watched.age_ms);
    let old_at = options.age_max.map(|age_max| Instant::now() + age_max.saturating_sub(lived));
    let mut exited = running.exited();
    let guest = running.guest()?;
    let mut lost = Box::pin(guest.lost());
    loop {
        let checked = async {
            sleep(options.check_every).await;
            check(running, &shelf.entry).await
        };
        tokio::select! {
            biased;
            exit = &mut exited => return Some(RetireReason::Ended(exit)),
            error = &mut lost => return Some(RetireReason::Lost(error)),
            () = reached(old_at) => return Some(RetireReason::Old),
            checked = checked => if let Err(gone) = checked {
                return Some(gone);
            },
        }
        let pool = pool.upgrade()?;
        if shelf.entry.shape(&pool.paths, &pool.files).as_ref() != Some(&watched.shape) {
            return Some(RetireReason::Outdated);
        }
        shelf.stock().has_proved_good();
    }
}

/// Asks a machine whether it is as it was when it became ready.
pub(super) async fn check(running: &Arc<dyn Running>, entry: &Entry) -> Result<(), RetireReason> {
    let guest = running.guest().ok_or(RetireReason::Silent)?;
    let answer = timeout(POOL_CHECK_DEADLINE, guest.contexts()).await;
    let contexts = answer.map_err(|_| RetireReason::Silent)?.map_err(RetireReason::Refused)?;
    let is_warm = |language: &protocol::ContextName| {
        contexts.iter().any(|it| it.context == *language && it.state == ContextState::Idle)
    };
    match entry.contexts.iter().find(|language| !is_warm(language)) {
        Some(language) => Err(RetireReason::Interpreter { language: language.to_string() }),
        None => check_start(&guest, entry).await,
    }
}

/// Refuses a machine of a template whose start command has failed since it was ready.
pub(super) async fn check_start(guest: &Guest, entry: &Entry) -> Result<(), RetireReason> {
    if entry.start().is_none() {
        return Ok(());
    }
    match startup::still_stands(guest).await.map_err(RetireReason::Refused)? {
        Some(how) => Err(RetireReason::Start { how }),
        None => Ok(()),
    }
}
