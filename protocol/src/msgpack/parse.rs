//! The parsers of single values. Nothing here is generic: each function is in the agent once.

use crate::limits::BODY_DEPTH_MAX;

use super::{Error, Reason};

/// Values of one list: many times what the longest message has, and few enough that a list of empty
/// ones, which take a byte on the wire, does not use many times the body's size in memory.
const ELEMENTS_MAX: usize = 64 * 1024;

/// The unread part of a body, and the reader's depth in it.
pub struct Input<'de> {
    rest: &'de [u8],
    /// Arrays and maps that have begun and not ended.
    depth: usize,
}

/// A value, or the beginning of one that has values in it.
pub(super) enum Head<'de> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    String(&'de [u8]),
    Binary(&'de [u8]),
    /// This many values follow, and there are at least as many bytes.
    Array(usize),
    /// This many pairs of values follow, and there are at least twice as many bytes.
    Map(usize),
    /// A float, an extension: read only to be skipped.
    Opaque,
}

impl Head<'_> {
    #[cold]
    pub(super) fn unexpected(self, wanted: &'static str) -> Error {
        let found = match self {
            Self::Nil => "nil",
            Self::Bool(_) => "a boolean",
            Self::Unsigned(_) | Self::Negative(_) => "an integer",
            Self::String(_) => "a string",
            Self::Binary(_) => "a binary",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
            Self::Opaque => "a float or an extension",
        };
        Reason::Type { wanted, found }.into()
    }
}

const NIL: u8 = 0xc0;

impl<'de> Input<'de> {
    pub(super) fn new(body: &'de [u8]) -> Self {
        Self { rest: body, depth: 0 }
    }

    /// Checks that the body has been read to its end.
    pub(super) fn finish(&self) -> Result<(), Error> {
        match (self.depth, self.rest.len()) {
            (0, 0) => Ok(()),
            (0, bytes) => Err(Reason::Trailing(bytes).into()),
            _ => Err(Reason::Length.into()),
        }
    }

    #[inline(never)]
    pub(super) fn parse_head(&mut self) -> Result<Head<'de>, Error> {
        let marker = self.take_number(1)? as u8;
        Ok(match marker {
            0x00..=0x7f => Head::Unsigned(marker.into()),
            0x80..=0x8f => self.map((marker & 0x0f).into())?,
            0x90..=0x9f => self.array((marker & 0x0f).into())?,
            0xa0..=0xbf => Head::String(self.take((marker & 0x1f).into())?),
            NIL => Head::Nil,
            0xc1 => {
                return Err(Reason::Type { wanted: "a value", found: "the reserved marker" }.into());
            }
            0xc2 => Head::Bool(false),
            0xc3 => Head::Bool(true),
            0xc4..=0xc6 => {
                let length = self.take_number(1 << (marker - 0xc4))?;
                Head::Binary(self.take(length)?)
            }
            // Extensions of a length that follows, then of 1 to 16 bytes; the type is one more.
            0xc7..=0xc9 => {
                let length = self.take_number(1 << (marker - 0xc7))?;
                self.opaque(length + 1)?
            }
            0xd4..=0xd8 => self.opaque((1 << (marker - 0xd4)) + 1)?,
            0xca => self.opaque(4)?,
            0xcb => self.opaque(8)?,
            0xcc..=0xcf => Head::Unsigned(self.take_number(1 << (marker - 0xcc))?),
            0xd0..=0xd3 => {
                let bytes = 1 << (marker - 0xd0);
                let unused = 64 - 8 * bytes as u32;
                signed((self.take_number(bytes)? << unused) as i64 >> unused)
            }
            0xd9..=0xdb => {
                let length = self.take_number(1 << (marker - 0xd9))?;
                Head::String(self.take(length)?)
            }
            0xdc..=0xdd => {
                let length = self.take_number(2 << (marker - 0xdc))?;
                self.array(length)?
            }
            0xde..=0xdf => {
                let length = self.take_number(2 << (marker - 0xde))?;
                self.map(length)?
            }
            0xe0..=0xff => Head::Negative((marker as i8).into()),
        })
    }

    /// The next `bytes`, at most 8, as a number with the highest byte first.
    #[inline(never)]
    fn take_number(&mut self, bytes: u64) -> Result<u64, Error> {
        Ok(self.take(bytes)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    #[inline(never)]
    fn take(&mut self, bytes: u64) -> Result<&'de [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(bytes as usize).ok_or(Reason::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn opaque(&mut self, bytes: u64) -> Result<Head<'de>, Error> {
        self.take(bytes).map(|_| Head::Opaque)
    }

    /// A list of values has at least one byte for each: a length beyond that is a lie.
    fn array(&self, length: u64) -> Result<Head<'de>, Error> {
        let length = length as usize;
        if length <= self.rest.len() {
            Ok(Head::Array(length))
        } else {
            Err(Reason::Truncated.into())
        }
    }

    fn map(&self, length: u64) -> Result<Head<'de>, Error> {
        let length = length as usize;
        if length <= self.rest.len() / 2 {
            Ok(Head::Map(length))
        } else {
            Err(Reason::Truncated.into())
        }
    }

    #[inline(never)]
    pub(super) fn parse_bool(&mut self) -> Result<bool, Error> {
        match self.parse_head()? {
            Head::Bool(value) => Ok(value),
            other => Err(other.unexpected("a boolean")),
        }
    }

    /// `min` is always zero; it is there so that both kinds of integer are asked for alike.
    #[inline(never)]
    pub(super) fn parse_unsigned(&mut self, min: u64, max: u64) -> Result<u64, Error> {
        match self.parse_head()? {
            Head::Unsigned(value) if (min..=max).contains(&value) => Ok(value),
            Head::Unsigned(_) | Head::Negative(_) => Err(Reason::Range.into()),
            other => Err(other.unexpected("an integer")),
        }
    }

    #[inline(never)]
    pub(super) fn parse_signed(&mut self, min: i64, max: i64) -> Result<i64, Error> {
        let value = match self.parse_head()? {
            Head::Unsigned(value) => i64::try_from(value).map_err(|_| Reason::Range)?,
            Head::Negative(value) => value,
            other => return Err(other.unexpected("an integer")),
        };
        if (min..=max).contains(&value) { Ok(value) } else { Err(Reason::Range.into()) }
    }

    #[inline(never)]
    pub(crate) fn parse_str(&mut self) -> Result<&'de str, Error> {
        match self.parse_head()? {
            Head::String(bytes) => utf8(bytes),
            other => Err(other.unexpected("a string")),
        }
    }

    /// A string or a binary: either form of a [`Text`](crate::Text).
    #[inline(never)]
    pub(crate) fn parse_text(&mut self) -> Result<&'de [u8], Error> {
        match self.parse_head()? {
            Head::String(bytes) => Ok(utf8(bytes)?.as_bytes()),
            Head::Binary(bytes) => Ok(bytes),
            other => Err(other.unexpected("a string or a binary")),
        }
    }

    /// Takes a nil, if it is one that follows.
    #[inline(never)]
    pub(super) fn take_nil(&mut self) -> bool {
        match self.rest.split_first() {
            Some((&NIL, rest)) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Begins an array; says how many values are in it.
    #[inline(never)]
    pub(super) fn enter_array(&mut self) -> Result<usize, Error> {
        match self.parse_head()? {
            Head::Array(length) if length > ELEMENTS_MAX => Err(Reason::TooMany(length).into()),
            Head::Array(length) => self.enter(length),
            other => Err(other.unexpected("an array")),
        }
    }

    /// Begins a map; says how many pairs are in it.
    #[inline(never)]
    pub(super) fn enter_map(&mut self) -> Result<usize, Error> {
        match self.parse_head()? {
            Head::Map(length) => self.enter(length),
            other => Err(other.unexpected("a map")),
        }
    }

    fn enter(&mut self, length: usize) -> Result<usize, Error> {
        self.depth += 1;
        if self.depth < BODY_DEPTH_MAX { Ok(length) } else { Err(Reason::Depth.into()) }
    }

    /// Ends an array or a map of which `left` values have not been read. An error ends the whole
    /// reading, so that `depth` need not be right after one.
    #[inline(never)]
    pub(super) fn leave(&mut self, left: usize) -> Result<(), Error> {
        self.depth -= 1;
        if left == 0 { Ok(()) } else { Err(Reason::Length.into()) }
    }

    /// Begins an enum: the variant's name, and whether content follows. Either way it is left by
    /// [`Input::leave`].
    #[inline(never)]
    pub(super) fn enter_variant(&mut self) -> Result<(&'de str, bool), Error> {
        match self.parse_head()? {
            Head::String(name) => {
                self.depth += 1;
                Ok((utf8(name)?, false))
            }
            Head::Map(1) => {
                self.enter(1)?;
                Ok((self.parse_str()?, true))
            }
            other => Err(other.unexpected("a variant")),
        }
    }

    /// Passes over one value with all that is in it.
    #[inline(never)]
    pub(super) fn skip(&mut self) -> Result<(), Error> {
        // How many values the container at each depth still lacks.
        let mut missing = [0; BODY_DEPTH_MAX];
        let outside = self.depth;
        loop {
            let inside = match self.parse_head()? {
                Head::Array(length) => Some(length),
                Head::Map(length) => Some(2 * length),
                _ => None,
            };
            if let Some(inside) = inside {
                self.enter(inside)?;
                missing[self.depth] = inside;
            }
            while self.depth > outside && missing[self.depth] == 0 {
                self.depth -= 1;
            }
            if self.depth == outside {
                return Ok(());
            }
            missing[self.depth] -= 1;
        }
    }
}

pub(super) fn utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Reason::Utf8.into())
}

fn signed(value: i64) -> Head<'static> {
    match u64::try_from(value) {
        Ok(value) => Head::Unsigned(value),
        Err(_) => Head::Negative(value),
    }
}
