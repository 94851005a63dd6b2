//! What the store has of a span of time, in steps of one length. Pure.

use super::bucket::Bucket;
use super::ring::Resolution;
use crate::limits::{
    TELEMETRY_GAP_MS, TELEMETRY_JITTER_MS, TELEMETRY_POINTS_MAX, TELEMETRY_POINTS_USUAL,
};

/// Steps that people count in, in milliseconds: seconds, minutes, hours.
const STEPS_MS: [u64; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    15_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    900_000,
    1_800_000,
    3_600_000,
    7_200_000,
    10_800_000,
    21_600_000,
    43_200_000,
    86_400_000,
    604_800_000,
];

/// The span that is wanted when its beginning is not given.
const SPAN_MS_DEFAULT: u64 = 3_600_000;

/// What to show: the samples of a span after `from_ms`, up to and with `to_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from_ms: u64,
    pub to_ms: u64,
    pub step_ms: u64,
}

/// Why a window cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWindow {
    #[error("from ({from_ms}) must be before to ({to_ms})")]
    Empty { from_ms: u64, to_ms: u64 },
    #[error(
        "step must be at least {least_ms} for this span, not {step_ms}: an answer has at most \
         {TELEMETRY_POINTS_MAX} points"
    )]
    TooFine { step_ms: u64, least_ms: u64 },
}

/// Samples of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub window: Window,
    /// One for each step in which samples were taken, with the beginning of the step.
    pub points: Vec<(u64, Bucket)>,
    /// From when to when nothing is known.
    pub gaps: Vec<(u64, u64)>,
}

impl Window {
    /// Fills in what is not given: the last hour, and a step with which there are few enough points.
    pub fn new(
        from_ms: Option<u64>,
        to_ms: Option<u64>,
        step_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<Self, InvalidWindow> {
        let to_ms = to_ms.unwrap_or(now_ms);
        let from_ms = from_ms.unwrap_or(to_ms.saturating_sub(SPAN_MS_DEFAULT));
        let span_ms = to_ms.checked_sub(from_ms).filter(|span_ms| *span_ms > 0);
        let span_ms = span_ms.ok_or(InvalidWindow::Empty { from_ms, to_ms })?;
        let usual_ms = span_ms.div_ceil(TELEMETRY_POINTS_USUAL);
        let least_ms = span_ms.div_ceil(TELEMETRY_POINTS_MAX).max(1);
        let step_ms = match step_ms {
            Some(step_ms) if step_ms < least_ms => {
                return Err(InvalidWindow::TooFine { step_ms, least_ms });
            }
            Some(step_ms) => step_ms,
            None => STEPS_MS.into_iter().find(|step_ms| *step_ms >= usual_ms).unwrap_or(usual_ms),
        };
        Ok(Self { from_ms, to_ms, step_ms })
    }

    /// The resolutions of which something is shown: of the finest that is no finer than the step, and of
    /// coarser ones for what is older.
    pub fn needs(&self, resolutions: &[Resolution]) -> usize {
        resolutions.iter().rposition(|one| one.step_ms <= self.step_ms).unwrap_or(0)
    }
}

impl History {
    /// `stored` has the records of each resolution that is needed, finest first.
    pub fn new(window: Window, stored: &[Vec<Bucket>], now_ms: u64) -> Self {
        let mut chosen: Vec<&Bucket> = Vec::new();
        for records in stored {
            let reaches_to = chosen.first().map_or(u64::MAX, |first| first.from_ms);
            let older = records.iter().filter(|record| record.to_ms <= reaches_to);
            let is_wanted =
                |record: &&Bucket| record.to_ms > window.from_ms && record.from_ms < window.to_ms;
            let mut older: Vec<_> = older.filter(is_wanted).collect();
            older.append(&mut chosen);
            chosen = older;
        }
        // The host's clock may have been set back.
        chosen.sort_by_key(|record| record.to_ms);
        let (mut points, mut gaps) = (Vec::<(u64, Bucket)>::new(), Vec::new());
        let mut reached_ms = window.from_ms;
        for record in chosen {
            if record.from_ms > reached_ms.saturating_add(TELEMETRY_JITTER_MS) {
                gaps.push((reached_ms, record.from_ms));
            }
            reached_ms = reached_ms.max(record.to_ms);
            if record.to_ms > window.to_ms {
                continue;
            }
            let at_ms = record.to_ms.saturating_sub(1) / window.step_ms * window.step_ms;
            match points.last_mut() {
                Some((last_ms, point)) if *last_ms == at_ms => point.merge(record),
                _ => points.push((at_ms, *record)),
            }
        }
        // The next sample may be one that is not taken yet.
        let due_ms = reached_ms.saturating_add(TELEMETRY_GAP_MS);
        if reached_ms.saturating_add(TELEMETRY_JITTER_MS) < window.to_ms && due_ms < now_ms {
            gaps.push((reached_ms, window.to_ms));
        }
        Self { window, points, gaps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(every_ms: u64, range: std::ops::RangeInclusive<u64>) -> Vec<Bucket> {
        let record = |n: u64| Bucket {
            from_ms: (n - 1) * every_ms,
            to_ms: n * every_ms,
            covered_ms: every_ms as u32,
            samples: 1,
            ..Bucket::default()
        };
        range.map(record).collect()
    }

    #[test]
    fn a_step_is_chosen_with_which_there_are_at_most_a_thousand_points() {
        for (hours, step_s) in [(1, 5), (24, 120), (24 * 30, 3600)] {
            let to_ms = 2_000_000_000_000;
            let from_ms = Some(to_ms - hours * 3_600_000);
            let window = Window::new(from_ms, Some(to_ms), None, 0).unwrap();
            assert_eq!(window.step_ms, step_s * 1000, "{hours} h");
            assert!((to_ms - window.from_ms) / window.step_ms <= TELEMETRY_POINTS_USUAL);
        }
        let hour = Window::new(None, None, Some(1000), 5_000_000).unwrap();
        assert_eq!((hour.from_ms, hour.to_ms), (1_400_000, 5_000_000));
    }

    #[test]
    fn windows_that_cannot_be_shown_are_refused_with_their_numbers() {
        let empty = Window::new(Some(7), Some(7), None, 9);
        assert_eq!(empty, Err(InvalidWindow::Empty { from_ms: 7, to_ms: 7 }));
        let fine = Window::new(Some(0), Some(86_400_000), Some(1000), 0);
        let expected = InvalidWindow::TooFine { step_ms: 1000, least_ms: 21_600 };
        assert_eq!(fine, Err(expected));
        assert!(Window::new(Some(0), Some(10), Some(0), 0).is_err());
    }

    #[test]
    fn gaps_are_shown_as_gaps() {
        let mut stored = records(1000, 100..=200);
        stored.extend(records(1000, 301..=400));
        let window = Window { from_ms: 50_000, to_ms: 500_000, step_ms: 10_000 };
        let history = History::new(window, &[stored], 500_001);
        assert_eq!(history.gaps, [(50_000, 99_000), (200_000, 300_000), (400_000, 500_000)]);
        let samples: u32 = history.points.iter().map(|(_, point)| point.samples).sum();
        assert_eq!(samples, 201);
        assert!(history.points.iter().all(|(at, _)| !(200_000..300_000).contains(at)));
        let (at_ms, point) = &history.points[1];
        assert_eq!((*at_ms, point.covered_ms, point.samples), (100_000, 10_000, 10));
    }

    #[test]
    fn what_the_fine_records_do_not_reach_comes_from_coarser_ones_and_nothing_twice() {
        let (fine, coarse) = (records(1000, 901..=1000), records(10_000, 1..=100));
        let window = Window { from_ms: 0, to_ms: 1_000_000, step_ms: 1000 };
        let history = History::new(window, &[fine, coarse], 1_000_001);
        assert_eq!(history.gaps, []);
        let covered: u64 = history.points.iter().map(|(_, at)| u64::from(at.covered_ms)).sum();
        assert_eq!(covered, 1_000_000);
        assert_eq!(history.points.len(), 90 + 100);
    }
}
