//! Connects to other servers: names, sockets, and TLS with the certificates that the host trusts.
//! The caller chooses the protocol that is spoken over a connection.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

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

/// Without paths: those of redirects are nobody's business.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

/// A socket, with TLS or without.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Makes connections.
#[derive(Default)]
pub struct Dialler {
    /// Certificates that are trusted besides those of the host.
    authorities: Option<PathBuf>,
    /// Read when the first server wants it: one without TLS never does.
    tls: OnceCell<TlsConnector>,
}

impl Dialler {
    pub fn new(authorities: Option<PathBuf>) -> Self {
        Self { authorities, tls: OnceCell::new() }
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
        let socket = connect(origin).await.map_err(unreachable)?;
        if origin.scheme == Scheme::Http {
            return Ok(Box::new(socket));
        }
        let name = ServerName::try_from(origin.name.clone());
        let name = name.map_err(|error| unreachable(io::Error::other(error)))?;
        let tls = self.tls.get_or_try_init(|| self.trust()).await?;
        let secured = tls.connect(name, socket).await.map_err(|source| match source.kind() {
            // What rustls says about the other end; all else is the socket's.
            io::ErrorKind::InvalidData => DialError::Tls { at: origin.to_string(), source },
            _ => unreachable(source),
        })?;
        Ok(Box::new(secured))
    }

    async fn trust(&self) -> Result<TlsConnector, DialError> {
        let authorities = self.authorities.clone();
        let reading = tokio::task::spawn_blocking(move || trust::connector(authorities.as_deref()));
        Ok(reading.await.expect("reading does not panic")?)
    }
}

/// Connects to the first address that answers.
async fn connect(origin: &Origin) -> io::Result<TcpStream> {
    let mut trouble = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in lookup_host((origin.name.as_str(), origin.port)).await? {
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
