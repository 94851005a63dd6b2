//! The host's side of the protocol: [`link`] keeps one connection to an agent alive and carries its streams,
//! [`guest`] is the typed client on top of it, [`program`] is the one way to run a program, and [`queries`]
//! keeps a terminal from answering queries in a program's output.
//!
//! Everything that starts, reads or feeds programs in a sandbox calls this. It treats the agent as
//! hostile, starts no machine, and knows no sandbox by name.

#![forbid(unsafe_code)]

pub mod guest;
pub mod link;
pub mod program;
pub mod queries;
