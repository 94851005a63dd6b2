//! When a sandbox is ended or forgotten automatically: its deadlines, and how they are computed.
//!
//! ```text
//!  lives ──▶ age: creation + ttl ─────────────────────────────▶ stop
//!        ──▶ look, some times within the idle time ──▶ quiet for so long ──▶ stop
//!  stopped ──▶ removal: end + keep_stopped ───────────────────▶ remove
//! ```
//!
//! A paused sandbox is not checked: its idle time begins again when it resumes. Its absolute time to live
//! continues.
//!
//! Waits use the monotonic clock, which stops while the host sleeps, and which nobody sets: a laptop that was shut
//! overnight does not find all its sandboxes expired. The record on disk has its time for the next bridge of the same
//! boot; only after a reboot the wall clock counts.
//!
//! Everything that the bridge starts holds an [`Activity`](super::Activity), and its recorder sees
//! every session. Runs of code that others request from the agent directly are seen by neither, so
//! the agent is asked, and idle time begins again if anything has changed since the last answer. A
//! sandbox may therefore outlive its idle time by a part of it, but never ends early.

use std::time::Duration;

use protocol::repl::{ContextInfo, ContextState};
use tokio::time::Instant;

use crate::limits::{IDLE_LOOK_PAUSE_MAX, IDLE_LOOK_PAUSE_MIN, IDLE_LOOKS};
use crate::record::StoredRecord;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiryAction {
    /// The absolute time to live is over.
    Age,
    /// Ask the agent whether anything is active.
    Look,
    /// The record has been kept long enough.
    Removal,
}

/// The deadlines of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    age: Option<Instant>,
    idle_ttl: Option<Duration>,
    look: Option<Instant>,
    removal: Option<Instant>,
    contexts: Vec<ContextUse>,
}

/// The activity of one context: when it was opened, and its counts of runs and interpreters.
type ContextUse = (u64, u64, u64);

impl Expiry {
    /// The sandbox lives, or has been given another time to live.
    pub(super) fn lives(&mut self, stored: &StoredRecord) {
        self.age = stored.left().map(|left| Instant::now() + left);
        self.idle_ttl = stored.record.idle_ttl_ms.map(Duration::from_millis);
        self.look_again(Some(Duration::ZERO));
    }

    /// It is paused: it cannot be active, and so does not become idle. Its absolute time continues, because
    /// its holder asked for that long.
    pub(super) fn pauses(&mut self) {
        self.look = None;
    }

    /// It is ending; nothing more is awaited until it has ended.
    pub(super) fn ends(&mut self) {
        (self.age, self.look) = (None, None);
    }

    pub(super) fn stopped(&mut self, stored: &StoredRecord) {
        self.ends();
        self.removal = stored.left().map(|left| Instant::now() + left);
    }

    /// It cannot be removed, and another attempt would fail as well; the next bridge makes one.
    pub(super) fn removal_failed(&mut self) {
        self.removal = None;
    }

    /// When the absolute time to live is over.
    pub(super) fn age(&self) -> Option<Instant> {
        self.age
    }

    pub(super) fn idle_ttl(&self) -> Option<Duration> {
        self.idle_ttl
    }

    /// The first deadline.
    pub(super) fn next(&self) -> Option<(Instant, ExpiryAction)> {
        let all = [
            (self.age, ExpiryAction::Age),
            (self.look, ExpiryAction::Look),
            (self.removal, ExpiryAction::Removal),
        ];
        all.into_iter().filter_map(|(at, due)| Some((at?, due))).min_by_key(|(at, _)| *at)
    }

    /// A look has begun; the next is set when it is over.
    pub(super) fn looking(&mut self) {
        self.look = None;
    }

    /// Sets the next look, the last of them for the moment in which the idle time is over.
    pub(super) fn look_again(&mut self, idle_for: Option<Duration>) {
        self.look = self.idle_ttl.map(|ttl| {
            let pause = (ttl / IDLE_LOOKS).clamp(IDLE_LOOK_PAUSE_MIN, IDLE_LOOK_PAUSE_MAX);
            let rest = idle_for.map_or(pause, |idle_for| ttl.saturating_sub(idle_for));
            Instant::now() + pause.min(rest)
        });
    }

    /// Whether something has been at work since the last look.
    pub(super) fn has_worked(&mut self, contexts: &[ContextInfo]) -> bool {
        let done: Vec<ContextUse> =
            contexts.iter().map(|one| (one.opened_at_ms, one.runs, one.interpreters)).collect();
        let changed = done != self.contexts;
        self.contexts = done;
        changed || contexts.iter().any(is_at_work)
    }
}

fn is_at_work(context: &ContextInfo) -> bool {
    let resting = matches!(context.state, ContextState::Cold | ContextState::Idle);
    !resting || context.running.is_some() || context.queued > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::due::Due;
    use crate::{Record, Spec, State, StopReason};
    use host::instant::now_ms;

    fn stored() -> StoredRecord {
        let mut spec = Spec::new("web".parse().unwrap());
        spec.ttl_ms = Some(60_000);
        spec.idle_ttl_ms = Some(8_000);
        spec.keep_stopped_ms = Some(5_000);
        StoredRecord::new(Record::new("0123456789ab".parse().unwrap(), &spec, now_ms()))
    }

    fn context(state: ContextState, runs: u64) -> ContextInfo {
        let text = format!(
            r#"{{"context":"a","language":"python","state":"idle","interpreters":1,
                "runs":{runs},"queued":0,"opened_at_ms":7}}"#
        );
        ContextInfo { state, ..serde_json::from_str(&text).unwrap() }
    }

    #[tokio::test(start_paused = true)]
    async fn looks_come_some_times_within_the_idle_time_and_at_its_end() {
        let mut expiry = Expiry::default();
        expiry.lives(&stored());
        let now = Instant::now();
        let after = |expiry: &Expiry| expiry.next().map(|(at, due)| (at - now, due));
        assert_eq!(after(&expiry), Some((Duration::from_secs(1), ExpiryAction::Look)));
        expiry.look_again(Some(Duration::from_millis(7_900)));
        assert_eq!(after(&expiry), Some((Duration::from_millis(100), ExpiryAction::Look)));
        expiry.look_again(None);
        assert_eq!(after(&expiry), Some((Duration::from_secs(1), ExpiryAction::Look)));
        expiry.pauses();
        assert!(
            matches!(expiry.next(), Some((_, ExpiryAction::Age))),
            "a pause counts for the age alone"
        );
        expiry.looking();
        assert!(matches!(expiry.next(), Some((_, ExpiryAction::Age))));
        expiry.ends();
        assert_eq!(expiry.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_back_does_not_lengthen_a_life() {
        let mut stored = stored();
        stored.record.expires_at_ms = stored.record.expires_at_ms.map(|at_ms| at_ms + 3_600_000);
        let mut expiry = Expiry::default();
        expiry.lives(&stored);
        assert_eq!(expiry.age().unwrap() - Instant::now(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_forward_does_not_shorten_a_life() {
        let mut stored = stored();
        // It was made an hour ago, by the wall clock alone.
        for ms in [&mut stored.record.created_at_ms, stored.record.expires_at_ms.as_mut().unwrap()]
        {
            *ms -= 3_600_000;
        }
        let mut expiry = Expiry::default();
        expiry.lives(&stored);
        assert_eq!(expiry.age(), Some(Instant::now()));
        stored.due = Due::after(60_000, stored.record.expires_at_ms.unwrap()).ok();
        expiry.lives(&stored);
        assert!(expiry.age().unwrap() - Instant::now() > Duration::from_secs(50));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_sandbox_is_kept_as_long_as_was_asked() {
        let mut stored = stored();
        let mut expiry = Expiry::default();
        expiry.lives(&stored);
        let (why, at_ms) = (StopReason::Requested, now_ms() - 10_000);
        stored.record.state = State::Stopped { why, at_ms };
        expiry.stopped(&stored);
        assert_eq!(expiry.next(), Some((Instant::now(), ExpiryAction::Removal)));
        stored.record.keep_stopped_ms = None;
        let mut expiry = Expiry::default();
        expiry.stopped(&stored);
        assert_eq!(expiry.next(), None);
    }

    #[test]
    fn work_shows_while_it_goes_on_and_at_the_look_after_it() {
        let mut expiry = Expiry::default();
        assert!(!expiry.has_worked(&[]));
        assert!(expiry.has_worked(&[context(ContextState::Idle, 1)]));
        assert!(!expiry.has_worked(&[context(ContextState::Idle, 1)]));
        assert!(expiry.has_worked(&[context(ContextState::Running, 1)]));
        assert!(expiry.has_worked(&[context(ContextState::Starting, 1)]));
        assert!(expiry.has_worked(&[context(ContextState::Idle, 2)]));
        assert!(expiry.has_worked(&[]), "a context was closed");
    }
}
