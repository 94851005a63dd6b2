//! MessagePack bodies ↔ our types, made for little code. Writing is in [`encode`](mod@encode).
//!
//! Called by the codec alone. The agent must stay below 1 MB, and the decoder of rmp-serde expands
//! its whole match over MessagePack's markers once for each type that is read: half a megabyte.
//! Here plain functions parse a value ([`parse`]), and all that is generic is the call of the
//! type's visitor. Three rules keep it so:
//!
//! - each method takes what its type may be on the wire and nothing else;
//! - errors are one pointer, and tell a visitor's expectations in a few fixed words;
//! - what no message has is refused: floats, characters, maps with free keys, unit structs.
//!
//! Read is what `rmp_serde::to_vec_named` writes, and of MessagePack's freedoms these: any width
//! of an integer or a length, and fields that the type does not know. Nothing is allocated before
//! its bytes have been seen, nothing recurses deeper than the type does, and nesting is bounded by
//! [`BODY_DEPTH_MAX`](crate::limits::BODY_DEPTH_MAX).

mod encode;
mod error;
mod parse;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

pub use self::encode::encode;
pub use self::error::{Error, Reason};
use self::parse::{Head, Input};

/// Reads the one value that `body` is; trailing bytes are an error, because they mean that the
/// ends disagree.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    let mut input = Input::new(body);
    let value = T::deserialize(&mut input)?;
    input.finish()?;
    Ok(value)
}

/// One method per integer type: the range is checked here, so that the visitor need not.
macro_rules! integers {
    ($($deserialize:ident => $visit:ident($parse:ident as $type:ty);)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.$parse(<$type>::MIN.into(), <$type>::MAX.into())? as $type)
        }
    )*};
}

/// One method per type that no message has.
macro_rules! refused {
    ($($deserialize:ident($($argument:ty),*) => $what:literal;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, $(_: $argument,)* _: V) -> Result<V::Value, Error> {
            Err(Reason::Unsupported($what).into())
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Input<'de> {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    /// A string or a binary: what [`Text`](crate::Text) accepts, and nothing else asks.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.parse_head()? {
            Head::String(bytes) => visitor.visit_borrowed_str(parse::utf8(bytes)?),
            Head::Binary(bytes) => visitor.visit_borrowed_bytes(bytes),
            other => Err(other.unexpected("a string or a binary")),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.parse_bool()?)
    }

    integers! {
        deserialize_u8 => visit_u8(parse_unsigned as u8);
        deserialize_u16 => visit_u16(parse_unsigned as u16);
        deserialize_u32 => visit_u32(parse_unsigned as u32);
        deserialize_u64 => visit_u64(parse_unsigned as u64);
        deserialize_i8 => visit_i8(parse_signed as i8);
        deserialize_i16 => visit_i16(parse_signed as i16);
        deserialize_i32 => visit_i32(parse_signed as i32);
        deserialize_i64 => visit_i64(parse_signed as i64);
    }

    refused! {
        deserialize_f32() => "a float";
        deserialize_f64() => "a float";
        deserialize_char() => "a character";
        deserialize_map() => "a map with free keys";
        deserialize_unit_struct(&'static str) => "a unit struct";
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.parse_str()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_bytes(self.parse_binary()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.take_nil() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.parse_nil()?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut elements = Elements { left: self.enter_array()?, input: self };
        let value = visitor.visit_seq(&mut elements)?;
        elements.input.leave(elements.left)?;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { left: self.enter_map()?, input: self })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (name, has_content) = self.enter_variant()?;
        visitor.visit_enum(Variant { input: self, name, has_content })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }
}

/// What is left of an array. It tells no size in advance: memory grows with the elements read.
struct Elements<'a, 'de> {
    input: &'a mut Input<'de>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                seed.deserialize(&mut *self.input).map(Some)
            }
            None => Ok(None),
        }
    }
}

/// What is left of a struct's map. Its end is where the last key is asked for; a visitor that
/// does not ask is found out when the whole body has been read.
struct Fields<'a, 'de> {
    input: &'a mut Input<'de>,
    left: usize,
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        match self.input.parse_field(&mut self.left)? {
            Some(name) => seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.input)
    }
}

/// A variant whose name has been read, and what follows it: nothing when it was a string, its
/// content when it was the only key of a map.
struct Variant<'a, 'de> {
    input: &'a mut Input<'de>,
    name: &'de str,
    has_content: bool,
}

impl<'a, 'de> Variant<'a, 'de> {
    /// The input where the content begins.
    fn content(self) -> Result<&'a mut Input<'de>, Error> {
        if self.has_content { Ok(self.input) } else { Err(parse::content_missing()) }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let variant = seed.deserialize(BorrowedStrDeserializer::<Error>::new(self.name))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        if self.has_content { Err(parse::content_unexpected()) } else { Ok(()) }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        let input = self.content()?;
        let value = seed.deserialize(&mut *input)?;
        input.leave(0)?;
        Ok(value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        let input = self.content()?;
        let value = input.deserialize_seq(visitor)?;
        input.leave(0)?;
        Ok(value)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let input = self.content()?;
        let value = input.deserialize_struct("", names, visitor)?;
        input.leave(0)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
