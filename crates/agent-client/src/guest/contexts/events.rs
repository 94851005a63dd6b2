//! A watch of a context: everything that happens in it, for any caller.

use protocol::repl::{Event, parse_record};

use super::clip;
use crate::guest::records::{Faults, RecordStream};
use crate::guest::{GuestError, Output};

/// A stream of a context's events. Dropping it ends the watch. It never delays anybody, so what it is too
/// slow for becomes a gap.
#[derive(Debug)]
pub struct Events(RecordStream);

impl Events {
    pub(super) fn new(output: Output) -> Self {
        let torn = "a stream of events that ends within one";
        Self(RecordStream::new(output, Faults { torn, gap: "a stream of events with a gap" }))
    }

    /// The next event; `None` when the context is closed. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Result<Option<Event>, GuestError> {
        Ok(self.0.next(parse_record).await?.map(clip::event))
    }
}
