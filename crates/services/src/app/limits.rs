//! Bounds of web apps, each with its reason.

use std::time::Duration;

use protocol::limits::NAME_BYTES_MAX;

/// Apps of one sandbox, ended ones that nobody has removed included: a site, its services and some
/// that were tried.
pub const APPS_PER_SANDBOX_MAX: usize = 16;
/// Apps of all sandboxes. Each is a task, a forwarded port and the tail of a log.
pub const APPS_MAX: usize = 256;
/// The file that an app is started from: what is longer is a tree, which is uploaded.
pub const CODE_BYTES_MAX: usize = 1024 * 1024;
/// The name of an app. Its session's name is made of it.
pub const APP_NAME_BYTES_MAX: usize = 40;
/// What is kept here of what an app says; all of it is in the sandbox's log.
pub const LOG_KEPT_BYTES: usize = 64 * 1024;
/// What a failure tells of it: a traceback, and what went before.
pub const LOG_TOLD_BYTES: usize = 8 * 1024;
/// Pieces of output that are taken before others get their turn.
pub const PIECES_AT_ONCE_MAX: usize = 64;
/// How long an app may take until it answers, when nobody says.
pub const READY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// The longest that may be asked for: what loads a model takes minutes.
pub const READY_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// How long one question whether it answers may take, before another is tried: a first answer may
/// take long, and one that was asked too early may never be given.
pub const TRY_TIME_MAX: Duration = Duration::from_secs(15);
/// Between two questions. Nothing tells when a program begins to listen, and a refused connection
/// costs microseconds, so the first come quickly.
pub const TRY_PAUSE_MIN: Duration = Duration::from_millis(20);
pub const TRY_PAUSE_MAX: Duration = Duration::from_millis(250);
/// The path that is asked for.
pub const READY_PATH_BYTES_MAX: usize = 1024;
/// What is read of the guest's table of sockets: some thousands of them.
pub const SOCKETS_BYTES_MAX: usize = 1024 * 1024;
/// Ports that are looked at for a free one.
pub const PORTS_TRIED_MAX: u16 = 1000;
/// Ports that a refusal names.
pub const PORTS_TOLD_MAX: usize = 8;
/// Warnings of one start that are kept; an agent of ours has one or two.
pub const WARNINGS_MAX: usize = 16;
/// How long an interpreter may take to say which modules it has: it starts, on a cold disk.
pub const INTERPRETER_TIME_MAX: Duration = Duration::from_secs(20);
/// What is kept of what it says.
pub const INTERPRETER_SAID_BYTES_MAX: usize = 4 * 1024;
/// From the request to end to the kill.
pub const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long each step of an end waits for the guest.
pub const ASK_TIME_MAX: Duration = Duration::from_secs(5);
/// How long an app of an earlier bridge is looked for.
pub const ADOPT_TIME_MAX: Duration = Duration::from_secs(10);
/// What the bridge has written down of one app.
pub const NOTE_BYTES_MAX: u64 = 4 * 1024;

const _: () = assert!(APPS_PER_SANDBOX_MAX < APPS_MAX, "one sandbox does not keep others out");
const _: () = assert!(LOG_TOLD_BYTES <= LOG_KEPT_BYTES);
const _: () = assert!(
    APP_NAME_BYTES_MAX + "app..0123456789ab.ask".len() <= NAME_BYTES_MAX,
    "it is a session"
);
