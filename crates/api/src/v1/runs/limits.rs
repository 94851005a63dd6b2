//! Limits of runs over HTTP, each with its reason.

use std::time::Duration;

use protocol::limits::EVENT_BYTES_MAX;

use crate::v1::exec::limits::OUTPUT_BYTES_MAX;

/// Displays, artifacts and pieces of late output that a buffered run keeps, of each kind; each costs
/// memory beside its bytes.
pub const THINGS_MAX: usize = 4096;
/// The longest deadline of a run: a day is surely a mistake of units.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// The longest grace of a rung.
pub const GRACE_MAX: Duration = Duration::from_secs(3600);
/// How long the client of a WebSocket may take to send what to run.
pub const FIRST_WORD_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(OUTPUT_BYTES_MAX >= EVENT_BYTES_MAX as u64, "any one event can be kept");
