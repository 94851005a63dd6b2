//! When a sandbox's time is over, by a clock that goes on as it does when somebody sets the time: the next bridge of this
//! boot goes by it. After a reboot there is only the wall clock.

use std::io;
use std::time::Duration;

use host::instant::{now_ms, uptime_ms};
use machine::identity::boot_id;
use serde::{Deserialize, Serialize};

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// What it is by the wall clock, as the record has it: of another one this says nothing.
    wall_ms: u64,
    /// Milliseconds since that boot.
    uptime_ms: u64,
    boot_id: String,
}

impl Due {
    /// For a moment of the wall clock, as that is now.
    pub(crate) fn at(wall_ms: u64) -> io::Result<Self> {
        Self::after(wall_ms.saturating_sub(now_ms()), wall_ms)
    }

    /// For a moment that is so far away, whatever the wall clock says.
    pub(crate) fn after(left_ms: u64, wall_ms: u64) -> io::Result<Self> {
        let uptime_ms = uptime_ms().saturating_add(left_ms);
        Ok(Self { wall_ms, uptime_ms, boot_id: boot_id()? })
    }

    pub(crate) fn is_of(&self, wall_ms: u64) -> bool {
        self.wall_ms == wall_ms
    }

    /// How long until then. `None`: that cannot be known in another boot.
    pub(crate) fn left(&self) -> Option<Duration> {
        let is_of_this_boot = boot_id().is_ok_and(|boot_id| boot_id == self.boot_id);
        let left_ms = self.uptime_ms.saturating_sub(uptime_ms());
        is_of_this_boot.then(|| Duration::from_millis(left_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_as_far_away_as_it_was_when_it_was_noted_and_only_in_its_boot() {
        let mut due = Due::at(now_ms() + 60_000).unwrap();
        let left = due.left().unwrap();
        assert!((Duration::from_secs(50)..=Duration::from_secs(60)).contains(&left), "{left:?}");
        // The wall clock was set since.
        due.wall_ms += 3_600_000;
        assert!(due.left().unwrap() <= left);
        due.boot_id = "another".to_owned();
        assert_eq!(due.left(), None);
        assert_eq!(Due::at(0).unwrap().left(), Some(Duration::ZERO));
    }
}
