//! A layer's metadata besides its files: what it removes from lower layers, and which of its
//! directories and links depend on them. Stored as a file of zero-terminated fields.

use std::collections::{BTreeMap, BTreeSet};

use super::LayerError;
use super::limits::{NOTE_BYTES, NOTED_BYTES_MAX};

const WHITEOUT: u8 = b'w';
const OPAQUE: u8 = b'o';
const IMPLIED: u8 = b'i';
const LINK: u8 = b'l';
const END: u8 = 0;

/// Paths are relative to the root, without a slash at either end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Paths that are removed from lower layers.
    pub whiteouts: BTreeSet<Vec<u8>>,
    /// Directories whose lower content is removed.
    pub opaque: BTreeSet<Vec<u8>>,
    /// Directories without an entry: they keep a lower directory's attributes, if there is one.
    pub implied: BTreeSet<Vec<u8>>,
    /// Hard links to files of layers below.
    pub links: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes of recorded paths; removed entries are not subtracted.
    noted_bytes: usize,
}

/// A file of marks that is not one, which only a broken disk makes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its whiteouts cannot be read")]
pub struct BadMarks;

impl Marks {
    /// Counts a recorded path.
    pub fn note(&mut self, path: &[u8]) -> Result<(), LayerError> {
        self.noted_bytes += path.len() + NOTE_BYTES;
        if self.noted_bytes > NOTED_BYTES_MAX {
            return Err(LayerError::TooMuchNoted { max: NOTED_BYTES_MAX });
        }
        Ok(())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |kind: u8, fields: &[&[u8]]| {
            out.push(kind);
            for field in fields {
                out.extend_from_slice(field);
                out.push(END);
            }
        };
        self.whiteouts.iter().for_each(|path| put(WHITEOUT, &[path]));
        self.opaque.iter().for_each(|path| put(OPAQUE, &[path]));
        self.implied.iter().for_each(|path| put(IMPLIED, &[path]));
        self.links.iter().for_each(|(path, target)| put(LINK, &[path, target]));
        out
    }

    pub fn parse(mut bytes: &[u8]) -> Result<Self, BadMarks> {
        let mut marks = Self::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            bytes = rest;
            let path = take_field(&mut bytes)?;
            match kind {
                WHITEOUT => drop(marks.whiteouts.insert(path)),
                OPAQUE => drop(marks.opaque.insert(path)),
                IMPLIED => drop(marks.implied.insert(path)),
                LINK => drop(marks.links.insert(path, take_field(&mut bytes)?)),
                _ => return Err(BadMarks),
            }
        }
        Ok(marks)
    }
}

fn take_field(bytes: &mut &[u8]) -> Result<Vec<u8>, BadMarks> {
    let end = bytes.iter().position(|byte| *byte == END).ok_or(BadMarks)?;
    let field = bytes[..end].to_vec();
    *bytes = &bytes[end + 1..];
    Ok(field)
}
