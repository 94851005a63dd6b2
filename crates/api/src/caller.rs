//! The caller of a request: from the request's headers to what the caller may do.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName};

use super::limits::{KEYS_RATED_MAX, STRANGER};
use super::peer::Peer;
use super::subprotocol::{KEY_PROTOCOL, offered};
use access::keys::{Access, BadKeys, Denied, Fingerprint, Grant, Keyring, Rate, RateLimiter};
use access::keys::{KEY_PREFIX, Namespaces, RetryAfter};
use node::Through;
use sandbox::Name;
use sandbox::refusal::{Code, Refusal};

/// The header that E2B's clients send their key in.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// What comes before a key in `Authorization`.
const BEARER: &[u8] = b"bearer ";

/// Who asks, as far as it matters.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Nobody was asked for a key.
    Anybody,
    /// The server asks for no keys: a client that reaches it may do everything.
    Local,
    Holder(Grant),
    /// Somebody without a key who may reach a port of a sandbox of this namespace, and nothing else.
    Visitor(Name),
}

impl Caller {
    pub fn may(&self, access: Access) -> bool {
        match self {
            Self::Anybody => false,
            Self::Local => true,
            Self::Holder(grant) => grant.may(access),
            Self::Visitor(_) => access <= Access::Run,
        }
    }

    pub fn covers(&self, namespace: &Name) -> bool {
        match self {
            Self::Anybody => false,
            Self::Local => true,
            Self::Holder(grant) => grant.covers(namespace),
            Self::Visitor(own) => own == namespace,
        }
    }

    /// The one namespace that this caller has, if it is one.
    pub fn only_namespace(&self) -> Option<&Name> {
        match self {
            Self::Holder(Grant { namespace: Namespaces::One(name), .. }) => Some(name),
            _ => None,
        }
    }

    /// The key that it holds, by what it is called.
    pub fn key(&self) -> Option<String> {
        matches!(self, Self::Holder(_)).then(|| self.label())
    }

    /// Tells callers apart, in logs and in tables. It is no secret.
    pub fn label(&self) -> String {
        match self {
            Self::Anybody => "anybody".to_owned(),
            Self::Local => "local".to_owned(),
            Self::Visitor(_) => "visitor".to_owned(),
            Self::Holder(grant) => match &grant.id {
                Some(id) => id.to_string(),
                None => format!("{:?}", grant.fingerprint),
            },
        }
    }
}

/// How often a key may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOption {
    pub per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

/// Where keys are looked at.
pub struct Door {
    /// None where everybody may do everything.
    keyring: Option<Keyring>,
    bad_keys: BadKeys,
    rates: Option<Mutex<RateLimiter<Fingerprint>>>,
}

impl Door {
    pub fn new(keyring: Option<Keyring>, rate: Option<RateOption>) -> Self {
        let rates = rate.map(|rate| {
            let rate = Rate::new(rate.per_second, rate.burst);
            Mutex::new(RateLimiter::new(rate, KEYS_RATED_MAX))
        });
        Self { keyring, bad_keys: BadKeys::default(), rates }
    }

    /// The keys; none where everybody may do everything.
    pub fn keyring(&self) -> Option<&Keyring> {
        self.keyring.as_ref()
    }

    /// Who sends these headers.
    pub fn admit(&self, headers: &HeaderMap, peer: Peer) -> Result<Caller, Refusal> {
        let Some(keyring) = &self.keyring else { return Ok(Caller::Local) };
        let verified = match presented(headers) {
            Some(key) => keyring.verify(key),
            None => Err(Denied::Missing),
        };
        self.judge(verified, peer)
    }

    /// The caller of a call that another node of the fleet has let in. A node that asks for keys takes nobody from
    /// one that does not.
    pub fn admit_through(&self, through: Through) -> Result<Caller, Refusal> {
        match through {
            // Its sandbox's own way to know callers has come before.
            Through::Bearer => {
                Err(Refusal::new(Code::Unauthenticated, "nobody has let this call in"))
            }
            Through::Holder(grant) => Ok(Caller::Holder(*grant)),
            // A node is trusted with any grant; its operator may do at one node what he may do at the other.
            Through::Operator => Ok(Caller::Local),
            Through::Local if self.keyring.is_none() => Ok(Caller::Local),
            Through::Local => {
                let message = "the node that sent this call asks for no keys, and this one does";
                Err(Refusal::new(Code::Unauthenticated, message)
                    .hint("all nodes of a fleet ask for keys, or none"))
            }
        }
    }

    /// Who sends these headers, of a request that another node judges. Without a key that is for it to find out.
    pub fn admit_for_another(&self, headers: &HeaderMap, peer: Peer) -> Result<Caller, Refusal> {
        let has_key =
            sends_key(headers) || offered(headers).any(|one| one.starts_with(KEY_PROTOCOL));
        if has_key || self.keyring.is_none() {
            return self.admit(headers, peer);
        }
        Ok(Caller::Anybody)
    }

    /// The caller with this grant from earlier; on a server without keys, any caller.
    pub fn readmit(&self, grant: Option<&Grant>, peer: Peer) -> Result<Caller, Refusal> {
        let Some(keyring) = &self.keyring else { return Ok(Caller::Local) };
        let verified = match grant {
            Some(grant) => keyring.readmit(grant).map(|()| grant.clone()),
            None => Err(Denied::BadSignature),
        };
        self.judge(verified, peer)
    }

    fn judge(&self, verified: Result<Grant, Denied>, peer: Peer) -> Result<Caller, Refusal> {
        let grant = verified.map_err(|denied| self.refuse(&denied, peer))?;
        self.rate(grant.fingerprint)?;
        Ok(Caller::Holder(grant))
    }

    /// Counts a use of a key beyond the one that let the call in.
    pub fn charge(&self, caller: &Caller) -> Result<(), Refusal> {
        match caller {
            Caller::Anybody | Caller::Local | Caller::Visitor(_) => Ok(()),
            Caller::Holder(grant) => self.rate(grant.fingerprint),
        }
    }

    fn rate(&self, key: Fingerprint) -> Result<(), Refusal> {
        let Some(rates) = &self.rates else { return Ok(()) };
        let mut rates = rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.admit(key, Instant::now()).map_err(|RetryAfter(pause)| {
            Refusal::new(Code::RateLimited, "this key has reached its rate limit")
                .hint("try again after the seconds in Retry-After")
                .retry_after(pause)
        })
    }

    fn refuse(&self, denied: &Denied, peer: Peer) -> Refusal {
        tracing::debug!(target: "burrow::http", %denied, "a key was refused");
        if denied.is_suspect() {
            let address = match peer {
                Peer::Tcp(address) => address.ip(),
                Peer::Local => IpAddr::from(STRANGER),
            };
            if let Err(RetryAfter(pause)) = self.bad_keys.count(address, Instant::now()) {
                let message = "this address has sent too many invalid keys";
                return Refusal::new(Code::RateLimited, message).retry_after(pause);
            }
        }
        let details = serde_json::json!({ "reason": denied.code() });
        Refusal::new(Code::Unauthenticated, denied.explanation()).details(details)
    }

    /// What is wrong with the files of keys, if anything is.
    pub fn trouble(&self) -> Option<String> {
        self.keyring.as_ref().and_then(Keyring::trouble)
    }
}

/// Whether a client sends what has the form of a key of ours, in the headers for it. What has not is for
/// the program in a sandbox that a request is passed on to.
pub fn sends_key(headers: &HeaderMap) -> bool {
    is_key_in(headers, &AUTHORIZATION) || is_key_in(headers, &API_KEY)
}

/// Takes the keys out of the headers of a request that is passed on to a program in a sandbox.
pub fn take_keys(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, API_KEY] {
        if is_key_in(headers, &name) {
            headers.remove(name);
        }
    }
}

fn is_key_in(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(name).iter().any(|value| {
        let text = value.as_bytes();
        let bearer = text.split_at_checked(BEARER.len());
        let key = match bearer {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case(BEARER) => key.trim_ascii(),
            _ => text,
        };
        key.starts_with(KEY_PREFIX.as_bytes())
    })
}

/// The key that a client sends: as most clients do, as E2B's do, or as a browser's WebSocket must.
fn presented(headers: &HeaderMap) -> Option<&str> {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = authorization.and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let named = headers.get(&API_KEY).and_then(|value| value.to_str().ok());
    bearer.or(named).or_else(|| offered(headers).find_map(|one| one.strip_prefix(KEY_PROTOCOL)))
}
