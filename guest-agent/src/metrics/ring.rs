//! The newest samples, by their numbers. Pure.

use protocol::limits::{METRICS_KEPT, METRICS_PAGE_MAX};
use protocol::metrics::Sample;
use protocol::{Fault, FaultCode};

/// In the place of a number that there is not.
const NONE: u64 = u64::MAX;

/// See the module's description.
pub struct Ring {
    /// The sample of number `n` is at `(n - 1) % METRICS_KEPT`.
    records: Vec<Record>,
    /// The number of the next sample.
    next: u64,
}

/// A [`Sample`] in little more than half its size, without its number.
#[derive(Clone, Copy)]
struct Record {
    time_ms: u64,
    uptime_ms: u64,
    cpu_us: u64,
    memory_bytes: u64,
    memory_bytes_max: u64,
    disk_bytes: u64,
    disk_bytes_max: u64,
    oom_kills: u64,
    read_bytes: u64,
    written_bytes: u64,
    cpu_user_us: u64,
    cpu_system_us: u64,
    cpu_throttled_us: u64,
    memory_bytes_peak: u64,
    cache_bytes: u64,
    swap_bytes: u64,
    cpu_hundredths: u32,
    processes: u32,
    pressures: [u16; 3],
    partial: bool,
}

impl Default for Ring {
    fn default() -> Self {
        // Memory that was never written to costs an agent nothing.
        Self { records: Vec::with_capacity(METRICS_KEPT), next: 1 }
    }
}

impl Ring {
    /// The number of the next sample.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The number of the oldest sample, or of the next if there is none.
    pub fn oldest(&self) -> u64 {
        self.next - self.records.len() as u64
    }

    /// Adds a sample, whose number is the ring's to give.
    pub fn push(&mut self, sample: &Sample) {
        let record = Record::of(sample);
        match self.records.get_mut((self.next - 1) as usize % METRICS_KEPT) {
            Some(oldest) => *oldest = record,
            None => self.records.push(record),
        }
        self.next += 1;
    }

    /// The samples after `since`, or the newest one, up to one page.
    pub fn page(&self, since: Option<u64>) -> Result<Vec<Sample>, Fault> {
        let from = match since {
            None => self.next - 1,
            Some(since) if since >= self.next => {
                return Err(Fault::new(FaultCode::Invalid, "no such sample was taken yet"));
            }
            Some(since) => since + 1,
        };
        let from = from.max(self.oldest());
        let to = self.next.min(from + METRICS_PAGE_MAX as u64);
        let record = |number: u64| self.records[(number - 1) as usize % METRICS_KEPT];
        Ok((from..to).map(|number| record(number).sample(number)).collect())
    }
}

impl Record {
    fn of(sample: &Sample) -> Self {
        let wide = |number: Option<u64>| number.unwrap_or(NONE);
        let pressure = |share: Option<u32>| {
            share.map_or(u16::MAX, |share| u16::try_from(share).unwrap_or(u16::MAX - 1))
        };
        Self {
            time_ms: sample.time_ms,
            uptime_ms: sample.uptime_ms,
            cpu_us: sample.cpu_us,
            memory_bytes: sample.memory_bytes,
            memory_bytes_max: wide(sample.memory_bytes_max),
            disk_bytes: wide(sample.disk_bytes),
            disk_bytes_max: wide(sample.disk_bytes_max),
            oom_kills: wide(sample.oom_kills),
            read_bytes: wide(sample.read_bytes),
            written_bytes: wide(sample.written_bytes),
            cpu_user_us: wide(sample.cpu_user_us),
            cpu_system_us: wide(sample.cpu_system_us),
            cpu_throttled_us: wide(sample.cpu_throttled_us),
            memory_bytes_peak: wide(sample.memory_bytes_peak),
            cache_bytes: wide(sample.cache_bytes),
            swap_bytes: wide(sample.swap_bytes),
            cpu_hundredths: sample.cpu_hundredths.unwrap_or(u32::MAX),
            processes: sample.processes,
            pressures: [sample.cpu_pressure, sample.memory_pressure, sample.io_pressure]
                .map(pressure),
            partial: sample.partial,
        }
    }

    fn sample(&self, number: u64) -> Sample {
        let wide = |number: u64| Some(number).filter(|number| *number != NONE);
        let narrow = |number: u32| Some(number).filter(|number| *number != u32::MAX);
        let [cpu_pressure, memory_pressure, io_pressure] = self
            .pressures
            .map(|share| Some(share).filter(|share| *share != u16::MAX).map(u32::from));
        Sample {
            number,
            time_ms: self.time_ms,
            uptime_ms: self.uptime_ms,
            cpu_us: self.cpu_us,
            cpu_hundredths: narrow(self.cpu_hundredths),
            memory_bytes: self.memory_bytes,
            memory_bytes_max: wide(self.memory_bytes_max),
            disk_bytes: wide(self.disk_bytes),
            disk_bytes_max: wide(self.disk_bytes_max),
            processes: self.processes,
            partial: self.partial,
            oom_kills: wide(self.oom_kills),
            cpu_pressure,
            memory_pressure,
            io_pressure,
            read_bytes: wide(self.read_bytes),
            written_bytes: wide(self.written_bytes),
            cpu_user_us: wide(self.cpu_user_us),
            cpu_system_us: wide(self.cpu_system_us),
            cpu_throttled_us: wide(self.cpu_throttled_us),
            memory_bytes_peak: wide(self.memory_bytes_peak),
            cache_bytes: wide(self.cache_bytes),
            swap_bytes: wide(self.swap_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(count: u64) -> Ring {
        let mut ring = Ring::default();
        for number in 1..=count {
            ring.push(&Sample { cpu_us: number * 10, ..Sample::default() });
        }
        ring
    }

    fn numbers(ring: &Ring, since: Option<u64>) -> Vec<u64> {
        let page = ring.page(since).unwrap();
        assert!(page.iter().all(|sample| sample.cpu_us == sample.number * 10));
        page.iter().map(|sample| sample.number).collect()
    }

    #[test]
    fn samples_come_back_as_they_were() {
        let full = Sample {
            number: 1,
            time_ms: 2,
            uptime_ms: 3,
            cpu_us: 4,
            cpu_hundredths: Some(5),
            memory_bytes: 6,
            memory_bytes_max: Some(7),
            disk_bytes: Some(8),
            disk_bytes_max: Some(9),
            processes: 10,
            partial: true,
            oom_kills: Some(11),
            cpu_pressure: Some(12),
            memory_pressure: Some(13),
            io_pressure: Some(10_000),
            read_bytes: Some(15),
            written_bytes: Some(16),
            cpu_user_us: Some(17),
            cpu_system_us: Some(18),
            cpu_throttled_us: Some(19),
            memory_bytes_peak: Some(20),
            cache_bytes: Some(21),
            swap_bytes: Some(22),
        };
        let empty = Sample { number: 2, ..Sample::default() };
        let mut ring = Ring::default();
        ring.push(&full);
        ring.push(&empty);
        assert_eq!(ring.page(Some(0)).unwrap(), [full, empty]);
    }

    #[test]
    fn a_ring_begins_empty_and_says_what_comes() {
        let ring = ring(0);
        assert_eq!((ring.oldest(), ring.next()), (1, 1));
        assert_eq!(numbers(&ring, None), []);
        assert_eq!(numbers(&ring, Some(0)), []);
        assert!(ring.page(Some(1)).is_err());
    }

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let ring = ring(600);
        let mut all = Vec::new();
        loop {
            let page = numbers(&ring, Some(all.last().copied().unwrap_or(0)));
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= METRICS_PAGE_MAX);
            all.extend(page);
        }
        assert_eq!(all, (1..=600).collect::<Vec<_>>());
        assert_eq!(numbers(&ring, None), [600]);
        assert_eq!(numbers(&ring, Some(599)), [600]);
        assert_eq!(numbers(&ring, Some(600)), []);
        assert!(ring.page(Some(601)).is_err(), "it has not been taken");
    }

    #[test]
    fn the_oldest_go_first_and_that_shows() {
        let ring = ring(5000);
        assert_eq!(ring.next() - ring.oldest(), METRICS_KEPT as u64);
        assert_eq!(numbers(&ring, Some(3)).first(), Some(&ring.oldest()));
        assert!(ring.page(Some(u64::MAX)).is_err());
    }
}
