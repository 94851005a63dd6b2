//! What `[fleet]` says: whether this bridge is one of many, and what it is to the others.

use std::path::PathBuf;
use std::time::Duration;

use crate::limits::{
    FLEET_GRACE_DEFAULT, FLEET_LOG_AGE_DEFAULT, FLEET_LOG_BYTES_DEFAULT, FLEET_QUOTA_MAX,
};

/// In the place of a namespace: every one that has no entry of its own.
pub const EVERY_NAMESPACE: &str = "*";

/// `[fleet]`: many hosts behind one door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Where NATS is. Empty for a bridge of its own.
    pub servers: Vec<String>,
    /// The name of this node; the host's name if absent.
    pub node: Option<String>,
    /// Where the other bridges reach this one; the first address that it listens on if absent.
    pub address: Option<String>,
    /// A credentials file of NATS.
    pub credentials: Option<PathBuf>,
    /// Who has signed the certificates of NATS and of the other bridges, besides those that the host trusts.
    pub ca: Option<PathBuf>,
    /// Our own certificate, for NATS and for the other bridges.
    pub certificate: Option<PathBuf>,
    /// Set if `certificate` is.
    pub key: Option<PathBuf>,
    /// Whether other bridges must show a certificate too.
    pub mutual_tls: bool,
    /// `key=value`.
    pub labels: Vec<String>,
    pub grace: Duration,
    pub replicas: usize,
    /// All of the host's if absent.
    pub memory_bytes: Option<u64>,
    /// In thousandths; some times the host's processors if absent.
    pub cpu_millis: Option<u32>,
    pub sandboxes_max: u32,
    /// `namespace=number`; `*` is every namespace that has no entry of its own.
    pub quotas: Vec<String>,
    /// How long durable output is kept.
    pub log_age: Duration,
    /// How much of it is kept in the whole fleet.
    pub log_bytes: u64,
    /// What happens when there is more: [`DROP_OLDEST`] or [`WAIT`].
    pub log_full: &'static str,
}

/// The oldest output of all goes.
pub const DROP_OLDEST: &str = "drop_oldest";
/// Programs under `sync` wait, and what is behind under `async` stays behind.
pub const WAIT: &str = "wait";

impl Default for Fleet {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            node: None,
            address: None,
            credentials: None,
            ca: None,
            certificate: None,
            key: None,
            mutual_tls: false,
            labels: Vec::new(),
            grace: FLEET_GRACE_DEFAULT,
            replicas: 1,
            memory_bytes: None,
            cpu_millis: None,
            sandboxes_max: 512,
            quotas: Vec::new(),
            log_age: FLEET_LOG_AGE_DEFAULT,
            log_bytes: FLEET_LOG_BYTES_DEFAULT,
            log_full: DROP_OLDEST,
        }
    }
}

impl Fleet {
    /// Whether this bridge is one of a fleet.
    pub fn is_joined(&self) -> bool {
        !self.servers.is_empty()
    }

    /// The labels, as keys and values.
    pub fn label_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().filter_map(|label| label.split_once('='))
    }

    /// How many sandboxes a namespace may have in the fleet, where there is a limit.
    pub fn quota(&self, namespace: &str) -> Option<u32> {
        let of = |wanted: &str| self.quota_pairs().find(|(name, _)| *name == wanted);
        of(namespace).or_else(|| of(EVERY_NAMESPACE)).map(|(_, limit)| limit)
    }

    /// The limits, with their namespaces.
    pub fn quota_pairs(&self) -> impl Iterator<Item = (&str, u32)> {
        self.quotas.iter().filter_map(|entry| parse_quota(entry))
    }
}

/// Whether a text can be the name of a node: one token of a subject of NATS.
pub(crate) fn is_node(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=63).contains(&text.len()) && text.bytes().all(letter)
}

pub(crate) fn is_nats(text: &str) -> bool {
    let rest = ["nats://", "tls://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains([' ', ',', '/']))
}

/// A scheme, a host and perhaps a port, and no path.
pub(crate) fn is_bridge(text: &str) -> bool {
    let rest = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(letter))
}

fn parse_quota(text: &str) -> Option<(&str, u32)> {
    let (namespace, limit) = text.split_once('=')?;
    let is_namespace = namespace == EVERY_NAMESPACE || is_node(namespace);
    let limit = limit.parse().ok().filter(|limit| *limit <= FLEET_QUOTA_MAX)?;
    is_namespace.then_some((namespace, limit))
}

pub(crate) fn is_quota(text: &str) -> bool {
    parse_quota(text).is_some()
}

pub(crate) fn is_label(text: &str) -> bool {
    let plain = |text: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (1..=63).contains(&text.len()) && text.bytes().all(letter)
    };
    text.split_once('=').is_some_and(|(key, value)| plain(key) && plain(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_the_quota_that_names_it_before_the_one_of_all() {
        let quotas = ["team=3", "*=10"].map(str::to_owned).to_vec();
        let fleet = Fleet { quotas, ..Fleet::default() };
        assert_eq!((fleet.quota("team"), fleet.quota("other")), (Some(3), Some(10)));
        assert_eq!(Fleet::default().quota("team"), None);
    }

    #[test]
    fn a_quota_is_a_namespace_and_a_number() {
        for good in ["team=0", "*=5", "a-b_c=1000000"] {
            assert!(is_quota(good), "{good}");
        }
        for wrong in ["team", "team=", "=3", "team=-1", "team=many", "a/b=1", "team=1000001"] {
            assert!(!is_quota(wrong), "{wrong}");
        }
    }
}
