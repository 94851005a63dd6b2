//! MessagePack bodies ↔ our types, made for little code. Reading is in [`decode`](mod@decode),
//! writing in [`encode`](mod@encode).
//!
//! The agent's size is bounded, and the decoder of rmp-serde expands its whole match over MessagePack's
//! markers once for each type that is read: half a megabyte. Here plain functions parse a value
//! ([`parse`]), and a type only lists its fields. Three rules keep it so:
//!
//! - each function accepts what its type may be on the wire and nothing else;
//! - errors are one pointer, and say what was expected in a few fixed words;
//! - what no message contains cannot be read: floats, characters, maps with free keys.
//!
//! It reads what `rmp_serde::to_vec_named` writes, and of MessagePack's alternatives these: any
//! width of an integer or a length, and fields that the type does not know. Nothing is allocated
//! before its bytes have been read, nothing recurses deeper than the type does, and nesting is
//! limited by [`BODY_DEPTH_MAX`](crate::limits::BODY_DEPTH_MAX).

mod decode;
mod encode;
mod error;
mod parse;

pub use self::decode::Decode;
pub use self::encode::encode;
pub use self::error::{Error, Reason};
pub use self::parse::Input;

/// Reads the one value that `body` is; trailing bytes are an error, because they mean that the
/// ends disagree.
pub fn decode<T: Decode>(body: &[u8]) -> Result<T, Error> {
    let mut value = T::blank();
    let mut input = Input::new(body);
    value.read(&mut input)?;
    input.finish()?;
    Ok(value)
}

#[cfg(test)]
pub(crate) mod tests;
