//! Bounds of the link that are not the protocol's, each with its reason.

use std::time::Duration;

use protocol::limits::{CHUNK_BYTES_MAX, CREDIT_BYTES_INITIAL, SPOOL_BYTES_MIN};

/// What one writer may have buffered: a full credit, so that a writer that is refilled when the
/// acknowledgement arrives never lets the link run dry.
pub const WRITER_BYTES: usize = CREDIT_BYTES_INITIAL as usize;
/// The buffers of all writers of one guest together. Each has [`SPOOL_BYTES_MIN`] in any case.
pub const WRITERS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Pieces that wait in one inbox. Neighbouring pieces are joined, so that only a guest that mixes
/// gaps and tiny pieces of data reaches it; its credit bounds bytes, this bounds their overhead.
pub const PIECES_MAX: usize = 1024;
/// Up to here arrived bytes are joined to the piece before.
pub const PIECE_BYTES_MAX: usize = CHUNK_BYTES_MAX;

/// How much is prepared for the socket at once. Control frames wait behind it, so it is no more
/// than two chunks.
pub const TRANSMIT_BYTES: usize = 2 * CHUNK_BYTES_MAX;
/// More is made ready when less than this is left, so that a write seldom leaves with little.
pub const TRANSMIT_BELOW_BYTES: usize = 16 * 1024;

/// How long the end of a stream and the release of a session wait for something to go out with: the next
/// command is seldom further away, and all that the agent keeps for them is their names.
pub const END_PAUSE: Duration = Duration::from_millis(5);
/// The same for an acknowledgement that only a sender with the smallest spool could wait for: such a
/// stream still carries tens of megabytes a second.
pub const ROOM_PAUSE: Duration = Duration::from_millis(1);

/// The first line of a hybrid socket's answer. Firecracker and Cloud Hypervisor send a number of
/// at most ten digits; some relays add a word.
pub const HANDSHAKE_LINE_BYTES_MAX: usize = 128;

/// The pause before the second try of a dial, doubled from try to try.
pub const BACK_OFF_MIN: Duration = Duration::from_millis(10);
/// The longest pause between two tries.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// How long the first try waits for an agent that is known to be up; each further one waits twice as long.
/// QEMU's monitor may hold back the agent's data on a serial port forever if the previous connection was cut
/// during a flood: only another connection releases it.
pub const WELCOME_FIRST: Duration = Duration::from_secs(3);

/// A socket that existed and has had no listener for this long is gone for good, and with it the
/// machine: monitors and agents keep theirs for as long as they live. Long enough for a relay to be
/// restarted.
pub const GONE_AFTER: Duration = Duration::from_millis(400);

/// A link that lasted this long was a good one: after its cut the pauses begin small again. A guest
/// that hangs up right after each welcome thereby costs one dial per second and no more.
pub const STEADY_AFTER: Duration = Duration::from_secs(1);

/// Heartbeats of different links are this part of a heartbeat apart, or at the same time: hundreds of idle links
/// wake their thread about once a second, and one that is about to be used waits for some twenty pings of others.
pub const BEATS_APART: u32 = 16;

/// A link moves to another thread that is ahead by this many requests: moving costs some system calls, and a
/// link that several threads use stays where it is.
pub const MOVE_AFTER_REQUESTS: u32 = 16;

/// Reads after a write failed, to find the goodbye that explains it.
pub const LAST_READS_MAX: usize = 64;

/// How long a closing link tries to send its last frames.
pub const GOODBYE_FLUSH_MAX: Duration = Duration::from_secs(1);

/// How long it then waits for the agent to hang up, which shows that it has read them.
pub const GOODBYE_HEARD_MAX: Duration = Duration::from_millis(500);

/// How much of an agent's data that is discarded is read at once.
pub const HUNG_UP_READ_BYTES: usize = 4096;

const _: () = assert!(WRITER_BYTES >= SPOOL_BYTES_MIN, "a writer holds what every spool may have");
const _: () = assert!(BACK_OFF_MAX.as_millis() <= STEADY_AFTER.as_millis(), "flapping is slow");
const _: () = assert!(TRANSMIT_BELOW_BYTES < TRANSMIT_BYTES);
const _: () = assert!(
    PIECES_MAX * PIECE_BYTES_MAX > CREDIT_BYTES_INITIAL as usize,
    "an honest guest's credit ends before its pieces do"
);
