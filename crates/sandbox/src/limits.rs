//! Every bound of sandboxes, their pool and their logs, each with its reason. The relations that must
//! hold between them are asserted when the crate is compiled.

use std::time::Duration;

use protocol::limits::{CHUNK_BYTES_MAX, SESSIONS_MAX};

/// The private writable layer of a sandbox that names no size: enough for packages and a checkout,
/// and small enough that a dozen sandboxes that fill theirs do not fill a laptop's memory.
pub const SCRATCH_BYTES_DEFAULT: u64 = 1024 * 1024 * 1024;
/// The largest writable layer that a virtual machine may ask for: a guest may fill all of it, and what
/// it fills is taken from the host's disk. As much as all snapshots together.
pub const VIRTUAL_SCRATCH_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// The memory that a sandbox may be granted, in MiB: below it no interpreter starts, above it the
/// number is surely in other units.
pub const MEMORY_MIB_MIN: u64 = 16;
pub const MEMORY_MIB_MAX: u64 = 16 * 1024 * 1024;
/// Quarters of its memory that a sandbox's writable layer may fill. The layer is memory too, and a
/// kernel that finds no program to kill for it kills the agent, and with it the sandbox.
pub const SCRATCH_QUARTERS_OF_MEMORY: u64 = 3;
/// The smallest share of processors, in thousandths of one. Who asks for none gets this, and the
/// agent still answers within its deadlines.
pub const CPU_MILLIS_MIN: u32 = 50;
/// The largest share: more than any host has.
pub const CPU_MILLIS_MAX: u32 = 1024 * 1000;
/// Sandboxes that a bridge keeps, running and stopped together.
pub const SANDBOXES_MAX: usize = 1024;
/// Orders that may wait for the task that owns a sandbox.
pub const ORDERS_WAITING_MAX: usize = 16;
/// The grace of a stop that names none: the agent's own default.
pub const STOP_GRACE_DEFAULT: Duration = protocol::limits::STOP_GRACE_GUEST;
/// Labels of a sandbox, and the bytes of a key and a value: as many as people sort by, and a record
/// stays small.
pub const LABELS_MAX: usize = 64;
/// Rules of egress that are told where a sandbox is accounted for: a line that people read.
pub const GRANTED_RULES_MAX: usize = 32;
pub const LABEL_KEY_BYTES_MAX: usize = 63;
pub const LABEL_VALUE_BYTES_MAX: usize = 255;
/// The longest path that the kernel takes.
pub const WORKDIR_BYTES_MAX: usize = 4096;
/// A user and a group, each as long as the usual tools let names be, and then some.
pub const USER_BYTES_MAX: usize = 255;
/// Sandboxes on one page of a list.
pub const PAGE_RECORDS_MAX: usize = 1000;
/// The longest time to live that may be asked for: ten years are surely a mistake of units, and no
/// clock overflows.
pub const LIFETIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// An agent is asked whether it is at work so often within an idle time to live: what nobody told
/// us of is then noticed, and the sandbox outlives its idle time by no more than such a part.
pub const IDLE_LOOKS: u32 = 8;
/// The pauses between those looks: a question costs the agent microseconds.
pub const IDLE_LOOK_PAUSE_MIN: Duration = Duration::from_millis(50);
pub const IDLE_LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long an agent may take to answer that; the next look asks again.
pub const IDLE_LOOK_DEADLINE: Duration = Duration::from_secs(5);
/// A time shown of an expiry is corrected when the clocks have come apart by more than this.
pub const EXPIRY_DRIFT_SHOWN: Duration = Duration::from_secs(1);
/// Snapshots that a bridge keeps: as many as people keep apart by name.
pub const SNAPSHOTS_MAX: usize = 64;
/// What they may take of the disk together, the one that is written now counted with all its memory
/// and what its disk holds.
pub const SNAPSHOTS_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// Machines that a pool keeps ready, of all entries together: each is a process tree, a socket and a
/// writable layer that nobody uses, and at some hundred the starts themselves are fast enough.
pub const POOL_MACHINES_MAX: usize = 256;
/// Interpreters started ahead in one pooled machine: one per language, and a few more.
pub const POOL_CONTEXTS_MAX: usize = 8;
/// Pooled machines that are started at the same time at most, whatever is set: more only take the
/// processors from those who work.
pub const POOL_STARTS_MAX: usize = 16;
/// How long a pooled machine may take to become somebody's. It needs a fraction of a millisecond; one
/// that takes longer is given up, and whoever waits gets another.
pub const POOL_CLAIM_DEADLINE: Duration = Duration::from_secs(1);
/// Pooled machines that one creation tries before it starts one: whatever has ended these has
/// probably ended the others too.
pub const POOL_CLAIM_TRIES_MAX: usize = 3;
/// How often a ready machine is asked whether it lives, unless set otherwise. Its death is noticed
/// anyway; this finds agents that hang.
pub const POOL_CHECK_EVERY: Duration = Duration::from_secs(10);
/// How long it may take to answer.
pub const POOL_CHECK_DEADLINE: Duration = Duration::from_secs(5);
/// The pause after a failed start, doubled with each failure up to the longest: what is broken is not
/// mended by haste, and what was mended is noticed within a minute.
pub const POOL_PAUSE_MIN: Duration = Duration::from_secs(1);
pub const POOL_PAUSE_MAX: Duration = Duration::from_secs(60);
/// A pooled machine that dies younger than this counts as one that did not start.
pub const POOL_LIFE_MIN: Duration = Duration::from_secs(10);
/// How long an interpreter may take to be ready on a machine without hardware help.
pub const POOL_WARM_DEADLINE: Duration = Duration::from_secs(60);
/// How often it is looked whether it is.
pub const POOL_WARM_LOOK_PAUSE: Duration = Duration::from_millis(20);
/// One segment of a sandbox's output log.
pub const LOG_SEGMENT_BYTES: u64 = 16 * 1024 * 1024;
/// Segments that are kept. Together 64 MiB per sandbox: a day of a chatty program, and a thousand
/// sandboxes that all fill theirs still fit a small disk.
pub const LOG_SEGMENTS_MAX: usize = 4;
/// What all segments of a log take at most, which is what one is reserved for.
pub const LOG_BYTES_MAX: u64 = LOG_SEGMENT_BYTES * LOG_SEGMENTS_MAX as u64;
/// How often it is looked whether anybody has had what they may have of a day: that long times the
/// number of their sandboxes may be run beyond it.
pub const METER_PAUSE: Duration = Duration::from_millis(100);
/// How often what has been counted is written down, for the next bridge.
pub const METER_MARK_PAUSE: Duration = Duration::from_secs(2);
/// Namespaces and keys that are counted on one day. A caller invents namespaces as it likes.
pub const METERED_SCOPES_MAX: usize = 10_000;
/// A file of the meter that is longer is not ours: 256 bytes for each of them.
pub const METER_BYTES_MAX: u64 = METERED_SCOPES_MAX as u64 * 256;
/// The largest record of a log: a chunk with its labels, or an exit record with its survivors.
/// Checked against a record's length before anything is allocated.
pub const LOG_RECORD_BYTES_MAX: usize = 256 * 1024;
/// How often a follower of a log looks for more: below what a person notices.
pub const LOG_FOLLOW_PAUSE: Duration = Duration::from_millis(50);
/// How long a session waits for those before it to be in the log, so that they are there in their order.
pub const RECORDER_ORDER_WAIT: Duration = Duration::from_secs(1);
/// The least time between two looks at a guest's list of sessions: a guest that says it changes all
/// the time costs no more than this, and the bytes of sessions not seen yet wait in its spools.
pub const RECORDER_LOOK_PAUSE: Duration = Duration::from_millis(5);
/// How long the recorder waits for the exit record of a session whose outputs have broken off. It
/// has arrived by then or never will.
pub const RECORDER_DRAIN: Duration = Duration::from_millis(250);
/// How long the recorder of a machine that is gone may still work off what had arrived, several
/// spools on a busy host. One that stopped in order has said goodbye, and is done at once.
pub const RECORDER_END_MAX: Duration = Duration::from_secs(1);
/// The pause before the recorder asks again after an agent refused it something.
pub const RECORDER_RETRY_PAUSE: Duration = Duration::from_millis(500);

const _: () = assert!(LOG_RECORD_BYTES_MAX > CHUNK_BYTES_MAX + 1024, "a chunk fits a record");
const _: () = assert!(LOG_RECORD_BYTES_MAX as u64 * 4 < LOG_SEGMENT_BYTES, "records fit a segment");
const _: () = assert!(
    RECORDER_END_MAX.as_millis() > 2 * RECORDER_DRAIN.as_millis(),
    "the owner outwaits the recorder"
);
const _: () = assert!(LOG_SEGMENTS_MAX >= 2, "rotation always leaves something to read");
const _: () = assert!(SESSIONS_MAX * 320 < LOG_RECORD_BYTES_MAX, "a segment's head fits a record");
