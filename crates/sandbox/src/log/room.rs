//! How much of a log is looked at before whoever reads it pauses. Pure.
//!
//! What is wanted of a log can be little or nothing, and finding that takes reading all of it. So
//! reading goes by steps, whose length is a matter of what is looked at.

use super::record::{Record, RecordBody};

/// What may still be looked at in a step.
#[derive(Clone, Copy, Debug)]
pub struct ReadBudget {
    pub records: usize,
    /// Of output.
    pub bytes: usize,
}

impl ReadBudget {
    /// For readers who keep nobody waiting: no log has so much.
    pub const ENDLESS: Self = Self { records: usize::MAX, bytes: usize::MAX };

    pub(super) fn is_over(&self) -> bool {
        self.records == 0 || self.bytes == 0
    }

    pub(super) fn take(&mut self, record: &Record<'_>) {
        self.records = self.records.saturating_sub(1);
        if let RecordBody::Output { bytes, .. } = &record.what {
            self.bytes = self.bytes.saturating_sub(bytes.0.len());
        }
    }
}
