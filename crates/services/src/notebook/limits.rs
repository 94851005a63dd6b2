//! The bounds of notebooks, each with its reason.

use std::time::Duration;

/// What a save may take of an interpreter's time to pickle: enough for some hundred megabytes.
pub const SAVE_TIME: Duration = Duration::from_secs(20);
/// From the order of a save to its manifest: twice the time, as its keeper takes it, and what a child
/// in the midst of C code is given.
pub const SAVE_DEADLINE: Duration = Duration::from_secs(50);
/// All that is kept of one notebook.
pub const STATE_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// One variable of it.
pub const VALUE_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// What describes it: names, reasons, digests.
pub const MANIFEST_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Groups of variables that are kept together, each a file.
pub const GROUPS_MAX: usize = 20_000;
/// Listed names: kept, lost, dependent.
pub const NAMES_MAX: usize = 50_000;
/// The text about one name: its type, a reason, a path.
pub const WORDS_CHARS_MAX: usize = 400;
/// A keeper's longest answer: the names of a restore.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long an order to the keeper may take, except a restore.
pub const ORDER_DEADLINE: Duration = Duration::from_secs(30);
/// How long to wait for a busy interpreter, and how often to look.
pub const BUSY_PATIENCE: Duration = Duration::from_millis(300);
pub const BUSY_LOOK: Duration = Duration::from_millis(10);
/// How long loading a whole state may take, including modules.
pub const RESTORE_DEADLINE: Duration = Duration::from_secs(300);
/// How long consecutive runs may delay a save.
pub const SAVE_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Between two attempts to save on a disk that was full: a save costs the interpreter a fork.
pub const FULL_DISK_PAUSE: Duration = Duration::from_secs(5);
/// How long a shutdown waits for a running save.
pub const LAST_SAVE_MAX: Duration = Duration::from_secs(20);
/// How long a removal of a sandbox waits for each notebook's save in it: a longer run is somebody's
/// work.
pub const REMOVAL_SAVE_MAX: Duration = Duration::from_secs(10);
/// Pauses between looks at a save's progress: the first, and the longest.
pub const LOOK_PAUSE_MIN: Duration = Duration::from_millis(2);
pub const LOOK_PAUSE_MAX: Duration = Duration::from_millis(100);
/// From the order of a save to its first sign of life.
pub const BEGIN_DEADLINE: Duration = Duration::from_secs(10);
/// All of a save, as much as there may be of it over a slow link.
pub const FETCH_DEADLINE: Duration = Duration::from_secs(300);
/// The time for an order beyond its own deadline in the guest: the ladder, and the way.
pub const ORDER_MARGIN: Duration = Duration::from_secs(15);
/// How long an ending task may keep its notebook's lock from the next one.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(3);
pub const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Runs and orders that wait for their turn in one notebook.
pub const ORDERS_WAITING_MAX: usize = 256;
/// After this long without an order a notebook's task ends; the store has its state.
pub const TASK_IDLE_MAX: Duration = Duration::from_secs(600);
/// How long a notebook's own sandbox lives while idle, unless its creator says otherwise.
pub const SANDBOX_IDLE: Duration = Duration::from_secs(30 * 60);
/// A notebook's id with its prefix in the sandbox's name is still a valid name.
pub const ID_BYTES_MAX: usize = 54;
/// The size of a sealed chunk: a file of any size is opened with this much memory.
pub const SEALED_CHUNK_BYTES: usize = 256 * 1024;
/// How much of the beginning of each output is kept for the history.
pub const HEARD_BYTES_MAX: usize = crate::store::limits::HISTORY_OUTPUT_BYTES_MAX;
/// A caller's name for some code.
pub const CACHE_KEY_BYTES_MAX: usize = 256;

const _: () = assert!(VALUE_BYTES_MAX <= STATE_BYTES_MAX);
const _: () = assert!(ID_BYTES_MAX + 9 <= protocol::limits::NAME_BYTES_MAX);
const _: () = assert!(SAVE_DEADLINE.as_secs() > 2 * SAVE_TIME.as_secs());
