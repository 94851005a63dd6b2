//! How much memory this host has.

/// All of it; `None` where the kernel does not say.
pub fn total_bytes() -> Option<u64> {
    parse_total(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_bytes_and_nothing_else_is_taken_for_it() {
        assert_eq!(parse_total("MemTotal:       24 kB\nMemFree: 1 kB\n"), Some(24 * 1024));
        assert_eq!(parse_total("MemFree: 1 kB\n"), None);
        assert_eq!(parse_total("MemTotal: lots kB\n"), None);
        assert_eq!(parse_total(&format!("MemTotal: {} kB\n", u64::MAX)), None);
    }
}
