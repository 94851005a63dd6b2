//! The head of a request as a program in a sandbox gets it. Pure.

use std::net::IpAddr;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName,
    HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

use super::visitor::{DAYTONA_TOKEN, is_link_cookie, without_link};
use super::{Form, bad_target};
use crate::call::{Call, Peer};
use crate::caller::take_keys;
use crate::subprotocol::{KEY_PROTOCOL, offered};
use access::preview::Base;
use sandbox::SandboxRef;
use sandbox::refusal::Refusal;

/// What concerns one connection alone, and is never passed on.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What says where a request came from, which only this server may say, and what is for this server.
const OWN: [HeaderName; 9] = [
    FORWARDED,
    FORWARDED_HOST,
    FORWARDED_PREFIX,
    FORWARDED_PROTO,
    EXPECT,
    CONTENT_LENGTH,
    HeaderName::from_static("e2b-sandbox-id"),
    HeaderName::from_static("e2b-sandbox-port"),
    DAYTONA_TOKEN,
];

/// The tokens that E2B's clients send into a sandbox.
const E2B_TOKENS: [HeaderName; 2] = [
    HeaderName::from_static("x-access-token"),
    HeaderName::from_static("e2b-traffic-access-token"),
];
const E2B_TOKEN_PREFIX: &[u8] = b"ea_";

/// How a request comes to a program.
pub struct Way {
    pub port: u16,
    pub form: Form,
    /// The path and the query for the program.
    pub target: String,
    /// The host that the client named.
    pub host: HeaderValue,
    pub scheme: &'static str,
    /// The protocol that the client asks for on this connection.
    pub upgrade: Option<HeaderValue>,
    /// Which pages may show those of the program in a frame; all if absent.
    pub framers: Option<HeaderValue>,
    peer: Option<IpAddr>,
}

impl Way {
    pub fn of(call: &Call, which: &SandboxRef, port: u16, form: Form) -> Result<Self, Refusal> {
        let path = match &form {
            Form::Path(prefix) => {
                call.target.place.path().strip_prefix(prefix.as_str()).ok_or_else(bad_target)?
            }
            Form::Host | Form::Headers => call.target.place.path(),
        };
        let path = if path.is_empty() { "/" } else { path };
        if !path.starts_with('/') {
            return Err(bad_target());
        }
        let query = without_link(&call.query);
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let host = call.headers.get(HOST).cloned();
        let peer = match call.entrance.peer {
            Peer::Tcp(address) => Some(address.ip()),
            Peer::Local => None,
        };
        let named = call.api.previews().base().filter(|_| form == Form::Host);
        let scheme = named.map_or_else(|| call.entrance.scheme(), Base::scheme);
        let upgrade = call.headers.get(UPGRADE).filter(|_| call.upgrade.is_some());
        let upgrade = upgrade.filter(|kind| !is_http(kind)).cloned();
        let is_public = call.api.previews().is_public(&which.namespace);
        let framers = call.api.framers().filter(|_| !is_public).cloned();
        let host = host.unwrap_or_else(|| HeaderValue::from_static(""));
        Ok(Self { port, form, target, host, scheme, upgrade, framers, peer })
    }

    /// One to port 3000, for tests.
    #[cfg(test)]
    pub fn sample(form: Form, host: &'static str) -> Self {
        Self {
            port: 3000,
            form,
            target: "/".to_owned(),
            host: HeaderValue::from_static(host),
            scheme: "http",
            upgrade: None,
            framers: Some(HeaderValue::from_static("frame-ancestors 'self'")),
            peer: Some(IpAddr::from([192, 0, 2, 1])),
        }
    }

    /// The headers for the program.
    pub fn head(&self, from: &HeaderMap) -> HeaderMap {
        let mut head = from.clone();
        strip_connection(&mut head);
        for name in OWN {
            head.remove(name);
        }
        take_keys(&mut head);
        for name in E2B_TOKENS {
            if head.get(&name).is_some_and(|value| value.as_bytes().starts_with(E2B_TOKEN_PREFIX)) {
                head.remove(name);
            }
        }
        rewrite(&mut head, &COOKIE, |line| others(line, ';', "; ", is_link_cookie));
        if offered(from).any(|one| one.starts_with(KEY_PROTOCOL)) {
            let is_key = |one: &str| one.starts_with(KEY_PROTOCOL);
            rewrite(&mut head, &SEC_WEBSOCKET_PROTOCOL, |line| others(line, ',', ", ", is_key));
        }
        if self.form.shares_origin() {
            // As a program that serves its own machine expects it.
            head.insert(HOST, text(&format!("localhost:{}", self.port)));
        }
        head.insert(FORWARDED_HOST, self.host.clone());
        head.insert(FORWARDED_PROTO, HeaderValue::from_static(self.scheme));
        if let Form::Path(prefix) = &self.form {
            head.insert(FORWARDED_PREFIX, text(prefix));
        }
        if let Some(peer) = self.peer {
            let before = head.get(FORWARDED_FOR).and_then(|value| value.to_str().ok());
            let all = before.map_or_else(|| peer.to_string(), |before| format!("{before}, {peer}"));
            head.insert(FORWARDED_FOR, text(&all));
        }
        match &self.upgrade {
            Some(kind) => {
                head.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                head.insert(UPGRADE, kind.clone());
            }
            // A connection is for one request, and a program that knows it is done with it sooner.
            None => drop(head.insert(CONNECTION, HeaderValue::from_static("close"))),
        }
        head
    }
}

/// Takes out what concerns one connection alone: by the standard, and by what `Connection` names.
pub fn strip_connection(head: &mut HeaderMap) {
    let named: Vec<HeaderName> = head
        .get_all(CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named.into_iter().chain(HOP_BY_HOP) {
        head.remove(name);
    }
}

/// Changes each line of a header, and drops those of which nothing is left.
fn rewrite(head: &mut HeaderMap, name: &HeaderName, change: impl Fn(&str) -> String) {
    let lines: Vec<HeaderValue> = head.get_all(name).iter().cloned().collect();
    head.remove(name);
    for line in lines {
        // What is no text is nothing of ours.
        let changed = line.to_str().ok().map(&change);
        let kept = changed.map_or(Some(line), |line| HeaderValue::try_from(line).ok());
        if let Some(kept) = kept.filter(|kept| !kept.is_empty()) {
            head.append(name, kept);
        }
    }
}

/// Whether another version of HTTP is asked for: its requests would pass unseen, keys and all.
fn is_http(upgrade: &HeaderValue) -> bool {
    let kinds = upgrade.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    kinds
        .into_iter()
        .any(|kind| kind.eq_ignore_ascii_case(b"h2c") || kind.eq_ignore_ascii_case(b"h2"))
}

/// A list without some of its items.
fn others(line: &str, separator: char, joint: &str, is_ours: impl Fn(&str) -> bool) -> String {
    let items = line.split(separator).map(str::trim).filter(|item| !is_ours(item));
    items.collect::<Vec<_>>().join(joint)
}

/// A header of text that was made here of what is safe in one.
fn text(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests;
