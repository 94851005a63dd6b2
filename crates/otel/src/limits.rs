//! The limits of what is kept for a collector and of what it is sent, each with its reason.

use std::time::Duration;

/// Spans, or records of the log, that wait.
pub const WAITING_MAX: usize = 16_384;
/// The bytes of either that wait: what a collector that is away costs at most.
pub const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Spans or records in one request.
pub const BATCH_MAX: usize = 512;
/// Their bytes: collectors refuse bodies beyond some megabytes.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Points of figures in one request: about a megabyte of JSON.
pub const POINTS_MAX: usize = 4096;
/// How long spans and records are gathered before they are sent.
pub const GATHER_MAX: Duration = Duration::from_secs(1);

/// A text in an attribute. Longer ones are cut.
pub const TEXT_CHARS_MAX: usize = 1024;
/// Attributes of a span or a record. More are left out.
pub const ATTRIBUTES_MAX: usize = 64;
/// Values in a list of an attribute.
pub const LIST_MAX: usize = 64;
/// Lists within lists of an attribute.
pub const DEPTH_MAX: usize = 4;

/// Entries of a caller's `tracestate`: more make it invalid.
pub const STATE_ENTRIES_MAX: usize = 32;
/// The characters of it that are passed on: as many as everybody must pass on.
pub const STATE_CHARS_MAX: usize = 512;
/// A longer entry is the first to be left out.
pub const STATE_ENTRY_CHARS_MAX: usize = 128;

/// From the name of the collector's host to the end of its answer.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// How long connecting may take of that.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The pause after the first failure; each later one is twice as long.
pub const RETRY_PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause that is not the collector's own wish.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long one batch is tried. What is newer says more to those who look when the collector is back.
pub const BATCH_TIME_MAX: Duration = Duration::from_secs(300);
/// How long the end of the bridge waits for what was not sent yet.
pub const FLUSH_MAX: Duration = Duration::from_secs(5);
/// The least time between two lines in the log about the same signal.
pub const COMPLAINT_PAUSE: Duration = Duration::from_secs(60);
/// Of the words of a collector in our log.
pub const EXCERPT_CHARS_MAX: usize = 200;
