//! Encodes entries as header blocks: ustar, preceded by pax records for what ustar cannot express.
//!
//! The sender of a tree calls it. It writes only headers: the caller sends the content and then
//! [`padding`], and [`END_OF_ARCHIVE`] when all entries are sent.

use super::header::{
    BLOCK_BYTES, Fields, LONG_NUMBER_MAX, NAME_BYTES, PREFIX_BYTES, SHORT_NUMBER_MAX,
};
use super::path::{check_name, without_final_slashes};
use super::record::write_record;
use super::{
    DEVICE_NUMBER_MAX, Entry, FILE_BYTES_MAX, Kind, MODE_MASK, PAX_BYTES_MAX, TarError, pax,
};
use crate::PATH_BYTES_MAX;

/// What follows the last entry: two blocks of zeros.
pub const END_OF_ARCHIVE: &[u8] = &[0; 2 * BLOCK_BYTES];

const ZEROS: &[u8; BLOCK_BYTES] = &[0; BLOCK_BYTES];

/// The name of a pax header, for readers that don't know pax and make a file of it.
const PAX_NAME: &[u8] = b"././@PaxHeader";

/// Two names with their keys and lengths, and some numbers.
const _: () = assert!(2 * PATH_BYTES_MAX + 512 <= PAX_BYTES_MAX, "what is written can be read");

/// Appends the headers of `entry`; an entry that is refused appends nothing.
///
/// A directory's slash is added, final slashes of all other paths are dropped, and of the mode
/// only the bits of [`MODE_MASK`] are written, so that `st_mode` may be passed as it is.
pub fn encode_entry(entry: &Entry, out: &mut Vec<u8>) -> Result<(), TarError> {
    let fields = EntryFields::of(entry)?;
    let records = fields.pax_records();
    if !records.is_empty() {
        write_pax_header(&records, out);
    }
    fields.ustar().write(out);
    Ok(())
}

/// Encodes an entry with extended attributes, for readers who want them.
pub fn encode_entry_with(
    entry: &Entry,
    xattrs: &[(Vec<u8>, Vec<u8>)],
    out: &mut Vec<u8>,
) -> Result<(), TarError> {
    let fields = EntryFields::of(entry)?;
    let mut records = fields.pax_records();
    super::xattr::write(xattrs, &mut records)?;
    if !records.is_empty() {
        write_pax_header(&records, out);
    }
    fields.ustar().write(out);
    Ok(())
}

/// The zeros that follow a file of `size` bytes: up to the next full block.
pub fn padding(size: u64) -> &'static [u8] {
    let beyond = (size % BLOCK_BYTES as u64) as usize;
    if beyond == 0 { &[] } else { &ZEROS[beyond..] }
}

/// A validated entry, split into the parts of its headers.
struct EntryFields<'a> {
    /// With a directory's final slash.
    path: Vec<u8>,
    link: &'a [u8],
    type_flag: u8,
    device: (u32, u32),
    entry: &'a Entry,
}

impl<'a> EntryFields<'a> {
    fn of(entry: &'a Entry) -> Result<Self, TarError> {
        let path = without_final_slashes(&entry.path);
        check_name("path", path)?;
        pax::check_nanoseconds(entry.mtime_ns)?;
        let mut path = path.to_vec();
        let mut link: &[u8] = &[];
        let mut device = (0, 0);
        let type_flag = match &entry.kind {
            Kind::File { size } if *size > FILE_BYTES_MAX => {
                return Err(TarError::OutOfRange { field: "size" });
            }
            Kind::File { .. } => b'0',
            Kind::HardLink { target } => {
                link = target;
                b'1'
            }
            Kind::Symlink { target } => {
                link = target;
                b'2'
            }
            Kind::CharDevice { major, minor } => {
                device = (*major, *minor);
                b'3'
            }
            Kind::BlockDevice { major, minor } => {
                device = (*major, *minor);
                b'4'
            }
            Kind::Directory => {
                if !path.ends_with(b"/") {
                    path.push(b'/');
                }
                b'5'
            }
            Kind::Fifo => b'6',
        };
        if matches!(type_flag, b'1' | b'2') {
            check_name("link target", link)?;
        }
        if device.0 > DEVICE_NUMBER_MAX || device.1 > DEVICE_NUMBER_MAX {
            return Err(TarError::OutOfRange { field: "device number" });
        }
        Ok(Self { path, link, type_flag, device, entry })
    }

    /// The body of the pax header that this entry needs; empty if ustar says it all.
    fn pax_records(&self) -> Vec<u8> {
        let mut names = Vec::new();
        if !self.path.is_ascii() || split_path(&self.path).is_none() {
            write_record(&mut names, pax::PATH, &self.path);
        }
        if !self.link.is_ascii() || self.link.len() > NAME_BYTES {
            write_record(&mut names, pax::LINK, self.link);
        }

        let mut body = Vec::new();
        // Names on Linux are bytes; readers that care must know it before they see one.
        let is_utf8 = |name| std::str::from_utf8(name).is_ok();
        if !is_utf8(&self.path) || !is_utf8(self.link) {
            write_record(&mut body, pax::CHARSET, pax::CHARSET_BINARY);
        }
        body.append(&mut names);

        let mut number = |key, value: String| write_record(&mut body, key, value.as_bytes());
        let entry = self.entry;
        let size = entry.kind.content_bytes();
        if size > LONG_NUMBER_MAX {
            number(pax::SIZE, size.to_string());
        }
        if u64::from(entry.uid) > SHORT_NUMBER_MAX {
            number(pax::UID, entry.uid.to_string());
        }
        if u64::from(entry.gid) > SHORT_NUMBER_MAX {
            number(pax::GID, entry.gid.to_string());
        }
        let whole = u64::try_from(entry.mtime_s).is_ok_and(|seconds| seconds <= LONG_NUMBER_MAX);
        if entry.mtime_ns != 0 || !whole {
            number(pax::MTIME, pax::format_time((entry.mtime_s, entry.mtime_ns)));
        }
        body
    }

    fn ustar(&self) -> Fields<'_> {
        let (prefix, name) = split_path(&self.path).unwrap_or((&[], &self.path));
        Fields {
            name,
            prefix,
            link: self.link,
            type_flag: self.type_flag,
            mode: self.entry.mode & MODE_MASK,
            uid: self.entry.uid,
            gid: self.entry.gid,
            size: self.entry.kind.content_bytes(),
            mtime_s: self.entry.mtime_s,
            device_major: self.device.0,
            device_minor: self.device.1,
        }
    }
}

fn write_pax_header(records: &[u8], out: &mut Vec<u8>) {
    let size = records.len() as u64;
    Fields { name: PAX_NAME, type_flag: b'x', mode: 0o644, size, ..Fields::default() }.write(out);
    out.extend_from_slice(records);
    out.extend_from_slice(padding(size));
}

/// `path` split into the prefix and name fields, without the slash between them. No prefix if it
/// fits the name; `None` if it fits neither way.
fn split_path(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= NAME_BYTES {
        return Some((&[], path));
    }
    // Neither part may be empty: readers would take the slash between them for absent.
    let first = (path.len() - NAME_BYTES - 1).max(1);
    let last = PREFIX_BYTES.min(path.len() - 2);
    let slash = (first..=last).find(|&at| path[at] == b'/')?;
    Some((&path[..slash], &path[slash + 1..]))
}
