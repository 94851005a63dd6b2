//! MessagePack → our types, with as little code per type as possible.
//!
//! A derived serde reader is a visitor per type, with a loop over its fields, a copy of each field on
//! the way, and a way out of every step: half a kilobyte for the smallest message. Here a value is
//! made blank and filled in where it stands. What a type adds is a list of its fields
//! ([`decode_struct!`](crate::decode_struct)) or of its variants
//! ([`decode_enum!`](crate::decode_enum)); the loops are those of [`Input::fields`] and
//! [`Input::variant`], which are there once.

use super::{Error, Input, Reason};
use crate::fault;

/// What can be read from a body.
pub trait Decode {
    /// The placeholder for a value until it has been read. For an optional field it is the default.
    fn blank() -> Self
    where
        Self: Sized;

    /// Reads over a blank value. After an error the value is of no use.
    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error>;
}

/// Makes a struct readable: its fields, the optional ones after a semicolon.
///
/// The same fields are optional as in its serde derive; the frozen schema and the comparison with
/// rmp-serde check that. A field that is missing here does not compile.
#[macro_export]
macro_rules! decode_struct {
    ($type:ident: $($required:ident),* $(; $($optional:ident),+)?) => {
        impl $crate::msgpack::Decode for $type {
            fn blank() -> Self {
                Self {
                    $($required: $crate::msgpack::Decode::blank(),)*
                    $($($optional: $crate::msgpack::Decode::blank(),)+)?
                }
            }

            fn read(
                &mut self,
                input: &mut $crate::msgpack::Input<'_>,
            ) -> Result<(), $crate::msgpack::Error> {
                input.fields(
                    concat!($(stringify!($required), " ",)* $($(stringify!($optional), " ",)+)?),
                    const { <[&str]>::len(&[$(stringify!($required)),*]) },
                    &mut [$(&mut self.$required,)* $($(&mut self.$optional,)+)?],
                )
            }
        }
    };
}

/// Makes an enum readable: its variants as they are declared, `Bare`, `One()` for one value, and
/// `Named { fields; optional }`. On the wire they have the same names in snake case.
///
/// A variant that is left out here does not compile.
///
/// `Type or Other: …` reads an unknown variant as `Other { name }`, whatever it contains.
#[macro_export]
macro_rules! decode_enum {
    ($type:ident $(or $unknown:ident)?: $first:ident $({ $($field:tt)* })? $(($($one:tt)*))?
        $(, $variant:ident $({ $($fields:tt)* })? $(($($ones:tt)*))?)*) => {
        #[allow(irrefutable_let_patterns)] // An enum may have one variant.
        impl $crate::msgpack::Decode for $type {
            fn blank() -> Self {
                $crate::decode_enum!(@blank $first $({ $($field)* })? $(($($one)*))?)
            }

            fn read(
                &mut self,
                input: &mut $crate::msgpack::Input<'_>,
            ) -> Result<(), $crate::msgpack::Error> {
                enum Number { $first, $($variant),* }
                const _: fn(&$type) -> Number = |value| match value {
                    $type::$first { .. } => Number::$first,
                    $($type::$variant { .. } => Number::$variant,)*
                    $($type::$unknown { .. } => unreachable!(),)?
                };
                let number = $crate::decode_enum!(@number self, input, concat!(
                    $crate::decode_enum!(@word $first $({ $($field)* })? $(($($one)*))?),
                    $($crate::decode_enum!(@word $variant $({ $($fields)* })? $(($($ones)*))?)),*
                ) $(, $unknown)?);
                if number == Number::$first as usize {
                    $crate::decode_enum!(
                        @read self, input, $first $({ $($field)* })? $(($($one)*))?
                    );
                }
                $(if number == Number::$variant as usize {
                    $crate::decode_enum!(
                        @read self, input, $variant $({ $($fields)* })? $(($($ones)*))?
                    );
                })*
                input.leave_variant()
            }
        }
    };

    (@number $self:ident, $input:ident, $names:expr) => { $input.variant($names)? };
    (@number $self:ident, $input:ident, $names:expr, $unknown:ident) => {
        match $input.variant_or_pass($names)? {
            Ok(number) => number,
            Err(name) => {
                *$self = Self::$unknown { name };
                return $input.leave_variant();
            }
        }
    };

    // A variant's name in the list of names, with a mark when it has content.
    (@word $variant:ident) => { concat!(stringify!($variant), " ") };
    (@word $variant:ident $content:tt) => { concat!(stringify!($variant), ": ") };

    (@blank $variant:ident) => { Self::$variant };
    (@blank $variant:ident ()) => { Self::$variant($crate::msgpack::Decode::blank()) };
    (@blank $variant:ident { $($required:ident),* $(; $($optional:ident),+)? }) => {
        Self::$variant {
            $($required: $crate::msgpack::Decode::blank(),)*
            $($($optional: $crate::msgpack::Decode::blank(),)+)?
        }
    };

    (@read $self:ident, $input:ident, $variant:ident) => { *$self = Self::$variant };
    (@read $self:ident, $input:ident, $variant:ident ()) => {
        *$self = $crate::decode_enum!(@blank $variant ());
        if let Self::$variant(content) = $self {
            $crate::msgpack::Decode::read(content, $input)?;
        }
    };
    (@read $self:ident, $input:ident, $variant:ident { $($required:ident),* $(; $($optional:ident),+)? }) => {
        *$self = $crate::decode_enum!(@blank $variant { $($required),* $(; $($optional),+)? });
        if let Self::$variant { $($required,)* $($($optional,)+)? } = $self {
            $input.fields(
                concat!($(stringify!($required), " ",)* $($(stringify!($optional), " ",)+)?),
                const { <[&str]>::len(&[$(stringify!($required)),*]) },
                &mut [$($required,)* $($($optional,)+)?],
            )?;
        }
    };
}

/// Structs have at most so many fields: the bits of the number that says which have been read.
const FIELDS_MAX: usize = u64::BITS as usize;

impl Input<'_> {
    /// Reads a struct's map into `fields`, whose `names` are in the same order, each with a space
    /// after it. The first `required` must be present; other names are skipped.
    #[inline(never)]
    pub fn fields(
        &mut self,
        names: &'static str,
        required: usize,
        fields: &mut [&mut dyn Decode],
    ) -> Result<(), Error> {
        assert!(fields.len() <= FIELDS_MAX, "one bit for each field");
        let mut seen = 0_u64;
        for _ in 0..self.enter_map()? {
            let name = self.parse_str()?;
            let Some(at) = position(names, |known| known == name.as_bytes()) else {
                self.skip()?;
                continue;
            };
            if seen & 1 << at != 0 {
                return Err(Reason::DuplicateField(nth(names, at)).into());
            }
            seen |= 1 << at;
            fields[at].read(self)?;
        }
        let missing = seen.trailing_ones() as usize;
        if missing < required {
            return Err(Reason::MissingField(nth(names, missing)).into());
        }
        self.leave(0)
    }

    /// Begins an enum, whose variants are `names`, each with a space after it, and a colon before
    /// that when it has content: the variant's place among them.
    pub fn variant(&mut self, names: &'static str) -> Result<usize, Error> {
        self.find_variant(names)?.map_err(|(name, _)| Reason::UnknownVariant(name).into())
    }

    /// The same, but skips an unknown variant and returns its name.
    pub fn variant_or_pass(&mut self, names: &'static str) -> Result<Result<usize, String>, Error> {
        match self.find_variant(names)? {
            Ok(at) => Ok(Ok(at)),
            Err((name, has_content)) => {
                if has_content {
                    self.skip()?;
                }
                Ok(Err(name))
            }
        }
    }

    /// A variant's place among `names`; of another its name, and whether it has content.
    #[inline(never)]
    fn find_variant(
        &mut self,
        names: &'static str,
    ) -> Result<Result<usize, (String, bool)>, Error> {
        let (name, has_content) = self.enter_variant()?;
        let Some(at) = position(names, |known| is_called(known, name.as_bytes())) else {
            return Ok(Err((fault::clip(name.to_owned()), has_content)));
        };
        match (nth(names, at).ends_with(CONTENT as char), has_content) {
            (true, false) => Err(Reason::Type { wanted: CONTENT_WORDS, found: "nothing" }.into()),
            (false, true) => Err(Reason::Type { wanted: "nothing", found: CONTENT_WORDS }.into()),
            _ => Ok(Ok(at)),
        }
    }

    /// Ends an enum.
    pub fn leave_variant(&mut self) -> Result<(), Error> {
        self.leave(0)
    }

    /// Reads a list by `element`, which reads the value at each place.
    #[inline(never)]
    fn elements(
        &mut self,
        element: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for _ in 0..self.enter_array()? {
            element(self)?;
        }
        self.leave(0)
    }

    /// Reads a list that has as many values as `elements`.
    #[inline(never)]
    fn exactly(&mut self, elements: &mut [&mut dyn Decode]) -> Result<(), Error> {
        if self.enter_array()? != elements.len() {
            return Err(Reason::Length.into());
        }
        for element in elements {
            element.read(self)?;
        }
        self.leave(0)
    }
}

/// After the name of a variant that has content.
const CONTENT: u8 = b':';
const CONTENT_WORDS: &str = "content of a variant";

/// The index of the first of `names` for which `is_it` is true.
fn position(names: &str, mut is_it: impl FnMut(&[u8]) -> bool) -> Option<usize> {
    names.as_bytes().split(|&byte| byte == b' ').position(|name| !name.is_empty() && is_it(name))
}

#[cold]
fn nth(names: &'static str, at: usize) -> &'static str {
    names.split(' ').nth(at).unwrap_or_default()
}

/// Whether `word` is the snake case of the variant `name`.
fn is_called(name: &[u8], word: &[u8]) -> bool {
    let mut word = word.iter();
    name.strip_suffix(&[CONTENT]).unwrap_or(name).iter().enumerate().all(|(at, letter)| {
        (at == 0 || !letter.is_ascii_uppercase() || word.next() == Some(&b'_'))
            && word.next() == Some(&letter.to_ascii_lowercase())
    }) && word.next().is_none()
}

macro_rules! integers {
    ($($parse:ident: $($type:ident)*;)*) => {$($(
        impl Decode for $type {
            fn blank() -> Self {
                0
            }

            fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
                *self = input.$parse(Self::MIN.into(), Self::MAX.into())? as Self;
                Ok(())
            }
        }
    )*)*};
}

integers! {
    parse_unsigned: u8 u16 u32 u64;
    parse_signed: i8 i16 i32 i64;
}

impl Decode for bool {
    fn blank() -> Self {
        false
    }

    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        *self = input.parse_bool()?;
        Ok(())
    }
}

impl Decode for String {
    fn blank() -> Self {
        Self::new()
    }

    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        self.push_str(input.parse_str()?);
        Ok(())
    }
}

impl<T: Decode> Decode for Option<T> {
    fn blank() -> Self {
        None
    }

    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        if input.take_nil() { Ok(()) } else { self.insert(T::blank()).read(input) }
    }
}

/// Memory grows with the elements that are read, not with the claimed length.
impl<T: Decode> Decode for Vec<T> {
    fn blank() -> Self {
        Self::new()
    }

    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        input.elements(&mut |input| {
            let mut element = T::blank();
            element.read(input)?;
            self.push(element);
            Ok(())
        })
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn blank() -> Self {
        (A::blank(), B::blank())
    }

    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        input.exactly(&mut [&mut self.0, &mut self.1])
    }
}

impl<const BYTES: usize> Decode for [u8; BYTES] {
    fn blank() -> Self {
        [0; BYTES]
    }

    fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
        let mut rest = self.iter_mut();
        input.elements(&mut |input| rest.next().ok_or(Reason::Length)?.read(input))?;
        if rest.len() == 0 { Ok(()) } else { Err(Reason::Length.into()) }
    }
}
