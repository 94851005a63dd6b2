//! Freezing the workload while the host takes a snapshot: the kernel stops every process of sessions
//! and contexts, and everything that they have written goes to the disk.
//!
//! `router` calls it. An adoption and the stop of the agent thaw the workload, and so does a watchdog,
//! so that a host that dies leaves nothing frozen. The watchdog uses the monotonic clock, which stops
//! with the machine.
//!
//! ```text
//!             freeze                   all frozen, file systems flushed
//! running ─────────────▶ freezing ─────────────────────────────────────────▶ frozen
//!    ▲                       │ a process does not stop                          │
//!    └───────────────────────┴──── thaw, adopt, the watchdog, the agent's stop ─┘
//! ```
//!
//! The agent itself keeps running: it answers, and it sends the output that was written before. Only
//! new work is refused, by [`Ground::check_running`].

use std::io;
use std::rc::Rc;
use std::time::Duration;

use protocol::limits::{FREEZE_WATCHDOG_MAX, FREEZE_WATCHDOG_MIN};
use protocol::message::Reply;
use protocol::{Fault, FaultCode};
use tokio::time::{Instant, sleep, timeout};

use crate::cgroup::Groups;
use crate::ground::Ground;
use crate::limits::{FREEZE_MAX, FREEZE_POLL, THAW_PAUSE};
use crate::sys::clock;
use crate::task::{self, Work};

/// Freezes the workload. It begins at once; the returned work waits until every process is frozen.
pub fn freeze(ground: &Rc<Ground>, watchdog_ms: u64) -> Work<Result<Reply, Fault>> {
    let began_us = clock::monotonic_us();
    let begun = begin(ground, Duration::from_millis(watchdog_ms));
    let ground = ground.clone();
    Box::pin(async move {
        let (turn, groups) = begun?;
        let settled = settle(&ground, turn).await;
        if ground.freezer.turn() != turn {
            let message = "the workload was thawed before the freeze was complete";
            return Err(Fault::new(FaultCode::Gone, message));
        }
        if let Err(fault) = settled {
            thaw(&ground).ok();
            return Err(fault);
        }
        Ok(Reply::Frozen { groups, took_us: clock::monotonic_us() - began_us })
    })
}

fn begin(ground: &Rc<Ground>, watchdog: Duration) -> Result<(u64, u32), Fault> {
    if !(FREEZE_WATCHDOG_MIN..=FREEZE_WATCHDOG_MAX).contains(&watchdog) {
        let (min, max) = (FREEZE_WATCHDOG_MIN.as_millis(), FREEZE_WATCHDOG_MAX.as_millis());
        let message = format!("watchdog_ms must be within {min} and {max}");
        return Err(Fault::new(FaultCode::Invalid, message));
    }
    ground.check_running()?;
    let groups = ground.groups.borrow();
    let Some(groups) = groups.as_ref() else { return Err(unsupported(ground)) };
    let turn = ground.freezer.begin(clock::monotonic_us());
    // Started first: whatever goes wrong from here on, the workload is thawed again.
    let watched = ground.clone();
    task::spawn(async move {
        timeout(watchdog, watched.freezer.turned(turn)).await.ok();
        // A thaw that fails now, perhaps for lack of a descriptor, may succeed later.
        while watched.freezer.turn() == turn && thaw(&watched).is_err() {
            sleep(THAW_PAUSE).await;
        }
    });
    match groups.freeze(true) {
        Ok(count) => Ok((turn, count)),
        Err(error) => {
            thaw(ground).ok();
            let fault = refused("freeze", &error);
            // A kernel before 5.2 has no such file.
            let is_old = error.kind() == io::ErrorKind::NotFound;
            Err(if is_old { Fault { code: FaultCode::Unsupported, ..fault } } else { fault })
        }
    }
}

fn refused(what: &str, error: &io::Error) -> Fault {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    Fault::io(format!("the kernel refused to {what}: {error}"), errno)
}

fn unsupported(ground: &Ground) -> Fault {
    let reason = ground.cgroup_missing().unwrap_or_default();
    let message = format!("nothing can be frozen without control groups: {reason}");
    Fault::new(FaultCode::Unsupported, message)
}

/// Waits until every process is frozen and everything written is on the disks.
async fn settle(ground: &Ground, turn: u64) -> Result<(), Fault> {
    let deadline = Instant::now() + FREEZE_MAX;
    while !ground.groups.borrow().as_ref().is_none_or(Groups::are_frozen) {
        if ground.freezer.turn() != turn {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let seconds = FREEZE_MAX.as_secs();
            let message = format!("a process did not freeze within {seconds} s");
            return Err(Fault::new(FaultCode::Limit, message));
        }
        sleep(FREEZE_POLL).await;
    }
    let config = &ground.config;
    // On a host the disks are not the sandbox's, and nobody takes a picture of them.
    if config.scratch_in_memory || config.init && !config.machine {
        return Ok(());
    }
    // If the disk takes longer than the watchdog waits, the turn is over.
    task::blocking(|| {
        nix::unistd::sync();
        Ok(())
    })
    .await
}

/// Thaws the workload. Returns for how many milliseconds it was frozen. If the thaw fails, the workload
/// still counts as frozen, and the watchdog tries again.
pub fn thaw(ground: &Ground) -> Result<u64, Fault> {
    let Some(since_us) = ground.freezer.since_us() else { return Ok(0) };
    if let Some(groups) = ground.groups.borrow().as_ref() {
        groups.freeze(false).map_err(|error| {
            ground.freezer.mark_stuck();
            refused("thaw", &error)
        })?;
    }
    ground.freezer.end();
    Ok((clock::monotonic_us() - since_us) / 1_000)
}
