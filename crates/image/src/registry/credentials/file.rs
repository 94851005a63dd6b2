//! The format of docker's `config.json` and of `auth.json`. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::CredentialsError;
use crate::reference::{Host, Repository};
use crate::registry::secret::{Credential, Secret};

/// The one registry with another name in these files, by which helpers know it.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";
const DOCKER_HUB_HOSTS: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];
/// The user of a keeper's answer whose secret is a token.
pub(super) const TOKEN_USER: &str = "<token>";

pub(super) struct AuthFile {
    path: PathBuf,
    raw: Raw,
}

/// A file's entry for a registry.
pub(super) enum CredentialEntry {
    Nothing,
    Credential(Credential),
    /// A program knows.
    Helper {
        name: String,
        server: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

impl AuthFile {
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, CredentialsError> {
        let raw = serde_json::from_slice(bytes).map_err(|error| CredentialsError::Syntax {
            path: path.to_owned(),
            line: error.line(),
            column: error.column(),
        })?;
        Ok(Self { path: path.to_owned(), raw })
    }

    /// A helper for this registry comes first, then the file's own entry, then the helper for all.
    pub(super) fn look(
        &self,
        host: &Host,
        repository: &Repository,
    ) -> Result<CredentialEntry, CredentialsError> {
        let own = self.raw.cred_helpers.iter().find(|(key, _)| registry_of(key) == host.as_str());
        if let Some((server, name)) = own {
            return self.helper(name, server);
        }
        for wanted in scopes(host, repository) {
            let found = self.raw.auths.iter().find(|(key, _)| registry_of(key) == wanted);
            let found = found.map(|(key, entry)| self.credential(key, entry)).transpose()?;
            if let Some(credential) = found.flatten() {
                return Ok(CredentialEntry::Credential(credential));
            }
        }
        match &self.raw.creds_store {
            Some(name) if host.is_docker_hub() => self.helper(name, DOCKER_HUB_KEY),
            Some(name) => self.helper(name, host.as_str()),
            None => Ok(CredentialEntry::Nothing),
        }
    }

    fn helper(&self, name: &str, server: &str) -> Result<CredentialEntry, CredentialsError> {
        /// The longest sensible name of a helper.
        const NAME_BYTES_MAX: usize = 128;
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() {
            return Ok(CredentialEntry::Nothing);
        }
        if name.len() > NAME_BYTES_MAX || !name.bytes().all(inside) {
            let name = name.chars().take(NAME_BYTES_MAX).collect();
            return Err(CredentialsError::HelperName { path: self.path.clone(), name });
        }
        Ok(CredentialEntry::Helper { name: name.to_owned(), server: server.to_owned() })
    }

    /// `None` for an empty entry, which exists where a helper keeps the credentials.
    fn credential(&self, key: &str, entry: &Entry) -> Result<Option<Credential>, CredentialsError> {
        if !entry.identitytoken.is_empty() {
            return Ok(Some(Credential::Identity(Secret::new(&entry.identitytoken))));
        }
        let (user, password) = if entry.auth.is_empty() {
            (entry.username.clone(), entry.password.clone())
        } else {
            let encoding =
                || CredentialsError::Encoding { path: self.path.clone(), key: key.to_owned() };
            let decoded = STANDARD.decode(entry.auth.trim()).map_err(|_| encoding())?;
            let decoded = String::from_utf8(decoded).map_err(|_| encoding())?;
            let (user, password) = decoded.split_once(':').ok_or_else(encoding)?;
            // Some writers have padded passwords with zeros.
            (user.to_owned(), password.trim_end_matches('\0').to_owned())
        };
        if user.is_empty() {
            return Ok(None);
        }
        Ok(Some(Credential::of(&user, &password)))
    }
}

impl Credential {
    pub(super) fn of(user: &str, secret: &str) -> Self {
        match user {
            TOKEN_USER => Self::Identity(Secret::new(secret)),
            user => Self::Password { user: user.to_owned(), password: Secret::new(secret) },
        }
    }
}

/// The registry of a key, or a part of one in podman's form. Docker writes its own hub as an
/// address with a version.
fn registry_of(key: &str) -> &str {
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let bare = bare.trim_end_matches('/');
    let bare = bare.strip_suffix("/v1").or_else(|| bare.strip_suffix("/v2")).unwrap_or(bare);
    if DOCKER_HUB_HOSTS.contains(&bare) { DOCKER_HUB } else { bare }
}

/// The keys that hold for a repository, the narrowest first.
fn scopes(host: &Host, repository: &Repository) -> Vec<String> {
    let mut scopes = vec![format!("{host}/{repository}")];
    while let Some((above, _)) = scopes.last().and_then(|scope| scope.rsplit_once('/')) {
        scopes.push(above.to_owned());
    }
    scopes
}
