//! Why bytes are not the value that was asked for.

use std::fmt::Display;

use serde::de::{Expected, Unexpected};

use crate::fault;
use crate::limits::BODY_DEPTH_MAX;

/// A [`Reason`] behind one pointer: every result of the derived code carries room for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(Box<Reason>);

/// Why a body was not read. Text that came from the peer is clipped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("it ends within a value")]
    Truncated,
    #[error("{found} where {wanted} belongs")]
    Type { wanted: &'static str, found: &'static str },
    #[error("a number is out of its range")]
    Range,
    #[error("a string is not UTF-8")]
    Utf8,
    #[error("a list has more or fewer values than its type")]
    Length,
    #[error("it is nested deeper than {BODY_DEPTH_MAX} levels")]
    Depth,
    #[error("the field {0} is missing")]
    MissingField(&'static str),
    #[error("the field {0} is there twice")]
    DuplicateField(&'static str),
    #[error("there is no variant {0:?}")]
    UnknownVariant(String),
    #[error("{0} cannot be read here")]
    Unsupported(&'static str),
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// What a type's own check says.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub fn reason(&self) -> &Reason {
        &self.0
    }

    #[cold]
    #[inline(never)]
    fn invalid(reason: &dyn Display) -> Self {
        Reason::Invalid(fault::clip(reason.to_string())).into()
    }
}

impl From<Reason> for Error {
    #[cold]
    #[inline(never)]
    fn from(reason: Reason) -> Self {
        Self(Box::new(reason))
    }
}

/// The provided methods would print what was found, floats among it, and what each visitor had
/// expected, which takes more code than the decoder has. These say less, and are called.
impl serde::de::Error for Error {
    fn custom<T: Display>(reason: T) -> Self {
        Self::invalid(&reason)
    }

    #[cold]
    #[inline(never)]
    fn invalid_type(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Reason::Unsupported("a value of this type").into()
    }

    #[cold]
    #[inline(never)]
    fn invalid_value(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Reason::Unsupported("this value").into()
    }

    #[cold]
    #[inline(never)]
    fn invalid_length(_: usize, _: &dyn Expected) -> Self {
        Reason::Length.into()
    }

    #[cold]
    #[inline(never)]
    fn unknown_variant(name: &str, _: &'static [&'static str]) -> Self {
        Reason::UnknownVariant(fault::clip(name.to_owned())).into()
    }

    #[cold]
    #[inline(never)]
    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Reason::Unsupported("an unknown field").into()
    }

    #[cold]
    #[inline(never)]
    fn missing_field(name: &'static str) -> Self {
        Reason::MissingField(name).into()
    }

    #[cold]
    #[inline(never)]
    fn duplicate_field(name: &'static str) -> Self {
        Reason::DuplicateField(name).into()
    }
}
