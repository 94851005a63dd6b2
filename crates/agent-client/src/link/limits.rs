//! Bounds of the link that are not the protocol's, each with its reason.

use std::time::Duration;

use protocol::limits::{CHUNK_BYTES_MAX, CREDIT_BYTES_INITIAL, SPOOL_BYTES_MIN};

/// What one writer may have buffered: a full credit, so that a writer that is refilled when the
/// acknowledgement comes never lets the link run dry.
pub const WRITER_BYTES: usize = CREDIT_BYTES_INITIAL as usize;
/// The buffers of all writers of one guest together. Each has [`SPOOL_BYTES_MIN`] in any case.
pub const WRITERS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Pieces that wait in one inbox. Neighbouring pieces are joined, so that only a guest that mixes
/// gaps and crumbs of data gets here; its credit bounds bytes, this bounds what they cost.
pub const PIECES_MAX: usize = 1024;
/// Up to here arrived bytes are joined to the piece before.
pub const PIECE_BYTES_MAX: usize = CHUNK_BYTES_MAX;

/// What is made ready for the socket at once. Control frames wait behind it, so it is no more than
/// two chunks.
pub const TRANSMIT_BYTES: usize = 2 * CHUNK_BYTES_MAX;
/// More is made ready when less than this is left, so that a write seldom leaves with little.
pub const TRANSMIT_BELOW_BYTES: usize = 16 * 1024;

/// The first line of a hybrid socket's answer. Firecracker and Cloud Hypervisor send a number of
/// at most ten digits; some relays add a word.
pub const HANDSHAKE_LINE_BYTES_MAX: usize = 128;

/// The pause before the second try of a dial, doubled from try to try.
pub const BACK_OFF_MIN: Duration = Duration::from_millis(10);
/// The longest pause between two tries.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// How long the first try waits for an agent that is known to be up; each further one waits twice as
/// long. QEMU's monitor may keep back for good what the agent says over a serial port, when the
/// connection before was cut in the midst of a flood: only another connection frees it.
pub const WELCOME_FIRST: Duration = Duration::from_secs(3);

/// A socket that was there and that nobody holds for so long is gone for good, and with it the
/// machine: monitors and agents hold theirs for as long as they live. Long enough for a relay to
/// come back to its place.
pub const GONE_AFTER: Duration = Duration::from_millis(400);

/// A link that lasted so long was a good one: after its cut the pauses begin small again. A guest
/// that hangs up right after each welcome thereby costs a dial a second and no more.
pub const STEADY_AFTER: Duration = Duration::from_secs(1);

/// Reads after a write failed, to find the goodbye that explains it.
pub const LAST_READS_MAX: usize = 64;

/// How long a closing link tries to get its last frames out.
pub const GOODBYE_FLUSH_MAX: Duration = Duration::from_secs(1);

/// How long it then waits for the agent to hang up, which says that it has heard them.
pub const GOODBYE_HEARD_MAX: Duration = Duration::from_millis(500);

/// How much of what an agent says that is no longer heard is read at once.
pub const HUNG_UP_READ_BYTES: usize = 4096;

const _: () = assert!(WRITER_BYTES >= SPOOL_BYTES_MIN, "a writer holds what every spool may have");
const _: () = assert!(BACK_OFF_MAX.as_millis() <= STEADY_AFTER.as_millis(), "flapping is slow");
const _: () = assert!(TRANSMIT_BELOW_BYTES < TRANSMIT_BYTES);
const _: () = assert!(
    PIECES_MAX * PIECE_BYTES_MAX > CREDIT_BYTES_INITIAL as usize,
    "an honest guest's credit ends before its pieces do"
);
