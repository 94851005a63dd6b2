//! TLS certificates from files, which are read again when they change, so a certificate is renewed
//! without a restart.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};

/// How often the certificate's files are checked for a new one.
const TLS_LOOK_PAUSE: Duration = Duration::from_secs(10);

/// The two files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those between it and its root, as PEM.
    pub certificate: PathBuf,
    pub key: PathBuf,
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
        [&self.certificate, &self.key].map(|path| changed_at(path).ok()).to_vec()
    }

    fn read(&self) -> Result<TlsAcceptor, TlsError> {
        let Self { certificate, key } = self.clone();
        let not_read = |path: &PathBuf| {
            let path = path.clone();
            move |source| TlsError::Pem { path, source }
        };
        let chain = CertificateDer::pem_file_iter(&certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(not_read(&certificate))?;
        if chain.is_empty() {
            return Err(TlsError::Empty { path: certificate });
        }
        let private = PrivateKeyDer::from_pem_file(&key).map_err(not_read(&key))?;
        let refused = |source| TlsError::Refused { certificate, key, source };
        let provider = Arc::new(ring::default_provider());
        let built = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
        let mut config = built.map_err(refused)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
