//! What a sandbox used in a span of time, and its record on disk. Pure.
//!
//! A bucket begins as the step between two samples; longer ones are merged from these. What counts up is kept
//! as what was added in the span, all else as its least, mean and greatest value, means by time.
//!
//! ```text
//! 0        4        8       16     20        24        28      32           72         156        164
//! +--------+--------+--------+------+---------+---------+-------+------------+----------+----------+--
//! |checksum|sequence|  from  | span | covered | samples | kills | 5 counters | 7 gauges | 2 limits |
//! +--------+--------+--------+------+---------+---------+-------+------------+----------+----------+--
//!    u32      u32      u64     u32     u32        u32      u32     u64 each    3 × u32    u32 each
//!
//!   164                  188             212    216
//! --+--------------------+---------------+------+
//!   | 3 parts of CPU time| cache and swap| peak |
//! --+--------------------+---------------+------+
//!        u64 each             3 × u32      u32
//! ```
//!
//! Records of the first version end at 164; what follows is then unknown.
//!
//! All numbers are little-endian, times are in milliseconds, memory and disk space in KiB. The greatest number of
//! a field stands for what was not known.

use crate::log::checksum;

/// The length of a record.
pub const RECORD_BYTES: usize = 216;
/// The length of a record of the first version.
pub const FIRST_RECORD_BYTES: usize = 164;

const COUNTERS: usize = 5;
const GAUGES: usize = 7;
/// Gauges that the first version does not have.
const LATER_GAUGES: usize = 2;
const UNKNOWN: u32 = u32::MAX;
const UNKNOWN_TIME: u64 = u64::MAX;

/// Whole numbers that count up: what was added in a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub cpu_us: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Over connections to the outside.
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// The parts of CPU time that were added in a span, and the time that a quota has withheld, as far as they are
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuParts {
    pub user_us: Option<u64>,
    pub system_us: Option<u64>,
    pub throttled_us: Option<u64>,
}

/// What goes up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    pub min: u32,
    pub mean: u32,
    pub max: u32,
}

/// See the module's description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    pub from_ms: u64,
    /// When its last sample was taken.
    pub to_ms: u64,
    /// How much of the span samples account for; the rest are gaps.
    pub covered_ms: u32,
    pub samples: u32,
    pub oom_kills: u32,
    pub counters: Counters,
    /// In hundredths of a percent of one CPU.
    pub cpu: Option<Gauge>,
    pub memory_kib: Option<Gauge>,
    pub disk_kib: Option<Gauge>,
    pub processes: Option<Gauge>,
    /// In hundredths of a percent of the time.
    pub cpu_pressure: Option<Gauge>,
    pub memory_pressure: Option<Gauge>,
    pub io_pressure: Option<Gauge>,
    pub memory_kib_max: Option<u32>,
    pub disk_kib_max: Option<u32>,
    pub cpu_parts: CpuParts,
    /// Pages of files on disks.
    pub cache_kib: Option<Gauge>,
    pub swap_kib: Option<Gauge>,
    /// The most memory at once since the sandbox began.
    pub memory_kib_peak: Option<u32>,
}

impl Bucket {
    /// Adds a later bucket.
    pub fn merge(&mut self, later: &Self) {
        let weights = [self.covered_ms, later.covered_ms].map(|ms| u64::from(ms.max(1)));
        let ours = self.gauges();
        let merged = std::array::from_fn(|at| merge(ours[at], later.gauges()[at], weights));
        self.set_gauges(merged);
        self.from_ms = self.from_ms.min(later.from_ms);
        self.to_ms = self.to_ms.max(later.to_ms);
        self.covered_ms = self.covered_ms.saturating_add(later.covered_ms);
        self.samples = self.samples.saturating_add(later.samples);
        self.oom_kills = self.oom_kills.saturating_add(later.oom_kills);
        let (all, more) = (self.counters.list(), later.counters.list());
        self.counters = Counters::of(std::array::from_fn(|at| all[at].saturating_add(more[at])));
        self.memory_kib_max = later.memory_kib_max.or(self.memory_kib_max);
        self.disk_kib_max = later.disk_kib_max.or(self.disk_kib_max);
        self.cpu_parts = CpuParts::of(std::array::from_fn(|at| {
            let (all, more) = (self.cpu_parts.list()[at], later.cpu_parts.list()[at]);
            all.zip(more).map(|(all, more)| all.saturating_add(more)).or(all).or(more)
        }));
        self.cache_kib = merge(self.cache_kib, later.cache_kib, weights);
        self.swap_kib = merge(self.swap_kib, later.swap_kib, weights);
        self.memory_kib_peak = self.memory_kib_peak.max(later.memory_kib_peak);
    }

    fn gauges(&self) -> [Option<Gauge>; GAUGES] {
        [
            self.cpu,
            self.memory_kib,
            self.disk_kib,
            self.processes,
            self.cpu_pressure,
            self.memory_pressure,
            self.io_pressure,
        ]
    }

    fn set_gauges(&mut self, gauges: [Option<Gauge>; GAUGES]) {
        [
            self.cpu,
            self.memory_kib,
            self.disk_kib,
            self.processes,
            self.cpu_pressure,
            self.memory_pressure,
            self.io_pressure,
        ] = gauges;
    }

    pub fn encode(&self, sequence: u32) -> [u8; RECORD_BYTES] {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        let narrow = |bytes: &mut Vec<u8>, value: u32| bytes.extend(value.to_le_bytes());
        narrow(&mut bytes, 0);
        narrow(&mut bytes, sequence);
        bytes.extend(self.from_ms.to_le_bytes());
        let span_ms = self.to_ms.saturating_sub(self.from_ms);
        narrow(&mut bytes, u32::try_from(span_ms).unwrap_or(u32::MAX));
        narrow(&mut bytes, self.covered_ms);
        narrow(&mut bytes, self.samples);
        narrow(&mut bytes, self.oom_kills);
        for counter in self.counters.list() {
            bytes.extend(counter.to_le_bytes());
        }
        let gauge = |bytes: &mut Vec<u8>, gauge: Option<Gauge>| {
            let gauge = gauge.unwrap_or(Gauge { min: UNKNOWN, mean: UNKNOWN, max: UNKNOWN });
            for value in [gauge.min, gauge.mean, gauge.max] {
                narrow(bytes, value);
            }
        };
        for one in self.gauges() {
            gauge(&mut bytes, one);
        }
        for limit in [self.memory_kib_max, self.disk_kib_max] {
            narrow(&mut bytes, limit.unwrap_or(UNKNOWN));
        }
        for part in self.cpu_parts.list() {
            bytes.extend(part.unwrap_or(UNKNOWN_TIME).to_le_bytes());
        }
        for one in [self.cache_kib, self.swap_kib] {
            gauge(&mut bytes, one);
        }
        narrow(&mut bytes, self.memory_kib_peak.unwrap_or(UNKNOWN));
        let sum = checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes.try_into().expect("a record has one length, which the fields above add up to")
    }

    /// A record of either version and its sequence number; `None` for a damaged one.
    pub fn parse(record: &[u8]) -> Option<(u32, Self)> {
        if ![RECORD_BYTES, FIRST_RECORD_BYTES].contains(&record.len()) {
            return None;
        }
        let mut rest = Fields(record);
        if rest.narrow() != checksum(&record[4..]) {
            return None;
        }
        let (sequence, from_ms) = (rest.narrow(), rest.wide());
        let mut bucket = Self { from_ms, ..Self::default() };
        bucket.to_ms = from_ms.saturating_add(rest.narrow().into());
        bucket.covered_ms = rest.narrow();
        bucket.samples = rest.narrow();
        bucket.oom_kills = rest.narrow();
        bucket.counters = Counters::of([(); COUNTERS].map(|()| rest.wide()));
        bucket.set_gauges([(); GAUGES].map(|()| rest.gauge()));
        [bucket.memory_kib_max, bucket.disk_kib_max] = [(); 2].map(|()| rest.limit());
        if record.len() == RECORD_BYTES {
            let part = |us: u64| Some(us).filter(|us| *us != UNKNOWN_TIME);
            bucket.cpu_parts = CpuParts::of([(); 3].map(|()| part(rest.wide())));
            [bucket.cache_kib, bucket.swap_kib] = [(); LATER_GAUGES].map(|()| rest.gauge());
            bucket.memory_kib_peak = rest.limit();
        }
        Some((sequence, bucket))
    }
}

impl Counters {
    fn list(&self) -> [u64; COUNTERS] {
        let Self { cpu_us, read_bytes, written_bytes, sent_bytes, received_bytes } = *self;
        [cpu_us, read_bytes, written_bytes, sent_bytes, received_bytes]
    }

    fn of(list: [u64; COUNTERS]) -> Self {
        let [cpu_us, read_bytes, written_bytes, sent_bytes, received_bytes] = list;
        Self { cpu_us, read_bytes, written_bytes, sent_bytes, received_bytes }
    }
}

impl CpuParts {
    fn list(&self) -> [Option<u64>; 3] {
        [self.user_us, self.system_us, self.throttled_us]
    }

    fn of([user_us, system_us, throttled_us]: [Option<u64>; 3]) -> Self {
        Self { user_us, system_us, throttled_us }
    }
}

fn merge(one: Option<Gauge>, other: Option<Gauge>, weights: [u64; 2]) -> Option<Gauge> {
    let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
    let whole = weights[0] + weights[1];
    let sum = u64::from(a.mean) * weights[0] + u64::from(b.mean) * weights[1];
    // A mean of two numbers of 32 bits has as many.
    let mean = u32::try_from((sum + whole / 2) / whole).unwrap_or(UNKNOWN - 1);
    Some(Gauge { min: a.min.min(b.min), mean, max: a.max.max(b.max) })
}

/// The remaining fields of a record. Past its end they are zero, which the length rules out.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.0.split_first_chunk::<N>() else { return [0; N] };
        self.0 = rest;
        *first
    }

    fn narrow(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn wide(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn gauge(&mut self) -> Option<Gauge> {
        let [min, mean, max] = [(); 3].map(|()| self.narrow());
        (min != UNKNOWN).then_some(Gauge { min, mean, max })
    }

    fn limit(&mut self) -> Option<u32> {
        Some(self.narrow()).filter(|limit| *limit != UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(at_ms: u64, memory_mib: u32, covered_ms: u32, cpu_us: u64) -> Bucket {
        let one = |value: u32| Gauge { min: value, mean: value, max: value };
        Bucket {
            from_ms: at_ms - u64::from(covered_ms),
            to_ms: at_ms,
            covered_ms,
            samples: 1,
            counters: Counters { cpu_us, ..Counters::default() },
            memory_kib: Some(one(memory_mib << 10)),
            processes: Some(one(3)),
            io_pressure: at_ms.is_multiple_of(2).then(|| one(50)),
            ..Bucket::default()
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_changed_bit_passes() {
        let mut one = bucket(1_000_000, 7, 1000, 5);
        one.memory_kib_max = Some(9);
        one.cpu_parts = CpuParts { user_us: Some(3), system_us: Some(0), throttled_us: None };
        one.cache_kib = one.memory_kib;
        one.memory_kib_peak = Some(11);
        let record = one.encode(42);
        assert_eq!(Bucket::parse(&record), Some((42, one)));
        for bit in 0..RECORD_BYTES * 8 {
            let mut flipped = record;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Bucket::parse(&flipped), None, "bit {bit}");
        }
        assert_eq!(Bucket::parse(&record[1..]), None);
    }

    #[test]
    fn merged_buckets_keep_extremes_sums_and_means_by_time() {
        let mut all = bucket(10_000, 100, 1000, 10);
        all.merge(&bucket(13_001, 400, 3000, 20));
        assert_eq!((all.from_ms, all.to_ms), (9000, 13_001));
        assert_eq!((all.covered_ms, all.samples, all.counters.cpu_us), (4000, 2, 30));
        let mib = |mib: u32| mib * 1024;
        let expected = Gauge { min: mib(100), mean: mib(325), max: mib(400) };
        assert_eq!(all.memory_kib, Some(expected));
        assert_eq!(all.io_pressure, Some(Gauge { min: 50, mean: 50, max: 50 }), "of one alone");
        assert_eq!(all.disk_kib, None);
    }

    #[test]
    fn what_is_not_known_stays_unknown_and_is_no_zero() {
        let mut all = bucket(10_000, 1, 1000, 0);
        all.merge(&bucket(11_000, 1, 1000, 0));
        assert_eq!(all.cpu_parts, CpuParts::default());
        assert_eq!((all.cache_kib, all.swap_kib, all.memory_kib_peak), (None, None, None));
        let known = CpuParts { user_us: Some(2), system_us: Some(0), throttled_us: None };
        let later =
            Bucket { cpu_parts: known, memory_kib_peak: Some(5), ..bucket(12_000, 1, 9, 0) };
        all.merge(&later);
        all.merge(&later);
        assert_eq!(all.cpu_parts, CpuParts { user_us: Some(4), ..known });
        assert_eq!(all.memory_kib_peak, Some(5));
    }
}
