//! Timers that fire at the same time: a thread that has hundreds of them wakes once for several.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// A time less than `apart` earlier, which many timers have in common.
pub fn together(at: Instant, apart: Duration) -> Instant {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let since = at.saturating_duration_since(*FIRST.get_or_init(Instant::now));
    let beyond_ns = since.as_nanos().checked_rem(apart.as_nanos()).unwrap_or_default();
    at - Duration::from_nanos(beyond_ns as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The parts of a period that timers are apart.
    const PARTS: u32 = 16;

    #[tokio::test(start_paused = true)]
    async fn hundreds_of_timers_wake_their_thread_about_once_a_second_and_none_too_late() {
        let period = Duration::from_secs(15);
        let apart = period / PARTS;
        let mut dues = BTreeSet::new();
        for _ in 0..400 {
            tokio::time::advance(period / 400).await;
            let at = Instant::now() + period;
            let together = together(at, apart);
            assert!(together <= at && at < together + apart);
            dues.insert(together);
        }
        assert!(dues.len() <= PARTS as usize + 1, "{} times", dues.len());
        // The next one is a whole period later: they stay together.
        assert!(dues.iter().all(|due| together(*due + period, apart) == *due + period));
    }
}
