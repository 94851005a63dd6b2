//! Standing still while the host takes a snapshot: the kernel stops every process that sessions and
//! contexts have, and what they have written goes to the disk.
//!
//! `router` calls it, and so do an adoption and the stop of the agent, which both let everything go on.
//! A watchdog does so by itself, so that a host that dies leaves nothing frozen. It counts the
//! monotonic clock, which stands still with the machine.
//!
//! ```text
//!             freeze                all stand still, file systems flushed
//! running ─────────────▶ freezing ─────────────────────────────────────────▶ frozen
//!    ▲                       │ a process does not stop                          │
//!    └───────────────────────┴──── thaw, adopt, the watchdog, the agent's stop ─┘
//! ```
//!
//! The agent itself goes on: it answers, and hands out what had been written. Only new work is
//! refused, by [`Agent::check_running`].

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use protocol::limits::{FREEZE_WATCHDOG_MAX, FREEZE_WATCHDOG_MIN};
use protocol::message::Reply;
use protocol::{Fault, FaultCode};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::agent::Agent;
use crate::cgroup::Groups;
use crate::limits::{FREEZE_MAX, FREEZE_POLL, THAW_PAUSE};
use crate::sys::clock;
use crate::task::{self, Work};

/// Whether the workload stands still, or is about to.
#[derive(Default)]
pub struct Freezer {
    /// Since when, by the monotonic clock.
    since_us: Cell<Option<u64>>,
    /// Grows with every freeze and every thaw, so that a watchdog knows its own freeze.
    turn: Cell<u64>,
    thawed: Notify,
    /// A thaw has failed, and is to be tried again.
    is_stuck: Cell<bool>,
    thawed_at: Cell<Option<Instant>>,
}

impl Freezer {
    pub fn is_frozen(&self) -> bool {
        self.since_us.get().is_some()
    }

    /// Whether it stands still, or did so not longer than `time` ago.
    pub fn has_stood_still_within(&self, time: Duration) -> bool {
        self.is_frozen() || self.thawed_at.get().is_some_and(|at| at.elapsed() < time)
    }

    fn turn_to(&self, since_us: Option<u64>) -> u64 {
        self.since_us.set(since_us);
        self.is_stuck.set(false);
        self.turn.set(self.turn.get() + 1);
        self.thawed.notify_waiters();
        self.turn.get()
    }

    /// Resolves when another turn than `turn` has come, or should have.
    async fn turned(&self, turn: u64) {
        while self.turn.get() == turn && !self.is_stuck.get() {
            self.thawed.notified().await;
        }
    }
}

/// Stops everything. It begins at once; the work is to wait until all stand still.
pub fn freeze(agent: &Rc<Agent>, watchdog_ms: u64) -> Work<Result<Reply, Fault>> {
    let began_us = clock::monotonic_us();
    let begun = begin(agent, Duration::from_millis(watchdog_ms));
    let agent = agent.clone();
    Box::pin(async move {
        let (turn, groups) = begun?;
        let settled = settle(&agent, turn).await;
        if agent.freezer.turn.get() != turn {
            let message = "the workload went on before it was frozen and on disk";
            return Err(Fault::new(FaultCode::Gone, message));
        }
        if let Err(fault) = settled {
            thaw(&agent).ok();
            return Err(fault);
        }
        Ok(Reply::Frozen { groups, took_us: clock::monotonic_us() - began_us })
    })
}

fn begin(agent: &Rc<Agent>, watchdog: Duration) -> Result<(u64, u32), Fault> {
    if !(FREEZE_WATCHDOG_MIN..=FREEZE_WATCHDOG_MAX).contains(&watchdog) {
        let (min, max) = (FREEZE_WATCHDOG_MIN.as_millis(), FREEZE_WATCHDOG_MAX.as_millis());
        let message = format!("a watchdog waits for {min} to {max} ms");
        return Err(Fault::new(FaultCode::Invalid, message));
    }
    agent.check_running()?;
    let groups = agent.groups.borrow();
    let Some(groups) = groups.as_ref() else { return Err(unsupported(agent)) };
    let turn = agent.freezer.turn_to(Some(clock::monotonic_us()));
    // Before anything stands still: whatever goes wrong from here on, it goes on again.
    let watched = agent.clone();
    task::spawn(async move {
        timeout(watchdog, watched.freezer.turned(turn)).await.ok();
        // What fails now, for want of descriptors maybe, may do so no more the next time.
        while watched.freezer.turn.get() == turn && thaw(&watched).is_err() {
            sleep(THAW_PAUSE).await;
        }
    });
    match groups.freeze(true) {
        Ok(count) => Ok((turn, count)),
        Err(error) => {
            thaw(agent).ok();
            let fault = refused("freeze", &error);
            // A kernel before 5.2 has no such file.
            let is_old = error.kind() == io::ErrorKind::NotFound;
            Err(if is_old { Fault { code: FaultCode::Unsupported, ..fault } } else { fault })
        }
    }
}

fn refused(what: &str, error: &io::Error) -> Fault {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    Fault::io(format!("the kernel does not {what}: {error}"), errno)
}

fn unsupported(agent: &Agent) -> Fault {
    let reason = agent.info().cgroup_missing.unwrap_or_default();
    let message = format!("nothing can be frozen without control groups: {reason}");
    Fault::new(FaultCode::Unsupported, message)
}

/// Waits until every process stands still, and until the disks have what was written.
async fn settle(agent: &Agent, turn: u64) -> Result<(), Fault> {
    let deadline = Instant::now() + FREEZE_MAX;
    while !agent.groups.borrow().as_ref().is_none_or(Groups::are_frozen) {
        if agent.freezer.turn.get() != turn {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let seconds = FREEZE_MAX.as_secs();
            let message = format!("a process has not stopped within {seconds} s");
            return Err(Fault::new(FaultCode::Limit, message));
        }
        sleep(FREEZE_POLL).await;
    }
    if agent.config.scratch_in_memory {
        return Ok(());
    }
    // A disk that takes longer than the watchdog waits is noticed by the turn.
    task::blocking(|| {
        nix::unistd::sync();
        Ok(())
    })
    .await
}

/// Lets everything go on, and says for how many milliseconds it had stood still. Where that fails it
/// counts as frozen on, and is tried again.
pub fn thaw(agent: &Agent) -> Result<u64, Fault> {
    let Some(since_us) = agent.freezer.since_us.get() else { return Ok(0) };
    if let Some(groups) = agent.groups.borrow().as_ref() {
        groups.freeze(false).map_err(|error| {
            agent.freezer.is_stuck.set(true);
            agent.freezer.thawed.notify_waiters();
            refused("thaw", &error)
        })?;
    }
    agent.freezer.turn_to(None);
    agent.freezer.thawed_at.set(Some(Instant::now()));
    agent.contexts.wake();
    Ok((clock::monotonic_us() - since_us) / 1_000)
}
