//! The body of the `boot` frame: the configuration of a sandbox.
//!
//! It is the first frame on the first link: the socket pair that the agent of a process machine
//! inherits, or the connection on which a virtual machine asks for it. The whole configuration is in
//! it, so that nothing shows in an argument vector or on a kernel command line.

use serde::{Deserialize, Serialize};

use crate::decode_struct;

/// The sandbox that the agent sets up.
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
    /// Whether descriptor 1 is a listening socket, on which the host can connect again.
    #[serde(default)]
    pub door: bool,
    /// The host's wall clock, microseconds since 1970; 0 where the machine has a clock of its own
    /// or shares the host's.
    #[serde(default)]
    pub time_us: u64,
}

decode_struct!(BootConfig: sandbox, hostname, root, scratch_bytes, env; hide, door, time_us);
