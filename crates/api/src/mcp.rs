//! MCP: what agents are given, as tools, whatever their client comes over.
//!
//! ```text
//!  http  ─▶ the SDK's transport ─┐                        ┌─▶ tools ─▶ sandbox, guest
//!  lines ─▶ the SDK's transport ─┴─▶ server ─▶ tool ──────┤
//!                                      └─▶ session ◀──────┘  own sandbox, cut results
//! ```
//!
//! The SDK knows the protocol; this part knows what the tools are and what they may do. A tool is a
//! row of one table ([`tools`]): its name, what a key must allow for it, what it does to the world,
//! and the types that its schemas are made of. A refusal has the code of every other door, and the
//! tools' words for what may help.

mod captured;
mod carried;
mod cut;
mod display;
#[cfg(feature = "mcp-fixture")]
mod fixture;
mod hints;
mod http;
pub mod limits;
mod lines;
mod outline;
mod progress;
mod resources;
mod results;
mod schema;
mod server;
mod session;
mod sessions;
mod tool;
pub(super) mod tools;
mod work;

pub use http::{operations, session_of};
pub use lines::serve;
pub use sessions::Sessions;

/// What the SDK calls.
#[cfg(not(feature = "mcp-fixture"))]
type Handler = server::Server;
#[cfg(feature = "mcp-fixture")]
type Handler = fixture::Fixture;
