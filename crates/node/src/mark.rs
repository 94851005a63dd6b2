//! The mark of a call between nodes: who calls, as the node that the client has called knows it, signed with the key
//! that this node and the receiver have in common ([`keys`](crate::keys)).
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
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::keys::NodeKey;
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
    /// Or one of the two knows another key of the other than it has now.
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

/// The mark as a header, for the node that has published `theirs`.
pub(crate) fn sign(mark: &Mark, key: &NodeKey, theirs: &str) -> Option<String> {
    let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(mark).expect("a mark is JSON"));
    let signature = hmac::sign(&key.common(theirs)?, text.as_bytes());
    Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The mark in a header, if a node of the fleet has made it for this call.
pub(crate) fn read(
    header: &str,
    (me, key): (&NodeId, &NodeKey),
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
    let key = key.common(&node.key).ok_or_else(stranger)?;
    let verified = hmac::verify(&key, text.as_bytes(), &decode(signature)?);
    verified.map_err(|_| MarkRefused::Signature)?;
    if mark.to != *me || mark.method != called.method || mark.path != called.path {
        return Err(MarkRefused::Elsewhere);
    }
    let by_ms = mark.at_ms.abs_diff(now_ms);
    if by_ms > MARK_MS { Err(MarkRefused::Time { by_ms }) } else { Ok(mark) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SECRET_BYTES;

    const NOW: u64 = 1_700_000_000_000;
    const CALLED: Called<'_> = Called { method: "POST", path: "/v1/x?y=1", host: None };

    /// The keys of the nodes n1 and n2, and one of no node.
    fn keys() -> [NodeKey; 3] {
        [1, 2, 3].map(|byte| NodeKey::new([byte; SECRET_BYTES]))
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

    fn nodes([first, second, _]: &[NodeKey; 3]) -> BTreeMap<NodeId, Arc<NodeRecord>> {
        [("n1", first), ("n2", second)]
            .map(|(name, key)| {
                let key = key.public().to_owned();
                (id(name), Arc::new(NodeRecord { key, ..NodeRecord::default() }))
            })
            .into()
    }

    /// A mark that a node has made for n2.
    fn signed(mark: &Mark, by: &NodeKey) -> String {
        sign(mark, by, keys()[1].public()).unwrap()
    }

    fn read_at(header: &str, called: Called<'_>, now_ms: u64) -> Result<Mark, MarkRefused> {
        let keys = keys();
        read(header, (&id("n2"), &keys[1]), called, &nodes(&keys), now_ms)
    }

    #[test]
    fn a_mark_of_a_node_is_read_by_the_node_that_it_is_for() {
        let [first, ..] = keys();
        assert_eq!(read_at(&signed(&mark(), &first), CALLED, NOW), Ok(mark()));
    }

    #[test]
    fn a_mark_holds_for_one_node_one_call_and_one_moment() {
        let [first, ..] = keys();
        let refused =
            |mark: Mark, called, now| read_at(&signed(&mark, &first), called, now).unwrap_err();
        let elsewhere = Mark { to: id("n3"), ..mark() };
        assert_eq!(refused(elsewhere, CALLED, NOW), MarkRefused::Elsewhere);
        for called in [Called { method: "GET", ..CALLED }, Called { path: "/v1/x?y=2", ..CALLED }] {
            assert_eq!(refused(mark(), called, NOW), MarkRefused::Elsewhere);
        }
        for now in [NOW - MARK_MS - 1, NOW + MARK_MS + 1] {
            assert_eq!(refused(mark(), CALLED, now), MarkRefused::Time { by_ms: MARK_MS + 1 });
        }
        // What was made for another node is nothing here, though the names in it are ours.
        let [_, _, third] = keys();
        let for_third = sign(&mark(), &first, third.public()).unwrap();
        assert_eq!(read_at(&for_third, CALLED, NOW), Err(MarkRefused::Signature));
    }

    #[test]
    fn only_a_node_of_the_fleet_can_make_one_and_only_as_itself() {
        let [first, second, other] = keys();
        let read = |header: &str| read_at(header, CALLED, NOW).unwrap_err();
        let stranger = Mark { from: id("n9"), ..mark() };
        assert_eq!(read(&signed(&stranger, &other)), MarkRefused::Stranger("n9".to_owned()));
        assert_eq!(read(&signed(&mark(), &other)), MarkRefused::Signature);
        // A node does not call itself: what comes back to it is a mark that was sent on.
        let own = Mark { from: id("n2"), ..mark() };
        assert_eq!(read(&signed(&own, &second)), MarkRefused::Stranger("n2".to_owned()));
        for broken in ["", ".", "x.y", "e30.e30", &"a".repeat(MARK_BYTES_MAX + 1)] {
            assert_eq!(read(broken), MarkRefused::Form, "{broken}");
        }
        assert_eq!(sign(&mark(), &first, "no key"), None);
    }

    #[test]
    fn what_is_changed_in_a_mark_breaks_its_signature() {
        let [first, ..] = keys();
        let header = signed(&mark(), &first);
        let (_, signature) = header.split_once('.').unwrap();
        let more = Mark { at_ms: NOW + 1, ..mark() };
        let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&more).unwrap());
        for forged in [format!("{text}.{signature}"), format!("{text}."), header.replace('.', ".A")]
        {
            let refused = read_at(&forged, CALLED, NOW).unwrap_err();
            assert!(matches!(refused, MarkRefused::Signature | MarkRefused::Form), "{refused}");
        }
    }
}
