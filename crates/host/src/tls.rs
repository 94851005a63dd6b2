//! TLS certificates from files, which are read again when they change, so a certificate is renewed
//! without a restart; and whom a client's certificate is for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem};
use tokio_rustls::rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

pub use tokio_rustls::rustls::pki_types::CertificateDer as Certificate;

/// How often the certificate's files are checked for a new one, when somebody connects: each look asks for three times.
const TLS_LOOK_PAUSE: Duration = Duration::from_secs(2);

/// The files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those between it and its root, as PEM.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Who has signed the certificates of clients that show one; nobody is asked for one if absent.
    pub clients: Option<PathBuf>,
}

/// Whether a certificate, which was verified, is for a host of this name or address.
pub fn is_for(certificate: &Certificate<'_>, host: &str) -> bool {
    let (Ok(parsed), Ok(name)) =
        (ParsedCertificate::try_from(certificate), ServerName::try_from(host))
    else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path:?}: {source}")]
    Pem { path: PathBuf, source: pem::Error },
    #[error("{path:?} contains no certificate")]
    Empty { path: PathBuf },
    #[error("cannot use the certificate in {certificate:?} with the key in {key:?}: {source}")]
    Refused { certificate: PathBuf, key: PathBuf, source: tokio_rustls::rustls::Error },
    #[error("cannot verify certificates of clients by {path:?}: {source}")]
    Clients { path: PathBuf, source: VerifierBuilderError },
}

/// The TLS acceptor for new connections.
pub struct Tls {
    files: TlsFiles,
    state: Mutex<State>,
}

struct State {
    acceptor: TlsAcceptor,
    changed_at: Vec<Option<SystemTime>>,
    looked_at: Instant,
}

impl Tls {
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let changed_at = files.changed_at();
        let acceptor = files.read()?;
        let state = Mutex::new(State { acceptor, changed_at, looked_at: Instant::now() });
        Ok(Self { files, state })
    }

    /// The acceptor for the next connection, and why a new certificate is not used, if it is not.
    pub fn acceptor(&self) -> (TlsAcceptor, Option<TlsError>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut trouble = None;
        if state.looked_at.elapsed() >= TLS_LOOK_PAUSE {
            state.looked_at = Instant::now();
            let changed_at = self.files.changed_at();
            if changed_at != state.changed_at {
                state.changed_at = changed_at;
                match self.files.read() {
                    Ok(acceptor) => state.acceptor = acceptor,
                    Err(error) => trouble = Some(error),
                }
            }
        }
        (state.acceptor.clone(), trouble)
    }
}

impl TlsFiles {
    fn changed_at(&self) -> Vec<Option<SystemTime>> {
        let changed_at = |path: &Path| -> io::Result<SystemTime> { path.metadata()?.modified() };
        let all = [&self.certificate, &self.key].into_iter().chain(&self.clients);
        all.map(|path| changed_at(path).ok()).collect()
    }

    /// The certificate with those between it and its root, and its key.
    pub fn load(&self) -> Result<(Vec<Certificate<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| TlsError::Pem { path: self.key.clone(), source })?;
        Ok((chain, key))
    }

    /// These files cannot be used together.
    pub fn refused(&self, source: tokio_rustls::rustls::Error) -> TlsError {
        let Self { certificate, key, .. } = self.clone();
        TlsError::Refused { certificate, key, source }
    }

    fn read(&self) -> Result<TlsAcceptor, TlsError> {
        let (chain, key) = self.load()?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|source| self.refused(source))?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(certificates(path)?);
                let built = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                    // Those who are no nodes have none.
                    .allow_unauthenticated()
                    .build();
                let failed = |source| TlsError::Clients { path: path.clone(), source };
                builder.with_client_cert_verifier(built.map_err(failed)?)
            }
        };
        let mut config =
            builder.with_single_cert(chain, key).map_err(|source| self.refused(source))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = read.map_err(|source| TlsError::Pem { path: path.to_owned(), source })?;
    if all.is_empty() { Err(TlsError::Empty { path: path.to_owned() }) } else { Ok(all) }
}
