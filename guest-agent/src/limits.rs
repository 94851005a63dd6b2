//! Bounds of the agent. Those that both ends must know are in `protocol::limits`.

use std::time::Duration;

/// The most bytes that are read from one output in one turn of the event loop, so that a flood leaves
/// time for everything else.
pub const PUMP_BYTES_PER_TURN: usize = 256 * 1024;

/// The default size of a pipe. One that is this full in one turn belongs to a program that waits.
pub const PIPE_BYTES: usize = 64 * 1024;

/// The size for such a program's pipe: the limit of a user without privileges.
pub const PIPE_BYTES_WIDE: i32 = 1024 * 1024;

/// The most bytes that are prepared for a link at once. More would only wait in memory.
pub const TRANSMIT_BYTES: usize = 256 * 1024;

/// Writes to a link in one turn of the event loop, so that a fast reader leaves time for everything
/// else.
pub const WRITES_PER_TURN: usize = 4;

/// The agent's heartbeat. The host's comes first, and the answer to it is word enough.
pub const HEARTBEAT_AGENT: Duration =
    protocol::limits::HEARTBEAT_LOCAL.saturating_add(HEARTBEAT_LAG);
/// More than the runtime is early with a timer of seconds, which it hands down when up to 4.1 of them are left: so
/// the host's heartbeat comes before that, too.
const HEARTBEAT_LAG: Duration = Duration::from_secs(6);
/// A timer that fires this much too late says that the agent was paused; a busy host delays it by less.
pub const AWAY_MIN: Duration = Duration::from_secs(1);

/// Links that may be open at once, handshakes included.
pub const LINKS_MAX: usize = 128;

/// Clients that are known at once, with or without a link.
pub const PEERS_MAX: usize = 128;

/// A terminal's output reaches its controller through a kernel work queue. When the leader has ended and
/// the terminal was silent for this long, the kernel is asked whether everything has arrived.
pub const TERMINAL_QUIET: Duration = Duration::from_millis(30);

/// How long the end of a session waits for a terminal whose output nobody reads. Bytes that are then still in
/// the kernel are not counted in the record, but they precede the stream's end.
pub const TERMINAL_DRAIN_MAX: Duration = Duration::from_secs(1);

/// How long a stopping agent waits until its links have sent the last frames.
pub const GOODBYE_FLUSH_MAX: Duration = Duration::from_secs(1);

/// How long the kernel may take to freeze every process. One that waits for a disk freezes when the disk has
/// answered.
pub const FREEZE_MAX: Duration = Duration::from_secs(5);

/// How often to check whether every process is frozen. Most are at the first check.
pub const FREEZE_POLL: Duration = Duration::from_millis(1);

/// The pause after a failed thaw, which is tried until it succeeds.
pub const THAW_PAUSE: Duration = Duration::from_millis(100);

/// Threads for work on files, which the kernel offers only as blocking calls.
pub const FILE_THREADS_MAX: usize = 4;

/// How long such a thread outlives its last work.
pub const FILE_THREAD_KEPT: Duration = Duration::from_secs(2);

/// Threads that start programs: one works in the kernel while the other is woken.
pub const SPAWNERS: usize = 2;

/// The most of them, while starts hang in a file system that does not answer.
pub const SPAWNERS_MAX: usize = 32;

/// Room for the child's stack, and for what prepares it.
pub const SPAWNER_STACK_BYTES: usize = 128 * 1024;

/// How long a start may take before another thread does the ones that wait behind it.
pub const START_STUCK: Duration = Duration::from_millis(200);

/// How long a start waits for a thread, when all of them hang.
pub const START_WAIT_MAX: Duration = Duration::from_secs(10);
