//! Connects to other servers: names, sockets, and TLS with the certificates that the host trusts.
//! The caller chooses the protocol that is spoken over a connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::address::judge;
use crate::tls::TlsFiles;
use crate::trust::{self, TrustError};

/// The scheme of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Unencrypted.
    Http,
    Https,
}

/// The origin of a server, to which credentials are bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub scheme: Scheme,
    /// A name, or an address without brackets; in lower case.
    pub name: String,
    pub port: u16,
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("{at} cannot be reached: {source}")]
    Unreachable { at: String, source: io::Error },
    #[error("connecting to {at} took longer than {limit:?}")]
    Slow { at: String, limit: Duration },
    /// Reveals nothing about the address: an open port looks like a closed one.
    #[error("{at} is not on the public internet, and the configuration does not name it")]
    NotPublic { at: String },
    #[error("{at} is not trusted: {source}")]
    Tls { at: String, source: io::Error },
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl Scheme {
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl Origin {
    /// The value of a `Host` header.
    pub fn authority(&self) -> String {
        let name =
            if self.name.contains(':') { format!("[{}]", self.name) } else { self.name.clone() };
        if self.port == self.scheme.port() { name } else { format!("{name}:{}", self.port) }
    }

    /// Whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        let address = self.name.parse::<IpAddr>();
        self.name == "localhost" || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

/// Without paths: those of redirects are private.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

/// A socket, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Makes connections.
#[derive(Default)]
pub struct Dialler {
    /// Certificates that are trusted in addition to the host's.
    authorities: Vec<PathBuf>,
    /// What is shown to servers that ask for a certificate.
    own: Option<TlsFiles>,
    /// Hosts that may have any address, if others must be public.
    named: Option<Vec<Origin>>,
    /// Read when the first server needs it: one without TLS never does.
    tls: OnceCell<TlsConnector>,
}

impl Dialler {
    pub fn new(authorities: Vec<PathBuf>) -> Self {
        Self { authorities, ..Self::default() }
    }

    /// With a certificate of our own.
    #[must_use]
    pub fn showing(self, own: Option<TlsFiles>) -> Self {
        Self { own, ..self }
    }

    /// For targets that untrusted parties can influence: these hosts may have any address, and all
    /// others are dialled only if every address of theirs is public, and at the address that was
    /// checked.
    #[must_use]
    pub fn naming(self, named: Vec<Origin>) -> Self {
        Self { named: Some(named), ..self }
    }

    pub async fn dial(
        &self,
        origin: &Origin,
        limit: Duration,
    ) -> Result<TokioIo<Box<dyn Stream>>, DialError> {
        let at = || origin.to_string();
        let slow = |_| DialError::Slow { at: at(), limit };
        timeout(limit, self.dial_now(origin)).await.map_err(slow)?.map(TokioIo::new)
    }

    async fn dial_now(&self, origin: &Origin) -> Result<Box<dyn Stream>, DialError> {
        let unreachable = |source| DialError::Unreachable { at: origin.to_string(), source };
        let addresses: Vec<_> = resolve(origin).await.map_err(unreachable)?;
        if self.named.as_ref().is_some_and(|named| !named.contains(origin)) {
            let ips: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
            judge(&ips, &[]).map_err(|_| DialError::NotPublic { at: origin.to_string() })?;
        }
        let socket = connect(origin, &addresses).await.map_err(unreachable)?;
        if origin.scheme == Scheme::Http {
            return Ok(Box::new(socket));
        }
        let name = ServerName::try_from(origin.name.clone());
        let name = name.map_err(|error| unreachable(io::Error::other(error)))?;
        let tls = self.tls.get_or_try_init(|| self.trust()).await?;
        let secured = tls.connect(name, socket).await.map_err(|source| match source.kind() {
            // rustls's error about the other end; other errors are the socket's.
            io::ErrorKind::InvalidData => DialError::Tls { at: origin.to_string(), source },
            _ => unreachable(source),
        })?;
        Ok(Box::new(secured))
    }

    async fn trust(&self) -> Result<TlsConnector, DialError> {
        let (authorities, own) = (self.authorities.clone(), self.own.clone());
        let reading =
            tokio::task::spawn_blocking(move || trust::connector(&authorities, own.as_ref()));
        Ok(reading.await.expect("reading does not panic")?)
    }
}

async fn resolve(origin: &Origin) -> io::Result<Vec<SocketAddr>> {
    Ok(lookup_host((origin.name.as_str(), origin.port)).await?.collect())
}

/// Connects to the first address that answers.
async fn connect(origin: &Origin, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut trouble = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        // A name that promises this machine and leads elsewhere is not believed: bytes to it travel
        // in the clear.
        if origin.scheme == Scheme::Http && origin.is_loopback() && !address.ip().is_loopback() {
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => trouble = error,
        }
    }
    Err(trouble)
}
