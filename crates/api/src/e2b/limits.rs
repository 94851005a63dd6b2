//! The limits of this door, each with its reason.

use std::time::Duration;

/// How long a sandbox lives whose creator names no time, as E2B has it.
pub const TIMEOUT_SECONDS_DEFAULT: i64 = 300;
/// The same of clients of before 2.46, which name one themselves.
pub const TIMEOUT_SECONDS_OLD: i64 = 15;
/// The version of envd that the clients believe to speak with: it opens all that they know.
pub const ENVD_VERSION: &str = "0.6.13";
/// Keys that have a token of one sandbox. The oldest make room.
pub const PASSES_PER_SANDBOX_MAX: usize = 64;
/// Sandboxes whose tokens, accounts or watches are in memory; they are read again when needed.
pub const SANDBOXES_KNOWN_MAX: usize = 4096;
/// Contexts that are known to have what makes charts; they get it again when needed.
pub const CONTEXTS_KNOWN_MAX: usize = 8192;
/// Programs whose arguments are remembered for `List`.
pub const COMMANDS_KNOWN_MAX: usize = 8192;
/// What these take together; arguments and variables may be long.
pub const COMMANDS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Watches of one sandbox that wait to be asked, and the events that wait in each.
pub const WATCHES_PER_SANDBOX_MAX: usize = 64;
pub const WATCH_EVENTS_MAX: usize = 16 * 1024;
/// A watch that nobody has asked for so long is given up.
pub const WATCH_UNASKED_MAX: Duration = Duration::from_secs(3600);
/// Silence of a program after which its viewer hears a word, unless it names a pause itself.
pub const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(90);
/// The same of a run of code.
pub const RUN_KEEPALIVE: Duration = Duration::from_secs(5);
/// A client that types sends a word every 50 s; one that is silent for longer is gone.
pub const TYPING_PAUSE_MAX: Duration = Duration::from_secs(120);
/// One message of a client's stream.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What a value of JSON takes beside its text: its place in a map, and its own.
pub const VALUE_BYTES: usize = 96;
/// Entries of a listing that goes into directories.
pub const ENTRIES_MAX: usize = 100_000;
/// Sandboxes on a page, by default and at most.
pub const PAGE_MAX: usize = 100;
/// Copies of one fork.
pub const FORKS_MAX: u32 = 20;
/// Entries of a log in one answer, as E2B has it, and the bytes of their messages.
pub const LOG_ENTRIES_MAX: usize = 1000;
pub const LOG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Builds of templates whose status is known, ended ones included.
pub const BUILDS_KNOWN_MAX: usize = 256;
/// Entries of one build's log: a long installation, in a few megabytes.
pub const BUILD_LOG_ENTRIES_MAX: usize = 5_000;
/// The longest message of one.
pub const BUILD_MESSAGE_CHARS_MAX: usize = 2_000;
/// Entries of one answer, as E2B has it.
pub const BUILD_LOG_PAGE_MAX: usize = 100;
/// How long a build may take, as E2B has it.
pub const BUILD_DEADLINE: Duration = Duration::from_secs(3600);
/// Lines of a build that wait for its log; a full buffer slows it down.
pub const BUILD_EVENTS_WAITING_MAX: usize = 64;
/// Steps of a template, and tags of one call.
pub const BUILD_STEPS_MAX: usize = 256;
pub const TAGS_MAX: usize = 32;
/// Links for uploads that are not used yet.
pub const UPLOADS_KNOWN_MAX: usize = 1024;
/// How long a link is good: an upload may begin late in a build with many.
pub const UPLOAD_LINK_LIFE: Duration = Duration::from_secs(3600);
/// The largest upload: more belongs into an image.
pub const UPLOAD_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// How long an upload is kept for later builds.
pub const UPLOAD_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Pieces of an upload to a volume that wait for the disk.
pub const VOLUME_PIECES_WAITING_MAX: usize = 4;
