//! Every bound of sandboxes, their pool and their logs, each with its reason. The relations that must
//! hold between them are asserted when the crate is compiled.

use std::time::Duration;

use protocol::limits::{CHUNK_BYTES_MAX, METRICS_KEPT, METRICS_PAGE_MAX, SESSIONS_MAX};

/// The private writable layer of a sandbox that names no size: enough for packages and a checkout,
/// and small enough that a dozen full ones do not fill a laptop's memory.
pub const SCRATCH_BYTES_DEFAULT: u64 = 1024 * 1024 * 1024;
/// The largest writable layer of a virtual machine: a guest may fill all of it, which uses the host's disk.
/// As much as all snapshots together.
pub const VIRTUAL_SCRATCH_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// The memory that a sandbox may be granted, in MiB: below it no interpreter starts, above it the
/// number is surely in other units.
pub const MEMORY_MIB_MIN: u64 = 16;
pub const MEMORY_MIB_MAX: u64 = 16 * 1024 * 1024;
/// Quarters of its memory that a sandbox's writable layer may fill. The layer is memory, too, and a
/// kernel that finds no program to kill for it kills the agent, and with it the sandbox.
pub const SCRATCH_QUARTERS_OF_MEMORY: u64 = 3;
/// The smallest share of processors, in thousandths of one. Who asks for none gets this, and the
/// agent still answers within its deadlines.
pub const CPU_MILLIS_MIN: u32 = 50;
/// The largest share: more than any host has.
pub const CPU_MILLIS_MAX: u32 = 1024 * 1000;
/// How long clients wait before they retry a bridge that is full or stopping.
pub const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Sandboxes that a bridge keeps, running and stopped together.
pub const SANDBOXES_MAX: usize = 1024;
/// How long saving the content of a sandbox may take before the sandbox is ended for its time to live or a
/// cap.
pub const SAVE_DEADLINE: Duration = Duration::from_secs(60);
/// Ends of programs for want of memory that a sandbox remembers to have recorded: several may wait for one
/// end, and learn of it at about the same time.
pub const ENDS_TOLD_MAX: usize = 64;
/// Free space from which on output is recorded again on a disk that was full: some of the largest
/// records, so that the next ones do not all leave gaps.
pub const LOG_ROOM_BYTES_MIN: u64 = 256 * 1024;
/// The pause between two attempts to write a record: a full disk may have room again at any time, and a small
/// file per second costs nothing.
pub const RECORD_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Orders that may wait for the task that owns a sandbox.
pub const ORDERS_WAITING_MAX: usize = 16;
/// The grace of a stop that names none: the agent's own default.
pub const STOP_GRACE_DEFAULT: Duration = protocol::limits::STOP_GRACE_GUEST;
/// Labels of a sandbox, and the bytes of a key and a value: as many as people sort by, and a record
/// stays small.
pub const LABELS_MAX: usize = 64;
/// Rules of egress that the audit log lists: a line that people read.
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
/// How often an agent is asked about activity within an idle time to live: activity that we do not
/// see is noticed then, and the sandbox outlives its idle time by at most such a part.
pub const IDLE_LOOKS: u32 = 8;
/// The pauses between those looks: a question costs the agent microseconds.
pub const IDLE_LOOK_PAUSE_MIN: Duration = Duration::from_millis(50);
pub const IDLE_LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long an agent may take to answer; the next check asks again.
pub const IDLE_LOOK_DEADLINE: Duration = Duration::from_secs(5);
/// A time shown of an expiry is corrected when the clocks have come apart by more than this.
pub const EXPIRY_DRIFT_SHOWN: Duration = Duration::from_secs(1);
/// Snapshots that a bridge keeps: as many as people keep apart by name.
pub const SNAPSHOTS_MAX: usize = 64;
/// The disk space of all snapshots, an unfinished one counted with all its memory and the content
/// of its disk.
pub const SNAPSHOTS_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// The document at the beginning of a snapshot's archive: a list of as many extents as there may be.
pub const SNAPSHOT_MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The shortest hole that an archive leaves out: a shorter one costs its zeros and not a line of the list.
pub const SNAPSHOT_HOLE_BYTES_MIN: u64 = 1024 * 1024;
/// Runs of bytes in one file of a snapshot: the largest disk with a hole in every other mebibyte.
pub const SNAPSHOT_EXTENTS_MAX: usize = 64 * 1024;
/// The names by which a snapshot's programs know hosts.
pub const SNAPSHOT_NAMES_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// A piece of an archive on its way, and how many wait for a slow reader or a slow disk.
pub const SNAPSHOT_PIECE_BYTES: usize = 256 * 1024;
pub const SNAPSHOT_PIECES_WAITING_MAX: usize = 4;
/// The largest archive: all snapshots that may be kept, with the headers of its members.
pub const SNAPSHOT_ARCHIVE_BYTES_MAX: u64 = SNAPSHOTS_BYTES_MAX + 2 * SNAPSHOT_MANIFEST_BYTES_MAX;
/// How often the policy for snapshots is looked at: it counts hours and days.
pub const SNAPSHOT_SWEEP_PAUSE: Duration = Duration::from_secs(60);
/// How long the agent of a sandbox that is found again may take to thaw it. It does so by itself later.
pub const THAW_DEADLINE: Duration = Duration::from_secs(2);
/// How long the agent of a running sandbox may take to open a way out that it did not have.
pub const EGRESS_OPEN_DEADLINE: Duration = Duration::from_secs(10);
/// Forks that one call makes: more would fill a host by a mistake of one digit.
pub const FORKS_MAX: usize = 100;
/// Forks that start at the same time: each boots a machine, and more would only wait for each other's processors.
pub const FORK_STARTS_MAX: usize = 8;
/// The pause before a fork asks again for the files of a sandbox that another fork has frozen: about what one takes.
pub const FORK_RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Changes that one answer lists; a person reads fewer.
pub const CHANGES_MAX: usize = 10_000;
/// The index of a layer: a million paths of usual length.
pub const INDEX_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Ancestors that a record names, the nearest ones: a chain of forks may be of any length.
pub const ANCESTORS_MAX: usize = 64;
/// What the names of a fork's files may take besides the files themselves: a million of them.
pub const FORK_MARGIN_BYTES: u64 = 1024 * 1024 * 1024;
/// Zeros of a fork's files become holes by blocks of this size, four of a usual file system.
pub const FORK_BLOCK_BYTES: usize = 16 * 1024;
/// How much of a fork's files is read at once: several frames of a link.
pub const FORK_PIECE_BYTES: usize = 256 * 1024;
/// Templates that a namespace keeps, its tags counted one by one: as many as people keep apart by name.
pub const TEMPLATES_PER_NAMESPACE_MAX: usize = 64;
/// Templates of all namespaces: a caller that reaches all of them invents namespaces as it likes.
pub const TEMPLATES_MAX: usize = 1024;
/// The longest start or ready command: a long script belongs into a file of the image.
pub const TEMPLATE_COMMAND_BYTES_MAX: usize = 16 * 1024;
/// Variables of a template: its file stays small.
pub const TEMPLATE_ENV_MAX: usize = 256;
/// The longest tag of a template, as registries have it.
pub const TEMPLATE_TAG_BYTES_MAX: usize = 64;
/// A file of a template that is longer is not ours.
pub const TEMPLATE_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Sandboxes of one template that are kept ready: an eighth of what the pool keeps for all.
pub const TEMPLATE_WARM_MAX: usize = 32;
/// How long a sandbox of a template may take to be ready, if the template does not say: a server that loads a
/// model or migrates a database.
pub const READY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// The longest that a template may say.
pub const READY_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// How long one try of a ready command may take before it is killed and tried again.
pub const READY_TRY_MAX: Duration = Duration::from_secs(30);
/// The pause between two tries: below what a person notices, and little work for the sandbox.
pub const READY_PAUSE: Duration = Duration::from_millis(100);
/// How much of the newest output of each command a refusal says.
pub const STARTUP_OUTPUT_BYTES: usize = 1024;
/// Machines that a pool keeps ready, for all entries together: each is a process tree, a socket and an unused
/// writable layer, and beyond some hundred the starts themselves are fast enough.
pub const POOL_MACHINES_MAX: usize = 256;
/// The pause between looks whether the interpreter of a reopened context has executed: starting one takes a
/// millisecond or more.
pub const REOPEN_LOOK_PAUSE: Duration = Duration::from_millis(1);
/// Interpreters started ahead in one pooled machine: one per language, and a few more.
pub const POOL_CONTEXTS_MAX: usize = 8;
/// Pooled machines that are started at the same time, whatever is configured: more would only take
/// processors from active sandboxes.
pub const POOL_STARTS_MAX: usize = 16;
/// How long claiming a pooled machine may take. It needs a fraction of a millisecond; a slower machine is
/// abandoned, and the caller gets another.
pub const POOL_CLAIM_DEADLINE: Duration = Duration::from_secs(1);
/// Pooled machines that one creation tries before it starts one: whatever ended these has probably
/// ended the others too.
pub const POOL_CLAIM_TRIES_MAX: usize = 3;
/// How often a ready machine is checked, by default. Its death is noticed anyway; this finds agents
/// that hang.
pub const POOL_CHECK_EVERY: Duration = Duration::from_secs(10);
/// How long the check may take.
pub const POOL_CHECK_DEADLINE: Duration = Duration::from_secs(5);
/// The pause after a failed start, doubled with each failure up to the longest: haste does not help a broken
/// setup, and a repaired one is noticed within a minute.
pub const POOL_PAUSE_MIN: Duration = Duration::from_secs(1);
pub const POOL_PAUSE_MAX: Duration = Duration::from_secs(60);
/// A pooled machine that dies younger than this counts as one that did not start.
pub const POOL_LIFE_MIN: Duration = Duration::from_secs(10);
/// How long an interpreter may take to be ready on a machine without hardware help.
pub const POOL_WARM_DEADLINE: Duration = Duration::from_secs(60);
/// How often to check whether it is.
pub const POOL_WARM_LOOK_PAUSE: Duration = Duration::from_millis(20);
/// How long a claimed machine's place stays empty while claims continue: a claimer is about to run something,
/// and a start would slow it down.
pub const POOL_REFILL_QUIET: Duration = Duration::from_millis(100);
/// How long it stays empty at most, however many claims there are.
pub const POOL_REFILL_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long the rehearsal program of a new machine may take.
pub const POOL_REHEARSAL_MAX: Duration = Duration::from_secs(5);
/// How long the record of a new sandbox may be unsynced: the first command takes precedence. Decision 22 says
/// what a power cut may cost.
pub const RECORD_SYNC_PAUSE: Duration = Duration::from_millis(50);
/// One segment of a sandbox's output log.
pub const LOG_SEGMENT_BYTES: u64 = 12 * 1024 * 1024;
/// Segments that are kept.
pub const LOG_SEGMENTS_MAX: usize = 4;
/// What each session keeps of its newest records when they are rotated away, unless it has written as much
/// since: about ten thousand lines, so that a loud program does not remove the output of a quiet one.
pub const LOG_SHARE_BYTES: u64 = 1024 * 1024;
/// The limit of all these together. The oldest are removed first.
pub const LOG_CARRIED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The largest log, and what is reserved for one: 64 MiB per sandbox are a day of a chatty program, and a
/// thousand full ones still fit a small disk.
pub const LOG_BYTES_MAX: u64 = LOG_SEGMENT_BYTES * LOG_SEGMENTS_MAX as u64 + LOG_CARRIED_BYTES_MAX;
/// One file of what is typed into a sandbox's sessions: months of a person's keys, and a small file on stdin.
pub const INPUT_SEGMENT_BYTES: u64 = 4 * 1024 * 1024;
/// Such files that are kept.
pub const INPUT_SEGMENTS_MAX: usize = 2;
/// The most of it on disk, which is reserved where input is recorded.
pub const INPUT_BYTES_MAX: u64 = INPUT_SEGMENT_BYTES * INPUT_SEGMENTS_MAX as u64;
/// One file of what was put into a sandbox, as digests, or of how its programs and runs ended: some four thousand files
/// or programs, or a thousand runs.
pub const PROVENANCE_SEGMENT_BYTES: u64 = 1024 * 1024;
/// Such files that are kept of each.
pub const PROVENANCE_SEGMENTS_MAX: usize = 2;
/// The most of both on disk.
pub const PROVENANCE_BYTES_MAX: u64 = 2 * PROVENANCE_SEGMENT_BYTES * PROVENANCE_SEGMENTS_MAX as u64;
/// The newest ends of programs that are not recorded again: those that a bridge finds when it follows the one that
/// was killed, one for each session that an agent keeps.
pub const ENDS_KNOWN_MAX: usize = SESSIONS_MAX;
/// Ends that wait in memory for a disk that is full; older ones are given up, and counted.
pub const ENDS_WAITING_MAX: usize = 256;
/// Ends that are appended before they are counted, besides the regular count: fewer than one file has, of the largest.
pub const ENDS_UNCOUNTED_MAX: u64 = 100;
/// How often daily limits are checked: sandboxes may exceed their run time by that much, times
/// their number.
pub const METER_PAUSE: Duration = Duration::from_millis(100);
/// How often the counts are saved for the next bridge.
pub const METER_MARK_PAUSE: Duration = Duration::from_secs(2);
/// Namespaces and keys that are counted on one day. A caller invents namespaces as it likes.
pub const METERED_SCOPES_MAX: usize = 10_000;
/// A file of the meter that is longer is not ours: 256 bytes for each of them.
pub const METER_BYTES_MAX: u64 = METERED_SCOPES_MAX as u64 * 256;
/// How often an agent is asked for its samples: a killed bridge loses this much of those that have ended
/// meanwhile, and a question for ten samples costs the agent as much as one sample.
pub const TELEMETRY_PAUSE: Duration = Duration::from_secs(10);
/// The same of an agent at rest, until something begins in its sandbox: hundreds of idle ones do not keep the bridge
/// busy with asking them.
pub const TELEMETRY_PAUSE_AT_REST: Duration = Duration::from_secs(60);
/// Such questions to different agents are this far apart, or at the same time.
pub const TELEMETRY_APART: Duration = Duration::from_secs(1);
/// An agent whose last samples are further apart is at rest; others take one each second.
pub const TELEMETRY_AT_REST_MS: u64 = 5_000;
/// The pause before the first question: the first command of a sandbox does not wait for it.
pub const TELEMETRY_FIRST_PAUSE: Duration = Duration::from_secs(2);
/// How long an agent may take to answer; the next question asks for the same again.
pub const TELEMETRY_DEADLINE: Duration = Duration::from_secs(5);
/// Pages of samples that are taken in a row: all that an agent keeps, one more for a guest that has begun again, and
/// one for samples that come meanwhile.
pub const TELEMETRY_PAGES_MAX: usize = METRICS_KEPT.div_ceil(METRICS_PAGE_MAX) + 2;
/// How long the last question may delay the end of a sandbox. It is answered within a millisecond.
pub const TELEMETRY_LAST_DEADLINE: Duration = Duration::from_millis(250);
/// Records that wait for a full disk: a quarter of an hour, as much as the agent keeps.
pub const TELEMETRY_PENDING_MAX: usize = 900;
/// Two samples that are further apart have a gap in between. A sandbox in which nothing runs is sampled every twelve
/// seconds.
pub const TELEMETRY_GAP_MS: u64 = 20_000;
/// Less than this between two records is no gap: clocks that are slewed, and times that are rounded.
pub const TELEMETRY_JITTER_MS: u64 = 1_500;
/// A guest's clock that is further off is not used. A sample may be as old as the pause between two in a sandbox
/// in which nothing runs.
pub const TELEMETRY_CLOCK_DRIFT_MS: u64 = 15_000;
/// Points of a history for which no step was asked: more than a screen is wide.
pub const TELEMETRY_POINTS_USUAL: u64 = 1_000;
/// Points of any history: an hour of seconds fits, and an answer stays below 4 MB.
pub const TELEMETRY_POINTS_MAX: u64 = 4_000;
/// How often costs are saved. A bridge that is killed loses this much of sandboxes that ended meanwhile; of
/// those that live it counts again from what was saved, but for bytes of egress, which nobody else has counted.
pub const COSTS_MARK_PAUSE: Duration = Duration::from_secs(10);
/// Hours of namespaces that are counted apart on two days. A caller invents namespaces as it likes; the use of
/// more is counted together.
pub const COSTS_ROWS_MAX: usize = 10_000;
/// Days whose costs are kept: a year, and what is billed late.
pub const COSTS_DAYS_MAX: u64 = 400;
/// Names of programs, contexts or apps that are counted apart in one namespace on one day. Callers invent names as they
/// like; the cost of more is counted together.
pub const PROGRAM_NAMES_MAX: usize = 200;
/// The same of all namespaces, on two days.
pub const PROGRAM_ROWS_MAX: usize = 10_000;
/// A file of costs that is longer is not ours: 512 bytes for each row and each sandbox.
pub const COSTS_BYTES_MAX: u64 = (COSTS_ROWS_MAX + PROGRAM_ROWS_MAX + SANDBOXES_MAX) as u64 * 512;
/// The largest record of a log: a chunk with its labels, or an exit record with its survivors.
/// Checked against a record's length before anything is allocated.
pub const LOG_RECORD_BYTES_MAX: usize = 256 * 1024;
/// How often a follower of a log reads more: below what a person notices.
pub const LOG_FOLLOW_PAUSE: Duration = Duration::from_millis(50);
/// How long a session waits for earlier ones to be in the log, so that they are in order.
pub const RECORDER_ORDER_WAIT: Duration = Duration::from_secs(1);
/// The shortest time between two reads of a guest's list of sessions: a guest that reports changes
/// all the time costs no more than this, and the output of new sessions waits in its spools.
pub const RECORDER_LOOK_PAUSE: Duration = Duration::from_millis(5);
/// How long the recorder waits for the exit record of a session whose outputs have broken off. It
/// has arrived by then or never will.
pub const RECORDER_DRAIN: Duration = Duration::from_millis(250);
/// How long the recorder waits for the digests of a session that has ended. The agent has them; a busy host
/// answers late.
pub const RECORDER_DIGEST_WAIT: Duration = Duration::from_secs(5);
/// Missing parts of one output that a comparison names. More are counted only.
pub const VERIFY_HOLES_MAX: usize = 32;
/// How long the recorder of a machine that is gone may still write what had arrived, which may be
/// several spools on a busy host. If the machine stopped in order, it ends at once.
pub const RECORDER_END_MAX: Duration = Duration::from_secs(1);
/// Bytes of output that go to the fleet's log at once: a quarter of what NATS takes in one message, and as much as an
/// agent sends before it waits for us.
pub const DURABLE_FLIGHT_BYTES: usize = 256 * 1024;
/// How long the owner of a sandbox that has ended waits until the fleet's log has its last output: some flights.
pub const DURABLE_END_MAX: Duration = Duration::from_secs(5);
/// The pause before the recorder asks again after an agent refused it something.
pub const RECORDER_RETRY_PAUSE: Duration = Duration::from_millis(500);

const _: () = assert!(LOG_RECORD_BYTES_MAX > CHUNK_BYTES_MAX + 1024, "a chunk fits a record");
const _: () = assert!(LOG_RECORD_BYTES_MAX as u64 * 4 < LOG_SEGMENT_BYTES, "records fit a segment");
const _: () = assert!(
    RECORDER_END_MAX.as_millis() > 2 * RECORDER_DRAIN.as_millis(),
    "the owner outwaits the recorder"
);
const _: () = assert!(
    READY_TIMEOUT_DEFAULT.as_millis() > READY_TRY_MAX.as_millis(),
    "a hung try is repeated"
);
const _: () = assert!(
    LOG_RECORD_BYTES_MAX as u64 * 4 < INPUT_SEGMENT_BYTES && INPUT_SEGMENTS_MAX >= 2,
    "records of input fit a file, and a new one leaves something to read"
);
const _: () = assert!(LOG_SEGMENTS_MAX >= 2, "rotation always leaves something to read");
const _: () = assert!(
    LOG_SHARE_BYTES > 2 * LOG_RECORD_BYTES_MAX as u64 && LOG_SHARE_BYTES < LOG_SEGMENT_BYTES,
    "a share has records, and a flood of one segment has more than it"
);
const _: () = assert!(SESSIONS_MAX * 320 < LOG_RECORD_BYTES_MAX, "a segment's head fits a record");
const _: () = assert!(
    VIRTUAL_SCRATCH_BYTES_MAX / (2 * SNAPSHOT_HOLE_BYTES_MIN) < SNAPSHOT_EXTENTS_MAX as u64,
    "the list of extents of each disk fits"
);
const _: () = assert!(
    SNAPSHOT_EXTENTS_MAX as u64 * 32 < SNAPSHOT_MANIFEST_BYTES_MAX,
    "a list of extents fits the document"
);
