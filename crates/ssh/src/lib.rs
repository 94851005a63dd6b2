//! The door for SSH: `ssh NAME@host`, `scp`, `sftp`, `rsync` and `ssh -L` into sandboxes.
//!
//! ```text
//!  server ─▶ connection ─▶ login    an SSH key and a name of a user ─▶ a grant and a sandbox
//!  (flow)       │ channels
//!               ├─▶ program   exec and shell: one program, on pipes or a terminal
//!               ├─▶ sftp      files, by the guest's own calls
//!               └─▶ forward   one connection to a port of the sandbox
//! ```
//!
//! The transport is `russh`. Each channel is one visit of its sandbox: it wakes it, keeps it awake, and is recorded
//! in the audit log. `daemon` starts this; it runs no program and touches no file of the host but its key.

#![forbid(unsafe_code)]

mod connection;
mod elsewhere;
mod flow;
mod forward;
mod host_key;
pub mod limits;
mod login;
mod place;
mod program;
mod server;
mod sftp;
mod trail;
mod usage;

use std::path::PathBuf;
use std::sync::Arc;

use access::audit::Audit;
use access::keys::Keyring;
use sandbox::Registry;
use services::forwards::Forwards;

pub use elsewhere::{Elsewhere, Visiting};
pub use host_key::HostKeyError;
pub use server::{OpenError, Server};

/// What the door is opened with.
pub struct Options {
    pub registry: Registry,
    pub keyring: Keyring,
    pub audit: Audit,
    pub forwards: Forwards,
    /// The other nodes of the fleet, if there are any.
    pub elsewhere: Option<Arc<dyn Elsewhere>>,
    /// The file of the host's key.
    pub host_key: PathBuf,
    /// Whether that file is made if it is missing.
    pub makes_key: bool,
    pub limits: limits::Limits,
}
