//! Which files of a tree have been archived under another name already.
//!
//! Pure, and bounded: a file is forgotten when all its names have been seen, and when there are
//! too many to remember, further ones are archived as files of their own.

use std::collections::HashMap;

use super::limits::HARD_LINKS_BYTES_MAX;

/// What one file costs besides its path.
const FILE_BYTES: usize = 64;

/// The identity of a file under any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct HardLinks {
    files: HashMap<FileId, Seen>,
    bytes: usize,
}

#[derive(Debug)]
struct Seen {
    /// The first name, as in the archive.
    path: Vec<u8>,
    /// Names that have not been seen yet.
    left: u64,
}

impl HardLinks {
    /// Another name of a file that has `names` of them. Gives the name that it was archived under
    /// before; if there is none, `path` is remembered as that.
    pub fn meet(&mut self, file: FileId, names: u64, path: &[u8]) -> Option<Vec<u8>> {
        if names < 2 {
            return None;
        }
        if let Some(seen) = self.files.get_mut(&file) {
            seen.left -= 1;
            if seen.left > 0 {
                return Some(seen.path.clone());
            }
            let seen = self.files.remove(&file)?;
            self.bytes -= FILE_BYTES + seen.path.len();
            return Some(seen.path);
        }
        let bytes = FILE_BYTES + path.len();
        if self.bytes + bytes <= HARD_LINKS_BYTES_MAX {
            self.bytes += bytes;
            self.files.insert(file, Seen { path: path.to_vec(), left: names - 1 });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> FileId {
        FileId { device: 1, inode }
    }

    #[test]
    fn every_further_name_is_a_link_to_the_first() {
        let mut links = HardLinks::default();
        assert_eq!(links.meet(file(1), 3, b"a"), None);
        assert_eq!(links.meet(file(2), 2, b"other"), None);
        assert_eq!(links.meet(file(1), 3, b"b"), Some(b"a".to_vec()));
        assert_eq!(links.meet(file(1), 3, b"c"), Some(b"a".to_vec()));
        assert_eq!(links.files.len(), 1, "a file whose names were all seen is forgotten");
    }

    #[test]
    fn a_file_with_one_name_is_not_remembered() {
        let mut links = HardLinks::default();
        assert_eq!(links.meet(file(1), 1, b"a"), None);
        assert!(links.files.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_what_does_not_fit_is_no_link() {
        let mut links = HardLinks::default();
        let path = vec![b'x'; 4000];
        for inode in 0..5000 {
            assert_eq!(links.meet(file(inode), 2, &path), None);
        }
        assert!(links.bytes <= HARD_LINKS_BYTES_MAX);
        assert_eq!(links.meet(file(4999), 2, b"b"), None);
        assert_eq!(links.meet(file(0), 2, b"b"), Some(path));
    }
}
