//! The wire of Daytona's published clients, as they are: the API of sandboxes, and the toolbox of each, all
//! below `/daytona` on this server's one port.
//!
//! ```text
//!  DAYTONA_API_URL=http://HOST:PORT/daytona      Authorization: Bearer KEY
//!    /daytona/sandbox …            sandboxes   made, found, started and stopped, links to ports
//!    /daytona/toolbox/{sandbox} …  process     commands, sessions of commands, terminals
//!                                  files       lists, contents, search
//!                                  git         the `git` of the sandbox
//!                                  interpreter contexts and runs over WebSockets
//! ```
//!
//! Every call carries a key, and means a sandbox by its id or by its name in the namespace of the key. What
//! Daytona has and no operation does is refused, in the form that its clients read.

mod answer;
mod contents;
mod create;
mod files;
mod git;
mod info;
mod interpreter;
mod labels;
mod limits;
mod links;
mod listing;
mod process;
mod pty;
mod refused;
mod replies;
mod run;
mod sandboxes;
mod search;
mod seat;
mod sessions;
mod telemetry;
mod volumes;

use super::route::Operation;

/// What all paths of this door begin with.
pub const PREFIX: &str = "/daytona/";

pub fn operations() -> Vec<Operation> {
    let all = [
        // Before paths of which its own would be some.
        refused::operations(),
        volumes::operations(),
        sandboxes::operations(),
        links::operations(),
        info::operations(),
        telemetry::operations(),
        process::operations(),
        sessions::operations(),
        pty::operations(),
        files::operations(),
        contents::operations(),
        search::operations(),
        git::operations(),
        interpreter::operations(),
    ];
    all.into_iter().flatten().map(|operation| operation.tag("daytona").undocumented()).collect()
}
