//! Keys as subjects and values as JSON. Pure.

use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde_json::Error;

use crate::ids::{Name, NodeId};
use crate::records::{Key, Value};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bucket {
    Nodes,
    Names,
    Quotas,
    Templates,
}

impl Bucket {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nodes => "burrow-nodes",
            Self::Names => "burrow-sandboxes",
            Self::Quotas => "burrow-quotas",
            Self::Templates => "burrow-templates",
        }
    }

    pub(super) fn prefix(self) -> String {
        format!("$KV.{}.", self.name())
    }
}

pub(super) fn bucket_of(key: &Key) -> Bucket {
    match key {
        Key::Lease(_) | Key::Node(_) => Bucket::Nodes,
        Key::Name(_) => Bucket::Names,
        Key::Quota(_) => Bucket::Quotas,
    }
}

pub(super) fn subject_of(key: &Key) -> String {
    let prefix = bucket_of(key).prefix();
    match key {
        Key::Lease(id) => format!("{prefix}lease.{id}"),
        Key::Node(id) => format!("{prefix}about.{id}"),
        Key::Name(name) => format!("{prefix}{name}"),
        Key::Quota(namespace) => format!("{prefix}{namespace}"),
    }
}

pub(super) fn key_of(subject: &str) -> Option<Key> {
    let tokens: Vec<_> = subject.split('.').collect();
    match tokens[..] {
        ["$KV", "burrow-nodes", "lease", id] => NodeId::parse(id).ok().map(Key::Lease),
        ["$KV", "burrow-nodes", "about", id] => NodeId::parse(id).ok().map(Key::Node),
        ["$KV", "burrow-sandboxes", namespace, name] => {
            Name::parse(namespace, name).ok().map(Key::Name)
        }
        ["$KV", "burrow-quotas", namespace] => Some(Key::Quota(namespace.into())),
        _ => None,
    }
}

/// Whether a message says that its key has no value: it was removed, or has run out.
pub(super) fn is_marker(headers: &HeaderMap) -> bool {
    let operation = headers.get("KV-Operation").map(async_nats::HeaderValue::as_str);
    matches!(operation, Some("DEL" | "PURGE")) || headers.get("Nats-Marker-Reason").is_some()
}

pub(super) fn write_value(value: &Value) -> Bytes {
    let json = match value {
        Value::Lease(lease) => serde_json::to_vec(lease),
        Value::Node(node) => serde_json::to_vec(node.as_ref()),
        Value::Name(name) => serde_json::to_vec(name),
        Value::Quota(counter) => serde_json::to_vec(counter),
    };
    json.expect("a record is JSON").into()
}

pub(super) fn parse_value(key: &Key, payload: &[u8]) -> Result<Value, Error> {
    Ok(match key {
        Key::Lease(_) => Value::Lease(serde_json::from_slice(payload)?),
        Key::Node(_) => Value::Node(Arc::new(serde_json::from_slice(payload)?)),
        Key::Name(_) => Value::Name(serde_json::from_slice(payload)?),
        Key::Quota(_) => Value::Quota(serde_json::from_slice(payload)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, Revision};
    use crate::quota::Counter;
    use crate::records::{Lease, NameRecord, NameState, NodeRecord, Room};

    #[test]
    fn every_key_is_a_subject_and_comes_back() {
        let id = NodeId::parse("n-1").unwrap();
        let keys = [
            Key::Lease(id.clone()),
            Key::Node(id),
            Key::Name(Name::parse("team", "web_1").unwrap()),
            Key::Quota("team".into()),
        ];
        for key in keys {
            assert_eq!(key_of(&subject_of(&key)), Some(key));
        }
        assert_eq!(key_of("$KV.burrow-sandboxes.barrier.scan.n1"), None);
    }

    #[test]
    fn every_value_is_json_and_comes_back() {
        let id = NodeId::parse("n1").unwrap();
        let name = NameRecord {
            incarnation: Incarnation(7),
            node: id.clone(),
            session: Revision(4),
            request: "r".into(),
            needs: Room::default(),
            counted: true,
            returns: false,
            state: NameState::Owned,
        };
        let lease = Lease::Alive { session: None, installation: "i".into(), used: Room::default() };
        let pairs = [
            (Key::Lease(id.clone()), Value::Lease(lease)),
            (Key::Lease(id.clone()), Value::Lease(Lease::Buried { swept: true })),
            (Key::Node(id), Value::Node(NodeRecord::default().into())),
            (Key::Name(Name::parse("a", "b").unwrap()), Value::Name(name)),
            (
                Key::Quota("a".into()),
                Value::Quota(Counter::default().admit(Incarnation(1), 9).unwrap()),
            ),
        ];
        for (key, value) in pairs {
            assert_eq!(parse_value(&key, &write_value(&value)).unwrap(), value);
        }
    }
}
