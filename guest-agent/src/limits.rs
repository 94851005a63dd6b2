//! Bounds of the agent alone; those that both ends must know are in `protocol::limits`.

use std::time::Duration;

/// What one output is read for in one turn of the event loop, so that a flood leaves room for
/// everybody else's turn.
pub const PUMP_BYTES_PER_TURN: usize = 256 * 1024;

/// What is made ready for a link at once. More would only wait in memory.
pub const TRANSMIT_BYTES: usize = 256 * 1024;

/// Writes to a link in one turn of the event loop, so that a fast reader leaves room for everybody
/// else's turn.
pub const WRITES_PER_TURN: usize = 4;

/// Links that may be open at once, handshakes included.
pub const LINKS_MAX: usize = 128;

/// Clients whose streams are kept over a cut.
pub const PEERS_MAX: usize = 128;

/// A terminal's output reaches its controller by way of a kernel work queue; when the leader has
/// ended and the terminal has been silent for so long, the kernel is asked whether all has arrived.
pub const TERMINAL_QUIET: Duration = Duration::from_millis(30);

/// How long the end of a session waits for a terminal whose output nobody takes. What is left in
/// the kernel then is not counted in the record, but still comes before the stream's end.
pub const TERMINAL_DRAIN_MAX: Duration = Duration::from_secs(1);

/// How long a stopping agent waits for its links to take the last frames.
pub const GOODBYE_FLUSH_MAX: Duration = Duration::from_secs(1);

/// How long the kernel may take to stop every process: one that waits for a disk stops when that
/// has answered.
pub const FREEZE_MAX: Duration = Duration::from_secs(5);

/// How often it is looked whether all stand still. Most do at the first look.
pub const FREEZE_POLL: Duration = Duration::from_millis(1);

/// The pause after a thaw that failed, which is tried until it succeeds.
pub const THAW_PAUSE: Duration = Duration::from_millis(100);

/// Threads for work on files, which the kernel does not offer without blocking.
pub const FILE_THREADS_MAX: usize = 4;

/// How long such a thread outlives its last work.
pub const FILE_THREAD_KEPT: Duration = Duration::from_secs(2);
