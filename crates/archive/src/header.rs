//! One 512-byte header block: where its fields are, how they spell numbers, and its checksum.
//!
//! Only the encoder and the decoder of this crate use it. They handle an entry's meaning
//! (extensions, kinds, limits of names).

use std::ops::Range;

use super::TarError;

/// Everything in an archive comes in blocks of this size.
pub(super) const BLOCK_BYTES: usize = 512;

pub(super) type Block = [u8; BLOCK_BYTES];

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MTIME: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const TYPE_FLAG: usize = 156;
const LINK: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..265;
const DEVICE_MAJOR: Range<usize> = 329..337;
const DEVICE_MINOR: Range<usize> = 337..345;
const PREFIX: Range<usize> = 345..500;

/// The size of the name and link fields. A full field has no NUL at its end.
pub(super) const NAME_BYTES: usize = NAME.end - NAME.start;
/// The size of the prefix field.
pub(super) const PREFIX_BYTES: usize = PREFIX.end - PREFIX.start;
/// The largest number in the fields of eight bytes: seven octal digits.
pub(super) const SHORT_NUMBER_MAX: u64 = 0o777_7777;
/// The largest number in the fields of twelve bytes: eleven octal digits.
pub(super) const LONG_NUMBER_MAX: u64 = 0o777_7777_7777;

/// The magic and version of POSIX. GNU's own magic ends in two spaces and a NUL, and such a header
/// has other fields in place of the prefix.
const MAGIC_USTAR: &[u8] = b"ustar\x0000";
/// The magic alone, as some writers leave the version out.
const MAGIC_USTAR_BARE: &[u8] = b"ustar\0";

/// Marks a number in base 256 instead of octal digits.
const BASE_256: u8 = 0x80;
/// The sign of a number in base 256.
const BASE_256_NEGATIVE: u8 = 0x40;

/// A block whose checksum holds, read field by field.
#[derive(Clone, Copy)]
pub(super) struct Header<'a> {
    block: &'a Block,
}

impl<'a> Header<'a> {
    /// `offset` is where the block begins in the archive, for the error.
    pub(super) fn parse(block: &'a Block, offset: u64) -> Result<Self, TarError> {
        let stored = parse_number("checksum", &block[CHECKSUM])?;
        let (unsigned, signed) = checksums(block);
        // Some old writers summed up signed chars; the two differ only for bytes beyond ASCII.
        if stored == i128::from(unsigned) || stored == i128::from(signed) {
            Ok(Self { block })
        } else {
            Err(TarError::Checksum { offset, stored, computed: unsigned })
        }
    }

    pub(super) fn type_flag(self) -> u8 {
        self.block[TYPE_FLAG]
    }

    pub(super) fn path(self) -> Vec<u8> {
        let name = text(&self.block[NAME]);
        if !self.block[MAGIC].starts_with(MAGIC_USTAR_BARE) {
            return name.to_vec();
        }
        match text(&self.block[PREFIX]) {
            b"" => name.to_vec(),
            prefix => [prefix, b"/", name].concat(),
        }
    }

    pub(super) fn link(self) -> Vec<u8> {
        text(&self.block[LINK]).to_vec()
    }

    pub(super) fn mode(self) -> Result<u32, TarError> {
        self.number("mode", MODE)
    }

    pub(super) fn uid(self) -> Result<u32, TarError> {
        self.number("uid", UID)
    }

    pub(super) fn gid(self) -> Result<u32, TarError> {
        self.number("gid", GID)
    }

    pub(super) fn size(self) -> Result<u64, TarError> {
        self.number("size", SIZE)
    }

    pub(super) fn mtime(self) -> Result<i64, TarError> {
        self.number("mtime", MTIME)
    }

    pub(super) fn device_major(self) -> Result<u32, TarError> {
        self.number("device major", DEVICE_MAJOR)
    }

    pub(super) fn device_minor(self) -> Result<u32, TarError> {
        self.number("device minor", DEVICE_MINOR)
    }

    fn number<T: TryFrom<i128>>(
        self,
        field: &'static str,
        range: Range<usize>,
    ) -> Result<T, TarError> {
        let value = parse_number(field, &self.block[range])?;
        T::try_from(value).map_err(|_| TarError::OutOfRange { field })
    }
}

/// The fields of a header to write. Texts and numbers that do not fit are truncated and saturated:
/// the caller has put the exact values into a pax header before it.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) name: &'a [u8],
    pub(super) prefix: &'a [u8],
    pub(super) type_flag: u8,
    pub(super) link: &'a [u8],
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) mtime_s: i64,
    pub(super) device_major: u32,
    pub(super) device_minor: u32,
}

impl Fields<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut block = [0; BLOCK_BYTES];
        put_text(&mut block[NAME], self.name);
        put_number(&mut block[MODE], u64::from(self.mode));
        put_number(&mut block[UID], u64::from(self.uid));
        put_number(&mut block[GID], u64::from(self.gid));
        put_number(&mut block[SIZE], self.size);
        put_number(&mut block[MTIME], u64::try_from(self.mtime_s).unwrap_or(0));
        block[TYPE_FLAG] = self.type_flag;
        put_text(&mut block[LINK], self.link);
        block[MAGIC].copy_from_slice(MAGIC_USTAR);
        put_number(&mut block[DEVICE_MAJOR], u64::from(self.device_major));
        put_number(&mut block[DEVICE_MINOR], u64::from(self.device_minor));
        put_text(&mut block[PREFIX], self.prefix);
        seal(&mut block);
        out.extend_from_slice(&block);
    }
}

/// Writes the checksum, by tradition six digits, a NUL and a space.
pub(super) fn seal(block: &mut Block) {
    let (unsigned, _) = checksums(block);
    let field = &mut block[CHECKSUM];
    field.fill(b' ');
    put_number(&mut field[..7], u64::from(unsigned));
}

/// The sums of all bytes, unsigned and signed, with the checksum's own field taken as spaces.
fn checksums(block: &Block) -> (u32, i32) {
    let mut unsigned = 0;
    let mut signed = 0;
    for (at, &byte) in block.iter().enumerate() {
        let byte = if CHECKSUM.contains(&at) { b' ' } else { byte };
        unsigned += u32::from(byte);
        signed += i32::from(byte.cast_signed());
    }
    (unsigned, signed)
}

/// A text field ends at its first NUL, or else where it ends.
fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or(field)
}

fn put_text(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

/// Octal digits with a NUL after them; saturates.
fn put_number(field: &mut [u8], value: u64) {
    let Some((end, digits)) = field.split_last_mut() else { return };
    *end = 0;
    let mut rest = value.min((1 << (3 * digits.len())) - 1);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest & 7) as u8;
        rest >>= 3;
    }
}

/// A number in octal digits, with spaces and NULs around them as writers please, or in base 256.
/// Fields have at most twelve bytes, so that either fits an `i128`.
fn parse_number(name: &'static str, field: &[u8]) -> Result<i128, TarError> {
    match field.split_first() {
        Some((&first, rest)) if first & BASE_256 != 0 => Ok(parse_base_256(first, rest)),
        _ => parse_octal(field).ok_or(TarError::NotANumber { field: name }),
    }
}

/// Two's complement, big-endian, the mark not part of the number.
fn parse_base_256(first: u8, rest: &[u8]) -> i128 {
    let low = i128::from(first & (BASE_256_NEGATIVE - 1));
    let start =
        if first & BASE_256_NEGATIVE == 0 { low } else { low - i128::from(BASE_256_NEGATIVE) };
    rest.iter().fold(start, |value, &byte| (value << 8) | i128::from(byte))
}

/// A blank field is zero: writers omit what does not apply.
fn parse_octal(field: &[u8]) -> Option<i128> {
    let blank = |byte: &u8| matches!(byte, b' ' | 0);
    let mut digits = field.iter().skip_while(|byte| blank(byte)).take_while(|byte| !blank(byte));
    digits.try_fold(0, |value, digit| match digit {
        b'0'..=b'7' => Some((value << 3) | i128::from(digit - b'0')),
        _ => None,
    })
}
