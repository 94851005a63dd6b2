//! The initramfs: a tree in the `newc` form of cpio, which the kernel unpacks before it has disks.
//!
//! Only the kernel kit uses it. Not compressed: see the README for measurements.

use std::io::{self, Write};

use crate::digest::{HashingWriter, Sha256};
use crate::tree::{ContentReader, Kind, Tree};

const MAGIC: &str = "070701";

/// The kernel reads an archive up to this name.
const END: &[u8] = b"TRAILER!!!";

/// Headers with their names, and contents, start at multiples of this.
const ALIGNMENT: usize = 4;

/// Why a tree cannot become an archive.
#[derive(Debug, thiserror::Error)]
pub enum CpioError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}: a file of 4 GiB or more does not fit")]
    TooLarge(String),
}

/// Writes a tree; the same tree gives the same bytes. A second name of a file becomes a copy, as
/// no initramfs of ours has any.
pub fn write(tree: &Tree, out: impl Write) -> Result<(Sha256, u64), CpioError> {
    let mut out = HashingWriter::new(out);
    let mut contents = ContentReader::new();
    for (serial, (path, id)) in tree.walk_all().into_iter().enumerate() {
        if path.is_empty() {
            continue;
        }
        let node = tree.node(id);
        let mut device = (0, 0);
        let (type_bits, bytes) = match &node.kind {
            Kind::Directory(_) => (0o040_000, 0),
            Kind::File(content) => (0o100_000, content.bytes()),
            Kind::Symlink(target) => (0o120_000, target.len() as u64),
            Kind::CharDevice(numbers) => {
                device = (numbers.major, numbers.minor);
                (0o020_000, 0)
            }
            Kind::BlockDevice(numbers) => {
                device = (numbers.major, numbers.minor);
                (0o060_000, 0)
            }
            Kind::Fifo => (0o010_000, 0),
            Kind::Socket => (0o140_000, 0),
        };
        let metadata = node.metadata;
        let bytes =
            u32::try_from(bytes).map_err(|_| CpioError::TooLarge(crate::tree::shown(&path)))?;
        let header = Header {
            serial: serial as u32,
            mode: type_bits | u32::from(metadata.mode),
            uid: metadata.uid,
            gid: metadata.gid,
            links: if node.names().is_some() { 2 } else { 1 },
            mtime_s: metadata.mtime_s as u32,
            bytes,
            device,
        };
        header.write(&path, &mut out)?;
        match &node.kind {
            Kind::File(content) => {
                let sink = &mut |piece: &[u8]| out.write_all(piece);
                contents.copy::<io::Error>(content, 0, content.bytes(), sink)?;
            }
            Kind::Symlink(target) => out.write_all(target)?,
            _ => {}
        }
        pad(&mut out, bytes as usize)?;
    }
    let end = Header { links: 1, ..Header::default() };
    end.write(END, &mut out)?;
    let (mut out, sha256, bytes) = out.finish();
    out.flush()?;
    Ok((sha256, bytes))
}

#[derive(Default)]
struct Header {
    serial: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    links: u32,
    mtime_s: u32,
    bytes: u32,
    device: (u32, u32),
}

impl Header {
    fn write(&self, name: &[u8], out: &mut impl Write) -> io::Result<()> {
        let name_bytes = name.len() as u32 + 1;
        let (major, minor) = self.device;
        out.write_all(MAGIC.as_bytes())?;
        for field in [
            self.serial,
            self.mode,
            self.uid,
            self.gid,
            self.links,
            self.mtime_s,
            self.bytes,
            0, // Which device the archive was made on: none.
            0,
            major,
            minor,
            name_bytes,
            0, // A checksum, which this form does not have.
        ] {
            write!(out, "{field:08X}")?;
        }
        out.write_all(name)?;
        out.write_all(&[0])?;
        pad(out, MAGIC.len() + 13 * 8 + name_bytes as usize)
    }
}

fn pad(out: &mut impl Write, bytes: usize) -> io::Result<()> {
    out.write_all(&[0; ALIGNMENT][..bytes.next_multiple_of(ALIGNMENT) - bytes])
}

#[cfg(test)]
mod tests {
    use crate::tree::{Content, Device, Metadata, Node, Tree};

    use super::*;

    #[test]
    fn an_archive_has_headers_names_and_contents_at_multiples_of_four() {
        let mut tree = Tree::new(Metadata::root(0o755, 0));
        let metadata = Metadata::root(0o755, 7);
        let device = Kind::CharDevice(Device { major: 5, minor: 1 });
        tree.insert(b"dev/console", Node::new(Metadata::root(0o600, 7), device)).expect("a name");
        tree.insert(b"init", Node::new(metadata, Kind::File(Content::from_bytes(*b"abcde"))))
            .expect("a name");
        let mut bytes = Vec::new();
        let (_, length) = write(&tree, &mut bytes).expect("a vector takes all");
        assert_eq!(length, bytes.len() as u64);
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let init = text.find("init\0").expect("the name") - 110;
        assert_eq!(init % 4, 0);
        assert_eq!(&text[init..init + 22], "07070100000003000081ED");
        assert_eq!(&text[init + 54..init + 62], "00000005");
        assert_eq!(&text[init + 116..init + 124], "abcde\0\0\0");
        let console = text.find("dev/console\0").expect("the name") - 110;
        assert_eq!(&text[console + 78..console + 94], "0000000500000001");
        assert!(text.contains("TRAILER!!!\0"));
    }
}
