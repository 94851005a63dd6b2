//! The wire of E2B's published clients, as they are: sandboxes over REST, and what goes into a sandbox
//! as their `envd` and their code interpreter take it, all on this server's one port.
//!
//! ```text
//!  X-API-KEY ─▶ control   /v2/sandboxes …                        sandboxes, snapshots, templates
//!  E2b-Sandbox-Id, E2b-Sandbox-Port, X-Access-Token
//!    49983 ─▶ process, filesystem   Connect's envelopes of JSON  programs, directories, watches
//!             files                 /files                       contents, also by signed URLs
//!    49999 ─▶ interpreter           /execute, /contexts          runs of code
//! ```
//!
//! A request of a sandbox says so in its headers or in its host name, and is found in the table of
//! operations under a path of its own, [`place`]. `passes` knows which key is behind a token. Everything
//! is an operation that the other doors have too: what E2B has and no operation does is refused, in the
//! form that its clients read.

mod account;
mod answer;
mod builds;
mod charts;
mod codes;
mod connect;
mod construction;
mod control;
mod entry;
mod envd;
mod files;
mod filesystem;
mod forms;
mod interpreter;
mod limits;
mod logs;
mod page;
mod passes;
mod place;
mod process;
mod recipe;
mod refused;
mod replies;
mod results;
mod seat;
mod snapshots;
mod templates;
mod uploads;
mod volume_content;
mod volumes;
mod watches;

pub use place::{place_of, sandbox_of};

use super::route::Operation;

/// What is remembered between calls: the tokens of sandboxes, who lives in them, how programs were
/// started, which interpreters can make charts, watches that are asked for their events, builds and links for uploads.
#[derive(Default)]
pub struct Memory {
    passes: passes::Passes,
    accounts: account::Accounts,
    commands: process::Commands,
    charts: charts::Prepared,
    watches: watches::Watches,
    builds: builds::Builds,
    uploads: uploads::Uploads,
}

pub fn operations() -> Vec<Operation> {
    let all = [
        control::operations(),
        snapshots::operations(),
        logs::operations(),
        templates::operations(),
        construction::operations(),
        volumes::operations(),
        volume_content::operations(),
        refused::operations(),
        envd::operations(),
        process::operations(),
        filesystem::operations(),
        files::operations(),
        interpreter::operations(),
    ];
    all.into_iter().flatten().map(|operation| operation.tag("e2b").undocumented()).collect()
}
