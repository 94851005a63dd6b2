//! Returns freed memory to the system, which matters after a flood of calls.
//!
//! `main` does this for the program. A program that embeds the library has its own allocator.

use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How often the daemon checks its own memory, while there is something to return.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// How often at least, while its memory is in use.
const LOOK_PERIOD_MAX: Duration = Duration::from_secs(40);
/// How far it must be above its minimum: less is not worth the walk through the heap.
const GROWTH_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// Returns memory that was freed in small pieces whenever the process has grown. Never ends.
pub async fn give_back_when_grown() -> Infallible {
    let (mut least_bytes, mut period) = (u64::MAX, LOOK_PERIOD);
    loop {
        let Some(bytes) = anonymous_bytes() else { return pending().await };
        least_bytes = least_bytes.min(bytes);
        if bytes - least_bytes >= GROWTH_BYTES_MIN {
            // It takes the lock of each arena for some milliseconds.
            let trimmed = spawn_blocking(allocator::trim).await;
            let after_bytes = trimmed.ok().and_then(|()| anonymous_bytes()).unwrap_or(bytes);
            let was_worth_it = bytes.saturating_sub(after_bytes) >= GROWTH_BYTES_MIN / 4;
            period = if was_worth_it { LOOK_PERIOD } else { (period * 2).min(LOOK_PERIOD_MAX) };
        }
        sleep(period).await;
    }
}

/// The process's own memory, without the program's file.
fn anonymous_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = kib.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Settings of glibc's allocator.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "neither std nor nix nor rustix has these calls")]
mod allocator {
    use std::ffi::c_int;

    /// Allocations from this size on get their own pages, which are returned when freed; and this much free
    /// memory at the end of a heap is returned. Unless they are set, glibc raises both to tens of MiB as soon
    /// as something that large is freed, and keeps that much for each thread.
    const KEPT_BYTES_MAX: c_int = 1024 * 1024;

    unsafe extern "C" {
        /// SAFETY: it takes two numbers, and refuses those that it does not know: `mallopt(3)`.
        safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
        /// SAFETY: it takes a number, and may be called at any time by any thread: `malloc_trim(3)`.
        safe fn malloc_trim(pad: usize) -> c_int;
    }

    pub fn keep_little() {
        for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
            // A refused setting keeps its value.
            let _ = mallopt(parameter, KEPT_BYTES_MAX);
        }
    }

    pub fn trim() {
        malloc_trim(0);
    }
}

#[cfg(not(target_env = "gnu"))]
mod allocator {
    pub fn keep_little() {}
    pub fn trim() {}
}

/// Large pieces go back when they are freed.
pub use allocator::keep_little;
