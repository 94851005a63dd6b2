//! Numbers for pauses and ids.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random number from the keys that the standard library draws for its hash maps: enough for
/// pauses and for ids, which are no secrets.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
