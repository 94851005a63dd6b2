//! Bounds of volumes, each with its reason.

use std::time::Duration;

/// A name: as long as other names of this bridge.
pub const NAME_CHARS_MAX: usize = 63;
/// Volumes of one namespace: more than anybody tells apart by their names.
pub const VOLUMES_PER_NAMESPACE_MAX: usize = 128;
/// Volumes of all namespaces: each is some hundred bytes of this process, and a directory to look at when it starts.
pub const VOLUMES_MAX: usize = 4096;
/// Volumes that one sandbox mounts: a process is started for each mount.
pub const MOUNTS_MAX: usize = 16;
/// The path at which a sandbox has one.
pub const MOUNT_PATH_BYTES_MAX: usize = 1024;
/// The record of one.
pub const RECORD_BYTES_MAX: u64 = 64 * 1024;
/// Random bytes of a token: it cannot be guessed.
pub const TOKEN_BYTES: usize = 24;
/// A path in a volume, as Linux bounds it.
pub const PATH_BYTES_MAX: usize = 4095;
/// Entries of one listing, and how many directories deep it goes.
pub const LISTED_MAX: usize = 100_000;
pub const LISTED_DEPTH_MAX: u32 = 64;
/// The same of a measurement: a tree with more counts as full.
pub const MEASURED_MAX: u64 = 1_000_000;
pub const MEASURED_DEPTH_MAX: usize = 64;
/// The largest file that a client uploads, as for files of a sandbox: what is larger is made there.
pub const UPLOAD_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;
/// Permissions of new files and directories, where a client sets none.
pub const FILE_MODE: u32 = 0o644;
pub const DIRECTORY_MODE: u32 = 0o755;
/// Permissions that a client may set: the rights of other users on execution mean nothing in a mount without them.
pub const MODE_MAX: u32 = 0o1777;
/// How long a removal may take: programs may fill a directory while it is emptied.
pub const REMOVAL_MAX: Duration = Duration::from_secs(600);
/// How often a directory that does not become empty is emptied again.
pub const ROUNDS_MAX: u32 = 8;
/// Between measurements of volumes that sandboxes write to.
pub const MEASURE_PAUSE: Duration = Duration::from_secs(30);
