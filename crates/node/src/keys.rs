//! The keys that marks are made with: two nodes have one in common, which each makes of its own secret and of what the
//! other has published (X25519). Signing each call instead would cost both together as much time as all else of a hop.

use std::collections::HashMap;
use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use curve25519_dalek::MontgomeryPoint;
use ring::hmac::{self, HMAC_SHA256};

use crate::limits::COMMON_KEYS_MAX;
use crate::lock;

pub(crate) const SECRET_BYTES: usize = 32;
/// What a common key is for, so that no other use of the same secrets has it.
const PURPOSE: &[u8] = b"burrow: marks of calls between nodes";

/// The key of a node.
pub(crate) struct NodeKey {
    secret: [u8; SECRET_BYTES],
    /// As other nodes read it.
    public: String,
    /// Those in common with other nodes, by what these have published.
    common: Mutex<HashMap<String, hmac::Key>>,
}

impl NodeKey {
    pub(crate) fn new(secret: [u8; SECRET_BYTES]) -> Self {
        let public = MontgomeryPoint::mul_base_clamped(secret);
        let public = URL_SAFE_NO_PAD.encode(public.as_bytes());
        Self { secret, public, common: Mutex::default() }
    }

    pub(crate) fn public(&self) -> &str {
        &self.public
    }

    /// The key in common with the node that has published this. `None`: that is no key of a node.
    pub(crate) fn common(&self, theirs: &str) -> Option<hmac::Key> {
        if let Some(known) = lock(&self.common).get(theirs) {
            return Some(known.clone());
        }
        let point = URL_SAFE_NO_PAD.decode(theirs).ok()?;
        let shared = MontgomeryPoint(point.try_into().ok()?).mul_clamped(self.secret);
        // Some points make the same of every secret.
        if shared == MontgomeryPoint::default() {
            return None;
        }
        let mut ends = [self.public.as_str(), theirs];
        ends.sort_unstable();
        let bound = [PURPOSE, ends[0].as_bytes(), ends[1].as_bytes()].concat();
        let made = hmac::sign(&hmac::Key::new(HMAC_SHA256, shared.as_bytes()), &bound);
        let made = hmac::Key::new(HMAC_SHA256, made.as_ref());
        let mut common = lock(&self.common);
        if common.len() >= COMMON_KEYS_MAX {
            // Who still needs one makes it again.
            common.clear();
        }
        common.insert(theirs.to_owned(), made.clone());
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_make_the_same_key_and_a_third_makes_another() {
        let [a, b, c] = [1, 2, 3].map(|byte| NodeKey::new([byte; SECRET_BYTES]));
        let tag = |key: Option<hmac::Key>| hmac::sign(&key.unwrap(), b"x").as_ref().to_vec();
        for _ in 0..2 {
            assert_eq!(tag(a.common(b.public())), tag(b.common(a.public())));
        }
        assert_ne!(tag(a.common(b.public())), tag(a.common(c.public())));
        assert_ne!(tag(a.common(b.public())), tag(c.common(b.public())));
    }

    #[test]
    fn what_is_no_key_makes_none() {
        let key = NodeKey::new([7; SECRET_BYTES]);
        let order_of_one = URL_SAFE_NO_PAD.encode([0; SECRET_BYTES]);
        for none in ["", "AAAA", "not base64!", &order_of_one] {
            assert!(key.common(none).is_none(), "{none}");
        }
    }

    #[test]
    fn there_are_never_more_of_them_than_fit() {
        let key = NodeKey::new([7; SECRET_BYTES]);
        for number in 0..=COMMON_KEYS_MAX {
            let mut point = [9; SECRET_BYTES];
            point[..8].copy_from_slice(&number.to_le_bytes());
            let _ = key.common(&URL_SAFE_NO_PAD.encode(point));
        }
        assert!(lock(&key.common).len() <= COMMON_KEYS_MAX);
    }
}
