//! Amounts as people read them: bytes, CPUs, times. Refusals and tables use it. Pure.

use std::time::Duration;

/// Bytes for people: `1.5 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Thousandths of a processor for people: `2`, `0.5`.
pub fn human_cpus(millis: u32) -> String {
    (f64::from(millis) / 1000.0).to_string()
}

/// A duration for people, in its largest sensible unit: `350ms`, `12s`, `3m`, `2h`, `5d`.
pub fn human_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..=9 if duration.subsec_millis() >= 100 => format!("{:.1}s", duration.as_secs_f64()),
        1..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
