//! The keys on disk, and everything that changes them.
//!
//! `secrets.json` holds the signing secrets, oldest first: the last one signs, all of them verify.
//! `keys.json` is the index of issued keys. Commands and a running bridge write both files under a
//! lock. A command does not notify the bridge, because its keyring checks the files itself.
//! Blocking.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::KeysError;
use super::access::{Namespaces, Scopes};
use super::claims::Claims;
use super::files::{self, Stamp};
use super::id::KeyId;
use super::issued::{Issued, Standing};
use super::limits::{
    EXPIRED_KEPT, INDEX_BYTES_MAX, KEYS_MAX, LABEL_CHARS_MAX, SECRETS_BYTES_MAX, SECRETS_MAX,
    SSH_KEYS_PER_KEY_MAX,
};
use super::secret::{Key, Secret};
use super::ssh_key::SshKey;
use super::token;
pub use host::instant::now_ms;
use host::paths::make_private_directory;

/// One signing secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signer {
    pub id: KeyId,
    pub made_at_ms: u64,
    pub secret: Secret,
}

/// The content of `secrets.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Secrets {
    secrets: Vec<Signer>,
}

/// The content of `keys.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Index {
    keys: Vec<Issued>,
}

/// Both files as they stood at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyFiles {
    pub signers: Vec<Signer>,
    pub keys: Vec<Issued>,
    pub stamps: Stamps,
}

/// Shows whether the files are still those that were read.
pub type Stamps = [Option<Stamp>; 2];

/// A request for a new key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRequest {
    pub namespace: Namespaces,
    pub scopes: Scopes,
    /// Milliseconds since 1970, of which whole seconds count; none for a key that never expires.
    pub expires_at_ms: Option<u64>,
    /// A label for people.
    pub name: Option<String>,
    /// The key whose holder asks for it: it is revoked with that one.
    pub issued_by: Option<KeyId>,
}

/// What happens to the signing secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// A new secret signs from now on; keys signed by older ones stay valid.
    Begin,
    /// The older secrets are dropped, and with them the keys that they signed.
    Finish,
    /// Both at once: every existing key becomes invalid.
    Replace,
}

/// The directory of keys. Every call reads the files again.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// Opens the directory; creates it with a first secret if it does not exist.
    pub fn open(directory: &Path) -> Result<Self, KeysError> {
        make_private_directory(directory).map_err(files::failed("make", directory))?;
        let store = Self { directory: directory.to_owned() };
        let _lock = store.lock()?;
        if Stamp::at(&store.secrets_file()).is_none() {
            // In this order, so that secrets without an index are damage and never half a start:
            // an index that is lost must not bring revoked keys back.
            if Stamp::at(&store.index_file()).is_none() {
                store.write_index(&Index::default())?;
            }
            store.write_secrets(&Secrets { secrets: vec![draw_signer(&[], now_ms())?] })?;
        }
        Ok(store)
    }

    /// Creates a key and adds it to the index.
    pub fn issue(&self, order: KeyRequest) -> Result<(Key, Issued), KeysError> {
        let now_ms = now_ms();
        check_label(order.name.as_deref())?;
        if order.expires_at_ms.is_some_and(|at_ms| at_ms / 1000 * 1000 <= now_ms) {
            return Err(KeysError::ExpiredAlready);
        }
        let _lock = self.lock()?;
        let mut files = self.read()?;
        prune(&mut files, now_ms);
        if files.keys.len() >= KEYS_MAX {
            return Err(KeysError::TooManyKeys { keys_max: KEYS_MAX });
        }
        let signer = files.signers.last().ok_or_else(|| self.no_secret())?;
        // It may have been revoked since it was let in.
        if let Some(issuer) = &order.issued_by
            && !files.keys.iter().any(|key| key.id == *issuer && key.revoked_at_ms.is_none())
        {
            return Err(KeysError::NoSuchKey { id: issuer.clone() });
        }
        let id = draw_id(|id| files.keys.iter().any(|key| key.id == *id))?;
        let expires_s = order.expires_at_ms.map(|at_ms| at_ms / 1000);
        let claims = Claims {
            jti: Some(id.to_string()),
            iat: now_ms / 1000,
            exp: expires_s,
            nbf: None,
            namespace: order.namespace.clone(),
            scopes: Some(order.scopes),
            name: order.name.clone(),
        };
        let key = token::encode(&claims, &signer.secret)?;
        let issued = Issued {
            id,
            name: order.name,
            namespace: order.namespace,
            scopes: order.scopes,
            issued_at_ms: now_ms,
            expires_at_ms: expires_s.map(|at_s| at_s * 1000),
            revoked_at_ms: None,
            secret: signer.id.clone(),
            issued_by: order.issued_by,
            ssh_keys: Vec::new(),
        };
        files.keys.push(issued.clone());
        self.write_index(&Index { keys: files.keys })?;
        Ok((key, issued))
    }

    /// All known keys, oldest first, each with its standing.
    pub fn list(&self) -> Result<Vec<(Issued, Standing)>, KeysError> {
        let now_ms = now_ms();
        let files = self.read()?;
        let standing = |key: &Issued| match key {
            key if !is_signed(key, &files.signers) => Standing::Dropped,
            key if key.revoked_at_ms.is_some() => Standing::Revoked,
            key if key.is_expired(now_ms) => Standing::Expired,
            _ => Standing::Valid,
        };
        Ok(files.keys.iter().map(|key| (key.clone(), standing(key))).collect())
    }

    /// Revokes a key, those that its holder has issued, and theirs. A second call changes nothing.
    pub fn revoke(&self, id: &KeyId) -> Result<Issued, KeysError> {
        let now_ms = now_ms();
        let _lock = self.lock()?;
        let mut files = self.read()?;
        let found = files.keys.iter_mut().find(|key| key.id == *id);
        let key = found.ok_or_else(|| KeysError::NoSuchKey { id: id.clone() })?;
        key.revoked_at_ms.get_or_insert(now_ms);
        let revoked = key.clone();
        revoke_issued(&mut files.keys, BTreeSet::from([id.clone()]), now_ms);
        prune(&mut files, now_ms);
        self.write_index(&Index { keys: files.keys })?;
        Ok(revoked)
    }

    /// Lets the holders of SSH keys do what a key allows. Those that it has already stay.
    pub fn add_ssh_keys(&self, id: &KeyId, ssh_keys: &[SshKey]) -> Result<Issued, KeysError> {
        self.change(id, |keys, at| {
            let taken = keys.iter().filter(|key| key.id != *id && key.revoked_at_ms.is_none());
            for other in taken {
                if let Some(ssh_key) = ssh_keys.iter().find(|key| other.ssh_keys.contains(key)) {
                    let (ssh_key, id) = (ssh_key.to_string(), other.id.clone());
                    return Err(KeysError::SshKeyTaken { ssh_key, id });
                }
            }
            let own = &mut keys[at].ssh_keys;
            for ssh_key in ssh_keys {
                if !own.contains(ssh_key) {
                    own.push(ssh_key.clone());
                }
            }
            if own.len() > SSH_KEYS_PER_KEY_MAX { Err(KeysError::TooManySshKeys) } else { Ok(()) }
        })
    }

    /// Takes all SSH keys from a key.
    pub fn remove_ssh_keys(&self, id: &KeyId) -> Result<Issued, KeysError> {
        self.change(id, |keys, at| {
            keys[at].ssh_keys.clear();
            Ok(())
        })
    }

    /// Changes the index at one key.
    fn change(
        &self,
        id: &KeyId,
        change: impl FnOnce(&mut [Issued], usize) -> Result<(), KeysError>,
    ) -> Result<Issued, KeysError> {
        let _lock = self.lock()?;
        let mut files = self.read()?;
        let at = files.keys.iter().position(|key| key.id == *id);
        let at = at.ok_or_else(|| KeysError::NoSuchKey { id: id.clone() })?;
        change(&mut files.keys, at)?;
        let changed = files.keys[at].clone();
        self.write_index(&Index { keys: files.keys })?;
        Ok(changed)
    }

    /// Changes the secrets; returns how many are in use.
    pub fn rotate(&self, rotation: Rotation) -> Result<usize, KeysError> {
        let now_ms = now_ms();
        let _lock = self.lock()?;
        let KeyFiles { mut signers, mut keys, .. } = self.read()?;
        if rotation != Rotation::Finish {
            signers.push(draw_signer(&signers, now_ms)?);
        }
        if rotation != Rotation::Begin {
            signers.drain(..signers.len().saturating_sub(1));
        }
        if signers.len() > SECRETS_MAX {
            return Err(KeysError::TooManySecrets { secrets_max: SECRETS_MAX });
        }
        let count = signers.len();
        let dropped = keys.iter().filter(|key| !is_signed(key, &signers));
        let dropped: BTreeSet<_> = dropped.map(|key| key.id.clone()).collect();
        if revoke_issued(&mut keys, dropped, now_ms) {
            self.write_index(&Index { keys })?;
        }
        self.write_secrets(&Secrets { secrets: signers })?;
        Ok(count)
    }

    /// What the files hold now. A writer may come between the two; the stamps show that.
    pub fn read(&self) -> Result<KeyFiles, KeysError> {
        let (secrets, secrets_stamp) = parse::<Secrets>(&self.secrets_file(), SECRETS_BYTES_MAX)?;
        let (index, index_stamp) = parse::<Index>(&self.index_file(), INDEX_BYTES_MAX)?;
        if secrets.secrets.is_empty() {
            return Err(self.no_secret());
        }
        if secrets.secrets.len() > SECRETS_MAX {
            return Err(KeysError::TooManySecrets { secrets_max: SECRETS_MAX });
        }
        let stamps = [Some(secrets_stamp), Some(index_stamp)];
        Ok(KeyFiles { signers: secrets.secrets, keys: index.keys, stamps })
    }

    /// What [`Store::read`] would stamp what it reads with.
    pub fn stamps(&self) -> Stamps {
        [Stamp::at(&self.secrets_file()), Stamp::at(&self.index_file())]
    }

    fn lock(&self) -> Result<impl Drop + use<>, KeysError> {
        files::lock(&self.directory.join("lock"))
    }

    fn secrets_file(&self) -> PathBuf {
        self.directory.join("secrets.json")
    }

    fn index_file(&self) -> PathBuf {
        self.directory.join("keys.json")
    }

    fn write_secrets(&self, secrets: &Secrets) -> Result<(), KeysError> {
        write(&self.secrets_file(), secrets)
    }

    fn write_index(&self, index: &Index) -> Result<(), KeysError> {
        write(&self.index_file(), index)
    }

    fn no_secret(&self) -> KeysError {
        let reason = "it holds no secret".to_owned();
        KeysError::Damaged { path: self.secrets_file(), reason }
    }
}

fn parse<T: DeserializeOwned>(path: &Path, bytes_max: u64) -> Result<(T, Stamp), KeysError> {
    let (bytes, stamp) = files::read(path, bytes_max)?;
    let parsed = serde_json::from_slice(&bytes).map_err(|error| {
        // The place of the error and not the text there, which may be a secret.
        let reason = format!("line {}, column {}", error.line(), error.column());
        KeysError::Damaged { path: path.to_owned(), reason }
    })?;
    Ok((parsed, stamp))
}

fn write(path: &Path, content: &impl Serialize) -> Result<(), KeysError> {
    let mut bytes = serde_json::to_vec_pretty(content)
        .map_err(|error| files::failed("write", path)(error.into()))?;
    bytes.push(b'\n');
    files::replace(path, &bytes)
}

/// Revokes what the holders of these keys have issued, and theirs; whether there is any. A key is behind its issuer.
fn revoke_issued(keys: &mut [Issued], mut issuers: BTreeSet<KeyId>, now_ms: u64) -> bool {
    let mut is_any = false;
    for key in keys {
        if key.issued_by.as_ref().is_some_and(|issuer| issuers.contains(issuer)) {
            is_any |= key.revoked_at_ms.is_none();
            key.revoked_at_ms.get_or_insert(now_ms);
            issuers.insert(key.id.clone());
        }
    }
    is_any
}

pub(super) fn is_signed(key: &Issued, signers: &[Signer]) -> bool {
    signers.iter().any(|signer| signer.id == key.secret)
}

/// Forgets keys that are useless without being revoked: their secret is gone, or they expired long
/// ago.
fn prune(files: &mut KeyFiles, now_ms: u64) {
    let long_ago_ms = now_ms.saturating_sub(EXPIRED_KEPT.as_millis() as u64);
    let KeyFiles { signers, keys, .. } = files;
    keys.retain(|key| is_signed(key, signers) && !key.is_expired(long_ago_ms));
}

fn check_label(label: Option<&str>) -> Result<(), KeysError> {
    let Some(label) = label else { return Ok(()) };
    let count = label.chars().count();
    if (1..=LABEL_CHARS_MAX).contains(&count) && !label.chars().any(char::is_control) {
        Ok(())
    } else {
        Err(KeysError::Label(label.chars().take(LABEL_CHARS_MAX + 1).collect()))
    }
}

fn draw_signer(others: &[Signer], made_at_ms: u64) -> Result<Signer, KeysError> {
    let id = draw_id(|id| others.iter().any(|other| other.id == *id))?;
    Ok(Signer { id, made_at_ms, secret: Secret::draw()? })
}

/// An id that is not taken. With 48 random bits a second draw is a rarity and a third a fault.
fn draw_id(is_taken: impl Fn(&KeyId) -> bool) -> Result<KeyId, KeysError> {
    const DRAWS_MAX: usize = 8;
    for _ in 0..DRAWS_MAX {
        let id = KeyId::draw()?;
        if !is_taken(&id) {
            return Ok(id);
        }
    }
    Err(KeysError::NoRandomness)
}
