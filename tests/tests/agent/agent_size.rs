//! What the agent promises before it runs: it is small, needs nothing of the root that it is put
//! into, and carries nothing that only a debugger reads.
//!
//! docs/decisions/0018-the-agents-size.md says what the size is made of.

use std::fs;

use tests::agent_path;

const AGENT_BYTES_MAX: usize = 1_250_000;

/// `e_type` of a position-independent executable.
const ET_DYN: u16 = 3;
/// A program header that names a dynamic loader.
const PT_INTERP: u32 = 3;
/// A section header of symbols that the program itself has no use for.
const SHT_SYMTAB: u32 = 2;

/// A 64-bit little-endian ELF file.
struct Elf(Vec<u8>);

impl Elf {
    fn of_the_agent() -> Self {
        let bytes = fs::read(agent_path()).expect("the agent can be read");
        assert_eq!(bytes[..6], *b"\x7fELF\x02\x01", "a 64-bit little-endian ELF file");
        Self(bytes)
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.0[at..at + 2].try_into().expect("two bytes"))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn object_type(&self) -> u16 {
        self.u16(16)
    }

    /// The type of each program header.
    fn segments(&self) -> Vec<u32> {
        let (table, size, count) = (self.u64(32) as usize, self.u16(54), self.u16(56));
        (0..count).map(|number| self.u32(table + usize::from(number * size))).collect()
    }

    /// The type of each section header.
    fn sections(&self) -> Vec<u32> {
        let (table, size, count) = (self.u64(40) as usize, self.u16(58), self.u16(60));
        (0..count).map(|number| self.u32(table + usize::from(number * size) + 4)).collect()
    }
}

#[test]
fn the_agent_needs_no_library_and_no_loader() {
    let elf = Elf::of_the_agent();
    assert_eq!(elf.object_type(), ET_DYN, "it is position-independent");
    assert!(!elf.segments().is_empty(), "it can be loaded");
    assert!(!elf.segments().contains(&PT_INTERP), "it names no loader");
}

#[test]
fn the_agent_is_stripped() {
    let sections = Elf::of_the_agent().sections();
    assert!(!sections.contains(&SHT_SYMTAB), "no symbols are left");
}

#[test]
fn the_agent_is_no_larger_than_promised() {
    let Elf(bytes) = Elf::of_the_agent();
    let count = bytes.len();
    assert!(count <= AGENT_BYTES_MAX, "{count} bytes; was the agent built by `just build`?");
}
