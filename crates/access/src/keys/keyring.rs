//! Verifies keys, and reloads them when commands change the files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::access::Scopes;
use super::claims::Claims;
use super::id::{Fingerprint, KeyId};
use super::issued::Issued;
use super::limits::LOOK_PAUSE;
use super::secret::Secret;
use super::ssh_key::SshKey;
use super::store::{KeyFiles, Stamps, Store, is_signed, now_ms};
use super::{Denied, Grant, KeysError, token};

/// The keys that a serving bridge accepts. Shared by all of its connections.
#[derive(Debug)]
pub struct Keyring {
    store: Store,
    watch: Mutex<Watch>,
}

/// The keys that were last read, and when the files were last checked.
#[derive(Debug)]
struct Watch {
    known: Arc<ValidKeys>,
    stamps: Stamps,
    looked_at: Instant,
    /// Why the current files could not be loaded.
    trouble: Option<String>,
}

/// What verifying a key needs.
#[derive(Debug)]
struct ValidKeys {
    /// Newest first: most keys are signed by it.
    secrets: Vec<Secret>,
    /// Each issued key, with the time of its revocation.
    issued: HashMap<KeyId, Option<u64>>,
    /// What the holders of SSH keys may do.
    by_ssh_key: HashMap<SshKey, Grant>,
}

impl ValidKeys {
    fn of(files: &KeyFiles) -> Self {
        Self {
            secrets: files.signers.iter().rev().map(|signer| signer.secret.clone()).collect(),
            issued: files.keys.iter().map(|key| (key.id.clone(), key.revoked_at_ms)).collect(),
            by_ssh_key: files
                .keys
                .iter()
                .filter(|key| key.revoked_at_ms.is_none() && is_signed(key, &files.signers))
                .flat_map(|key| key.ssh_keys.iter().map(move |ssh| (ssh.clone(), grant(key, ssh))))
                .collect(),
        }
    }

    fn of_ssh_key(&self, ssh_key: &SshKey) -> Option<Grant> {
        let grant = self.by_ssh_key.get(ssh_key)?;
        check_expiry(grant.expires_at_ms, now_ms()).ok().map(|()| grant.clone())
    }

    /// An id of our form must be in our index: where that was lost, revoked keys stay useless.
    fn check_id(&self, id: Option<&KeyId>) -> Result<(), Denied> {
        match id.map(|id| (id, self.issued.get(id))) {
            None | Some((_, Some(None))) => Ok(()),
            Some((id, None)) => Err(Denied::Unknown { id: id.clone() }),
            Some((id, Some(Some(at_ms)))) => Err(Denied::Revoked { id: id.clone(), at_ms: *at_ms }),
        }
    }
}

impl Keyring {
    /// Opens the keys in `directory`, which is created if it does not exist.
    pub fn open(directory: &Path) -> Result<Self, KeysError> {
        let store = Store::open(directory)?;
        let files = store.read()?;
        let watch = Watch {
            known: Arc::new(ValidKeys::of(&files)),
            stamps: files.stamps,
            looked_at: Instant::now(),
            trouble: None,
        };
        Ok(Self { store, watch: Mutex::new(watch) })
    }

    /// Where keys are issued and revoked. Its calls block.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What a presented key allows now.
    ///
    /// The clock has no leeway: the host that verifies is the one that has issued. A host that signs
    /// elsewhere with our secret keeps its clock.
    pub fn verify(&self, presented: &str) -> Result<Grant, Denied> {
        let known = self.known();
        match verify(presented, &known, now_ms()) {
            // It may have been made a moment ago. What is no key of ours costs two calls of `stat`
            // more for it.
            Err(denied @ (Denied::Unknown { .. } | Denied::BadSignature)) => {
                let newest = self.newest();
                if Arc::ptr_eq(&newest, &known) {
                    return Err(denied);
                }
                verify(presented, &newest, now_ms())
            }
            verified => verified,
        }
    }

    /// What the holder of an SSH key may do now. Whether it is the holder, the caller verifies.
    pub fn of_ssh_key(&self, ssh_key: &SshKey) -> Option<Grant> {
        // It may have been added a moment ago.
        self.known().of_ssh_key(ssh_key).or_else(|| self.newest().of_ssh_key(ssh_key))
    }

    /// Whether the key of a grant from earlier would still be let in.
    pub fn readmit(&self, grant: &Grant) -> Result<(), Denied> {
        check_expiry(grant.expires_at_ms, now_ms())?;
        self.known().check_id(grant.id.as_ref())
    }

    /// Why the current files are not in use; absent if they are.
    pub fn trouble(&self) -> Option<String> {
        let _ = self.known();
        self.lock().trouble.clone()
    }

    /// The keys, reloaded first if a check is due.
    fn known(&self) -> Arc<ValidKeys> {
        let mut watch = self.lock();
        if watch.looked_at.elapsed() >= LOOK_PAUSE {
            self.look(&mut watch);
        }
        Arc::clone(&watch.known)
    }

    /// The keys in the files at this moment.
    fn newest(&self) -> Arc<ValidKeys> {
        let mut watch = self.lock();
        self.look(&mut watch);
        Arc::clone(&watch.known)
    }

    /// Two calls of `stat` where nothing has changed. What cannot be read changes nothing: the
    /// bridge goes on with the last that it could read, says so, and looks again.
    fn look(&self, watch: &mut Watch) {
        watch.looked_at = Instant::now();
        if self.store.stamps() == watch.stamps {
            watch.trouble = None;
            return;
        }
        match self.store.read() {
            Ok(files) => {
                let known = ValidKeys::of(&files);
                let (keys, secrets) = (known.issued.len(), known.secrets.len());
                tracing::info!(keys, secrets, "the keys have changed");
                (watch.known, watch.stamps) = (Arc::new(known), files.stamps);
                watch.trouble = None;
            }
            Err(error) => {
                let trouble = error.to_string();
                if watch.trouble.as_ref() != Some(&trouble) {
                    tracing::error!(%error, "cannot use the keys on disk; keeping the last valid ones");
                }
                watch.trouble = Some(trouble);
            }
        }
    }

    /// A panic in another thread cannot leave it half-changed.
    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn grant(key: &Issued, ssh_key: &SshKey) -> Grant {
    Grant {
        id: Some(key.id.clone()),
        name: key.name.clone(),
        namespace: key.namespace.clone(),
        scopes: key.scopes,
        expires_at_ms: key.expires_at_ms,
        fingerprint: Fingerprint::of(ssh_key.as_str().as_bytes()),
    }
}

fn verify(presented: &str, known: &ValidKeys, now_ms: u64) -> Result<Grant, Denied> {
    let (claims, fingerprint) = token::decode(presented, &known.secrets)?;
    let Claims { jti, exp, nbf, namespace, scopes, name, .. } = claims;
    let in_ms = |seconds: u64| seconds.saturating_mul(1000);
    let expires_at_ms = exp.map(in_ms);
    check_expiry(expires_at_ms, now_ms)?;
    if let Some(from_ms) = nbf.map(in_ms).filter(|from_ms| *from_ms > now_ms) {
        return Err(Denied::NotYetValid { from_ms });
    }
    // What others sign with our secret bears no id of ours, and must expire in its stead.
    let id: Option<KeyId> = jti.and_then(|jti| jti.parse().ok());
    if id.is_none() && expires_at_ms.is_none() {
        return Err(Denied::Malformed("it never expires"));
    }
    known.check_id(id.as_ref())?;
    let scopes = scopes.unwrap_or(Scopes::UNSAID);
    Ok(Grant { id, name, namespace, scopes, expires_at_ms, fingerprint })
}

fn check_expiry(expires_at_ms: Option<u64>, now_ms: u64) -> Result<(), Denied> {
    match expires_at_ms.filter(|at_ms| *at_ms <= now_ms) {
        Some(at_ms) => Err(Denied::Expired { at_ms }),
        None => Ok(()),
    }
}
