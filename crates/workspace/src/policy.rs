//! Which paths of a workspace are writable, and how large it may become. Pure.

use super::WorkspaceError;
use super::limits::{
    ENTRIES_DEFAULT, FILE_BYTES_DEFAULT, NAME_BYTES_FLOOR, NAME_BYTES_PER_ENTRY,
    TOTAL_BYTES_DEFAULT,
};

/// The limits of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The directory itself is there, and no copy: the limits below hold nothing then.
    pub mount: bool,
    pub read_only: bool,
    /// Paths below which changes come back, without final slashes; empty for all.
    pub write: Vec<String>,
    pub file_bytes_max: u64,
    pub total_bytes_max: u64,
    pub entries_max: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mount: false,
            read_only: false,
            write: Vec::new(),
            file_bytes_max: FILE_BYTES_DEFAULT,
            total_bytes_max: TOTAL_BYTES_DEFAULT,
            entries_max: ENTRIES_DEFAULT,
        }
    }
}

impl Policy {
    /// Why a change at this path is not for the host; nothing when it is.
    pub fn refusal(&self, path: &[u8]) -> Option<&'static str> {
        if self.read_only {
            return Some("the workspace is read-only");
        }
        let covers = |prefix: &String| {
            let rest = path.strip_prefix(prefix.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let is_open = self.write.is_empty() || self.write.iter().any(covers);
        (!is_open).then_some("it is outside of the writable paths")
    }
}

/// Counts the entries of one tree, however they come, and stops at the bounds.
#[derive(Debug)]
pub struct Count {
    entries_max: u64,
    name_bytes_max: u64,
    entries: u64,
    name_bytes: u64,
}

impl Count {
    pub fn new(entries_max: u64) -> Self {
        let name_bytes_max = entries_max.saturating_mul(NAME_BYTES_PER_ENTRY).max(NAME_BYTES_FLOOR);
        Self { entries_max, name_bytes_max, entries: 0, name_bytes: 0 }
    }

    /// One more, with its path and the text of the link that it may be.
    pub fn add(&mut self, path: &[u8], target: &[u8]) -> Result<(), WorkspaceError> {
        let Self { entries_max, name_bytes_max, .. } = *self;
        self.entries += 1;
        if self.entries > entries_max {
            return Err(WorkspaceError::TooManyEntries { entries_max });
        }
        self.name_bytes += (path.len() + target.len()) as u64;
        if self.name_bytes > name_bytes_max {
            return Err(WorkspaceError::NamesTooLong { bytes_max: name_bytes_max, entries_max });
        }
        Ok(())
    }
}

/// A configured prefix, or `None` if it is invalid: it must be relative, without `.` and `..`.
pub fn parse_prefix(text: &str) -> Option<String> {
    let trimmed = text.trim_matches('/');
    let is_good = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
    trimmed.split('/').all(is_good).then(|| trimmed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_itself_and_what_is_below_it_and_no_namesake() {
        let policy = Policy { write: vec!["outputs".into(), "a/b".into()], ..Policy::default() };
        for path in ["outputs", "outputs/x", "a/b/c/d"] {
            assert_eq!(policy.refusal(path.as_bytes()), None, "{path}");
        }
        for path in ["outputs2", "outputs2/x", "a", "a/bc", "x/outputs"] {
            assert!(policy.refusal(path.as_bytes()).is_some(), "{path}");
        }
        assert_eq!(Policy::default().refusal(b"anything"), None);
        let closed = Policy { read_only: true, ..policy };
        assert!(closed.refusal(b"outputs/x").is_some());
    }

    #[test]
    fn names_are_counted_by_their_bytes_and_entries_by_their_number() {
        let mut count = Count::new(100);
        let long = [b'x'; 255];
        for _ in 0..100 {
            count.add(&long, b"").unwrap();
        }
        assert!(matches!(
            count.add(b"y", b""),
            Err(WorkspaceError::TooManyEntries { entries_max: 100 })
        ));
        // Links count with their targets.
        let mut count = Count::new(100);
        let refused = (0..100).find_map(|_| count.add(&long, &[b'y'; 4000]).err());
        let bytes_max = 100 * NAME_BYTES_PER_ENTRY;
        assert!(
            matches!(refused, Some(WorkspaceError::NamesTooLong { bytes_max: bytes, .. }) if bytes == bytes_max)
        );
        assert_eq!(Count::new(1).name_bytes_max, NAME_BYTES_FLOOR);
    }

    #[test]
    fn a_prefix_is_read_with_and_without_slashes_and_leads_nowhere_else() {
        for text in ["outputs", "outputs/", "/outputs/"] {
            assert_eq!(parse_prefix(text).as_deref(), Some("outputs"));
        }
        for text in ["", "/", "..", "a/../b", "a//b", "./a"] {
            assert_eq!(parse_prefix(text), None, "{text}");
        }
    }
}
