//! The wire of microsandbox's current clients (releases 0.6 and 0.7) with their cloud backend: a small API of
//! sandboxes, and for each sandbox a WebSocket that carries frames of CBOR, all below `/msb` on this server's
//! one port. The older clients (0.1) speak JSON-RPC: that is `rpc`.
//!
//! ```text
//!  MSB_API_URL=http://HOST:PORT/msb       Authorization: Bearer KEY
//!    /msb/v1/sandboxes …                  sandboxes  made, found, stopped and started, removed
//!    /msb/v1/sandboxes/{id}/logs          logs       what its programs write, as events
//!    /msb/v1/sandboxes/{id}/agent         agent      programs and files, over one WebSocket
//! ```
//!
//! Every call carries a key, and means a sandbox by its id or by its name in the namespace of the key. What
//! microsandbox has and no operation does is refused, in the form that its clients read.

mod agent;
mod answer;
mod create;
mod limits;
mod logs;
mod network;
mod refused;
mod sandboxes;
mod seat;

use super::route::Operation;

/// What all paths of this door begin with.
pub const PREFIX: &str = "/msb/";

pub fn operations() -> Vec<Operation> {
    let all =
        [refused::operations(), sandboxes::operations(), logs::operations(), agent::operations()];
    all.into_iter().flatten().map(|operation| operation.tag("msb").undocumented()).collect()
}
