//! The certificate authorities that programs in a sandbox trust: the usual ones and the sandbox's own.
//!
//! It is a file of its own, which variables of the environment name: an image's list stays what it
//! is, and goes into no image that is made of the sandbox.

use super::authority::pem;
use super::limits::TRUST_BYTES_MAX;
use super::write_file;
use agent_client::guest::{Guest, GuestError};

/// Everybody who is trusted.
pub const BUNDLE: &str = "/etc/ssl/burrow-authorities.pem";

/// What common programs and libraries look at for it: OpenSSL and all that are built upon it, Node,
/// Python's requests, pip, curl, git, and the AWS tools.
pub const BUNDLE_VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
];

/// Where distributions keep theirs.
const LISTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Makes the file. A guest that trusts nobody is given whom its host trusts.
pub(super) async fn add(guest: &Guest, authority: &str) -> Result<(), GuestError> {
    let mut list = None;
    for path in LISTS {
        list = read(guest, path).await?;
        if list.is_some() {
            break;
        }
    }
    let mut list = match list {
        Some(list) => list,
        None => hosts().await.into_bytes(),
    };
    if list.last().is_some_and(|last| *last != b'\n') {
        list.push(b'\n');
    }
    list.extend_from_slice(authority.as_bytes());
    write_file(guest, BUNDLE, &list).await
}

async fn hosts() -> String {
    let reading = tokio::task::spawn_blocking(host::trust::native);
    let native = reading.await.unwrap_or_default();
    native.iter().map(|certificate| pem(certificate)).collect()
}

/// A list of the guest; none if it is not there, or is no list.
async fn read(guest: &Guest, path: &str) -> Result<Option<Vec<u8>>, GuestError> {
    let reading = async {
        let (output, _, _) = guest.read_file(path, 0, Some(TRUST_BYTES_MAX as u64)).await?;
        output.whole(TRUST_BYTES_MAX).await
    };
    match reading.await {
        Ok(list) => Ok(list.filter(|list| !list.is_empty())),
        Err(GuestError::Fault(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
