//! Why bytes are not the value that was asked for.

use std::fmt::Display;

use crate::fault;
use crate::limits::BODY_DEPTH_MAX;

/// A [`Reason`] behind one pointer: every result of the generated code has room for it.
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
    #[error("a list has {0} values, which no message needs")]
    TooMany(usize),
    #[error("it is nested deeper than {BODY_DEPTH_MAX} levels")]
    Depth,
    #[error("the field {0} is missing")]
    MissingField(&'static str),
    #[error("the field {0} is there twice")]
    DuplicateField(&'static str),
    #[error("there is no variant {0:?}")]
    UnknownVariant(String),
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// The message of a type's own check.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub fn reason(&self) -> &Reason {
        &self.0
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn invalid(reason: &dyn Display) -> Self {
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
