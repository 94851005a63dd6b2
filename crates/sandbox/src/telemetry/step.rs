//! What two successive samples of an agent say about the time between them. Pure.
//!
//! The agent's counters are absolute, so what was used since the last known sample is exact however many
//! samples were missed, and however often they were asked for.

use protocol::metrics::Sample;

use super::bucket::{Bucket, Counters, CpuParts, Gauge};
use crate::costs::Cost;
use crate::limits::TELEMETRY_GAP_MS;

/// What was used from one sample to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Between the samples, by the agent's clock that never steps.
    pub elapsed_ms: u64,
    /// How much of that is known of: all, or the last moment if samples in between are missing.
    pub covered_ms: u64,
    pub counters: Counters,
    pub cpu_parts: CpuParts,
    pub oom_kills: u64,
    /// Memory times time, in KiB and milliseconds.
    pub memory_kib_ms: u64,
}

/// What the last moment before a sample stands for that has none before it.
const MOMENT_MS: u64 = 1000;

impl Step {
    /// From `last`, or from the start of the agent.
    pub fn between(last: Option<&Sample>, sample: &Sample) -> Self {
        let zero = Sample { memory_bytes: sample.memory_bytes, ..Sample::default() };
        let last = last.unwrap_or(&zero);
        let elapsed_ms = sample.uptime_ms.saturating_sub(last.uptime_ms);
        let is_gap = elapsed_ms > TELEMETRY_GAP_MS;
        let grown = |now: Option<u64>, before: Option<u64>| {
            now.unwrap_or(0).saturating_sub(before.or(now).unwrap_or(0))
        };
        let from_start = |before: Option<u64>| if last.number == 0 { Some(0) } else { before };
        // A part of which only one of two is known has grown by nobody knows how much.
        let part =
            |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(from_start(before)?));
        let kib = (last.memory_bytes / 1024).midpoint(sample.memory_bytes / 1024);
        Self {
            elapsed_ms,
            covered_ms: if is_gap { elapsed_ms.min(MOMENT_MS) } else { elapsed_ms },
            counters: Counters {
                cpu_us: sample.cpu_us.saturating_sub(last.cpu_us),
                read_bytes: grown(sample.read_bytes, from_start(last.read_bytes)),
                written_bytes: grown(sample.written_bytes, from_start(last.written_bytes)),
                ..Counters::default()
            },
            cpu_parts: CpuParts {
                user_us: part(sample.cpu_user_us, last.cpu_user_us),
                system_us: part(sample.cpu_system_us, last.cpu_system_us),
                throttled_us: part(sample.cpu_throttled_us, last.cpu_throttled_us),
            },
            oom_kills: grown(sample.oom_kills, from_start(last.oom_kills)),
            memory_kib_ms: kib.saturating_mul(elapsed_ms),
        }
    }

    /// The bucket of the later sample, which was taken at `at_ms`.
    pub fn bucket(&self, sample: &Sample, at_ms: u64) -> Bucket {
        let one = |value: u32| Gauge { min: value, mean: value, max: value };
        // The greatest number stands for what is not known.
        let kib = |bytes: u64| u32::try_from(bytes / 1024).unwrap_or(u32::MAX).min(u32::MAX - 1);
        let covered_ms = u32::try_from(self.covered_ms).unwrap_or(u32::MAX);
        Bucket {
            from_ms: at_ms.saturating_sub(covered_ms.into()),
            to_ms: at_ms,
            covered_ms,
            samples: 1,
            oom_kills: u32::try_from(self.oom_kills).unwrap_or(u32::MAX),
            counters: self.counters,
            cpu: sample.cpu_hundredths.map(one),
            memory_kib: Some(one(kib(sample.memory_bytes))),
            disk_kib: sample.disk_bytes.map(kib).map(one),
            processes: Some(one(sample.processes)),
            cpu_pressure: sample.cpu_pressure.map(one),
            memory_pressure: sample.memory_pressure.map(one),
            io_pressure: sample.io_pressure.map(one),
            memory_kib_max: sample.memory_bytes_max.map(kib),
            disk_kib_max: sample.disk_bytes_max.map(kib),
            cpu_parts: self.cpu_parts,
            cache_kib: sample.cache_bytes.map(kib).map(one),
            swap_kib: sample.swap_bytes.map(kib).map(one),
            memory_kib_peak: sample.memory_bytes_peak.map(kib),
        }
    }

    pub fn cost(&self) -> Cost {
        Cost {
            run_ms: self.elapsed_ms,
            cpu_us: self.counters.cpu_us,
            memory_kib_ms: self.memory_kib_ms,
            read_bytes: self.counters.read_bytes,
            written_bytes: self.counters.written_bytes,
            ..Cost::default()
        }
    }

    /// What history shows of it: what was used in a gap belongs to no known moment.
    pub fn shown(mut self, last: Option<&Sample>, sample: &Sample) -> Self {
        let misses = last.is_some_and(|last| last.number + 1 != sample.number);
        if misses && self.elapsed_ms > TELEMETRY_GAP_MS {
            self.counters = Counters::default();
            self.cpu_parts = CpuParts::default();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u64, uptime_ms: u64, cpu_us: u64, written: Option<u64>) -> Sample {
        let memory_bytes = 1 << 20;
        Sample {
            number,
            uptime_ms,
            cpu_us,
            memory_bytes,
            written_bytes: written,
            ..Sample::default()
        }
    }

    #[test]
    fn a_step_is_the_growth_of_counters() {
        let (one, two) = (sample(1, 1000, 50, Some(7)), sample(2, 3000, 80, Some(9)));
        let step = Step::between(Some(&one), &two);
        assert_eq!((step.elapsed_ms, step.covered_ms), (2000, 2000));
        assert_eq!((step.counters.cpu_us, step.counters.written_bytes), (30, 2));
        assert_eq!(step.memory_kib_ms, 1024 * 2000);
        let first = Step::between(None, &one);
        assert_eq!((first.elapsed_ms, first.counters.cpu_us), (1000, 50));
        assert_eq!(first.counters.written_bytes, 7);
    }

    #[test]
    fn a_counter_that_was_not_there_before_or_has_gone_back_adds_nothing() {
        let (one, two) = (sample(1, 1000, 50, None), sample(2, 2000, 40, Some(900)));
        let step = Step::between(Some(&one), &two);
        assert_eq!(step.counters, Counters::default());
    }

    #[test]
    fn the_parts_of_cpu_time_are_known_or_unknown_and_never_guessed() {
        let one = sample(1, 1000, 50, None);
        let two = Sample { cpu_user_us: Some(40), ..sample(2, 2000, 90, None) };
        let three = Sample { cpu_user_us: Some(70), ..sample(3, 3000, 120, None) };
        let user_us = |last, next| Step::between(last, next).cpu_parts.user_us;
        assert_eq!(user_us(Some(&one), &two), None, "not known before");
        assert_eq!(user_us(Some(&two), &three), Some(30));
        assert_eq!(user_us(None, &two), Some(40), "since the agent began");
        assert_eq!(user_us(Some(&three), &Sample { number: 4, ..one }), None);
    }

    #[test]
    fn what_was_used_in_a_gap_is_counted_and_not_shown() {
        let (one, later) = (sample(1, 1000, 50, None), sample(900, 901_000, 500, None));
        let step = Step::between(Some(&one), &later);
        assert_eq!((step.counters.cpu_us, step.elapsed_ms), (450, 900_000));
        let shown = step.shown(Some(&one), &later);
        assert_eq!((shown.counters.cpu_us, shown.covered_ms), (0, 1000));
    }
}
