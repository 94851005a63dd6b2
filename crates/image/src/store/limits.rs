//! Limits of this host's image store, and of an image's documents, which are untrusted.

use std::time::Duration;

use crate::layer::limits::IMAGE_BYTES_MAX;

/// A manifest or an index.
pub const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// A configuration: its history has a line for each step of the build.
pub const CONFIG_BYTES_MAX: u64 = 8 << 20;
/// Manifests that one index, and images that one archive, may list.
pub const MANIFESTS_MAX: usize = 256;
/// How many indexes may be nested before a manifest.
pub const INDEX_DEPTH_MAX: usize = 4;
/// Strings of an image's environment, entry point and command together.
pub const CONFIG_STRINGS_MAX: usize = 1024;
/// Their total size, which has to fit into the frame that starts a program.
pub const CONFIG_STRINGS_BYTES_MAX: usize = 256 << 10;
/// The record of one image that this store keeps, and the table of their names.
pub const RECORD_BYTES_MAX: u64 = 16 << 20;
/// Names that are kept.
pub const NAMES_MAX: usize = 4096;
/// Repositories of one image: its record must stay readable.
pub const REPOSITORIES_MAX: usize = 256;
/// Patterns of the allow-list.
pub const PATTERNS_MAX: usize = 256;

/// How long a removal waits for builds and starts from the store.
pub const STORE_BUSY_MAX: Duration = Duration::from_secs(10);
/// How often it retries meanwhile.
pub const STORE_BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The archive of an import is unpacked before it is looked at.
pub const IMPORT_BYTES_MAX: u64 = IMAGE_BYTES_MAX;

const _: () = assert!(CONFIG_STRINGS_BYTES_MAX < protocol::limits::FRAME_BYTES_MAX, "it is sent");
