//! The limits of the audit log, each with its reason.

use std::time::Duration;

/// Records that wait to be written: some megabytes, since a disk may block for seconds.
pub const QUEUE_MAX: usize = 8192;
/// Records that are written in one turn at the log.
pub const BATCH_MAX: usize = 256;
/// How long records are gathered before they are written, after the answers of their calls. A bridge
/// that is killed loses these; decision 22 says why that much.
pub const GATHER_PAUSE: Duration = Duration::from_millis(10);
/// How long what is written may be in the kernel alone: a power cut takes no more than this with it.
pub const SYNC_PAUSE: Duration = Duration::from_secs(1);
/// The pause of the idle writer thread.
pub const IDLE_PAUSE: Duration = Duration::from_secs(3600);
/// The pause before a write that has failed is tried again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long a process waits for another's turn at the log to end, which takes milliseconds.
pub const TURN_WAIT: Duration = Duration::from_secs(2);
/// How often it checks whether the lock is free.
pub const TURN_PAUSE: Duration = Duration::from_millis(2);
/// The size of the lock file's content, which is padded to it.
pub const MARK_BYTES: usize = 512;
/// How much of it is read: another release's may be longer.
pub const MARK_BYTES_MAX: usize = 4096;
/// One line. What operations bring is cut long before; a line that is longer is not ours.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// A text chosen by others: a program's name, a reason.
pub const TEXT_CHARS_MAX: usize = 256;
/// Arguments of a program, where they are wanted.
pub const ARGUMENTS_MAX: usize = 32;
/// Facts of an entry beyond those that all have.
pub const FACTS_MAX: usize = 24;
/// Texts of one fact that is a list.
pub const LIST_MAX: usize = 32;
/// Records on one page.
pub const PAGE_MAX: usize = 1000;
/// How often a follower checks for more.
pub const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
