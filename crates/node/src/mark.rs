//! The mark of a call between nodes: who calls, as the node that the client has called knows it, signed by that node.
//!
//! ```text
//!  client ─key─▶ gateway: verifies the key ─mark─▶ owner: the gateway is a node of the fleet, its signature is good,
//!                                                  the mark is for this node, this call and this moment
//! ```
//!
//! The owner then allows what the gateway's grant allows, and looks at no key. A mark holds for one node, one method
//! and one path, for some seconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::keys::Grant;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleet::ids::NodeId;
use fleet::records::NodeRecord;
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::limits::{MARK_BYTES_MAX, MARK_MS};

/// Who calls through another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Through {
    /// The gateway asks for no keys.
    Local,
    Holder(Box<Grant>),
    /// Who is at the control socket of the gateway.
    Operator,
    /// Whom only the node of the sandbox can judge, by what the request itself carries: the token of a sandbox, or a
    /// link to a port.
    Bearer,
}

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    pub from: NodeId,
    pub to: NodeId,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub method: String,
    /// With the query.
    pub path: String,
    /// The host name that the client has called, where it means something at the other node too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub caller: Through,
    /// The life of the sandbox that is meant: the fence of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
}

/// Why a mark is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkRefused {
    #[error("the mark is malformed")]
    Form,
    #[error("{0:?} is no node of this fleet")]
    Stranger(String),
    #[error("the mark is not signed by the node that it names")]
    Signature,
    #[error("the mark is for another node or another call")]
    Elsewhere,
    #[error(
        "the mark is {by_ms} ms from this host's time: the clocks of the nodes differ, or it is old"
    )]
    Time { by_ms: u64 },
}

/// What a call is, as far as a mark binds it.
#[derive(Clone, Copy, Debug)]
pub struct Called<'a> {
    pub method: &'a str,
    pub path: &'a str,
    /// What is signed with it, and read from the mark.
    pub host: Option<&'a str>,
}

pub(crate) fn sign(mark: &Mark, key: &Ed25519KeyPair) -> String {
    let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(mark).expect("a mark is JSON"));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(text.as_bytes()));
    format!("{text}.{signature}")
}

/// The mark in a header, if a node of the fleet has made it for this call.
pub(crate) fn read(
    header: &str,
    me: &NodeId,
    called: Called<'_>,
    nodes: &BTreeMap<NodeId, Arc<NodeRecord>>,
    now_ms: u64,
) -> Result<Mark, MarkRefused> {
    if header.len() > MARK_BYTES_MAX {
        return Err(MarkRefused::Form);
    }
    let (text, signature) = header.split_once('.').ok_or(MarkRefused::Form)?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| MarkRefused::Form);
    let mark: Mark = serde_json::from_slice(&decode(text)?).map_err(|_| MarkRefused::Form)?;
    let stranger = || MarkRefused::Stranger(mark.from.to_string());
    let node = nodes.get(&mark.from).filter(|_| mark.from != *me).ok_or_else(stranger)?;
    let key = URL_SAFE_NO_PAD.decode(&node.key).map_err(|_| stranger())?;
    let verified =
        UnparsedPublicKey::new(&ED25519, key).verify(text.as_bytes(), &decode(signature)?);
    verified.map_err(|_| MarkRefused::Signature)?;
    if mark.to != *me || mark.method != called.method || mark.path != called.path {
        return Err(MarkRefused::Elsewhere);
    }
    let by_ms = mark.at_ms.abs_diff(now_ms);
    if by_ms > MARK_MS { Err(MarkRefused::Time { by_ms }) } else { Ok(mark) }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::KeyPair;

    use super::*;

    const NOW: u64 = 1_700_000_000_000;
    const CALLED: Called<'_> = Called { method: "POST", path: "/v1/x?y=1", host: None };

    fn key() -> Ed25519KeyPair {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap()
    }

    fn id(text: &str) -> NodeId {
        NodeId::parse(text).unwrap()
    }

    fn mark() -> Mark {
        Mark {
            from: id("n1"),
            to: id("n2"),
            at_ms: NOW,
            method: CALLED.method.to_owned(),
            path: CALLED.path.to_owned(),
            host: None,
            caller: Through::Local,
            incarnation: None,
        }
    }

    fn nodes(key: &Ed25519KeyPair) -> BTreeMap<NodeId, Arc<NodeRecord>> {
        let public = URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
        let record = NodeRecord { key: public, ..NodeRecord::default() };
        ["n1", "n2"].map(|name| (id(name), Arc::new(record.clone()))).into()
    }

    #[test]
    fn a_mark_of_a_node_is_read_by_the_node_that_it_is_for() {
        let key = key();
        let header = sign(&mark(), &key);
        assert_eq!(read(&header, &id("n2"), CALLED, &nodes(&key), NOW), Ok(mark()));
    }

    #[test]
    fn a_mark_holds_for_one_node_one_call_and_one_moment() {
        let key = key();
        let nodes = nodes(&key);
        let refused = |mark: Mark, called, now| {
            read(&sign(&mark, &key), &id("n2"), called, &nodes, now).unwrap_err()
        };
        let elsewhere = Mark { to: id("n3"), ..mark() };
        assert_eq!(refused(elsewhere, CALLED, NOW), MarkRefused::Elsewhere);
        for called in [Called { method: "GET", ..CALLED }, Called { path: "/v1/x?y=2", ..CALLED }] {
            assert_eq!(refused(mark(), called, NOW), MarkRefused::Elsewhere);
        }
        for now in [NOW - MARK_MS - 1, NOW + MARK_MS + 1] {
            assert_eq!(refused(mark(), CALLED, now), MarkRefused::Time { by_ms: MARK_MS + 1 });
        }
    }

    #[test]
    fn only_a_node_of_the_fleet_can_make_one_and_only_as_itself() {
        let (key, other) = (key(), key());
        let nodes = nodes(&key);
        let read = |header: &str| read(header, &id("n2"), CALLED, &nodes, NOW).unwrap_err();
        let stranger = Mark { from: id("n9"), ..mark() };
        assert_eq!(read(&sign(&stranger, &other)), MarkRefused::Stranger("n9".to_owned()));
        assert_eq!(read(&sign(&mark(), &other)), MarkRefused::Signature);
        // A node does not call itself: what comes back to it is a mark that was sent on.
        let own = Mark { from: id("n2"), ..mark() };
        assert_eq!(read(&sign(&own, &key)), MarkRefused::Stranger("n2".to_owned()));
        for broken in ["", ".", "x.y", "e30.e30", &"a".repeat(MARK_BYTES_MAX + 1)] {
            assert_eq!(read(broken), MarkRefused::Form, "{broken}");
        }
    }

    #[test]
    fn what_is_changed_in_a_mark_breaks_its_signature() {
        let key = key();
        let header = sign(&mark(), &key);
        let (_, signature) = header.split_once('.').unwrap();
        let more = Mark { at_ms: NOW + 1, ..mark() };
        let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&more).unwrap());
        let forged = format!("{text}.{signature}");
        let refused = read(&forged, &id("n2"), CALLED, &nodes(&key), NOW);
        assert_eq!(refused, Err(MarkRefused::Signature));
    }
}
