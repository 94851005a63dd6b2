//! Everything that the guest-agent and the host-bridge share: the frames, the messages in them, and
//! the state machines that both ends run.
//!
//! Nothing here does I/O, reads a clock, knows a runtime or has `unsafe`: every type is fed bytes
//! and answers with bytes, so that a test can run two ends against each other over a link that it
//! cuts wherever it likes. PROTOCOL.md describes the same things for people.

#![forbid(unsafe_code)]

pub mod boot;
pub mod calls;
pub mod codec;
pub mod data;
pub mod egress;
pub mod exit;
pub mod fault;
pub mod frame;
pub mod hello;
pub mod ids;
pub mod limits;
pub mod message;
pub mod metrics;
pub mod msgpack;
pub mod mux;
pub mod record;
pub mod repl;
pub mod requests;
pub mod serial;
pub mod sorted;
pub mod spool;
pub mod stream;
pub mod text;
pub mod watch;

pub use exit::{Cause, ExitRecord};
pub use fault::{Fault, FaultCode};
pub use ids::{AgentId, ClientId, ContextName, RequestId, SessionId, StreamId, Token};
pub use message::{Reply, Request};
pub use text::Text;
