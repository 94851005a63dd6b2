//! Pax extended headers: records of `length key=value` for what a ustar header cannot express.
//!
//! Only the encoder and the decoder of this crate use it. Whatever a body contains, the result is
//! at most two names and a few numbers, and extended attributes for readers who want them.

use super::TarError;
use super::path::{check_name, without_final_slashes};
use super::xattr::Xattrs;

pub(super) const PATH: &str = "path";
pub(super) const LINK: &str = "linkpath";
pub(super) const SIZE: &str = "size";
pub(super) const UID: &str = "uid";
pub(super) const GID: &str = "gid";
pub(super) const MTIME: &str = "mtime";
pub(super) const CHARSET: &str = "hdrcharset";

/// The value of [`CHARSET`] that says: names are bytes, not UTF-8.
pub(super) const CHARSET_BINARY: &[u8] = b"BINARY";

/// Keys of sparse files begin with this; to ignore them would give files of the wrong content.
const SPARSE_PREFIX: &[u8] = b"GNU.sparse.";

const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;
/// Digits after the point that nanoseconds can hold; further ones are dropped.
const FRACTION_DIGITS_MAX: usize = 9;

/// Seconds since 1970, rounded down, and nanoseconds after them.
pub(super) type Time = (i64, u32);

/// What a global header may set for all following entries. A path, target or size for all of them
/// makes no sense, so those are skipped.
#[derive(Clone, Copy, Default)]
pub(super) struct Attributes {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Time>,
}

impl Attributes {
    pub(super) fn read(&mut self, body: &[u8]) -> Result<(), TarError> {
        Records::new(body).try_for_each(|record| {
            let (key, value) = record?;
            self.set(key, value)
        })
    }

    /// An empty value removes an earlier one. Unknown keys are ignored.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarError> {
        match std::str::from_utf8(key) {
            Ok(UID) => self.uid = unless_empty(value, |value| parse_id(UID, value))?,
            Ok(GID) => self.gid = unless_empty(value, |value| parse_id(GID, value))?,
            Ok(MTIME) => self.mtime = unless_empty(value, parse_time)?,
            _ if key.starts_with(SPARSE_PREFIX) => return Err(TarError::Sparse),
            _ => {}
        }
        Ok(())
    }
}

/// The extensions' values for the following entry.
#[derive(Default)]
pub(super) struct Overrides {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) attributes: Attributes,
    pub(super) xattrs: Xattrs,
}

impl Overrides {
    pub(super) fn new(attributes: Attributes, xattrs: Xattrs) -> Self {
        Self { attributes, xattrs, ..Self::default() }
    }

    pub(super) fn read(&mut self, body: &[u8]) -> Result<(), TarError> {
        Records::new(body).try_for_each(|record| {
            let (key, value) = record?;
            match std::str::from_utf8(key) {
                Ok(PATH) => self.path = unless_empty(value, |value| parse_name(PATH, value))?,
                Ok(LINK) => self.link = unless_empty(value, |value| parse_name(LINK, value))?,
                Ok(SIZE) => self.size = unless_empty(value, parse_size)?,
                _ => {
                    self.attributes.set(key, value)?;
                    self.xattrs.read(key, value)?;
                }
            }
            Ok(())
        })
    }
}

/// The records of a body, each checked before it is given out; ends at the first malformed one.
struct Records<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), TarError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.body[self.at..];
        if rest.is_empty() {
            return None;
        }
        if let Some((length, key, value)) = parse_record(rest) {
            self.at += length;
            Some(Ok((key, value)))
        } else {
            let at = std::mem::replace(&mut self.at, self.body.len());
            Some(Err(TarError::PaxRecord { at }))
        }
    }
}

/// The first record of `bytes` with its length, which counts the length's own digits, the space,
/// and the newline that must end it. A value may contain anything, newlines included.
fn parse_record(bytes: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let space = bytes.iter().position(|&byte| byte == b' ')?;
    let length = usize::try_from(parse_decimal(&bytes[..space])?).ok()?;
    let (newline, pair) = bytes.get(space + 1..length)?.split_last()?;
    let equals = pair.iter().position(|&byte| byte == b'=')?;
    let (key, value) = (&pair[..equals], &pair[equals + 1..]);
    (*newline == b'\n' && !key.is_empty()).then_some((length, key, value))
}

/// A point in time as pax spells it: one signed decimal fraction. Minus half a second is half a
/// second after second -1, so the fraction of a negative time is turned around.
pub(super) fn format_time((seconds, nanoseconds): Time) -> String {
    if nanoseconds == 0 {
        seconds.to_string()
    } else if seconds < 0 {
        let whole = seconds.unsigned_abs() - 1;
        format!("-{whole}.{:09}", NANOSECONDS_PER_SECOND - nanoseconds)
    } else {
        format!("{seconds}.{nanoseconds:09}")
    }
}

/// Whether nanoseconds are less than a second.
pub(super) fn check_nanoseconds(nanoseconds: u32) -> Result<(), TarError> {
    if nanoseconds < NANOSECONDS_PER_SECOND {
        Ok(())
    } else {
        Err(TarError::OutOfRange { field: "mtime_ns" })
    }
}

fn parse_time(value: &[u8]) -> Result<Time, TarError> {
    let (negative, digits) = match value.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, value),
    };
    let mut parts = digits.splitn(2, |&byte| byte == b'.');
    let whole =
        parts.next().and_then(parse_decimal).ok_or(TarError::NotANumber { field: MTIME })?;
    let fraction = parse_fraction(parts.next().unwrap_or_default())?;
    let (seconds, nanoseconds) = match (negative, fraction) {
        (false, _) => (i128::from(whole), fraction),
        (true, 0) => (-i128::from(whole), 0),
        (true, _) => (-i128::from(whole) - 1, NANOSECONDS_PER_SECOND - fraction),
    };
    let seconds = i64::try_from(seconds).map_err(|_| TarError::OutOfRange { field: MTIME })?;
    Ok((seconds, nanoseconds))
}

/// Digits after the point as nanoseconds.
fn parse_fraction(digits: &[u8]) -> Result<u32, TarError> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(TarError::NotANumber { field: MTIME });
    }
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(FRACTION_DIGITS_MAX);
    Ok(padded.fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
}

fn parse_id(field: &'static str, value: &[u8]) -> Result<u32, TarError> {
    let number = parse_decimal(value).ok_or(TarError::NotANumber { field })?;
    u32::try_from(number).map_err(|_| TarError::OutOfRange { field })
}

/// The decoder limits the size of files, because a header can claim too much as well.
fn parse_size(value: &[u8]) -> Result<u64, TarError> {
    parse_decimal(value).ok_or(TarError::NotANumber { field: SIZE })
}

/// A directory's final slash must not count against the limit of names, but it determines the
/// entry's kind, so the name is kept unchanged.
fn parse_name(field: &'static str, value: &[u8]) -> Result<Vec<u8>, TarError> {
    check_name(field, without_final_slashes(value))?;
    Ok(value.to_vec())
}

fn unless_empty<T>(
    value: &[u8],
    parse: impl FnOnce(&[u8]) -> Result<T, TarError>,
) -> Result<Option<T>, TarError> {
    if value.is_empty() { Ok(None) } else { parse(value).map(Some) }
}

/// Decimal digits and nothing else: `str::parse` would take a plus sign.
fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
