//! The certificates that this host trusts for outgoing TLS: its own list, and the operator's
//! additions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::tls::{TlsError, TlsFiles};

/// Why the certificates cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("{path:?} contains no usable certificates: {why}")]
    Refused { path: PathBuf, why: String },
    #[error("this host has no trusted certificates: {why}")]
    Nobody { why: String },
    #[error(transparent)]
    Own(Box<TlsError>),
}

/// Uses TLS with servers whose certificate is from an authority of this host, or of those files, and shows our own
/// certificate to those who ask for one. Reads files, so it is not for the event loop.
pub fn connector(
    authorities: &[PathBuf],
    own: Option<&TlsFiles>,
) -> Result<TlsConnector, TrustError> {
    let roots = roots(authorities)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has what the versions need")
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let refused = |error| TrustError::Own(Box::new(error));
            let (chain, key) = own.load().map_err(refused)?;
            let built = builder.with_client_auth_cert(chain, key);
            built.map_err(|source| refused(own.refused(source)))?
        }
    };
    // The only version of HTTP that is spoken here.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The certificates of this host's own list.
pub fn native() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// The certificates in files of the operator's, each of which must have some.
pub fn read(authorities: &[PathBuf]) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let mut all = Vec::new();
    for path in authorities {
        all.extend(read_one(path)?);
    }
    Ok(all)
}

fn read_one(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let refused = |why: String| TrustError::Refused { path: path.to_owned(), why };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| refused(error.to_string()))?;
    let usable = RootCertStore::empty().add_parsable_certificates(certificates.iter().cloned()).0;
    if usable == 0 { Err(refused("it contains none".to_owned())) } else { Ok(certificates) }
}

fn roots(authorities: &[PathBuf]) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    roots.add_parsable_certificates(read(authorities)?);
    if roots.is_empty() {
        let first = native.errors.first();
        let why = first.map_or_else(|| "none are installed".to_owned(), ToString::to_string);
        return Err(TrustError::Nobody { why });
    }
    Ok(roots)
}
