//! Bounds of contexts that only the agent needs to know.

use std::time::Duration;

/// A packet of the control channel: well below the default limit of a Unix socket.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;
/// The part of a message in one packet.
pub const PART_BYTES_MAX: usize = 65_000;
/// A message of a driver: the largest event, and the words around it.
pub const MESSAGE_BYTES_MAX: usize = 17 * 1024 * 1024;
/// Packets that may wait for a driver that does not read, besides the code of its run.
pub const PACKETS_WAITING_MAX: usize = 1024;
/// Messages and garbage that are read from a channel in one turn of the event loop.
pub const PACKETS_PER_TURN: usize = 64;

/// How long an interpreter may take from its start to its first message.
pub const STARTUP_MAX: Duration = Duration::from_secs(60);
/// How long an interpreter may take for its language's exit handlers.
pub const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// How long an interpreter whose control channel is closed may take to end.
pub const SILENT_GRACE: Duration = Duration::from_millis(250);
/// How long a completion or a check may take before its client gets none.
pub const ASK_MAX: Duration = Duration::from_secs(3);
/// Completions and checks of one context that may be under way.
pub const ASKS_MAX: usize = 64;

/// No deadline and no grace is longer; a clock that is asked for more cannot count so far.
pub const WAIT_MS_MAX: u64 = 30 * 24 * 3600 * 1000;

/// How long a run may take before anything of it is sent. Most have ended by then, and are sent in one
/// piece. Also the pause between two short pieces of output.
pub const QUIET: Duration = Duration::from_micros(500);
/// How long the agent busy-waits for a run that begins, if the previous one was as short.
pub const POLL_BRIEFLY: Duration = Duration::from_micros(100);
/// How long the pipes of an ended run rest before they are awaited. Most are closed by then.
pub const LATE_SETTLE: Duration = Duration::from_millis(2);

/// How much is read from one output at once.
pub const READ_BYTES: usize = 64 * 1024;
/// A run that says less than this at once is not read again for [`QUIET`]. One that says more is a flood,
/// and would wait for room in its pipe.
pub const SHORT_READ_BYTES: usize = 4096;
/// How much memory of the event encoder is kept.
pub const RECORD_KEPT_BYTES: usize = 2 * READ_BYTES;
/// How much an interrupted run may still write while its reader reads nothing.
pub const INTERRUPTED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Ended runs of one context whose readers have not taken all; of more, the oldest are given up, with
/// a fault on their streams.
pub const TAILS_MAX: usize = 32;
/// A run's spool.
pub const RUN_SPOOL_BYTES: usize = 1024 * 1024;

/// Late output that waits for a run that reports it, and the share of one run.
pub const LATE_BYTES_MAX: usize = 64 * 1024;
/// Pieces of late output: who speaks in turns with another makes a piece each time.
pub const LATE_PIECES_MAX: usize = 512;
/// The overhead of a reported piece besides its bytes.
pub const LATE_PIECE_BYTES: usize = 64;
/// The pause after a full read of late output, so that a thread that prints forever cannot keep the
/// agent busy.
pub const LATE_PAUSE: Duration = Duration::from_millis(2);
/// Pipes of earlier runs that are still open; beyond that, the oldest are closed.
pub const SOURCES_MAX: usize = 128;

/// Watches of one context.
pub const WATCHES_MAX: usize = 32;
/// Events that wait for a slow watch; more become a gap.
pub const WATCH_BYTES_MAX: usize = 1024 * 1024;

/// How much is reported of the output of an interpreter that never became ready: its end.
pub const STARTUP_WORDS_BYTES: usize = 2048;
/// The traceback and the message of an error; longer ones are cut.
pub const ERROR_BYTES_MAX: usize = 256 * 1024;
/// Frames of a traceback.
pub const FRAMES_MAX: usize = 128;
/// Forms of one display.
pub const FORMS_MAX: usize = 32;
/// Short texts of a driver: names, kinds, versions, MIME types.
pub const WORD_BYTES_MAX: usize = 256;
