//! The limits of this door, each with its reason.

use std::time::Duration;

use sandbox::limits::LIFETIME_MAX;

/// The clients count the lives of sandboxes in minutes.
pub const MINUTE_MS: u64 = 60 * 1000;
/// The idle time of a sandbox that has none: the longest there is.
pub const IDLE_FOREVER_MS: u64 = LIFETIME_MAX.as_secs() * 1000;
/// How long a sandbox may be idle whose creator does not say it, as Daytona has it.
pub const AUTO_STOP_MINUTES_DEFAULT: u64 = 15;
/// Sandboxes on a page, by default and at most, as Daytona has it.
pub const PAGE_DEFAULT: usize = 100;
pub const PAGE_MAX: usize = 200;
/// What an answer keeps of the output of a command, from the beginning.
pub const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The longest id of a session or a terminal: with the id of a command behind it, it is the name of a
/// session of the agent.
pub const SESSION_ID_CHARS_MAX: usize = 40;
/// The longest command: what the kernel takes as one argument, less what is around it.
pub const COMMAND_BYTES_MAX: usize = 120 * 1024;
/// How long a program may take to say where it begins.
pub const PLACES_MAX: Duration = Duration::from_secs(30);
/// How long a stop waits for the programs that it has killed.
pub const STOP_WAIT_MAX: Duration = Duration::from_secs(10);
/// Entries of a listing that goes into directories, and of a search.
pub const ENTRIES_MAX: usize = 100_000;
/// The depth of a listing that names none, as Daytona has it.
pub const DEPTH_DEFAULT: u32 = 1;
/// Files of one call, up or down.
pub const FILES_PER_CALL_MAX: usize = 1000;
/// A file that is larger is not searched, and nothing in it is replaced: it is no text that people wrote.
pub const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What one search reads at most, and what it finds.
pub const SEARCHED_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
pub const MATCHES_MAX: usize = 10_000;
/// The line of a match, cut.
pub const MATCH_LINE_CHARS_MAX: usize = 2_000;
/// A field of a form that is no file: the path of one.
pub const FIELD_BYTES_MAX: usize = 4096;
/// How long a command of git may take: a clone of a large repository.
pub const GIT_MAX: Duration = Duration::from_secs(30 * 60);
/// How long a client may take to say what a WebSocket of a run is to do.
pub const FIRST_MESSAGE_MAX: Duration = Duration::from_secs(30);
/// How much of a terminal's output a client sees that connects to it again: some screens.
pub const SCROLL_BACK_BYTES: u64 = 64 * 1024;
/// What a value of JSON takes beside its text: its place in a map, and its own.
pub const VALUE_BYTES: usize = 96;
