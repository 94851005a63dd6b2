//! Jupyter's wire, as servers with `--gateway-url`, VS Code and `jupyter_client` speak it: kernels over REST,
//! and their messages on a WebSocket.
//!
//! ```text
//!  kernels   a kernel is a context, in a sandbox of its own or one that is named
//!  channels  a client's socket ─▶ shell   its requests, one after the other
//!                                 execute a cell: a run, and what all clients see of it
//!            client ◀─ what waits for it, within the memory of its key
//!  wire      messages in both framings
//! ```
//!
//! Cells are runs of contexts, which other doors reach too. What Jupyter has and contexts lack is answered
//! with nothing or refused.

mod channels;
mod client;
mod content;
mod entry;
mod execute;
mod history;
mod kernel;
mod kernels;
mod life;
mod limits;
mod shell;
mod specs;
mod wire;

use hyper::Method;

use super::route::{Operation, operation};

/// What is remembered between calls.
#[derive(Default)]
pub struct Memory {
    kernels: kernels::Kernels,
}

pub use kernels::has_kernel;

pub fn operations() -> Vec<Operation> {
    let path = "/api/kernels/{kernel}/channels";
    let summary = "Exchange messages with a kernel.";
    let channels =
        operation(Method::GET, path, "jupyter_channels", summary, channels::channels).run();
    let all = [specs::operations(), kernels::operations(), vec![channels]];
    all.into_iter()
        .flatten()
        .map(|operation| {
            operation.tag("jupyter").undocumented().known_by(entry::known).refusing(entry::REFUSALS)
        })
        .collect()
}
