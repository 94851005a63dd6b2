//! The changes that a bucket did not accept, with the reasons. They are reported on request and when they
//! are new, and retried with growing pauses. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::limits::{AGAIN_FIRST, AGAIN_MAX};
use crate::Report;

/// The changes that a bucket did not accept.
#[derive(Debug, Default)]
pub struct PendingPushes {
    /// By path; a failure before any file has an empty path.
    reasons: BTreeMap<String, String>,
    is_broken: bool,
    /// The last pause.
    pause: Option<Duration>,
}

impl PendingPushes {
    /// Takes this time's failures, and reports the new ones.
    pub fn settle(
        &mut self,
        failures: BTreeMap<String, String>,
        is_broken: bool,
        is_asked: bool,
        report: &mut Report,
    ) {
        for (path, why) in &failures {
            if is_asked || self.reasons.get(path) != Some(why) {
                report.refuse(path.as_bytes(), why.as_str());
            }
        }
        (self.reasons, self.is_broken) = (failures, is_broken);
        if !self.is_so() {
            self.pause = None;
        }
    }

    /// Whether this path has failed the last time.
    pub fn has(&self, path: &str) -> bool {
        self.reasons.contains_key(path)
    }

    pub fn is_so(&self) -> bool {
        self.is_broken || !self.reasons.is_empty()
    }

    /// The pause before the next time; none if there is nothing to do.
    pub fn again(&mut self) -> Option<Duration> {
        let next = self.pause.map_or(AGAIN_FIRST, |pause| (pause * 2).min(AGAIN_MAX));
        self.pause = self.is_so().then_some(next);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(path, why)| ((*path).to_owned(), (*why).to_owned())).collect()
    }

    #[test]
    fn old_failures_are_reported_only_on_request() {
        let mut behind = PendingPushes::default();
        let mut reported = |all: &[(&str, &str)], is_asked| {
            let mut report = Report::default();
            behind.settle(failures(all), false, is_asked, &mut report);
            report.refused.iter().map(|one| format!("{} {}", one.path, one.why)).collect::<Vec<_>>()
        };
        assert_eq!(reported(&[("a", "away")], false), ["a away"]);
        assert!(reported(&[("a", "away")], false).is_empty());
        assert_eq!(reported(&[("a", "away")], true), ["a away"]);
        assert_eq!(reported(&[("a", "denied"), ("b", "denied")], false), ["a denied", "b denied"]);
        assert!(reported(&[], false).is_empty());
        assert_eq!(reported(&[("a", "away")], false), ["a away"]);
    }

    #[test]
    fn pauses_grow_to_a_bound_and_begin_again() {
        let mut behind = PendingPushes::default();
        assert_eq!(behind.again(), None);
        behind.settle(failures(&[("a", "away")]), false, false, &mut Report::default());
        let pauses: Vec<_> = (0..12).filter_map(|_| behind.again()).collect();
        assert_eq!((pauses.len(), pauses[0], pauses[11]), (12, AGAIN_FIRST, AGAIN_MAX));
        assert!(pauses.is_sorted());
        behind.settle(BTreeMap::new(), false, false, &mut Report::default());
        assert_eq!(behind.again(), None);
        behind.settle(BTreeMap::new(), true, false, &mut Report::default());
        assert_eq!(behind.again(), Some(AGAIN_FIRST));
    }
}
