//! The machine's resources, as the kernel reports them.
//!
//! `agent` and `metrics` ask once, at their start.

use std::fs::File;
use std::io::Read;

use nix::fcntl::OFlag;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, SysconfVar, sysconf};

use super::lookup::open_in_proc;

/// Main memory in bytes; 0 if the kernel does not report it.
pub fn memory_bytes() -> u64 {
    let mut text = String::new();
    let read = open_in_proc("meminfo", OFlag::O_RDONLY)
        .map_err(std::io::Error::from)
        .and_then(|file| File::from(file).read_to_string(&mut text));
    read.ok().and_then(|_| parse_memory_total(&text)).unwrap_or(0)
}

fn parse_memory_total(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The bytes of a page.
pub fn page_bytes() -> u64 {
    let bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096);
    bytes.max(1) as u64
}

/// CPUs that this process may run on.
pub fn cpus() -> u32 {
    // The standard library would also look for quotas of control groups, where none are visible.
    let affinity = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let is_ours = |cpu: &usize| affinity.is_set(*cpu).unwrap_or(false);
    (0..CpuSet::count()).filter(is_ours).count().max(1) as u32
}

pub fn hostname() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// CPU time that this process has used.
pub fn cpu_us() -> u64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return 0 };
    (usage.user_time() + usage.system_time()).num_microseconds().max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::parse_memory_total;

    #[test]
    fn memory_is_read_from_meminfo() {
        let text = "MemFree:  12 kB\nMemTotal:       16384 kB\n";
        assert_eq!(parse_memory_total(text), Some(16384 * 1024));
        assert_eq!(parse_memory_total("nothing"), None);
    }
}
