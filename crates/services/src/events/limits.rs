//! The limits of the stream of events, each with its reason.

use std::time::Duration;

/// Events that wait to be written, of all namespaces: some megabytes, since a disk may block for seconds.
pub const QUEUE_MAX: usize = 8192;
/// Events that are written in one turn.
pub const BATCH_MAX: usize = 1024;
/// How long events are gathered before they are written.
pub const GATHER_PAUSE: Duration = Duration::from_millis(10);
/// How long what is written may be in the kernel alone: a power cut takes no more than this with it.
pub const SYNC_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a write that has failed is tried again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The pause of the idle writer thread.
pub const IDLE_PAUSE: Duration = Duration::from_secs(3600);
/// The size at which a new segment begins: small, so that the oldest goes in small steps.
pub const SEGMENT_BYTES: u64 = 256 * 1024;
/// Segments of one namespace: 8 MiB, some 40,000 events.
pub const SEGMENTS_MAX: usize = 32;
/// The size of all logs together. Beyond it the oldest segment of the namespace that has the most goes.
pub const BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Namespaces with a log: as many as there are sandboxes at most, so that there is always one without
/// any, whose log goes when another namespace begins.
pub const NAMESPACES_MAX: usize = sandbox::limits::SANDBOXES_MAX + 1;
/// Lines of a namespace that wait for a disk that is full; what finds no room is counted.
pub const PENDING_BYTES_MAX: usize = 64 * 1024;
/// A text of an event, such as a cause.
pub const TEXT_CHARS_MAX: usize = 512;
/// Events on one page.
pub const PAGE_MAX: usize = 1000;
/// Events that are read in one turn for somebody who follows.
pub const TURN_MAX: usize = 256;
