//! Checks that a client's numbers are in their ranges.

use sandbox::limits::CPU_MILLIS_MAX;

use sandbox::refusal::Refusal;

/// [`CPU_MILLIS_MAX`] in whole processors, as clients say them.
pub const CPUS_MAX: u32 = CPU_MILLIS_MAX / 1000;

/// The largest number that every client's JSON can say exactly.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Checks a number, if it is given.
pub fn check_range(field: &str, value: Option<u64>, min: u64, max: u64) -> Result<(), Refusal> {
    match value {
        Some(value) if !(min..=max).contains(&value) => {
            Err(Refusal::invalid(format!("{field} must be from {min} to {max}, not {value}")))
        }
        _ => Ok(()),
    }
}

/// Thousandths of a CPU.
pub fn cpu_millis(cpus: f64) -> Result<u32, Refusal> {
    if cpus.is_finite() && (0.0..=1024.0).contains(&cpus) {
        return Ok((cpus * 1000.0).round() as u32);
    }
    Err(Refusal::invalid(format!("cpus must be from 0 to 1024, not {cpus}")))
}
