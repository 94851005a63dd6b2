//! One sample of the whole sandbox, and the source of each number.
//!
//! | what | a machine of its own | a PID namespace | an agent among others |
//! |---|---|---|---|
//! | CPU | `/proc/stat` | its control group, or a walk | a walk |
//! | memory | `/proc/meminfo` | its control group, or a walk and the scratch file system | a walk |
//! | pressure, kills, cache, swap, block devices | `/proc` | its control group | – |
//! | throttling, peak of memory | – | its control group | – |
//!
//! A *walk* is a [`Census`]. Which of the two is used is decided once, because their sums begin
//! differently. `/proc` and `/` are opened once, too, so that later mounts over them have no
//! effect.

use std::path::Path;

use nix::fcntl::{OFlag, readlinkat};
use nix::sys::statvfs::fstatvfs;
use protocol::metrics::{Sample, Scope};

use super::census::{Census, Counted, Wanted};
use crate::cgroup::{Account, AccountFiles, Directory, Groups, OlderGroups, parse_pressure};
use crate::ground::Ground;
use crate::process::procfs::parse_number;
use crate::sys::{clock, lookup, resource};

/// The unit of CPU time of processes, and in `/proc/stat`; the same for every program.
pub const TICK_US: u64 = 10_000;

/// The target of `/proc/self/ns/pid` in the kernel's initial namespace: the number is the same in
/// every Linux.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The state between two samples.
pub struct Sampler {
    scope: Scope,
    proc: Option<Directory>,
    census: Census,
    /// Where the kernel accounts for the sandbox as a whole.
    files: Option<AccountFiles>,
    root: Option<Directory>,
    /// What a walk is needed for.
    wanted: Wanted,
    page_bytes: u64,
    cpu_us: u64,
    /// Its parts, as far as they are known.
    user_us: Option<u64>,
    system_us: Option<u64>,
    /// When the sample before was taken.
    before_us: Option<u64>,
}

impl Sampler {
    pub fn new(ground: &Ground, scope: Scope) -> Self {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let proc = lookup::open_in_proc(".", flags).ok().map(Directory::from);
        let groups = ground.groups.borrow();
        let is_grouped = scope == Scope::Namespace;
        let files = groups.as_ref().filter(|_| is_grouped).and_then(Groups::account_files);
        let older = is_grouped.then_some(&ground.older_groups);
        let account = account(scope, files.as_ref(), proc.as_ref(), older);
        Self {
            scope,
            files,
            census: Census::new((scope == Scope::Agent).then(std::process::id)),
            proc,
            root: Directory::open(Path::new("/")).ok(),
            wanted: Wanted {
                times: account.cpu_us.is_none(),
                memory: account.memory_bytes.is_none(),
            },
            page_bytes: resource::page_bytes(),
            cpu_us: 0,
            user_us: None,
            system_us: None,
            before_us: None,
        }
    }

    /// Takes a sample, without a number.
    pub async fn sample(&mut self, ground: &Ground) -> Sample {
        let now_us = clock::monotonic_us();
        let time_ms = clock::wall_ms();
        let older = (self.scope == Scope::Namespace).then_some(&ground.older_groups);
        let account = account(self.scope, self.files.as_ref(), self.proc.as_ref(), older);
        let counted = match &self.proc {
            Some(proc) => self.census.take(proc, self.wanted).await,
            None => Counted { partial: true, ..Counted::default() },
        };

        let cpu_before_us = self.cpu_us;
        let elapsed_us = self.before_us.map(|before_us| (now_us - before_us).max(1));
        if self.wanted.times {
            let mut grown_us = (counted.user_ticks + counted.system_ticks) * TICK_US;
            if let Some(elapsed_us) = elapsed_us {
                // Whatever the walk has found, the usage cannot exceed the capacity.
                let most_us = elapsed_us.saturating_mul(u64::from(ground.cpus())) + 2 * TICK_US;
                grown_us = grown_us.min(most_us);
            }
            self.cpu_us += grown_us;
            let system_us = (counted.system_ticks * TICK_US).min(grown_us);
            self.system_us = Some(self.system_us.unwrap_or(0) + system_us);
            self.user_us = Some(self.user_us.unwrap_or(0) + grown_us - system_us);
        } else {
            // A file that could not be read this time has not run backwards.
            self.cpu_us = self.cpu_us.max(account.cpu_us.unwrap_or(0));
            self.user_us = self.user_us.max(account.user_us);
            self.system_us = self.system_us.max(account.system_us);
        }
        let cpu_hundredths = elapsed_us.map(|elapsed_us| {
            let used_us = self.cpu_us - cpu_before_us;
            u32::try_from(used_us.saturating_mul(10_000) / elapsed_us).unwrap_or(u32::MAX - 1)
        });
        self.before_us = Some(now_us);

        let disk = self.root.as_ref().and_then(|root| fstatvfs(root).ok());
        let disk_bytes_max = disk.map(|disk| disk.blocks() * disk.fragment_size());
        let disk_bytes = disk.map(|disk| {
            let used = disk.blocks().saturating_sub(disk.blocks_free());
            used * disk.fragment_size()
        });
        let memory_bytes = if self.wanted.memory {
            let scratch = disk_bytes.filter(|_| ground.config.scratch_in_memory).unwrap_or(0);
            counted.private_pages.saturating_mul(self.page_bytes).saturating_add(scratch)
        } else {
            account.memory_bytes.unwrap_or(0)
        };
        Sample {
            number: 0,
            time_ms,
            uptime_ms: (now_us - ground.config.began_us) / 1000,
            cpu_us: self.cpu_us,
            cpu_hundredths,
            memory_bytes,
            memory_bytes_max: account.memory_bytes_max,
            disk_bytes,
            disk_bytes_max,
            processes: counted.processes,
            partial: counted.partial,
            oom_kills: account.oom_kills,
            cpu_pressure: account.cpu_pressure,
            memory_pressure: account.memory_pressure,
            io_pressure: account.io_pressure,
            read_bytes: account.read_bytes,
            written_bytes: account.written_bytes,
            cpu_user_us: self.user_us,
            cpu_system_us: self.system_us,
            cpu_throttled_us: account.throttled_us,
            memory_bytes_peak: account.memory_bytes_peak,
            cache_bytes: account.cache_bytes,
            swap_bytes: account.swap_bytes,
        }
    }
}

/// What the agent's samples measure. An agent that is no init has neighbours; an init has the whole
/// machine if its namespace is the kernel's initial one.
pub fn scope(init: bool) -> Scope {
    if !init {
        return Scope::Agent;
    }
    let own =
        lookup::proc().and_then(|proc| readlinkat(proc, "self/ns/pid").ok()).unwrap_or_default();
    if own == FIRST_PID_NAMESPACE { Scope::Machine } else { Scope::Namespace }
}

/// The kernel's accounting for the sandbox as a whole.
fn account(
    scope: Scope,
    files: Option<&AccountFiles>,
    proc: Option<&Directory>,
    older: Option<&OlderGroups>,
) -> Account {
    let mut account = match (scope, files, proc) {
        (Scope::Machine, _, Some(proc)) => machine(proc),
        (_, Some(files), _) => files.read(),
        _ => Account::default(),
    };
    if let Some(older) = older {
        older.complete(&mut account);
    }
    account
}

/// The kernel's own accounting.
fn machine(proc: &Directory) -> Account {
    let text = |name| proc.read(name).unwrap_or_default();
    let (memory, events) = (text("meminfo"), text("vmstat"));
    let kib = |text: &str, name| named(text, name).map(|kib| kib.saturating_mul(1024));
    let total = kib(&memory, "MemTotal:");
    let busy = BusyTicks::parse(&text("stat"));
    let time = |ticks: u64| ticks.saturating_mul(TICK_US);
    let cached = kib(&memory, "Cached:").zip(kib(&memory, "Buffers:"));
    Account {
        cpu_us: busy.map(|busy| time(busy.user.saturating_add(busy.system))),
        user_us: busy.map(|busy| time(busy.user)),
        system_us: busy.map(|busy| time(busy.system)),
        // A machine does not learn of its quota, and Linux keeps no peak of all of its memory.
        throttled_us: None,
        memory_bytes: total
            .zip(kib(&memory, "MemAvailable:"))
            .map(|(total, available)| total.saturating_sub(available)),
        memory_bytes_max: total,
        memory_bytes_peak: None,
        // Files in memory are no cache: they cannot be dropped.
        cache_bytes: cached.zip(kib(&memory, "Shmem:")).map(|((cached, buffers), in_memory)| {
            cached.saturating_add(buffers).saturating_sub(in_memory)
        }),
        swap_bytes: kib(&memory, "SwapTotal:")
            .zip(kib(&memory, "SwapFree:"))
            .map(|(total, free)| total.saturating_sub(free)),
        oom_kills: named(&events, "oom_kill "),
        cpu_pressure: parse_pressure(&text("pressure/cpu")),
        memory_pressure: parse_pressure(&text("pressure/memory")),
        io_pressure: parse_pressure(&text("pressure/io")),
        read_bytes: kib(&events, "pgpgin "),
        written_bytes: kib(&events, "pgpgout "),
    }
}

/// The number after the name at the beginning of a line.
fn named(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    parse_number(rest.trim_start().as_bytes())
}

/// The busy time of all CPUs together, in ticks: everything in `/proc/stat`'s first line except idle, I/O
/// wait, stolen time, and guest time, which user time already contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BusyTicks {
    user: u64,
    /// In the kernel, interrupts included.
    system: u64,
}

impl BusyTicks {
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.strip_prefix("cpu ")?.split_whitespace();
        let mut times = fields.map(|field| parse_number(field.as_bytes()));
        let mut next = || times.next()?;
        let (user, nice, system) = (next()?, next()?, next()?);
        let (_idle, _disks) = (next()?, next()?);
        let (interrupts, soft) = (next()?, next()?);
        let system = [interrupts, soft].into_iter().fold(system, u64::saturating_add);
        Some(Self { user: user.saturating_add(nice), system })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_distinguished_from_waiting() {
        let text = "cpu  1000 200 30 99999 88888 4 1 77777 66666 55555\ncpu0 1 1 1 1\n";
        assert_eq!(BusyTicks::parse(text), Some(BusyTicks { user: 1200, system: 35 }));
        assert_eq!(BusyTicks::parse("cpu 1 2 3"), None);
        assert_eq!(BusyTicks::parse("cpu0 1 2 3 4 5 6 7 8"), None);
    }

    #[test]
    fn a_name_is_found_at_the_beginning_of_a_line() {
        let text = "oom_kill_extra 5\nMemTotal:   16 kB\noom_kill 3\n";
        assert_eq!(named(text, "oom_kill "), Some(3));
        assert_eq!(named(text, "MemTotal:"), Some(16));
        assert_eq!(named(text, "kill "), None);
    }

    #[test]
    fn a_machine_says_all_of_itself() {
        let proc = Directory::open(Path::new("/proc")).unwrap();
        let account = machine(&proc);
        assert!(account.cpu_us.is_some_and(|used| used > 0));
        assert!(account.memory_bytes < account.memory_bytes_max);
        assert!(account.read_bytes.is_some() && account.written_bytes.is_some());
    }
}
