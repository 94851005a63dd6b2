//! Our types → MessagePack: what `rmp_serde::to_vec_named` writes, byte for byte, in a tenth of
//! its code.
//!
//! Two things make it small: plain functions write a value, and all that is generic is the call
//! that hands it over; and writing to memory cannot fail, which the type of its error says, so
//! that no derived code carries a way out.

use std::convert::Infallible;
use std::fmt::Display;

use serde::ser::{self, Impossible, Serialize, Serializer};

/// Appends `value`. Integers and lengths take the fewest bytes that hold them.
pub fn encode<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    match value.serialize(&mut Output(out)) {
        Ok(()) => {}
        Err(Never(never)) => match never {},
    }
}

struct Output<'a>(&'a mut Vec<u8>);

/// The error that there cannot be.
#[derive(Debug, thiserror::Error)]
#[error("writing to memory has failed")]
struct Never(Infallible);

impl ser::Error for Never {
    fn custom<T: Display>(reason: T) -> Self {
        panic!("one of our own types refuses to be written: {reason}")
    }
}

impl Output<'_> {
    fn unsigned(&mut self, number: u64) {
        match number {
            0..0x80 => self.0.push(number as u8),
            0x80..=0xff => self.marked(0xcc, &(number as u8).to_be_bytes()),
            0x100..=0xffff => self.marked(0xcd, &(number as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.marked(0xce, &(number as u32).to_be_bytes()),
            _ => self.marked(0xcf, &number.to_be_bytes()),
        }
    }

    fn signed(&mut self, number: i64) {
        match number {
            0.. => self.unsigned(number as u64),
            -0x20..0 => self.0.push(number as u8),
            -0x80..-0x20 => self.marked(0xd0, &(number as i8).to_be_bytes()),
            -0x8000..-0x80 => self.marked(0xd1, &(number as i16).to_be_bytes()),
            -0x8000_0000..-0x8000 => self.marked(0xd2, &(number as i32).to_be_bytes()),
            _ => self.marked(0xd3, &number.to_be_bytes()),
        }
    }

    fn string(&mut self, text: &str) {
        match text.len() {
            length @ 0..0x20 => self.0.push(0xa0 | length as u8),
            length => self.length(length, [0xd9, 0xda, 0xdb]),
        }
        self.0.extend_from_slice(text.as_bytes());
    }

    fn array(&mut self, length: usize) {
        match length {
            0..0x10 => self.0.push(0x90 | length as u8),
            _ => self.length(length, [WIDE_ONLY, 0xdc, 0xdd]),
        }
    }

    fn map(&mut self, length: usize) {
        match length {
            0..0x10 => self.0.push(0x80 | length as u8),
            _ => self.length(length, [WIDE_ONLY, 0xde, 0xdf]),
        }
    }

    /// The head of a variant's content: the only key of a map.
    fn variant(&mut self, name: &str) {
        self.map(1);
        self.string(name);
    }

    /// A length after the marker of its width: one byte, two or four. Arrays and maps have no form
    /// for one byte.
    fn length(&mut self, length: usize, [one, two, four]: [u8; 3]) {
        match length {
            0..=0xff if one != WIDE_ONLY => self.marked(one, &(length as u8).to_be_bytes()),
            0..=0xffff => self.marked(two, &(length as u16).to_be_bytes()),
            _ => {
                let length = u32::try_from(length).expect("no message holds four gigabytes");
                self.marked(four, &length.to_be_bytes());
            }
        }
    }

    fn marked(&mut self, marker: u8, bytes: &[u8]) {
        self.0.push(marker);
        self.0.extend_from_slice(bytes);
    }
}

/// In place of the marker for a length of one byte, where there is none.
const WIDE_ONLY: u8 = 0;

/// One method per integer type.
macro_rules! integers {
    ($($serialize:ident($type:ty) => $write:ident;)*) => {$(
        fn $serialize(self, number: $type) -> Result<(), Never> {
            self.$write(number.into());
            Ok(())
        }
    )*};
}

/// One method per type that no message has; the decoder refuses the same.
macro_rules! refused {
    ($($serialize:ident($($argument:ty),*) -> $ok:ty;)*) => {$(
        fn $serialize(self, $(_: $argument),*) -> Result<$ok, Never> {
            unreachable!("no message has what {} is for", stringify!($serialize))
        }
    )*};
}

impl Serializer for &mut Output<'_> {
    type Ok = ();
    type Error = Never;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Impossible<(), Never>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fn is_human_readable(&self) -> bool {
        false
    }

    integers! {
        serialize_u8(u8) => unsigned;
        serialize_u16(u16) => unsigned;
        serialize_u32(u32) => unsigned;
        serialize_u64(u64) => unsigned;
        serialize_i8(i8) => signed;
        serialize_i16(i16) => signed;
        serialize_i32(i32) => signed;
        serialize_i64(i64) => signed;
    }

    refused! {
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_char(char) -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_map(Option<usize>) -> Self::SerializeMap;
    }

    fn serialize_bool(self, value: bool) -> Result<(), Never> {
        self.0.push(if value { 0xc3 } else { 0xc2 });
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<(), Never> {
        self.string(text);
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Never> {
        self.length(bytes.len(), [0xc4, 0xc5, 0xc6]);
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Never> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Never> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Never> {
        self.0.push(0xc0);
        Ok(())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
    ) -> Result<(), Never> {
        self.serialize_str(name)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        self.variant(name);
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self, Never> {
        self.array(length.expect("our lists know their length"));
        Ok(self)
    }

    fn serialize_tuple(self, length: usize) -> Result<Self, Never> {
        self.array(length);
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Self, Never> {
        self.array(length);
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        length: usize,
    ) -> Result<Self, Never> {
        self.variant(name);
        self.array(length);
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Self, Never> {
        self.map(length);
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        length: usize,
    ) -> Result<Self, Never> {
        self.variant(name);
        self.map(length);
        Ok(self)
    }
}

/// The values of a list, in order.
macro_rules! lists {
    ($($list:ident::$method:ident;)*) => {$(
        impl ser::$list for &mut Output<'_> {
            type Ok = ();
            type Error = Never;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Never> {
                Ok(())
            }
        }
    )*};
}

lists! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

/// The fields of a struct, each after its name.
macro_rules! structs {
    ($($fields:ident;)*) => {$(
        impl ser::$fields for &mut Output<'_> {
            type Ok = ();
            type Error = Never;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Never> {
                self.string(name);
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Never> {
                Ok(())
            }
        }
    )*};
}

structs! {
    SerializeStruct;
    SerializeStructVariant;
}
