//! Bounds of web apps, each with its reason.

use std::time::Duration;

use protocol::limits::NAME_BYTES_MAX;

/// Apps of one sandbox, including ended ones that were not removed: a site, its services and some
/// failed attempts.
pub const APPS_PER_SANDBOX_MAX: usize = 16;
/// Apps of all sandboxes. Each is a task, a forwarded port and the tail of a log.
pub const APPS_MAX: usize = 256;
/// The main file of an app: a larger program is a tree, which is uploaded.
pub const CODE_BYTES_MAX: usize = 1024 * 1024;
/// The name of an app, which is part of its session's name.
pub const APP_NAME_BYTES_MAX: usize = 40;
/// How much of an app's output is kept here; the sandbox's log has all of it.
pub const LOG_KEPT_BYTES: usize = 64 * 1024;
/// How much of it a failure shows: a traceback, and what preceded it.
pub const LOG_TOLD_BYTES: usize = 8 * 1024;
/// Pieces of output that are taken before others get their turn.
pub const PIECES_AT_ONCE_MAX: usize = 64;
/// How long an app may take to answer, by default.
pub const READY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// The longest time that may be requested: loading a model takes minutes.
pub const READY_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// How long one request may take before another is tried: a first answer may take long, and a
/// request that came too early may never be answered.
pub const TRY_TIME_MAX: Duration = Duration::from_secs(15);
/// The pause between two requests. Nothing signals when a program begins to listen, and a refused
/// connection costs microseconds, so the first requests follow quickly.
pub const TRY_PAUSE_MIN: Duration = Duration::from_millis(20);
pub const TRY_PAUSE_MAX: Duration = Duration::from_millis(250);
/// The path that is asked for.
pub const READY_PATH_BYTES_MAX: usize = 1024;
/// How much of the guest's socket table is read: some thousands of sockets.
pub const SOCKETS_BYTES_MAX: usize = 1024 * 1024;
/// Ports that are looked at for a free one.
pub const PORTS_TRIED_MAX: u16 = 1000;
/// Ports that a refusal names.
pub const PORTS_TOLD_MAX: usize = 8;
/// Warnings of one start that are kept; an agent of ours has one or two.
pub const WARNINGS_MAX: usize = 16;
/// How long an interpreter may take to list its modules: it starts from a cold disk.
pub const INTERPRETER_TIME_MAX: Duration = Duration::from_secs(20);
/// How much of its output is kept.
pub const INTERPRETER_SAID_BYTES_MAX: usize = 4 * 1024;
/// From the request to end to the kill.
pub const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long each step of an end waits for the guest.
pub const ASK_TIME_MAX: Duration = Duration::from_secs(5);
/// How long to look for an app of an earlier bridge.
pub const ADOPT_TIME_MAX: Duration = Duration::from_secs(10);
/// The size of an app's note on disk.
pub const NOTE_BYTES_MAX: u64 = 4 * 1024;

const _: () = assert!(APPS_PER_SANDBOX_MAX < APPS_MAX, "one sandbox does not keep others out");
const _: () = assert!(LOG_TOLD_BYTES <= LOG_KEPT_BYTES);
const _: () = assert!(
    APP_NAME_BYTES_MAX + "app..0123456789ab.ask".len() <= NAME_BYTES_MAX,
    "it is a session"
);
