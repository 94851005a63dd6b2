//! Bounds of links, each with its reason.

use std::time::Duration;

/// A link is for somebody who is shown something now.
pub const LINK_TTL_DEFAULT: Duration = Duration::from_secs(3600);
/// A shorter one is surely a mistake of units.
pub const LINK_TTL_MIN: Duration = Duration::from_secs(1);
/// A longer one is a door without a lock; a key, or a public namespace, says so openly.
pub const LINK_TTL_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Links of one sandbox that have not expired. Each request with a link looks through them.
pub const LINKS_PER_SANDBOX_MAX: usize = 256;
/// Sandboxes whose links are in memory; beyond, they are read again.
pub const SANDBOXES_KNOWN_MAX: usize = 4096;
/// A longest label of a host name.
pub const LABEL_BYTES_MAX: usize = 63;
