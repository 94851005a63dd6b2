//! The tokens of sandboxes: what E2B's clients send into a sandbox instead of their key, and sign URLs
//! with. Each is drawn for one key and one sandbox, and is good for as long as both are.
//!
//! They are stored in the sandbox's own directory, so that they outlive the bridge and end with the
//! sandbox.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hyper::header::HeaderValue;
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::limits::{PASSES_PER_SANDBOX_MAX, SANDBOXES_KNOWN_MAX};
use crate::Api;
use crate::caller::Caller;
use crate::peer::Peer;
use access::keys::Grant;
use host::hex::digits;
use host::id::random_bytes;
use host::paths::write_unsynced;
use machine::SandboxId;
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Refusal};

const FILE: &str = "e2b.json";
const TOKEN_BYTES: usize = 24;
/// What every token begins with.
const TOKEN_PREFIX: &str = "ea_";

/// The tokens that are in memory.
#[derive(Default)]
pub struct Passes(Mutex<HashMap<SandboxId, Arc<Tokens>>>);

/// The tokens of one sandbox, the oldest first.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Tokens {
    tokens: Vec<Token>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Token {
    token: String,
    /// Absent where no key was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grant: Option<Grant>,
}

impl Tokens {
    fn with(&self, token: &str) -> Option<&Token> {
        self.tokens.iter().find(|known| is_same(&known.token, token))
    }
}

/// Whether a header's value has the form of a token: a program may have a use of its own for the header.
pub fn is_token(value: Option<&HeaderValue>) -> bool {
    value.is_some_and(|value| value.as_bytes().starts_with(TOKEN_PREFIX.as_bytes()))
}

/// The token of a caller for a sandbox, drawn if it has none.
pub fn token_of(
    api: &Api,
    (which, id): (&SandboxRef, &SandboxId),
    caller: &Caller,
) -> Result<String, Refusal> {
    let grant = match caller {
        Caller::Holder(grant) => Some(grant.clone()),
        Caller::Anybody | Caller::Local | Caller::Visitor(_) => None,
    };
    let known = known(api, which, id);
    if let Some(known) = known.tokens.iter().find(|known| known.grant == grant) {
        return Ok(known.token.clone());
    }
    let drawn = random_bytes::<TOKEN_BYTES>();
    let bytes = drawn.map_err(|error| Refusal::of(Code::Internal, &error))?;
    let token = format!("{TOKEN_PREFIX}{}", digits(&bytes));
    let mut tokens = Tokens::clone(&known);
    tokens.tokens.push(Token { token: token.clone(), grant });
    let surplus = tokens.tokens.len().saturating_sub(PASSES_PER_SANDBOX_MAX);
    tokens.tokens.drain(..surplus);
    let text = serde_json::to_vec(&tokens).map_err(|error| Refusal::of(Code::Internal, &error))?;
    // A power cut costs a token at most, and a new one is drawn then.
    write_unsynced(&api.registry().state_directory(which)?, FILE, &text)
        .map_err(|error| Refusal::of(Code::Internal, &error).or_no_room(&error))?;
    api.e2b().passes.lock().insert(id.clone(), Arc::new(tokens));
    Ok(token)
}

/// Who sends this token to a sandbox.
pub fn holder(
    api: &Api,
    (which, id): (&SandboxRef, &SandboxId),
    token: &str,
    peer: Peer,
) -> Result<Caller, Refusal> {
    let known = known(api, which, id);
    api.door().readmit(known.with(token).and_then(|token| token.grant.as_ref()), peer)
}

/// What a URL was signed for.
pub struct Signed<'a> {
    pub path: &'a str,
    pub operation: &'a str,
    pub user: &'a str,
    pub expires: Option<&'a str>,
    pub signature: &'a str,
}

impl Signed<'_> {
    fn is_by(&self, token: &str) -> bool {
        let Self { path, operation, user, expires, .. } = self;
        let mut text = format!("{path}:{operation}:{user}:{token}");
        if let Some(expires) = expires {
            text = format!("{text}:{expires}");
        }
        let signature = STANDARD_NO_PAD.encode(digest(&SHA256, text.as_bytes()));
        is_same(&format!("v1_{signature}"), self.signature)
    }
}

/// The sandbox with whose token a URL was signed, and whose token that is. A URL names no sandbox, so all
/// that live are tried.
pub fn signer(api: &Api, signed: &Signed<'_>, peer: Peer) -> Result<(SandboxRef, Caller), Refusal> {
    for record in api.registry().list(None) {
        let which = record.which();
        let known = known(api, &which, &record.id);
        if let Some(token) = known.tokens.iter().find(|known| signed.is_by(&known.token)) {
            return Ok((which, api.door().readmit(token.grant.as_ref(), peer)?));
        }
    }
    Err(Refusal::new(Code::Unauthenticated, "the signature of this URL is not valid"))
}

/// The tokens of a sandbox, from memory or its directory.
fn known(api: &Api, which: &SandboxRef, id: &SandboxId) -> Arc<Tokens> {
    if let Some(known) = api.e2b().passes.lock().get(id) {
        return Arc::clone(known);
    }
    let directory = api.registry().state_directory(which);
    let read = directory.ok().and_then(|directory| read(&directory)).unwrap_or_default();
    let read = Arc::new(read);
    let mut passes = api.e2b().passes.lock();
    if passes.len() >= SANDBOXES_KNOWN_MAX {
        passes.clear();
    }
    passes.insert(id.clone(), Arc::clone(&read));
    read
}

fn read(directory: &Path) -> Option<Tokens> {
    match fs::read(directory.join(FILE)) {
        Ok(text) => serde_json::from_slice(&text).ok(),
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                tracing::warn!(%error, "cannot read the tokens of a sandbox");
            }
            None
        }
    }
}

impl Passes {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Tokens>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares in a time that says nothing of where two texts differ.
fn is_same(one: &str, other: &str) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[0; 32]);
    let tag = hmac::sign(&key, one.as_bytes());
    hmac::verify(&key, other.as_bytes(), tag.as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_for_one_path_one_operation_and_one_time() {
        let signed = |path, operation, expires| Signed {
            path,
            operation,
            user: "user",
            expires,
            signature: "v1_rTyGuv2WD1Ye2iGA+5ILJTdZ7PR/8RZUGF6ZLxVW5v8",
        };
        let text = "/a.txt:read:user:ea_1:7";
        let expected = STANDARD_NO_PAD.encode(digest(&SHA256, text.as_bytes()));
        let signature = format!("v1_{expected}");
        let good = Signed { signature: &signature, ..signed("/a.txt", "read", Some("7")) };
        assert!(good.is_by("ea_1"));
        for wrong in [
            signed("/b.txt", "read", Some("7")),
            signed("/a.txt", "write", Some("7")),
            signed("/a.txt", "read", Some("8")),
            signed("/a.txt", "read", None),
        ] {
            assert!(!Signed { signature: &signature, ..wrong }.is_by("ea_1"));
        }
        assert!(!good.is_by("ea_2"));
    }
}
