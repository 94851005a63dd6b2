//! The sandbox that a call is for.

use super::create::EPHEMERAL;
use crate::call::Call;
use sandbox::refusal::Refusal;
use sandbox::{Record, State};

/// The sandbox that the path names, if it is there to the clients.
pub fn find(call: &Call) -> Result<Record, Refusal> {
    call.found("sandbox", is_there)
}

/// Whether it is there to the clients. One that has ended is not: it cannot be started again. An ephemeral one
/// is there for a moment, because its client looks whether it has stopped.
pub fn is_there(record: &Record) -> bool {
    !matches!(record.state, State::Stopped { .. }) || is_ephemeral(record)
}

/// Whether it is removed when it stops.
pub fn is_ephemeral(record: &Record) -> bool {
    record.labels.contains_key(EPHEMERAL)
}
