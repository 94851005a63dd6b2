//! The two ends of a stream inside the agent: an [`Outlet`] is written by the agent's parts and
//! read by clients, an [`Inlet`] the other way round.
//!
//! Neither interprets the bytes. Both are used only on the event loop's thread, and nothing is
//! borrowed across an await.

mod digest;
mod inlet;
mod outlet;
mod sha256;
mod tap;

pub use digest::Digested;
pub use inlet::Inlet;
pub use outlet::{Outlet, Pin};
pub use tap::{Tap, Wire};
