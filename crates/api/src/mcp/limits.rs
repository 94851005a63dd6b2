//! Bounds of MCP, each with its reason.

use std::time::Duration;

/// What an answer shows of each output: some eight thousand tokens of an agent's context.
pub const SHOWN_BYTES_MAX: usize = 32 * 1024;
/// What is kept of each output that was cut, to be read on from: an agent that wants more than some
/// dozens of answers like the first writes to a file.
pub const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that one session keeps of its cut results; the oldest are dropped. They count to what the calls of
/// the server hold together.
pub const SESSION_KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Cut results of one session.
pub const RESULTS_KEPT_MAX: usize = 32;
/// What one call reads on of a cut output, or reads of a file, at most.
pub const READ_BYTES_MAX: usize = 1024 * 1024;
/// The same when the call does not say.
pub const READ_BYTES_DEFAULT: usize = 64 * 1024;
/// One picture. In base64 it is still below the five megabytes that models take.
pub const IMAGE_BYTES_MAX: usize = 3 * 1024 * 1024;
/// All that the displays of one run bring into its answer.
pub const DISPLAYS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Displays in one answer: more pictures than models take at once are of no use to them.
pub const DISPLAYS_MAX: usize = 20;
/// A file that a call leaves and that is a picture is shown at once when it is no larger: some
/// thousands of tokens of an agent's context.
pub const KEPT_PICTURE_BYTES_MAX: u64 = 1024 * 1024;
/// So many of them in one answer.
pub const KEPT_PICTURES_MAX: usize = 4;
/// Artifacts that the words of an answer name; its structure has all.
pub const ARTIFACTS_NAMED_MAX: usize = 10;
/// Artifacts in one answer of the list.
pub const ARTIFACTS_LISTED_MAX: u64 = 200;
pub const ARTIFACTS_LISTED_DEFAULT: u64 = 50;
/// How much is shown of the late output of earlier runs.
pub const LATE_BYTES_MAX: usize = 4 * 1024;
/// What is shown of a short word of a guest's: the type of an exception, why variables are lost.
pub const REASON_BYTES_MAX: usize = 1024;
/// What one display brings that is read and not looked at: a page or a table that is larger is of no
/// use to a model.
pub const READ_DISPLAY_BYTES_MAX: usize = 256 * 1024;
/// Entries of a directory in one answer.
pub const ENTRIES_MAX: usize = 500;
/// What their names and targets may take together; more come with the next call.
pub const ENTRIES_BYTES_MAX: usize = 64 * 1024;
/// Resources in one page of their list.
pub const RESOURCES_PER_PAGE: usize = 100;
/// What is read of a resource, which the protocol has no parts for. Longer files are read with
/// `read_file`.
pub const RESOURCE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The URI of a resource: a path of the longest, with each of its bytes escaped, has room.
pub const URI_BYTES_MAX: usize = 16 * 1024;
/// The cursor of a list, as we give them.
pub const CURSOR_BYTES_MAX: usize = 512;
/// Sandboxes in one answer.
pub const SANDBOXES_SHOWN_MAX: usize = 200;
/// What their labels may take together: a sandbox may have kilobytes of them.
pub const SANDBOXES_LABELS_BYTES_MAX: usize = 64 * 1024;
/// Between two notices of progress.
pub const PROGRESS_PAUSE: Duration = Duration::from_secs(1);
/// How long a session's own sandbox lives when nothing is at work in it: an agent that thinks, and
/// the person who reads what it has done.
pub const OWN_SANDBOX_IDLE: Duration = Duration::from_secs(30 * 60);
/// Sessions over HTTP, of all keys. Each keeps some megabytes at most.
pub const SESSIONS_MAX: usize = 128;
/// The same of one key; a new one takes the place of the one that is idle longest.
pub const SESSIONS_PER_KEY_MAX: usize = 32;
/// A session over HTTP without a call under way for so long is ended. No longer than its sandbox
/// lives.
pub const SESSION_IDLE_MAX: Duration = OWN_SANDBOX_IDLE;
/// How often it is looked for those.
pub const SESSIONS_LOOK_PAUSE: Duration = Duration::from_secs(30);
/// How long a session may take to go when its client has: the SDK waits for calls under way first.
pub const LAST_WORDS_MAX: Duration = Duration::from_secs(10);
/// One message of a client on lines: code and files come in them, as in the body of a call.
pub const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The name of a session over HTTP, as we give them.
pub const SESSION_NAME_BYTES_MAX: usize = 64;

const _: () = assert!(IMAGE_BYTES_MAX <= DISPLAYS_BYTES_MAX, "one picture has room");
const _: () = assert!(READ_DISPLAY_BYTES_MAX <= DISPLAYS_BYTES_MAX, "so has one page");
const _: () = assert!(SHOWN_BYTES_MAX < KEPT_BYTES_MAX, "there is something to read on");
const _: () = assert!(2 * KEPT_BYTES_MAX <= SESSION_KEPT_BYTES_MAX, "both outputs of one run fit");
const _: () = assert!(SESSIONS_PER_KEY_MAX < SESSIONS_MAX, "one key does not keep others out");
/// Changed files that a tried command's result lists: a model reads fewer.
pub const CHANGES_SHOWN_MAX: usize = 200;
