//! Every bound of the protocol, each with its reason. The relations that must hold between them
//! are asserted when the crate is compiled.

use std::time::Duration;

/// The largest frame, header included. Checked against the length field before anything is
/// allocated: large enough for a directory listing page, small enough that a hostile peer's one
/// frame costs nothing.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// The largest payload of one data frame. One pipe buffer of Linux; large enough that the header
/// does not matter, small enough that a control frame never waits long behind it.
pub const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// How much a sender may send on a new stream before the first acknowledgement: four chunks keep a
/// link of 1 ms round trip at 250 MB/s.
pub const CREDIT_BYTES_INITIAL: u64 = 256 * 1024;

/// A spool's capacity unless the request names another.
pub const SPOOL_BYTES_DEFAULT: usize = 1024 * 1024;
/// The smallest spool that can be requested, and what every spool has even when the memory for all
/// spools is used up: one chunk must fit.
pub const SPOOL_BYTES_MIN: usize = 64 * 1024;
/// The largest spool that can be asked for.
pub const SPOOL_BYTES_MAX: usize = 16 * 1024 * 1024;
/// All spools of an agent together, unless a sixteenth of the guest's memory is less.
pub const SPOOLS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The share of the guest's memory that all spools together may take: 1/16.
pub const SPOOLS_MEMORY_SHARE: u64 = 16;

/// Requests of one client that may await their answers at once; one more costs it its link,
/// because a client that does not read must not grow the agent.
pub const REQUESTS_PENDING_MAX: usize = 1024;
/// Streams of one client that may be open at once.
pub const STREAMS_MAX: usize = 2048;
/// Control frames that may wait for the link before the peer counts as not reading.
pub const CONTROL_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Nesting of a MessagePack body. The deepest message has 9 levels.
pub const BODY_DEPTH_MAX: usize = 16;

/// Sessions that an agent keeps, living and ended together.
pub const SESSIONS_MAX: usize = 512;
/// How long the record of an ended session waits to be released.
pub const EXIT_RECORD_KEPT: Duration = Duration::from_secs(6 * 3600);
/// Ended sessions without a holder that are kept; the oldest are dropped first. Held ones are never
/// dropped for their number.
pub const EXIT_RECORDS_MAX: usize = 256;
/// Processes named in an exit record as left behind; more are only counted.
pub const SURVIVORS_LISTED_MAX: usize = 16;
/// A command line in a record or a list: the beginning identifies it.
pub const COMMAND_BYTES_MAX: usize = 256;

/// Holders that one start may name: a reader, a recorder, and some more.
pub const HOLDERS_MAX: usize = 8;

/// Arguments and environment of one start together: the kernel's own limit is 2 MiB by default.
pub const ARGUMENTS_BYTES_MAX: usize = 768 * 1024;
/// Arguments of one start.
pub const ARGUMENTS_MAX: usize = 16 * 1024;
/// A path on the wire: Linux's `PATH_MAX`.
pub const PATH_BYTES_MAX: usize = 4096;
/// Names that people or programs choose: sandboxes, sessions, namespaces, holders.
pub const NAME_BYTES_MAX: usize = 63;
/// Text of a fault, a goodbye, a survivor's command line; longer is cut.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Entries of one page of a directory listing; with names of 255 bytes a page stays well below
/// [`FRAME_BYTES_MAX`].
pub const ENTRIES_PAGE_MAX: usize = 1024;

/// Contexts of one agent: each may be an interpreter of some tens of megabytes.
pub const CONTEXTS_MAX: usize = 64;
/// Runs of one context that may wait for their turn.
pub const RUNS_QUEUED_MAX: usize = 512;
/// The code of one run.
pub const CODE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The code of all runs of a context that wait for their turn.
pub const CODE_QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Code that travels in its request; longer code takes the run's stream.
pub const CODE_INLINE_BYTES_MAX: usize = 256 * 1024;
/// One event of a run: an image or a table in all its forms. What is larger is left out with a
/// word; code that has more to give writes a file.
pub const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The time for each rung of the ladder that ends a run before the next one is tried.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(2);

/// Samples in one answer: some four minutes, and with every field at its longest a quarter of
/// [`FRAME_BYTES_MAX`].
pub const METRICS_PAGE_MAX: usize = 256;
/// Samples that an agent keeps: a quarter of an hour, so that a host that was away for ten minutes
/// misses none.
pub const METRICS_KEPT: usize = 900;

/// The shortest time after which the watchdog may thaw a frozen workload: a host that reads `frozen` must
/// be able to act on it.
pub const FREEZE_WATCHDOG_MIN: Duration = Duration::from_secs(1);
/// The longest such time. Only time in which the machine runs counts, so that the snapshot of a paused
/// machine takes none of it.
pub const FREEZE_WATCHDOG_MAX: Duration = Duration::from_secs(300);
/// Random bytes of an adoption: the seed of a 256 bit generator.
pub const ENTROPY_BYTES_MIN: usize = 32;
/// More would be hashed down to the same 256 bits.
pub const ENTROPY_BYTES_MAX: usize = 512;

/// A host sends a ping when it has sent nothing for so long.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// A link on which nothing arrived for so long is dead.
pub const LINK_SILENCE_MAX: Duration = Duration::from_secs(20);
/// The same of a host for an agent on its own kernel, where the death of either ends the socket at once:
/// only an agent that hangs is found by its silence, and hundreds of idle ones are not woken for it. Every
/// agent goes by these, since the pings of its host have its answers.
pub const HEARTBEAT_LOCAL: Duration = Duration::from_secs(15);
pub const LINK_SILENCE_LOCAL_MAX: Duration = Duration::from_secs(45);
/// A peer that has connected must have sent its hello by then.
pub const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// How long an agent keeps a client's streams after a cut, unless the client requests less.
pub const RESUME_WINDOW: Duration = Duration::from_secs(60);

/// How long the agent lets processes end after TERM before it kills them, when a stop names no
/// grace.
pub const STOP_GRACE_GUEST: Duration = Duration::from_secs(3);
/// How long the host waits for an agent to stop before it kills the machine, beyond the grace it
/// has granted.
pub const STOP_MARGIN_HOST: Duration = Duration::from_secs(5);

const _: () =
    assert!(CHUNK_BYTES_MAX + 64 <= FRAME_BYTES_MAX, "a chunk and its header fit a frame");
const _: () =
    assert!(CREDIT_BYTES_INITIAL >= 2 * CHUNK_BYTES_MAX as u64, "credit pipelines chunks");
const _: () = assert!(SPOOL_BYTES_MIN >= CHUNK_BYTES_MAX, "every spool holds a chunk");
const _: () = assert!(SPOOL_BYTES_MIN <= SPOOL_BYTES_DEFAULT);
const _: () = assert!(SPOOL_BYTES_DEFAULT <= SPOOL_BYTES_MAX);
const _: () = assert!(SPOOL_BYTES_MAX <= SPOOLS_BYTES_MAX);
const _: () =
    assert!(SPOOL_BYTES_DEFAULT as u64 >= 2 * CREDIT_BYTES_INITIAL, "credit never waits for spool");
const _: () =
    assert!(LINK_SILENCE_MAX.as_secs() > 2 * HEARTBEAT.as_secs(), "one lost ping is no cut");
const _: () = assert!(
    LINK_SILENCE_MAX.as_secs() > HEARTBEAT_LOCAL.as_secs(),
    "an end that knows no local links does not cut one"
);
const _: () = assert!(LINK_SILENCE_LOCAL_MAX.as_secs() > 2 * HEARTBEAT_LOCAL.as_secs());
const _: () =
    assert!(STOP_MARGIN_HOST.as_secs() > STOP_GRACE_GUEST.as_secs(), "the host outwaits the guest");
const _: () = assert!(ARGUMENTS_BYTES_MAX < FRAME_BYTES_MAX, "a start fits a frame");
const _: () = assert!(EXIT_RECORDS_MAX < SESSIONS_MAX, "ended sessions leave room for living ones");
const _: () =
    assert!(CODE_INLINE_BYTES_MAX + ARGUMENTS_BYTES_MAX <= FRAME_BYTES_MAX, "a run fits a frame");
const _: () = assert!(FREEZE_WATCHDOG_MIN.as_secs() < FREEZE_WATCHDOG_MAX.as_secs());
const _: () = assert!(ENTROPY_BYTES_MIN < ENTROPY_BYTES_MAX);
const _: () = assert!(CODE_BYTES_MAX <= CODE_QUEUED_BYTES_MAX, "the longest code can wait");
