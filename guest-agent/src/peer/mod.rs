//! Clients: a [`Peer`] is one bridge or debugger with its streams and unanswered requests, and
//! [`Peers`] are all of them. `serve` connects them with links; `router` and `adopt` answer them.
//!
//! A *link* is the connection that a client has at the moment. A client outlives its links: its
//! streams are kept for as long as it asked for.

mod client;
mod registry;

pub use client::Peer;
pub use registry::Peers;
