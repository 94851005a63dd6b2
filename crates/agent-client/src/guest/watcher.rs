//! Changes under a path of the guest, as they are reported.

use protocol::message::WatchEvent;
use protocol::watch::parse_record;

use super::records::{Faults, RecordStream};
use super::{GuestError, Output};

/// A stream of changes. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher(RecordStream);

impl Watcher {
    pub(super) fn new(output: Output) -> Self {
        let torn = "a watch stream that ends within a record";
        Self(RecordStream::new(output, Faults { torn, gap: "a watch stream with a gap" }))
    }

    /// The next change; `None` when the watched path is gone. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>, GuestError> {
        self.0.next(parse_record).await
    }
}
