//! The limits of the control socket, each with its reason.

use std::time::Duration;

/// How long a reader of a log waits for its next entry before it asks again.
pub const LOG_WAIT_MAX: Duration = Duration::from_secs(10);
/// One line of the control protocol: a start with a large environment fits.
pub const CONTROL_LINE_BYTES_MAX: usize = 1024 * 1024;
/// One line of an answer: the records of all sandboxes together, with long environments.
pub const CONTROL_REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Concurrent connections to the control socket; further ones are refused and closed.
pub const CONTROL_CONNECTIONS_MAX: usize = 512;
/// A connection on which nothing was asked for so long is closed.
pub const CONTROL_IDLE_MAX: Duration = Duration::from_secs(60);
/// How long a reply may take to be written to a client that does not read.
pub const CONTROL_WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a client waits for an answer, beyond the grace of a stop.
pub const CONTROL_REPLY_DEADLINE: Duration = Duration::from_secs(60);

/// How long a client waits for a snapshot on its way to or from a bucket: the largest one, at some MB a second.
pub const SNAPSHOT_TRAVEL_MAX: Duration = Duration::from_secs(6 * 3600);

/// How long one request may wait for the end of a sandbox; a client that waits longer asks again.
pub const CONTROL_WAIT_MAX: Duration = Duration::from_secs(20);

const _: () = assert!(CONTROL_WAIT_MAX.as_secs() < CONTROL_REPLY_DEADLINE.as_secs());
const _: () =
    assert!(CONTROL_LINE_BYTES_MAX >= protocol::limits::ARGUMENTS_BYTES_MAX, "an environment fits");
const _: () = assert!(
    protocol::limits::FRAME_BYTES_MAX >= CONTROL_LINE_BYTES_MAX,
    "what a start asks for fits the boot frame"
);
