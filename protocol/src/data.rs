//! The body of a data frame: the one body that is not decoded by serde, so that its bytes are
//! never copied on the way in.
//!
//! It is still MessagePack: an array of an unsigned offset and a binary. The widths that are
//! written are fixed; every width that MessagePack allows is read.

/// Array mark, offset with its mark, binary mark with its length.
pub const DATA_PREFIX_BYTES: usize = 1 + 9 + 5;

const ARRAY_OF_TWO: u8 = 0x92;
const UINT8: u8 = 0xcc;
const UINT16: u8 = 0xcd;
const UINT32: u8 = 0xce;
const UINT64: u8 = 0xcf;
const BIN8: u8 = 0xc4;
const BIN16: u8 = 0xc5;
const BIN32: u8 = 0xc6;
const POSITIVE_FIXINT_MAX: u8 = 0x7f;

/// Appends the prefix of a body of `length` bytes at `offset`; the bytes follow it.
pub fn encode_prefix(offset: u64, length: u32, out: &mut Vec<u8>) {
    out.push(ARRAY_OF_TWO);
    out.push(UINT64);
    out.extend_from_slice(&offset.to_be_bytes());
    out.push(BIN32);
    out.extend_from_slice(&length.to_be_bytes());
}

/// Splits a body into its offset and its bytes; `None` when it is anything else.
pub fn parse_data(body: &[u8]) -> Option<(u64, &[u8])> {
    let (&mark, rest) = body.split_first()?;
    if mark != ARRAY_OF_TWO {
        return None;
    }
    let (&mark, rest) = rest.split_first()?;
    let (offset, rest) = match mark {
        0..=POSITIVE_FIXINT_MAX => (u64::from(mark), rest),
        UINT8 => parse_uint(rest, 1)?,
        UINT16 => parse_uint(rest, 2)?,
        UINT32 => parse_uint(rest, 4)?,
        UINT64 => parse_uint(rest, 8)?,
        _ => return None,
    };
    let (&mark, rest) = rest.split_first()?;
    let (length, bytes) = match mark {
        BIN8 => parse_uint(rest, 1)?,
        BIN16 => parse_uint(rest, 2)?,
        BIN32 => parse_uint(rest, 4)?,
        _ => return None,
    };
    (length == bytes.len() as u64).then_some((offset, bytes))
}

fn parse_uint(input: &[u8], width: usize) -> Option<(u64, &[u8])> {
    let (bytes, rest) = input.split_at_checked(width)?;
    Some((bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)), rest))
}
