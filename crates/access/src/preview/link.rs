//! Links: who has one reaches one port of one sandbox, until it expires, is removed, or its sandbox or the
//! key that made it is gone.
//!
//! A link's token is random, and only its digest is kept, in the sandbox's own directory: so it outlives
//! the bridge, ends with the sandbox, and can be taken back alone.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::limits::{LINK_TTL_MAX, LINK_TTL_MIN, LINKS_PER_SANDBOX_MAX, SANDBOXES_KNOWN_MAX};
use super::{KnownLinks, Previews};
use crate::keys::Grant;
use host::hex::digits;
use host::id::random_bytes;
use host::instant::now_ms;
use host::paths::write_durably;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Registry, SandboxError, SandboxId, SandboxRef};

const FILE: &str = "previews.json";
/// What every token begins with: it makes them findable where they should not be.
const PREFIX: &str = "bpl_";
const TOKEN_BYTES: usize = 24;
/// How much of the digest is the id.
const ID_CHARS: usize = 12;

/// A link, without what opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub id: String,
    pub port: u16,
    pub made_at_ms: u64,
    pub expires_at_ms: u64,
    /// The key that has made it, without which it is worth nothing; absent for the operator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// Of the token, in hexadecimal digits.
    digest: String,
}

/// What opens a link. It is stored nowhere.
pub struct LinkToken(String);

impl LinkToken {
    fn draw() -> io::Result<Self> {
        Ok(Self(format!("{PREFIX}{}", digits(&random_bytes::<TOKEN_BYTES>()?))))
    }

    /// The token itself, for the one who has asked for the link.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("a link must be good for 1 s to {} days", LINK_TTL_MAX.as_secs() / 86_400)]
    Ttl,
    #[error("{which} has {limit} links, which is the limit")]
    TooMany { which: SandboxRef, limit: usize },
    #[error("{which} has no link {id:?}")]
    Unknown { which: SandboxRef, id: String },
    #[error("cannot store the links of {which}: {source}")]
    Store { which: SandboxRef, source: io::Error },
    #[error("the file of the links of {which} is damaged; remove the sandbox, or restore the file")]
    Damaged { which: SandboxRef },
}

impl From<&LinkError> for Refusal {
    fn from(error: &LinkError) -> Self {
        let with = |code| Refusal::of(code, error);
        match error {
            LinkError::Sandbox(error) => error.into(),
            LinkError::Ttl => with(Code::Invalid).details(json!({ "field": "ttl_ms" })),
            LinkError::TooMany { limit, .. } => with(Code::LimitReached)
                .details(json!({ "limit": limit }))
                .hint("remove some that are not needed"),
            LinkError::Unknown { .. } => with(Code::NotFound),
            LinkError::Store { .. } => with(Code::Internal).or_no_room(error),
            LinkError::Damaged { .. } => with(Code::Internal),
        }
    }
}

impl From<LinkError> for Refusal {
    fn from(error: LinkError) -> Self {
        Self::from(&error)
    }
}

impl Previews {
    /// Makes a link to a port, for a key or for the operator.
    pub fn make_link(
        &self,
        registry: &Registry,
        which: &SandboxRef,
        port: u16,
        ttl: Duration,
        grant: Option<Grant>,
    ) -> Result<(Link, LinkToken), LinkError> {
        if !(LINK_TTL_MIN..=LINK_TTL_MAX).contains(&ttl) {
            return Err(LinkError::Ttl);
        }
        let store = |source| LinkError::Store { which: which.clone(), source };
        let token = LinkToken::draw().map_err(store)?;
        let (made_at_ms, digest) = (now_ms(), digest_of(token.expose()));
        let expires_at_ms = made_at_ms.saturating_add(ttl.as_millis() as u64);
        let id = digest[..ID_CHARS].to_owned();
        let link = Link { id, port, made_at_ms, expires_at_ms, grant, digest };
        self.change(registry, which, |links| {
            links.retain(|link| !link.is_expired(made_at_ms));
            if links.len() >= LINKS_PER_SANDBOX_MAX {
                let limit = LINKS_PER_SANDBOX_MAX;
                return Err(LinkError::TooMany { which: which.clone(), limit });
            }
            links.push(link.clone());
            Ok(())
        })?;
        Ok((link, token))
    }

    /// The links of a sandbox that have not expired, the oldest first.
    pub fn links(&self, registry: &Registry, which: &SandboxRef) -> Result<Vec<Link>, LinkError> {
        let now_ms = now_ms();
        let known = self.known(registry, which)?;
        Ok(known.iter().filter(|link| !link.is_expired(now_ms)).cloned().collect())
    }

    /// Takes a link back. From now on it opens nothing.
    pub fn remove_link(
        &self,
        registry: &Registry,
        which: &SandboxRef,
        id: &str,
    ) -> Result<Link, LinkError> {
        self.change(registry, which, |links| {
            let at = links.iter().position(|link| link.id == id);
            let id = || id.chars().take(ID_CHARS).collect();
            let unknown = || LinkError::Unknown { which: which.clone(), id: id() };
            Ok(links.remove(at.ok_or_else(unknown)?))
        })
    }

    /// The link that a token opens at a port of a sandbox. Digests are compared, whose bytes nobody can
    /// choose: how long that takes says nothing of a token.
    pub fn opened(
        &self,
        registry: &Registry,
        which: &SandboxRef,
        port: u16,
        token: &str,
    ) -> Option<Link> {
        if !token.starts_with(PREFIX) {
            return None;
        }
        let (digest, now_ms) = (digest_of(token), now_ms());
        let known = self.known(registry, which).ok()?;
        let opened = known.iter().find(|link| link.digest == digest && link.port == port)?;
        (!opened.is_expired(now_ms)).then(|| opened.clone())
    }

    fn change<T>(
        &self,
        registry: &Registry,
        which: &SandboxRef,
        change: impl FnOnce(&mut Vec<Link>) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        let (id, directory) = (registry.get(which)?.id, registry.state_directory(which)?);
        // Held while the file is written, so that no two changes meet.
        let mut known = self.lock();
        let mut links = match known.get(&id) {
            Some(links) => Vec::clone(links),
            None => read(&directory, which)?,
        };
        let changed = change(&mut links)?;
        let store = |source| LinkError::Store { which: which.clone(), source };
        let text = serde_json::to_vec(&links).map_err(|error| store(error.into()))?;
        write_durably(&directory, FILE, &text).map_err(store)?;
        remember(&mut known, id, Arc::new(links));
        Ok(changed)
    }

    /// The links of a sandbox, from memory or its directory.
    fn known(&self, registry: &Registry, which: &SandboxRef) -> Result<Arc<Vec<Link>>, LinkError> {
        let id = registry.get(which)?.id;
        let mut known = self.lock();
        if let Some(links) = known.get(&id) {
            return Ok(Arc::clone(links));
        }
        let links = Arc::new(read(&registry.state_directory(which)?, which)?);
        remember(&mut known, id, Arc::clone(&links));
        Ok(links)
    }

    fn lock(&self) -> MutexGuard<'_, KnownLinks> {
        // Nothing in it is ever half-changed.
        self.0.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms <= now_ms
    }
}

fn remember(known: &mut KnownLinks, id: SandboxId, links: Arc<Vec<Link>>) {
    if known.len() >= SANDBOXES_KNOWN_MAX {
        known.clear();
    }
    known.insert(id, links);
}

fn read(directory: &Path, which: &SandboxRef) -> Result<Vec<Link>, LinkError> {
    match fs::read(directory.join(FILE)) {
        Ok(text) => {
            serde_json::from_slice(&text).map_err(|_| LinkError::Damaged { which: which.clone() })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(LinkError::Store { which: which.clone(), source }),
    }
}

fn digest_of(token: &str) -> String {
    digits(digest(&SHA256, token.as_bytes()).as_ref())
}
