//! The table itself: reasons here, rows in two parts.

mod life;
mod machine;

use super::SandboxOption;

const ENDS_WITH_COMMAND: &str = "the sandbox has no record, and ends with its command";
const BELONGS_TO_SESSION: &str = "the sandbox is the session's own, and ends with it";
const PUBLISHED_CALL: &str = "the call is one that other servers have published";
const NOT_A_DEFAULT: &str = "it says which sandbox, not what kind";
const PER_SANDBOX: &str = "it is for one sandbox";
const STORED: &str = "the options of a notebook are stored, and this may be a secret";
const NOT_FOR_NOTEBOOKS: &str = "make a sandbox, and give its name to the notebook";
const OPERATOR: &str = "it shows files of the host, which only its operator may";
const SERVER_ONLY: &str = "the server decides";
const BOOTED: &str = "the sandbox is always booted; make one from a snapshot with `start`";
const NEVER: &str =
    "no machine can do it; a request that has it is refused, with what to do instead";
const OF_MADE: &str = "who makes a sandbox of it says so";
const OF_BUILD: &str = "a build of its template sets it";
const ORIGINAL: &str = "it is the original's";
const OF_RUNNING: &str = "it is a copy of a sandbox that runs";
const ONE_WRITER: &str =
    "two sandboxes that write changes back to one directory would undo each other's";

/// Every option of a sandbox. Each row has each door once.
pub fn all() -> impl Iterator<Item = &'static SandboxOption> {
    machine::ROWS.iter().chain(life::ROWS)
}
