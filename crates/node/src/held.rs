//! What this node's sandboxes do while it cannot renew its lease: they are paused at half of the grace, and go on with the
//! next renewal. At the end of the grace they end, paused or not.
//!
//! ```text
//!            half the grace is over
//!  they run ────────────────────────▶ they are paused ──▶ the whole: they are ended, and their names are free
//!     ▲                                     │
//!     └────────────── renewed ──────────────┘
//! ```
//!
//! What a sandbox does after half of the grace may be lost with it, so it does nothing then. A bridge
//! that is stopped or dead pauses nothing; the guardian ends its sandboxes in time.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fleet::driver::now_ms;
use fleet::lease::{Leash, Phase};
use machine::SandboxId;
use sandbox::{Event, State};
use tokio::sync::watch;

use crate::Inner;
use crate::limits::{HOLD_LOOK_PAUSE, LEASE_LOOK_MAX};

/// What has been done since the last renewal.
#[derive(Default)]
struct Since {
    is_reported: bool,
    /// Those that cannot be paused, and were reported.
    reported: BTreeSet<SandboxId>,
}

/// See the module's description.
pub(crate) async fn keep(node: Weak<Inner>, mut leashes: watch::Receiver<Leash>) {
    let mut since = Since::default();
    // An earlier bridge may have paused some.
    let mut some_are_paused = true;
    loop {
        let leash = *leashes.borrow_and_update();
        let now = now_ms();
        let Some(inner) = node.upgrade() else { return };
        let next = match leash.phase(now) {
            Phase::Held => {
                since = Since::default();
                if some_are_paused {
                    some_are_paused = !inner.go_on().await;
                }
                let left = Duration::from_millis(leash.pause_at - now);
                if some_are_paused { HOLD_LOOK_PAUSE } else { left.min(LEASE_LOOK_MAX) }
            }
            Phase::Paused => {
                some_are_paused = true;
                inner.hold(&mut since).await;
                HOLD_LOOK_PAUSE
            }
            Phase::Over => LEASE_LOOK_MAX,
        };
        drop(inner);
        tokio::select! {
            changed = leashes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(next) => {}
        }
    }
}

impl Inner {
    async fn hold(&self, since: &mut Since) {
        let Some(registry) = self.registry.get() else { return };
        if !std::mem::replace(&mut since.is_reported, true) {
            self.tallies.holds.fetch_add(1, Ordering::Relaxed);
            let half_s = self.grace.as_secs_f64() / 2.0;
            let what = format!(
                "this node could not renew its lease for {half_s} s: its sandboxes are paused until it can, and end \
                 with the lease"
            );
            (self.events)(&Event::Trouble { which: None, what });
        }
        for (record, error) in registry.hold().await {
            // One that is busy is paused by the next look.
            let is_busy = matches!(error, sandbox::SandboxError::Busy { .. });
            if !is_busy && since.reported.insert(record.id.clone()) {
                let what = format!("it runs on while its node has no lease: {error}");
                (self.events)(&Event::Trouble { which: Some(record.which()), what });
            }
        }
    }

    /// Says whether all go on.
    async fn go_on(&self) -> bool {
        let Some(registry) = self.registry.get() else { return false };
        let held = self.held_back();
        let failed = registry.go_on().await;
        for (record, error) in &failed {
            let what = format!("its node has its lease again, and it does not go on: {error}");
            (self.events)(&Event::Trouble { which: Some(record.which()), what });
        }
        if held > 0 {
            tracing::info!(node = %self.id, held, "the lease is renewed: sandboxes go on");
        }
        failed.is_empty()
    }

    /// How many sandboxes are paused for want of a lease.
    pub(crate) fn held_back(&self) -> u64 {
        let records = self.registry.get().map(|registry| registry.list(None)).unwrap_or_default();
        records.iter().filter(|record| State::is_held(&record.state)).count() as u64
    }
}
