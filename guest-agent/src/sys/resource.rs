//! What the machine has, as the kernel tells it.
//!
//! `agent` and `metrics` ask once, at their start.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};

/// Main memory in bytes; 0 when the kernel does not tell.
pub fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    parse_memory_total(&text).unwrap_or(0)
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
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
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
