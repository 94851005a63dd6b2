//! Where a replay begins. Pure.

use std::str::FromStr;
use std::time::Duration;

use crate::instant;
use crate::values::parse_duration;
use sandbox::log::Event;
use services::timeline::{Moment, What};

/// See `--from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPoint {
    /// So long after the first entry.
    After(Duration),
    /// Milliseconds since 1970.
    At(u64),
    /// A byte of each output.
    Offset(u64),
}

impl FromStr for StartPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let offset = text.strip_prefix('@').and_then(|digits| digits.parse().ok());
        let after = || parse_duration(text).ok().map(Self::After);
        offset.map(Self::Offset).or_else(|| instant::parse(text).map(Self::At)).or_else(after).ok_or_else(|| {
            format!("{text:?} is no place in a replay: write a time into it as in 1m30s, a date, or an offset as in @4096")
        })
    }
}

impl StartPoint {
    /// How much of an entry is before it: all of it (`usize::MAX`), or so many bytes of its output.
    pub fn bytes_before(self, moment: &Moment, first_ms: u64) -> usize {
        let all = |is_before| if is_before { usize::MAX } else { 0 };
        match self {
            Self::After(time) => {
                let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                all(moment.at_ms < first_ms.saturating_add(time_ms))
            }
            Self::At(ms) => all(moment.at_ms < ms),
            Self::Offset(wanted) => match &moment.what {
                What::Log(Event::Output { offset, bytes, .. }) => {
                    let before = wanted.saturating_sub(*offset);
                    if before >= bytes.len() as u64 { usize::MAX } else { before as usize }
                }
                What::Log(Event::Gap { to, .. }) => all(*to <= wanted),
                _ => 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_time_a_date_or_an_offset() {
        let parsed = |text: &str| text.parse::<StartPoint>();
        assert_eq!(parsed("1m30s"), Ok(StartPoint::After(Duration::from_secs(90))));
        assert_eq!(parsed("@4096"), Ok(StartPoint::Offset(4096)));
        assert_eq!(parsed("1970-01-01T00:00:01Z"), Ok(StartPoint::At(1000)));
        for wrong in ["", "@", "@x", "soon", "-3s"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
