//! Many bridges behind one door: names, leases, fences, placement and quotas, with NATS `JetStream` as the store.
//!
//! [`Member`] decides everything, and is pure: it is given events and the time, and answers with actions. It has
//! no socket, no clock and no task, so that `tests/simulation` can run a thousand of them under seeded chaos, and
//! a checker can judge the history. `nats` is the transport that carries the actions out.
//!
//! The bridge calls it; it never starts a machine itself, and never carries a byte of a sandbox.

#![forbid(unsafe_code)]

pub mod driver;
pub mod event;
pub mod ids;
pub mod lease;
pub mod limits;
pub mod log;
mod member;
pub mod nats;
pub mod placement;
pub mod quota;
pub mod random;
pub mod records;
pub mod track;

pub use member::{Me, Member, Status};
