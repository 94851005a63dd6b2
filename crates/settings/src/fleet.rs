//! What `[fleet]` says: whether this bridge is one of many, and what it is to the others.

use std::path::PathBuf;
use std::time::Duration;

use crate::limits::FLEET_GRACE_DEFAULT;

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
    /// Our own certificate for NATS.
    pub certificate: Option<PathBuf>,
    /// Set if `certificate` is.
    pub key: Option<PathBuf>,
    /// `key=value`.
    pub labels: Vec<String>,
    pub grace: Duration,
    pub replicas: usize,
    /// All of the host's if absent.
    pub memory_bytes: Option<u64>,
    /// In thousandths; some times the host's processors if absent.
    pub cpu_millis: Option<u32>,
    pub sandboxes_max: u32,
}

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
            labels: Vec::new(),
            grace: FLEET_GRACE_DEFAULT,
            replicas: 1,
            memory_bytes: None,
            cpu_millis: None,
            sandboxes_max: 512,
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

pub(crate) fn is_label(text: &str) -> bool {
    let plain = |text: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (1..=63).contains(&text.len()) && text.bytes().all(letter)
    };
    text.split_once('=').is_some_and(|(key, value)| plain(key) && plain(value))
}
