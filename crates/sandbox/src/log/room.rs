//! How much of a log is read before its reader pauses. Pure.
//!
//! Little or nothing of a log may match, and finding that requires reading all of it. So reading
//! proceeds in steps, which are limited by what is read, not by what is found.

use super::record::{Record, RecordBody};

/// What a step may still read.
#[derive(Clone, Copy, Debug)]
pub struct ReadBudget {
    pub records: usize,
    /// Bytes of output, or of input.
    pub bytes: usize,
}

impl ReadBudget {
    /// For readers that delay nobody: no log is that large.
    pub const ENDLESS: Self = Self { records: usize::MAX, bytes: usize::MAX };

    pub(super) fn is_over(&self) -> bool {
        self.records == 0 || self.bytes == 0
    }

    pub(super) fn take(&mut self, record: &Record<'_>) {
        self.records = self.records.saturating_sub(1);
        if let RecordBody::Output { bytes, .. } | RecordBody::Input { bytes, .. } = &record.what {
            self.bytes = self.bytes.saturating_sub(bytes.0.len());
        }
    }
}
