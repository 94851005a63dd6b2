//! What a host tells an agent before it is an agent: the body of the `boot` frame.
//!
//! The process machine sends it as the first frame over the inherited socket pair. Everything that
//! a sandbox is made of is in here, so that nothing of it shows in an argument vector.

use serde::{Deserialize, Serialize};

use crate::decode_struct;

/// The sandbox to become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootConfig {
    /// Names the control group and the host name; unique on the host.
    pub sandbox: String,
    pub hostname: String,
    /// The directory that is the read-only lower layer of the root file system.
    pub root: String,
    /// Size of the private writable layer.
    pub scratch_bytes: u64,
    /// The environment of every program of the sandbox.
    pub env: Vec<(String, String)>,
    /// Paths of the lower layer that programs must not see.
    #[serde(default)]
    pub hide: Vec<String>,
    /// Whether descriptor 1 is a listening socket on which the host comes back.
    #[serde(default)]
    pub door: bool,
}

decode_struct!(BootConfig: sandbox, hostname, root, scratch_bytes, env; hide, door);
