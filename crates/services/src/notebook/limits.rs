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
/// Names that are told of: kept, lost, dependent.
pub const NAMES_MAX: usize = 50_000;
/// What is told of one name: its type, a reason, a path.
pub const WORDS_CHARS_MAX: usize = 400;
/// What the keeper may answer: the names of a restore.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long an order to the keeper may take that is no restore.
pub const ORDER_DEADLINE: Duration = Duration::from_secs(30);
/// How long an interpreter that is busy is looked at for whether it comes free, and how often.
pub const BUSY_PATIENCE: Duration = Duration::from_millis(300);
pub const BUSY_LOOK: Duration = Duration::from_millis(10);
/// How long loading all of a state may take, modules included.
pub const RESTORE_DEADLINE: Duration = Duration::from_secs(300);
/// How long runs that follow each other may put off a save.
pub const SAVE_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long whoever ends waits for what is being saved.
pub const LAST_SAVE_MAX: Duration = Duration::from_secs(20);
/// Between two looks at what a save has written: the first, and the longest.
pub const LOOK_PAUSE_MIN: Duration = Duration::from_millis(2);
pub const LOOK_PAUSE_MAX: Duration = Duration::from_millis(100);
/// From the order of a save to its first sign of life.
pub const BEGIN_DEADLINE: Duration = Duration::from_secs(10);
/// All of a save, as much as there may be of it over a slow link.
pub const FETCH_DEADLINE: Duration = Duration::from_secs(300);
/// What an order is given beyond its own deadline in the guest: the ladder, and the way.
pub const ORDER_MARGIN: Duration = Duration::from_secs(15);
/// How long a task that ends may keep its notebook's lock from the next one.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(3);
pub const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Runs and orders that wait for their turn in one notebook.
pub const ORDERS_WAITING_MAX: usize = 256;
/// After so long without an order a notebook's task ends; what it knew is in the store.
pub const TASK_IDLE_MAX: Duration = Duration::from_secs(600);
/// How long a notebook's own sandbox lives while nothing is at work in it, unless its maker says
/// otherwise.
pub const SANDBOX_IDLE: Duration = Duration::from_secs(30 * 60);
/// A notebook's name with what stands before it in its sandbox's name is still a name.
pub const ID_BYTES_MAX: usize = 54;
/// What is sealed in one piece: a file of any size is opened with as little memory.
pub const SEALED_CHUNK_BYTES: usize = 256 * 1024;
/// What is kept of the beginning of each output, for the history.
pub const HEARD_BYTES_MAX: usize = crate::store::limits::HISTORY_OUTPUT_BYTES_MAX;
/// A caller's name for some code.
pub const CACHE_KEY_BYTES_MAX: usize = 256;

const _: () = assert!(VALUE_BYTES_MAX <= STATE_BYTES_MAX);
const _: () = assert!(ID_BYTES_MAX + 9 <= protocol::limits::NAME_BYTES_MAX);
const _: () = assert!(SAVE_DEADLINE.as_secs() > 2 * SAVE_TIME.as_secs());
