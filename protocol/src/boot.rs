//! The body of the `boot` frame: the configuration of a sandbox.
//!
//! It is the first frame on the first link: the socket pair that the agent of a process machine inherits, or
//! the connection on which a virtual machine requests it. It contains the whole configuration, so that
//! nothing shows in an argument vector or on a kernel command line.

use serde::{Deserialize, Serialize};

use crate::decode_struct;

/// The directory that the agent makes for programs that name none: they begin there.
pub const HOME: &str = "/sandbox";

/// How the agent begins to say that nothing bounds the processes of its sandbox. The host may still do it.
pub const PROCESSES_UNBOUNDED: &str = "processes_max is not enforced";

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
    /// The host's wall clock, microseconds since 1970; 0 if the machine has its own clock or shares
    /// the host's.
    #[serde(default)]
    pub time_us: u64,
    /// Ids of the host that are reserved for sandboxes. Absent for an ordinary user's sandbox, which is
    /// mapped to that user only, and for a machine with its own kernel.
    #[serde(default)]
    pub ids: Option<IdRanges>,
    /// The limit of processes and threads in the sandbox; 0 is no limit.
    #[serde(default)]
    pub processes_max: u64,
    /// The path of the version 2 control group that the host has made for the sandbox. Empty if the
    /// supervisor makes one itself, without controllers.
    #[serde(default)]
    pub group: String,
    /// The path of the private writable layer, a mount of `scratch_bytes` that the host has made and that has no
    /// place yet. Empty where the layer is in memory, and for a machine with disks of its own.
    #[serde(default)]
    pub scratch_mount: String,
}

/// The host's ids for users of sandboxes: `count` consecutive ranges of [`IDS_PER_SANDBOX`] ids. Each sandbox
/// gets a range that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRanges {
    pub first: u32,
    pub count: u32,
    /// Whether a sandbox whose users cannot be mapped is refused. Otherwise its root is the host's,
    /// and a step of its boot says so.
    pub required: bool,
}

/// Ids of one sandbox: the numbers that images use for their users.
pub const IDS_PER_SANDBOX: u32 = 65_536;

decode_struct!(BootConfig: sandbox, hostname, root, scratch_bytes, env; hide, door, time_us, ids, processes_max, group, scratch_mount);
decode_struct!(IdRanges: first, count, required);
