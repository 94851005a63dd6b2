//! Extended attributes, which stand between an inode and its tail.

use std::collections::BTreeMap;

use super::number;

/// The header of the area: a filter, the number of shared attributes, room.
const HEADER_BYTES: usize = 12;

/// Prefixes of names, and the numbers that stand for them.
const PREFIXES: [(u8, &[u8]); 4] =
    [(1, b"user."), (4, b"trusted."), (6, b"security."), (2, b"system.posix_acl_access")];
const DEFAULT_ACL: (u8, &[u8]) = (3, b"system.posix_acl_default");

/// Why attributes cannot be written, or bytes are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XattrError {
    #[error("the namespace of the extended attribute {0} is not supported")]
    Namespace(String),
    #[error("extended attributes of {0} bytes are too many for one file")]
    TooLarge(usize),
    #[error("malformed extended attributes")]
    Malformed,
}

/// The area of an inode's attributes; empty when there are none.
pub(super) fn encode(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Vec<u8>, XattrError> {
    if xattrs.is_empty() {
        return Ok(Vec::new());
    }
    let mut out = vec![0; HEADER_BYTES];
    for (name, value) in xattrs {
        let (index, suffix) = PREFIXES
            .iter()
            .chain([&DEFAULT_ACL])
            .find_map(|(index, prefix)| Some((*index, name.strip_prefix(*prefix)?)))
            .ok_or_else(|| XattrError::Namespace(name.escape_ascii().to_string()))?;
        let too_large = |_| XattrError::TooLarge(value.len());
        out.push(u8::try_from(suffix.len()).map_err(too_large)?);
        out.push(index);
        out.extend(u16::try_from(value.len()).map_err(too_large)?.to_le_bytes());
        out.extend_from_slice(suffix);
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    Ok(out)
}

/// The encoded size of an area in its inode.
pub(super) fn count_of(area_bytes: usize) -> u16 {
    if area_bytes == 0 { 0 } else { ((area_bytes - HEADER_BYTES) / 4 + 1) as u16 }
}

/// The reverse of [`count_of`].
pub(super) fn area_bytes(count: u16) -> usize {
    if count == 0 { 0 } else { HEADER_BYTES + 4 * (usize::from(count) - 1) }
}

/// The attributes of an area.
pub(super) fn decode(area: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, XattrError> {
    let mut xattrs = BTreeMap::new();
    if area.is_empty() {
        return Ok(xattrs);
    }
    if area.len() < HEADER_BYTES || area[4] != 0 {
        return Err(XattrError::Malformed);
    }
    let mut rest = &area[HEADER_BYTES..];
    while rest.len() >= 4 {
        let (name_bytes, index) = (usize::from(rest[0]), rest[1]);
        let value_bytes = number::<2>(rest, 2) as usize;
        let end = 4 + name_bytes + value_bytes;
        let text = rest.get(4..end).ok_or(XattrError::Malformed)?;
        let (suffix, value) = text.split_at(name_bytes);
        let prefix = PREFIXES.iter().chain([&DEFAULT_ACL]).find(|(known, _)| *known == index);
        let (_, prefix) = prefix.ok_or(XattrError::Malformed)?;
        xattrs.insert([prefix, suffix].concat(), value.to_vec());
        rest = rest.get(end.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(xattrs)
}
