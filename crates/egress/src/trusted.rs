//! The certificate authorities that programs in a sandbox trust: those of its own files, those of this host
//! and of its operator, and the sandbox's own where secrets are put into what it sends.
//!
//! It is a separate file, which environment variables name: an image's own list stays unchanged,
//! and ours goes into no image that is made from the sandbox.

use std::collections::HashSet;
use std::path::PathBuf;

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use super::authority::pem;
use super::limits::TRUST_BYTES_MAX;
use super::{EgressError, write_file};
use ::host::trust;
use agent_client::guest::{Guest, GuestError};

/// Everybody who is trusted.
pub const BUNDLE: &str = "/etc/ssl/burrow-authorities.pem";

/// The variables that common programs and libraries read: OpenSSL and all that is built on it,
/// Node, Python's requests, pip, curl, git, and the AWS tools.
pub const BUNDLE_VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
];

/// Where distributions keep their lists.
const LISTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Writes the file: the guest's own list, then the certificates that it lacks of this host and of the
/// operator's files `ca`, then the sandbox's own authority.
pub(super) async fn add(
    guest: &Guest,
    ca: &[PathBuf],
    own: Option<&str>,
) -> Result<(), EgressError> {
    let mut list = Vec::new();
    for path in LISTS {
        if let Some(found) = read(guest, path).await? {
            list = found;
            break;
        }
    }
    let ca = ca.to_vec();
    let reading = tokio::task::spawn_blocking(move || {
        Ok::<_, trust::TrustError>([trust::native(), trust::read(&ca)?].concat())
    });
    let hosts = reading.await.map_err(|_| EgressError::Ending)??;
    append(&mut list, &hosts, own);
    write_file(guest, BUNDLE, &list).await
}

/// Puts the certificates behind a list that does not have them, and another text behind that.
fn append(list: &mut Vec<u8>, certificates: &[CertificateDer<'static>], own: Option<&str>) {
    // Whatever is no certificate in it is the guest's own trouble.
    let mut known: HashSet<_> =
        CertificateDer::pem_slice_iter(list).filter_map(Result::ok).collect();
    if list.last().is_some_and(|last| *last != b'\n') {
        list.push(b'\n');
    }
    for certificate in certificates {
        if known.insert(certificate.clone()) {
            list.extend_from_slice(pem(certificate).as_bytes());
        }
    }
    list.extend_from_slice(own.unwrap_or_default().as_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn certificates(list: &[u8]) -> Vec<Vec<u8>> {
        CertificateDer::pem_slice_iter(list).map(|one| one.unwrap().to_vec()).collect()
    }

    #[test]
    fn a_list_is_kept_and_only_what_it_lacks_comes_behind_it() {
        let of = |byte: u8| CertificateDer::from(vec![byte; 100]);
        let mut list = format!("# my own\n{}", pem(&of(1)).trim_end()).into_bytes();
        append(&mut list, &[of(1), of(2), of(2)], Some(&pem(&of(3))));
        assert!(list.starts_with(b"# my own\n"));
        assert_eq!(certificates(&list), [vec![1; 100], vec![2; 100], vec![3; 100]]);
    }

    #[test]
    fn a_list_that_is_none_takes_nobody_away() {
        let mut list = b"-----BEGIN CERTIFICATE-----\nnothing of the kind".to_vec();
        append(&mut list, &[CertificateDer::from(vec![2; 100])], None);
        assert!(String::from_utf8(list).unwrap().ends_with("-----END CERTIFICATE-----\n"));
        let mut list = Vec::new();
        append(&mut list, &[CertificateDer::from(vec![2; 100])], None);
        assert_eq!(certificates(&list), [vec![2; 100]]);
    }
}
