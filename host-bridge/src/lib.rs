//! The host's half of Burrow as a library, for programs that want sandboxes in their own process.
//!
//! [`Bridge`] is the beginning: it starts sandboxes, runs programs and code in them, and ends them.
//! `examples/twenty_lines.rs` is a whole program. Programs that would rather ask a server use its HTTP
//! API instead. The binary of the same name is `main.rs`; the parts of both are the crates in `crates/`.

#![forbid(unsafe_code)]

mod bridge;

pub use bridge::{Bridge, BridgeError, Inside, Once, Output, Sandbox, WHOLE_OUTPUT_BYTES_MAX};

/// Types that a program needs beside [`Bridge`].
pub use host::paths::Paths;
pub use sandbox::Spec;
