//! The agent's own log: its stderr. For a kept sandbox it is a file beside the record; for a
//! one-shot it is anonymous memory, so that nothing is left, whichever process ends first.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::limits::{CONSOLE_BYTES_MAX, CONSOLE_TAIL_BYTES};
use host::paths::PRIVATE_FILE;

/// The name of the file in a sandbox's state directory.
pub const CONSOLE_FILE: &str = "console.log";

#[derive(Debug)]
pub struct Console(File);

impl Console {
    /// Opens a file, to append to it.
    pub fn at(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(PRIVATE_FILE);
        Ok(Self(options.open(path)?))
    }

    /// Opens memory that cannot grow beyond [`CONSOLE_BYTES_MAX`]: the kernel refuses what does not
    /// fit, so an agent that logs without end costs no more.
    pub fn in_memory() -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create("burrow-console", flags)?);
        file.set_len(CONSOLE_BYTES_MAX)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK))?;
        Ok(Self(file))
    }

    /// A descriptor for the agent.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    /// The last words, for the message of a failed start; empty when there are none.
    pub fn tail(&self) -> String {
        let length = self.0.metadata().map_or(0, |metadata| metadata.len());
        let length = length.min(CONSOLE_BYTES_MAX);
        let mut bytes = vec![0; length as usize];
        let offset = self.0.metadata().map_or(0, |metadata| metadata.len() - length);
        if self.0.read_exact_at(&mut bytes, offset).is_err() {
            return String::new();
        }
        parse_tail(&bytes)
    }
}

/// The last whole lines that were written; memory beyond them is zero.
pub fn parse_tail(bytes: &[u8]) -> String {
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let start = written.saturating_sub(CONSOLE_TAIL_BYTES);
    let tail = &bytes[start..written];
    let cut = if start == 0 {
        0
    } else {
        tail.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1)
    };
    printable(&String::from_utf8_lossy(&tail[cut..]))
}

/// Removes control characters: a guest's output must not control the reader's terminal.
fn printable(text: &str) -> String {
    // A serial line ends each of its lines with both.
    let text = text.replace("\r\n", "\n");
    let printable_bytes =
        text.trim_end().chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c });
    printable_bytes.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_tail_is_what_was_written_and_never_more_than_a_screen() {
        let console = Console::in_memory().unwrap();
        assert_eq!(console.tail(), "");
        let mut agent = File::from(console.descriptor().unwrap());
        agent.write_all(b"no such root\x1b[2J\n").unwrap();
        assert_eq!(console.tail(), "no such root\u{fffd}[2J");
        for line in 0..1000 {
            writeln!(agent, "line {line}").unwrap();
        }
        let tail = console.tail();
        assert!(tail.len() <= CONSOLE_TAIL_BYTES && tail.ends_with("line 999"), "{tail}");
        assert!(tail.starts_with("line "), "{tail}");
    }

    #[test]
    fn memory_for_the_console_cannot_grow() {
        let console = Console::in_memory().unwrap();
        let mut agent = File::from(console.descriptor().unwrap());
        agent.write_all(&vec![b'x'; CONSOLE_BYTES_MAX as usize]).unwrap();
        assert!(agent.write(b"more").is_err());
    }
}
