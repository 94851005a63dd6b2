//! Counts the bytes and entries that the host holds for a sandbox's workspace, for its limits. Pure.

use super::Policy;
use super::manifest::{Kind, KnownPath};

/// Bytes and entries of a workspace on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    pub entries: u64,
}

impl Usage {
    /// The usage of one path.
    pub fn of(known: &KnownPath) -> Self {
        known.host.map_or_else(Self::default, |(stamp, _)| {
            let bytes = if known.kind == Kind::File { stamp.bytes } else { 0 };
            Self { bytes, entries: 1 }
        })
    }

    /// The copy of a conflict.
    pub fn copy(bytes: u64) -> Self {
        Self { bytes, entries: 1 }
    }

    pub fn add(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.entries = self.entries.saturating_add(more.entries);
    }

    pub fn take(&mut self, less: Self) {
        self.bytes = self.bytes.saturating_sub(less.bytes);
        self.entries = self.entries.saturating_sub(less.entries);
    }

    /// Why there is no room for more, in words; nothing when there is.
    pub fn refusal(mut self, more: Self, policy: &Policy) -> Option<String> {
        self.add(more);
        let Policy { total_bytes_max, entries_max, .. } = policy;
        if self.entries > *entries_max {
            return Some(format!(
                "the workspace would have more than {entries_max} entries, its limit"
            ));
        }
        let is_over = self.bytes > *total_bytes_max;
        is_over.then(|| {
            format!("the workspace would have more than {total_bytes_max} bytes, its limit")
        })
    }
}

impl FromIterator<Usage> for Usage {
    fn from_iter<I: IntoIterator<Item = Usage>>(all: I) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, one| {
            sum.add(one);
            sum
        })
    }
}
