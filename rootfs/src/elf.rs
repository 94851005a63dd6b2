//! Reads a few facts from ELF files: the machine, whether it is static, and a module's `.modinfo`.
//!
//! `verify` uses it for the agent, `kernel` for modules and the kernel itself. Only 64-bit little-endian
//! files, because our machines run those.

const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const PROGRAM_INTERPRETER: u64 = 3;
const HEADER_BYTES: usize = 64;

/// Why bytes are no such file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    #[error("not a 64-bit little-endian ELF file")]
    Magic,
    #[error("the ELF file is truncated")]
    Truncated,
}

/// An ELF file in memory.
#[derive(Clone, Copy, Debug)]
pub struct Elf<'a>(&'a [u8]);

impl<'a> Elf<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        if !bytes.starts_with(MAGIC) {
            return Err(ElfError::Magic);
        }
        if bytes.len() < HEADER_BYTES { Err(ElfError::Truncated) } else { Ok(Self(bytes)) }
    }

    /// Whether the kernel runs it without another program's help.
    pub fn is_static(&self) -> Result<bool, ElfError> {
        let (start, count) = (self.number(32, 8)?, self.number(56, 2)?);
        let size = self.number(54, 2)?;
        for index in 0..count {
            if self.number(at(start, index, size)?, 4)? == PROGRAM_INTERPRETER {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The bytes of a section.
    pub fn section(&self, wanted: &str) -> Result<Option<&'a [u8]>, ElfError> {
        let (start, size) = (self.number(40, 8)?, self.number(58, 2)?);
        let (count, names_index) = (self.number(60, 2)?, self.number(62, 2)?);
        let body = |index| -> Result<&'a [u8], ElfError> {
            let header = at(start, index, size)?;
            self.slice(self.number(header + 24, 8)?, self.number(header + 32, 8)?)
        };
        if count == 0 {
            return Ok(None);
        }
        let names = body(names_index)?;
        for index in 0..count {
            let name_at = self.number(at(start, index, size)?, 4)? as usize;
            let name = names.get(name_at..).ok_or(ElfError::Truncated)?;
            if name.split(|&byte| byte == 0).next() == Some(wanted.as_bytes()) {
                return body(index).map(Some);
            }
        }
        Ok(None)
    }

    fn number(&self, at: u64, bytes: u64) -> Result<u64, ElfError> {
        let slice = self.slice(at, bytes)?;
        Ok(slice.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    fn slice(&self, at: u64, bytes: u64) -> Result<&'a [u8], ElfError> {
        let end = at.checked_add(bytes).ok_or(ElfError::Truncated)?;
        self.0.get(at as usize..end as usize).ok_or(ElfError::Truncated)
    }
}

/// Where a row of a table starts; saturates instead of wrapping.
fn at(start: u64, index: u64, size: u64) -> Result<u64, ElfError> {
    let offset = index.checked_mul(size).and_then(|offset| start.checked_add(offset));
    offset.filter(|&offset| offset < u64::MAX / 2).ok_or(ElfError::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_program_is_read_and_a_part_of_it_is_refused() {
        let program = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
        let elf = Elf::parse(&program).expect("an ELF file");
        assert!(elf.section(".text").expect("sections").is_some_and(|text| !text.is_empty()));
        assert_eq!(elf.section(".nothing").expect("sections"), None);
        elf.is_static().expect("program headers");
        assert_eq!(Elf::parse(b"#!/bin/sh").err(), Some(ElfError::Magic));
        let cut = Elf::parse(&program[..100]).expect("a whole header");
        assert_eq!(cut.section(".text"), Err(ElfError::Truncated));
    }
}
