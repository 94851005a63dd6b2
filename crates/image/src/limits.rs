//! Limits of images on this host: their names and their content.

use std::time::Duration;

/// Registry and repository together, as registries bound them.
pub const NAME_BYTES_MAX: usize = 255;
/// A tag, as registries bound it.
pub const TAG_BYTES_MAX: usize = 128;

/// One blob. The largest layers that people publish (machine learning, mostly) are some 20 GiB.
pub const BLOB_BYTES_MAX: u64 = 64 << 30;
/// A blob that is read into memory whole: a manifest, an index, a configuration.
pub const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Pulls that run at the same time for sandboxes and operators; each fetches several layers at once.
pub const PULLS_AT_ONCE: usize = 4;
/// Further pulls that may wait: a request for more images at once is a mistake.
pub const PULLS_MAX: usize = 64;
/// How long a pull may take, its time in the queue included. Twenty gigabytes over a slow line take
/// an hour.
pub const PULL_TIME_MAX: Duration = Duration::from_secs(3600);
/// The age at which a partial blob counts as abandoned: interrupted pulls are usually continued within days.
pub const PARTIAL_AGE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Partial blobs that are kept when a store is opened, the newest ones.
pub const PARTIALS_MAX: usize = 64;
/// Between two looks whether another pull has finished with a blob.
pub const LOCK_LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Read at once when a partial blob is hashed again.
pub const HASH_PIECE_BYTES: usize = 256 * 1024;
