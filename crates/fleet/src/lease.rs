//! The lease of a member as the member itself sees it. Pure: it is given the time.
//!
//! ```text
//!           renewed                      renewed
//!         ┌────────┐                   ┌────────┐
//!         ▼        │  half the grace   │        │  the whole grace, or
//!        Held ─────┴──────────────▶ Paused ─────┴──▶ the store's refusal ──▶ Over
//! ```
//!
//! The time is counted from the moment a renewal was *sent*. The store counts from the moment it stored it,
//! which is later, and for longer ([`LEASE_MARGIN_MS`]): a member is over before anybody else may say so.

use crate::ids::Millis;
use crate::limits::LEASE_MARGIN_MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Sandboxes run, and new ones may start.
    Held,
    /// Sandboxes are paused; nothing starts.
    Paused,
    /// Sandboxes are ended, and their names may be given to others.
    Over,
}

/// When the machines of a host pause and end, unless there is a later leash. A guardian on the host keeps
/// it, so that it holds when the bridge is stopped or dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leash {
    pub pause_at: Millis,
    pub end_at: Millis,
}

/// How long the store keeps a lease of this grace, in whole seconds.
pub fn ttl_s(grace_ms: u64) -> u64 {
    (grace_ms + grace_ms / 10 + LEASE_MARGIN_MS).div_ceil(1_000)
}

pub fn leash(sent_at: Millis, grace_ms: u64) -> Leash {
    Leash { pause_at: sent_at + grace_ms / 2, end_at: sent_at + grace_ms }
}

impl Leash {
    pub fn phase(&self, now: Millis) -> Phase {
        if now < self.pause_at {
            Phase::Held
        } else if now < self.end_at {
            Phase::Paused
        } else {
            Phase::Over
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_pauses_at_half_the_grace_and_is_over_at_the_whole() {
        let leash = leash(1_000, 20_000);
        let phases = [10_999, 11_000, 20_999, 21_000].map(|now| leash.phase(now));
        assert_eq!(phases, [Phase::Held, Phase::Paused, Phase::Paused, Phase::Over]);
    }

    #[test]
    fn the_store_keeps_a_lease_longer_than_a_slow_clock_trusts_it() {
        // A clock that is slower by a twentieth, which no computer's is.
        assert!(ttl_s(20_000) * 1_000 * 19 / 20 > 20_000);
        assert_eq!(ttl_s(20_000), 24);
    }
}
