//! The header `Range`: one range of bytes is supported. Anything else is ignored, as the standard
//! says.

use std::str::FromStr;

/// What a client asks for of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// From this byte to that one, both included, or to the end.
    From { first: u64, last: Option<u64> },
    /// So many of the last bytes.
    Last(u64),
}

/// No byte of the file is in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeOutside;

impl Range {
    /// The range that a header asks for; `None` for one that is not heeded.
    pub fn parse(header: &str) -> Option<Self> {
        let (unit, ranges) = header.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = ranges.trim().split_once('-')?;
        match (first, last) {
            ("", last) => Some(Self::Last(number(last)?)),
            (first, "") => Some(Self::From { first: number(first)?, last: None }),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From { first, last: Some(last) })
            }
        }
    }

    /// Where it begins in a file of so many bytes, and how many bytes it has there.
    pub fn within(self, bytes: u64) -> Result<(u64, u64), RangeOutside> {
        let (first, end) = match self {
            Self::From { first, last } => {
                (first, last.map_or(bytes, |last| last.saturating_add(1).min(bytes)))
            }
            Self::Last(count) => (bytes - count.min(bytes), bytes),
        };
        if first < end { Ok((first, end - first)) } else { Err(RangeOutside) }
    }
}

/// Digits alone. A number that no file can reach is as good as the greatest.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(u64::from_str(text).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_range_is_read_and_whatever_else_is_not_there() {
        assert_eq!(Range::parse("bytes=0-9"), Some(Range::From { first: 0, last: Some(9) }));
        assert_eq!(Range::parse("Bytes= 5-"), Some(Range::From { first: 5, last: None }));
        assert_eq!(Range::parse("bytes=-7"), Some(Range::Last(7)));
        let vast = "99999999999999999999999";
        let endless = Range::From { first: 1, last: Some(u64::MAX) };
        assert_eq!(Range::parse(&format!("bytes=1-{vast}")), Some(endless));
        for other in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=9-0",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=0x1-2",
            "bytes=1-2-3",
            "bytes=- 7",
        ] {
            assert_eq!(Range::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_range_is_cut_to_the_file() {
        let of = |text: &str, bytes| Range::parse(text).unwrap().within(bytes);
        assert_eq!(of("bytes=0-0", 10), Ok((0, 1)));
        assert_eq!(of("bytes=5-100", 10), Ok((5, 5)));
        assert_eq!(of("bytes=9-", 10), Ok((9, 1)));
        assert_eq!(of("bytes=10-", 10), Err(RangeOutside));
        assert_eq!(of("bytes=-3", 10), Ok((7, 3)));
        assert_eq!(of("bytes=-30", 10), Ok((0, 10)));
        assert_eq!(of("bytes=-0", 10), Err(RangeOutside));
        assert_eq!(of("bytes=0-", 0), Err(RangeOutside));
        assert_eq!(of("bytes=-1", 0), Err(RangeOutside));
    }

    proptest! {
        #[test]
        fn no_header_is_a_range_outside_of_the_file(header in "bytes=[0-9]{0,21}-[0-9]{0,21}", bytes in any::<u64>()) {
            if let Some(Ok((first, length))) = Range::parse(&header).map(|range| range.within(bytes)) {
                prop_assert!(length > 0);
                prop_assert!(first.checked_add(length).is_some_and(|end| end <= bytes));
            }
        }
    }
}
