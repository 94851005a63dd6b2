//! Sessions: programs that clients started, their outputs, their input and their end.
//!
//! [`Sessions`] is the registry, and the only place where sessions are added, changed or removed.
//! A session's life:
//!
//! ```text
//! starting ──▶ running ──▶ exited ──▶ released
//!    │                       ▲
//!    └──── spawn failed ─────┘
//! ```
//!
//! *starting*: a thread makes the leader, and the session can already be asked for everything. *running*: the
//! leader lives. *exited*: the record stands; survivors may still write.
//! *released*: no holder is left and the leader has ended; the session is forgotten, and what its
//! survivors write is read for nobody.

mod ending;
mod input;
mod keyboard;
mod program;
mod pump;
mod registry;
mod starting;

pub use program::Session;
pub use registry::{HOUSEKEEPING, Sessions};
pub use starting::Starter;
