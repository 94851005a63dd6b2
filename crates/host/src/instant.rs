//! Points in time as text: parses RFC 3339, prints UTC. The calendar is the Gregorian one, computed
//! from day numbers, so no time zone data is needed. Pure, except for reading the clock.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

const DAY_SECONDS: i64 = 86_400;
/// A day of UTC. Leap seconds are not counted.
pub const DAY_MS: u64 = 86_400_000;

/// Milliseconds since 1970, by the clock on the wall; zero on a host whose clock stands before that.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Nanoseconds since 1970, likewise.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds since this host has booted, by the clock that goes on as it does when the time is set. It stops while
/// the host sleeps.
pub fn uptime_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    let now = now.expect("every Linux has this clock");
    now.tv_sec() as u64 * 1_000 + now.tv_nsec() as u64 / 1_000_000
}

/// When the day ends that this is a moment of: a day is one of UTC.
pub fn day_end_ms(ms: u64) -> u64 {
    (ms / DAY_MS + 1).saturating_mul(DAY_MS)
}

/// `2026-01-31`, `2026-01-31T12:00:00`, with an optional fraction and `Z` or an offset; a space may
/// stand for the `T`. Without an offset it is UTC. `None` for anything else.
pub fn parse(text: &str) -> Option<u64> {
    let date = text.get(..10)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut seconds = day_number(year, month, day) * DAY_SECONDS;
    let mut fraction_ms = 0;
    let rest = &text[10..];
    if let Some(clock) = rest.strip_prefix(['T', 't', ' ']) {
        let [hour, minute, second] = numbers(clock.get(..8)?, ':', [2, 2, 2])?;
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        seconds += hour * 3600 + minute * 60 + second;
        let mut zone = &clock[8..];
        if let Some(fraction) = zone.strip_prefix('.') {
            let digits = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            let three = format!("{:0<3.3}", &fraction[..digits]);
            fraction_ms = (digits > 0).then(|| three.parse::<i64>().ok()).flatten()?;
            zone = &fraction[digits..];
        }
        seconds -= parse_zone(zone)?;
    } else if !rest.is_empty() {
        return None;
    }
    u64::try_from(seconds * 1000 + fraction_ms).ok()
}

/// Seconds east of UTC.
fn parse_zone(text: &str) -> Option<i64> {
    let sign = match text.as_bytes() {
        [] | [b'Z' | b'z'] => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    let [hours, minutes] = numbers(&text[1..], ':', [2, 2])?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Exactly N numbers of the given widths.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut values = [0; N];
    for (value, width) in values.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *value = part.parse().ok()?;
    }
    parts.next().is_none().then_some(values)
}

/// Days since 1970-01-01. Years are counted from March, so that the leap day is the last one.
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// `2026-01-31T12:00:00.123Z`; as text, later is greater.
pub fn format(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let (seconds, fraction) = (ms / 1000, ms % 1000);
    let (days, clock) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{fraction:03}Z",
        clock / 3600,
        clock / 60 % 60,
        clock % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_where_the_next_begins() {
        let noon = parse("2026-11-20T12:00:00Z").unwrap();
        let midnight = parse("2026-11-21").unwrap();
        assert_eq!(day_end_ms(noon), midnight);
        assert_eq!(day_end_ms(midnight - 1), midnight);
        assert_eq!(day_end_ms(midnight), midnight + DAY_MS);
    }

    #[test]
    fn known_instants_are_read() {
        let cases = [
            ("1970-01-01", 0),
            ("1970-01-02T00:00:00Z", 86_400_000),
            ("2000-02-29T12:34:56.789Z", 951_827_696_789),
            ("2026-11-20 16:00:00", 1_795_190_400_000),
            ("2026-11-20T18:00:00+02:00", 1_795_190_400_000),
            ("2026-11-20T15:30:00.5-00:30", 1_795_190_400_500),
        ];
        for (text, ms) in cases {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn invalid_instants_are_refused() {
        for text in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-1-1",
            "2026-01-01T",
            "2026-01-01T1:00:00",
            "2026-01-01T10:00:00X",
            "2026-01-01T10:00:00+2",
            "2026-01-01T10:00:00.Z",
            "1969-12-31",
            "2026-01-01Tüü:00:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn written_instants_can_be_read() {
        for ms in (0..4_102_444_800_000).step_by(86_399_123_457).chain([951_827_696_789]) {
            assert_eq!(parse(&format(ms)), Some(ms));
        }
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_827_696_789, "2000-02-29T12:34:56.789Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_767_225_599_001, "2025-12-31T23:59:59.001Z"),
        ] {
            assert_eq!(format(ms), text);
        }
    }
}
