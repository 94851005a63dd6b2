//! Sessions as every door meets them: found by their names with the agent or in the log, read from any
//! offset without holding anybody up, and typed into.
//!
//! ```text
//!  find ─▶ feed    what a session says, from the agent and from the log
//!     └──▶ typing  bytes into it, until it has them
//! ```

pub mod end_all;
pub mod feed;
pub mod find;
pub mod lost;
pub mod turns;
pub mod typing;

pub use feed::{Feed, FeedEvent, SessionEnd, Start};
pub use find::{FoundSession, Session, find, look_at};
