//! The kernel's accounting for a group and all groups below it.
//!
//! `metrics` reads it for the sandbox's group and sessions' groups. Each controller has its own
//! files, and without it its values are absent; CPU time and pressure need none.

use std::cell::Cell;
use std::fs::File;

use super::directory::Directory;
use super::read_again;
use crate::sys::clock;

/// The kernel computes averages of pressure every two seconds: until then they are the same.
const PRESSURE_PERIOD_US: u64 = 1_900_000;

/// See the module's description. Sums are since the group was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub cpu_us: Option<u64>,
    pub user_us: Option<u64>,
    pub system_us: Option<u64>,
    /// How long a quota has kept programs from running.
    pub throttled_us: Option<u64>,
    /// Without the pages of files that were not used lately: the kernel drops them as soon as
    /// anything else needs memory.
    pub memory_bytes: Option<u64>,
    pub memory_bytes_max: Option<u64>,
    pub memory_bytes_peak: Option<u64>,
    /// Pages of files on disks.
    pub cache_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub oom_kills: Option<u64>,
    /// Hundredths of a percent.
    pub cpu_pressure: Option<u32>,
    pub memory_pressure: Option<u32>,
    pub io_pressure: Option<u32>,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
}

/// The files of a group that an [`Account`] is read from. Those that are not there when they are opened
/// never will be, and are not looked for again.
pub struct AccountFiles {
    cpu: Option<File>,
    memory: Option<File>,
    memory_parts: Option<File>,
    memory_max: Option<File>,
    memory_peak: Option<File>,
    memory_swap: Option<File>,
    memory_events: Option<File>,
    io: Option<File>,
    pressures: [Option<File>; 3],
    /// What was read of them last, and when.
    pressures_read: Cell<Option<(u64, [Option<u32>; 3])>>,
}

impl AccountFiles {
    pub(super) fn open(group: &Directory) -> Self {
        let open = |name| group.open_to_read(name).ok();
        let memory = open("memory.current");
        let of_memory = |name| memory.as_ref().and_then(|_| open(name));
        Self {
            cpu: open("cpu.stat"),
            memory_parts: of_memory("memory.stat"),
            memory_max: open("memory.max"),
            memory_peak: of_memory("memory.peak"),
            memory_swap: of_memory("memory.swap.current"),
            memory_events: of_memory("memory.events"),
            io: open("io.stat"),
            pressures: ["cpu.pressure", "memory.pressure", "io.pressure"].map(open),
            pressures_read: Cell::default(),
            memory,
        }
    }

    pub fn read(&self) -> Account {
        let text = |file: &Option<File>| text(file.as_ref()?);
        let number = |file: &Option<File>| number(file.as_ref()?);
        let [cpu_pressure, memory_pressure, io_pressure] = self.pressures();
        let io = text(&self.io);
        let memory_bytes: Option<u64> = number(&self.memory);
        let parts = text(&self.memory_parts);
        let part = |name| field(parts.as_deref()?, name);
        let cpu = text(&self.cpu);
        let time = |name| field(cpu.as_deref()?, name);
        Account {
            cpu_us: time("usage_usec"),
            user_us: time("user_usec"),
            system_us: time("system_usec"),
            throttled_us: time("throttled_usec"),
            memory_bytes: memory_bytes
                .map(|bytes| bytes.saturating_sub(part("inactive_file").unwrap_or(0))),
            // `max` is no number.
            memory_bytes_max: number(&self.memory_max),
            memory_bytes_peak: number(&self.memory_peak),
            // Files in memory are no cache: they cannot be dropped.
            cache_bytes: part("file")
                .map(|cached| cached.saturating_sub(part("shmem").unwrap_or(0))),
            swap_bytes: number(&self.memory_swap),
            oom_kills: text(&self.memory_events).and_then(|text| field(&text, "oom_kill")),
            cpu_pressure,
            memory_pressure,
            io_pressure,
            read_bytes: io.as_ref().map(|text| sum(text, "rbytes=")),
            written_bytes: io.as_ref().map(|text| sum(text, "wbytes=")),
        }
    }

    fn pressures(&self) -> [Option<u32>; 3] {
        let now_us = clock::monotonic_us();
        if let Some((at_us, read)) = self.pressures_read.get()
            && now_us - at_us < PRESSURE_PERIOD_US
        {
            return read;
        }
        let read = self.pressures.each_ref().map(|file| parse_pressure(&text(file.as_ref()?)?));
        self.pressures_read.set(Some((now_us, read)));
        read
    }
}

/// All of a file, if it can be read.
pub(super) fn text(file: &File) -> Option<String> {
    read_again(file).ok()
}

/// The number that a file is.
pub(super) fn number(file: &File) -> Option<u64> {
    text(file)?.trim().parse().ok()
}

/// The numbers after `name` of all devices in an `io.stat`.
fn sum(text: &str, name: &str) -> u64 {
    let numbers = text.split_whitespace().filter_map(|word| word.strip_prefix(name)?.parse().ok());
    numbers.fold(0, u64::saturating_add)
}

/// The number after `name` in a file of `name number` lines.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// The share of the last ten seconds in which something had to wait, in hundredths of a percent:
/// `1.06` in `some avg10=1.06 avg60=…` is 106.
pub fn parse_pressure(text: &str) -> Option<u32> {
    let rest = text.strip_prefix("some avg10=")?;
    let point = rest.find('.')?;
    let number = |digits: &str| digits.parse::<u64>().ok();
    let hundredths = number(rest.get(point + 1..point + 3)?)?;
    Some(number(&rest[..point])?.checked_mul(100)?.checked_add(hundredths)?.min(10_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files of a group.
    fn group(files: &[(&str, &str)]) -> (std::path::PathBuf, Directory) {
        let name = std::thread::current().name().expect("a test").replace(':', "-");
        let path = std::env::temp_dir().join(format!("burrow-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (name, text) in files {
            std::fs::write(path.join(name), text).unwrap();
        }
        let directory = Directory::open(&path).unwrap();
        (path, directory)
    }

    #[test]
    fn every_controller_says_its_part() {
        let (path, directory) = group(&[
            ("cpu.stat", "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nthrottled_usec 70\n"),
            ("memory.current", "1000000\n"),
            ("memory.stat", "anon 5\nfile 500000\nshmem 9\nactive_file 11\ninactive_file 400000\n"),
            ("memory.max", "2000000\n"),
            ("memory.peak", "1500000\n"),
            ("memory.swap.current", "4096\n"),
            ("memory.events", "low 0\nhigh 0\nmax 0\noom 2\noom_kill 1\n"),
            ("cpu.pressure", "some avg10=12.34 avg60=0.00 avg300=0.00 total=0\nfull avg10=9.00"),
            ("memory.pressure", "some avg10=0.07 avg60=0.00 avg300=0.00 total=0\n"),
            ("io.stat", "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2 rios=1\n"),
        ]);
        let account = AccountFiles::open(&directory).read();
        std::fs::remove_dir_all(path).unwrap();
        let expected = Account {
            cpu_us: Some(1500),
            user_us: Some(1000),
            system_us: Some(500),
            throttled_us: Some(70),
            memory_bytes: Some(600_000),
            memory_bytes_max: Some(2_000_000),
            memory_bytes_peak: Some(1_500_000),
            cache_bytes: Some(499_991),
            swap_bytes: Some(4096),
            oom_kills: Some(1),
            cpu_pressure: Some(1234),
            memory_pressure: Some(7),
            io_pressure: None,
            read_bytes: Some(11),
            written_bytes: Some(22),
        };
        assert_eq!(account, expected);
    }

    #[test]
    fn a_group_without_controllers_or_bounds_says_less() {
        let (path, directory) = group(&[("memory.max", "max\n"), ("cpu.stat", "usage_usec 3\n")]);
        let account = AccountFiles::open(&directory).read();
        std::fs::remove_dir_all(path).unwrap();
        assert_eq!(account, Account { cpu_us: Some(3), ..Account::default() });
    }

    #[test]
    fn pressures_are_read_once_per_period_and_the_rest_each_time() {
        let (path, directory) = group(&[
            ("cpu.pressure", "some avg10=1.00 avg60=0.00"),
            ("cpu.stat", "usage_usec 3\n"),
        ]);
        let files = AccountFiles::open(&directory);
        let read = || (files.read().cpu_pressure, files.read().cpu_us);
        assert_eq!(read(), (Some(100), Some(3)));
        std::fs::write(path.join("cpu.pressure"), "some avg10=2.00 avg60=0.00").unwrap();
        std::fs::write(path.join("cpu.stat"), "usage_usec 4\n").unwrap();
        assert_eq!(read(), (Some(100), Some(4)));
        let (at_us, pressures) = files.pressures_read.get().unwrap();
        files.pressures_read.set(Some((at_us.saturating_sub(PRESSURE_PERIOD_US), pressures)));
        assert_eq!(read(), (Some(200), Some(4)));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_pressure_is_in_hundredths_of_a_percent() {
        assert_eq!(parse_pressure("some avg10=100.00 avg60=1"), Some(10_000));
        for broken in ["", "full avg10=1.00", "some avg10=1", "some avg10=1.0", "some avg10=x.00"] {
            assert_eq!(parse_pressure(broken), None, "{broken:?}");
        }
    }
}
