//! The table that compilers write about every function that a panic may cross: `.eh_frame`.
//!
//! [`find`] reads one function's record and what it says about one address. It knows the subset of
//! DWARF that Rust writes for x86-64, and takes everything else for a function without a record.
//! It is searched from the beginning: two thousand records for each frame of a panic, which is
//! some microseconds, are cheaper than 18 kilobytes of an index.

use std::slice;

/// The general registers, and the return address.
pub(super) const REGISTERS: usize = 17;

/// Offsets in the table are relative to where they stand, and have four bytes.
const RELATIVE_I32: u8 = 0x1b;
/// What they lead to is the address of what is meant.
const INDIRECT: u8 = 0x80;

/// No compiler nests what it saves; two have room.
const SAVED_ROWS_MAX: usize = 2;

/// What the table says about a function as a whole.
#[derive(Clone, Copy, Default)]
pub(super) struct Function {
    pub(super) start: usize,
    /// Zero where nothing is dropped and nothing caught.
    pub(super) personality: usize,
    /// The language's own table of what is to be done at which call.
    pub(super) cleanups: usize,
}

/// How to find the caller's registers from one place in a function.
#[derive(Clone, Copy, Default)]
pub(super) struct Row {
    /// The register and the distance that lead to the frame's base, the caller's stack pointer.
    pub(super) base: usize,
    pub(super) base_offset: isize,
    pub(super) rules: [Rule; REGISTERS],
    /// Bytes of arguments that lie on the stack for the call.
    pub(super) pushed: usize,
}

#[derive(Clone, Copy, Default)]
pub(super) enum Rule {
    #[default]
    Unchanged,
    /// Saved that far from the frame's base.
    At(isize),
}

/// The record of the function that `address` is in, and its row there.
pub(super) fn find(table: *const u8, address: usize) -> Option<(Function, Row)> {
    if table.is_null() {
        return None;
    }
    let mut at = table;
    loop {
        let mut length = Bytes::at(at, 4);
        let length = length.u32()? as usize;
        // The end of the table; or the long form, which no linker writes below four gigabytes.
        if length == 0 || length == u32::MAX as usize {
            return None;
        }
        let record = at.wrapping_add(4);
        at = record.wrapping_add(length);
        let mut record = Bytes::at(record, length);
        let place = record.place();
        let common = record.u32()? as usize;
        // Zero marks what several records have in common.
        if common == 0 {
            continue;
        }
        let start = record.relative()?;
        let size = record.u32()? as usize;
        if address.wrapping_sub(start) < size {
            let common = Common::read(place.wrapping_sub(common))?;
            return common.row(record, start, address);
        }
    }
}

/// What the records of functions have in common (a CIE).
struct Common {
    code_unit: usize,
    data_unit: isize,
    personality: usize,
    has_cleanups: bool,
    /// Instructions for the row at a function's beginning.
    beginning: Bytes,
}

impl Common {
    fn read(at: *const u8) -> Option<Self> {
        let length = Bytes::at(at, 4).u32()? as usize;
        let mut record = Bytes::at(at.wrapping_add(4), length);
        let _zero = record.u32()?;
        let _version = record.u8()?;
        let mut augmentation = record;
        while record.u8()? != 0 {}
        let code_unit = record.unsigned()?;
        let data_unit = record.signed()?;
        let return_register = record.unsigned()?;
        if augmentation.u8()? != b'z' || return_register != REGISTERS - 1 {
            return None;
        }
        let mut data = record.part()?;
        let (mut personality, mut has_cleanups, mut is_known) = (0, false, false);
        loop {
            match augmentation.u8()? {
                0 => break,
                b'P' => personality = data.encoded()?,
                b'L' => has_cleanups = data.u8()? == RELATIVE_I32,
                b'R' => is_known = data.u8()? == RELATIVE_I32,
                _ => return None,
            }
        }
        is_known.then_some(Self {
            code_unit,
            data_unit,
            personality,
            has_cleanups,
            beginning: record,
        })
    }

    /// Reads the rest of a function's record.
    fn row(&self, mut record: Bytes, start: usize, address: usize) -> Option<(Function, Row)> {
        let mut data = record.part()?;
        let cleanups = if self.has_cleanups { data.relative()? } else { 0 };
        let function = Function { start, personality: self.personality, cleanups };
        let mut beginning = Row::default();
        self.follow(self.beginning, &mut beginning, &Row::default(), 0)?;
        let mut row = beginning;
        self.follow(record, &mut row, &beginning, address - start)?;
        Some((function, row))
    }

    /// Follows the instructions for all places up to `distance` from the function's beginning.
    fn follow(
        &self,
        mut code: Bytes,
        row: &mut Row,
        beginning: &Row,
        distance: usize,
    ) -> Option<()> {
        let mut place = 0;
        let mut saved = [Row::default(); SAVED_ROWS_MAX];
        let mut depth = 0;
        while let Some(instruction) = code.u8() {
            let low = usize::from(instruction & 0x3f);
            let step = match (instruction >> 6, low) {
                (1, low) => low,
                (0, 0x02) => code.u8()?.into(),
                (0, 0x03) => code.u16()?.into(),
                (0, 0x04) => code.u32()? as usize,
                (2, register) => {
                    *row.rules.get_mut(register)? = Rule::At(code.distance()? * self.data_unit);
                    0
                }
                (3, register) => {
                    *row.rules.get_mut(register)? = *beginning.rules.get(register)?;
                    0
                }
                // Padding.
                (_, 0x00) => 0,
                (_, 0x0a) => {
                    *saved.get_mut(depth)? = *row;
                    depth += 1;
                    0
                }
                (_, 0x0b) => {
                    depth = depth.checked_sub(1)?;
                    *row = *saved.get(depth)?;
                    0
                }
                (_, 0x0c) => {
                    row.base = code.unsigned()?;
                    row.base_offset = code.distance()?;
                    0
                }
                (_, 0x0d) => {
                    row.base = code.unsigned()?;
                    0
                }
                (_, 0x0e) => {
                    row.base_offset = code.distance()?;
                    0
                }
                (_, 0x2e) => {
                    row.pushed = code.unsigned()?;
                    0
                }
                _ => return None,
            };
            place += step * self.code_unit;
            if place > distance {
                break;
            }
        }
        Some(())
    }
}

/// A stretch of the table that is read from its beginning.
#[derive(Clone, Copy)]
struct Bytes(&'static [u8]);

impl Bytes {
    fn at(start: *const u8, length: usize) -> Self {
        // SAFETY: the linker has written the table, which is there for as long as the program and
        // never changes; `start` is where a record begins, and the record's own length, or that of
        // its length, comes with it.
        Self(unsafe { slice::from_raw_parts(start, length) })
    }

    fn place(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// As many bytes as the number before them says.
    fn part(&mut self) -> Option<Self> {
        let length = self.unsigned()?;
        let (part, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Self(part))
    }

    /// Seven bits in each byte, the lowest first (LEB128), and how many bits there were.
    fn bits(&mut self) -> Option<(usize, u32)> {
        let (mut value, mut count) = (0, 0);
        loop {
            let byte = self.u8()?;
            value |= usize::from(byte & 0x7f).checked_shl(count)?;
            count += 7;
            if byte & 0x80 == 0 {
                return Some((value, count));
            }
        }
    }

    fn unsigned(&mut self) -> Option<usize> {
        self.bits().map(|(value, _)| value)
    }

    fn distance(&mut self) -> Option<isize> {
        self.unsigned().map(|value| value as isize)
    }

    fn signed(&mut self) -> Option<isize> {
        let (value, count) = self.bits()?;
        let unused = usize::BITS.saturating_sub(count);
        Some((value << unused) as isize >> unused)
    }

    /// An address, as its distance from where the distance stands; zero is none.
    fn relative(&mut self) -> Option<usize> {
        let place = self.place() as usize;
        let distance = i32::from_le_bytes(self.take()?);
        Some(if distance == 0 { 0 } else { place.wrapping_add_signed(distance as isize) })
    }

    /// An address that says first how it is written.
    fn encoded(&mut self) -> Option<usize> {
        let encoding = self.u8()?;
        if encoding & !INDIRECT != RELATIVE_I32 {
            return None;
        }
        let address = self.relative()?;
        if encoding & INDIRECT == 0 {
            return Some(address);
        }
        let slot = address as *const usize;
        // SAFETY: the linker has made the slot, and its start-up code has filled it in.
        Some(unsafe { slot.read() })
    }
}
