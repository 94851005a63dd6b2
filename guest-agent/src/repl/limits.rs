//! Bounds of contexts that only the agent needs to know.

use std::time::Duration;

/// A packet of the control channel: well below what a Unix socket takes at once by default.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;
/// The part of a message in one packet.
pub const PART_BYTES_MAX: usize = 65_000;
/// A message of a driver: the largest event, and the words around it.
pub const MESSAGE_BYTES_MAX: usize = 17 * 1024 * 1024;
/// Packets that may wait for a driver that does not listen, besides the code of its run.
pub const PACKETS_WAITING_MAX: usize = 1024;
/// Messages and garbage that are read from a channel in one turn of the event loop.
pub const PACKETS_PER_TURN: usize = 64;

/// How long an interpreter may take from its start to its first word.
pub const STARTUP_MAX: Duration = Duration::from_secs(60);
/// How long an interpreter may take to run what its language runs at its exit.
pub const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// How long an interpreter whose control channel is gone may take to be gone itself.
pub const SILENT_GRACE: Duration = Duration::from_millis(250);
/// How long a completion or a check may take before its asker is told that there is none.
pub const ASK_MAX: Duration = Duration::from_secs(3);
/// Completions and checks of one context that may be under way.
pub const ASKS_MAX: usize = 64;

/// No deadline and no grace is longer; a clock that is asked for more cannot count so far.
pub const WAIT_MS_MAX: u64 = 30 * 24 * 3600 * 1000;

/// How long a run may be on before anybody is told of it. Most are over by then, and are told in one
/// piece.
pub const QUIET: Duration = Duration::from_micros(500);
/// How long the agent stays with a run that begins, if the one before it was as short.
pub const POLL_BRIEFLY: Duration = Duration::from_micros(100);
/// How long the pipes of an ended run rest before they are waited for. Most are closed by then.
pub const LATE_SETTLE: Duration = Duration::from_millis(2);

/// What is read from one output at once.
pub const READ_BYTES: usize = 64 * 1024;
/// What is kept of the memory in which events are written.
pub const RECORD_KEPT_BYTES: usize = 2 * READ_BYTES;
/// How much an interrupted run may still write while its reader reads nothing.
pub const INTERRUPTED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Ended runs of one context whose readers have not taken all; of more, the oldest are given up, with
/// a fault on their streams.
pub const TAILS_MAX: usize = 32;
/// A run's spool.
pub const RUN_SPOOL_BYTES: usize = 1024 * 1024;

/// Late output that waits for a run to be told in, and that one run is told.
pub const LATE_BYTES_MAX: usize = 64 * 1024;
/// Pieces of late output: who speaks in turns with another makes a piece each time.
pub const LATE_PIECES_MAX: usize = 512;
/// What a piece counts for besides its bytes when it is told.
pub const LATE_PIECE_BYTES: usize = 64;
/// The pause after a full read of late output, so that a thread that prints for ever cannot keep
/// the agent busy.
pub const LATE_PAUSE: Duration = Duration::from_millis(2);
/// Pipes of earlier runs that somebody still holds; of more, the oldest are closed.
pub const SOURCES_MAX: usize = 128;

/// Watches of one context.
pub const WATCHES_MAX: usize = 32;
/// What waits for a watch that reads slowly; more becomes a gap.
pub const WATCH_BYTES_MAX: usize = 1024 * 1024;

/// What is told of an interpreter that never got ready: the end of what it said.
pub const STARTUP_WORDS_BYTES: usize = 2048;
/// The traceback and the message of an error; longer ones are cut.
pub const ERROR_BYTES_MAX: usize = 256 * 1024;
/// Frames of a traceback.
pub const FRAMES_MAX: usize = 128;
/// Forms of one display.
pub const FORMS_MAX: usize = 32;
/// Short texts of a driver: names, kinds, versions, MIME types.
pub const WORD_BYTES_MAX: usize = 256;
