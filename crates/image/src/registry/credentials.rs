//! Finds the credentials for a registry: in the files that `docker login`, `podman login` and
//! `skopeo login` write, and from the helpers that they name. It stores and writes nothing.

mod file;
mod helper;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use super::limits::AUTH_FILE_BYTES_MAX;
use super::secret::Credential;
use crate::reference::{Host, Repository};
use file::{AuthFile, CredentialEntry};

/// Why configured credentials cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot read the credentials in {path:?}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the credentials in {path:?} have more than {bytes_max} bytes")]
    TooLarge { path: PathBuf, bytes_max: u64 },
    /// An error names only its position: the text around it is secret.
    #[error("{path:?}, line {line}, column {column}: not a valid credentials file")]
    Syntax { path: PathBuf, line: usize, column: usize },
    #[error("{path:?}: the credentials for {key:?} are not base64 of USER:PASSWORD")]
    Encoding { path: PathBuf, key: String },
    #[error("{path:?} names the credential helper {name:?}, which is not a valid program name")]
    HelperName { path: PathBuf, name: String },
    #[error("cannot run {program}: {source}")]
    HelperStart { program: String, source: io::Error },
    #[error("{program} ended with {code:?} when asked for {server}")]
    HelperFailed { program: String, server: String, code: Option<i32> },
    #[error("{program} took longer than {limit:?}")]
    HelperSlow { program: String, limit: Duration },
    #[error("{program} did not answer as a credential helper")]
    HelperAnswer { program: String },
    #[error("the credentials for {at} have characters that a header cannot have")]
    Characters { at: String },
}

/// The files that may be there, the first one first.
pub fn auth_files(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("HOME");
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let config = set("XDG_CONFIG_HOME").or_else(|| below_home(".config"));
    let docker = set("DOCKER_CONFIG").or_else(|| below_home(".docker"));
    let places = [
        set("REGISTRY_AUTH_FILE"),
        set("XDG_RUNTIME_DIR").map(|directory| directory.join("containers/auth.json")),
        config.map(|directory| directory.join("containers/auth.json")),
        docker.map(|directory| directory.join("config.json")),
    ];
    places.into_iter().flatten().collect()
}

/// The credential from the first file that knows the registry.
pub async fn find_credential(
    files: &[PathBuf],
    host: &Host,
    repository: &Repository,
) -> Result<Option<Credential>, CredentialsError> {
    for path in files {
        let Some(bytes) = read(path).await? else { continue };
        let found = AuthFile::parse(path, &bytes)?.look(host, repository)?;
        let credential = match found {
            CredentialEntry::Nothing => None,
            CredentialEntry::Credential(credential) => Some(credential),
            CredentialEntry::Helper { name, server } => helper::ask(&name, &server).await?,
        };
        if credential.is_some() {
            return Ok(credential);
        }
    }
    Ok(None)
}

/// `None` if the file does not exist.
async fn read(path: &Path) -> Result<Option<Vec<u8>>, CredentialsError> {
    let unreadable = |source| CredentialsError::Unreadable { path: path.to_owned(), source };
    let file = match tokio::fs::File::open(path).await {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(None);
        }
        opened => opened.map_err(unreadable)?,
    };
    let mut bytes = Vec::new();
    file.take(AUTH_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).await.map_err(unreadable)?;
    if bytes.len() as u64 > AUTH_FILE_BYTES_MAX {
        let bytes_max = AUTH_FILE_BYTES_MAX;
        return Err(CredentialsError::TooLarge { path: path.to_owned(), bytes_max });
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests;
