//! The kernel's clocks: the monotonic one for durations, the wall clock for people.
//!
//! Everything of the agent that needs the time asks here. Nothing here keeps state.

use std::io;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use nix::unistd::Pid;

/// Microseconds since some fixed moment; never steps, stops while the machine is suspended.
pub fn monotonic_us() -> u64 {
    let now = read(ClockId::CLOCK_MONOTONIC);
    now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1_000
}

/// Hundredths of a second since the machine's start, suspensions included: the unit of a process's
/// start time.
pub fn boot_ticks() -> u64 {
    let now = read(ClockId::CLOCK_BOOTTIME);
    now.tv_sec() as u64 * 100 + now.tv_nsec() as u64 / 10_000_000
}

/// Milliseconds since 1970 as the guest believes; 0 when its clock stands before that.
pub fn wall_ms() -> u64 {
    let now = read(ClockId::CLOCK_REALTIME);
    u64::try_from(now.tv_sec()).map_or(0, |sec| sec * 1_000 + now.tv_nsec() as u64 / 1_000_000)
}

/// Microseconds since 1970 as the guest believes; 0 when its clock stands before that.
pub fn wall_us() -> u64 {
    let now = read(ClockId::CLOCK_REALTIME);
    u64::try_from(now.tv_sec()).map_or(0, |sec| sec * 1_000_000 + now.tv_nsec() as u64 / 1_000)
}

/// A clock that every Linux has.
fn read(clock: ClockId) -> TimeSpec {
    // `expect` would bring the names of all errors into the agent.
    clock_gettime(clock).unwrap_or_else(|_| unreachable!("every Linux has this clock"))
}

/// Sets the wall clock, for every program of the machine.
pub fn set_wall(time_us: u64) -> io::Result<()> {
    let time = TimeSpec::new((time_us / 1_000_000) as i64, (time_us % 1_000_000 * 1_000) as i64);
    clock_settime(ClockId::CLOCK_REALTIME, time).map_err(io::Error::from)
}

/// CPU time of a process and all its threads; `None` when it is gone.
pub fn process_cpu_us(pid: Pid) -> Option<u64> {
    // The kernel's own form of such a clock's id. The C library computes the same, and checks
    // whether there is one, which reading it does too.
    const SCHEDULER_CLOCK: i32 = 2;
    let used = clock_gettime(ClockId::from_raw((!pid.as_raw() << 3) | SCHEDULER_CLOCK)).ok()?;
    Some(used.tv_sec() as u64 * 1_000_000 + used.tv_nsec() as u64 / 1_000)
}
