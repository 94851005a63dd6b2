//! Counts the bad keys of each peer.
//!
//! The count is checked only after a key was found bad. Verifying a key costs some microseconds,
//! and a peer that shares its address with an attacker, as all programs of this host do, must not
//! be locked out. An attacker only loses the full answer and the line in the log.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::limits::{BAD_KEY_PEERS_MAX, BAD_KEYS_BURST, BAD_KEYS_PER_SECOND};
use super::rate::{Rate, RateLimiter, RetryAfter};

/// The peer that a bad key is counted for. One customer has all addresses of an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Peer {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

/// The counts of all peers. Shared by all connections.
#[derive(Debug)]
pub struct BadKeys {
    counted: Mutex<RateLimiter<Peer>>,
}

impl Default for BadKeys {
    fn default() -> Self {
        let per_second = NonZeroU32::new(BAD_KEYS_PER_SECOND).expect("a constant above zero");
        let burst = NonZeroU32::new(BAD_KEYS_BURST).expect("a constant above zero");
        let limiter = RateLimiter::new(Rate::new(per_second, burst), BAD_KEY_PEERS_MAX);
        Self { counted: Mutex::new(limiter) }
    }
}

impl BadKeys {
    /// Counts one. An error is a peer that has had enough answers: 429 and no more words.
    pub fn count(&self, peer: IpAddr, now: Instant) -> Result<(), RetryAfter> {
        // A panic in another thread leaves at worst a count that is one off.
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.admit(peer.into(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_keys_of_one_peer_are_not_counted_for_another() {
        let bad = BadKeys::default();
        let now = Instant::now();
        let count = |address: &str| bad.count(address.parse().unwrap(), now);
        for _ in 0..BAD_KEYS_BURST {
            assert_eq!(count("192.0.2.1"), Ok(()));
        }
        assert!(count("192.0.2.1").is_err() && count("::ffff:192.0.2.1").is_err());
        assert_eq!(count("192.0.2.2"), Ok(()));
    }

    #[test]
    fn a_whole_network_of_version_six_is_one_peer() {
        let bad = BadKeys::default();
        let now = Instant::now();
        for host in 0..BAD_KEYS_BURST {
            let address = format!("2001:db8:1:2::{host:x}").parse().unwrap();
            assert_eq!(bad.count(address, now), Ok(()));
        }
        assert!(bad.count("2001:db8:1:2:ffff::1".parse().unwrap(), now).is_err());
        assert_eq!(bad.count("2001:db8:1:3::1".parse().unwrap(), now), Ok(()));
    }
}
