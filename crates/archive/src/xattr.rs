//! Extended attributes of entries, for readers who want them.
//!
//! A reader that did not ask for them skips these records like those of any unknown key. Without the feature
//! `xattrs` no reader gets any.

use super::PAX_BYTES_MAX;
use super::TarError;

/// Keys of extended attributes begin with this, as all writers that keep any spell it.
const PREFIX: &str = "SCHILY.xattr.";

/// Appends an entry's attributes, in records that can be read again.
pub(super) fn write(pairs: &[(Vec<u8>, Vec<u8>)], records: &mut Vec<u8>) -> Result<(), TarError> {
    let field = "extended attributes";
    for (name, value) in pairs {
        // A record begins with its key, up to the first sign of equality.
        let name = std::str::from_utf8(name).ok().filter(|name| !name.contains('='));
        let name = name.ok_or(TarError::OutOfRange { field })?;
        super::record::write_record(records, &format!("{PREFIX}{name}"), value);
    }
    if records.len() > PAX_BYTES_MAX {
        let bytes = records.len() as u64;
        return Err(TarError::TooLong { field, bytes, limit: PAX_BYTES_MAX });
    }
    Ok(())
}

/// Names and values of one entry, in the order of their records.
#[derive(Default)]
pub(super) struct Xattrs {
    are_wanted: bool,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Xattrs {
    pub(super) fn wanted() -> Self {
        Self { are_wanted: true, pairs: Vec::new() }
    }

    /// Empty, and wanted if these are.
    pub(super) fn of_next(&self) -> Self {
        Self { are_wanted: self.are_wanted, pairs: Vec::new() }
    }

    pub(super) fn take(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.pairs)
    }

    /// Adds a record if it is about an attribute; a second one for the same name replaces the
    /// first. Headers may follow each other without end, so the limit is on all of them together.
    pub(super) fn read(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarError> {
        if !(cfg!(any(feature = "xattrs", test)) && self.are_wanted) {
            return Ok(());
        }
        let Some(name) = key.strip_prefix(PREFIX.as_bytes()) else { return Ok(()) };
        self.pairs.retain(|(known, _)| known != name);
        self.pairs.push((name.to_vec(), value.to_vec()));
        let bytes: usize = self.pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > PAX_BYTES_MAX {
            let (field, bytes) = ("extended attributes", bytes as u64);
            return Err(TarError::TooLong { field, bytes, limit: PAX_BYTES_MAX });
        }
        Ok(())
    }
}
