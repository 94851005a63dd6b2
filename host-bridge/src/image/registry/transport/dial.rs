//! Reaching a registry: names, sockets, TLS with the host's own idea of whom to trust.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::image::registry::error::{PullError, Waited};
use crate::image::registry::limits::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::image::registry::url::{Origin, Scheme};
use crate::trust;

/// A socket, with TLS or without.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Makes connections.
#[derive(Default)]
pub struct Dialler {
    /// Certificates that are trusted besides those of the host.
    authorities: Option<PathBuf>,
    /// Read when the first registry wants it: one on loopback never does.
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
    ) -> Result<TokioIo<Box<dyn Stream>>, PullError> {
        let at = || origin.to_string();
        let slow = |_| PullError::Slow { at: at(), what: Waited::Connecting, limit };
        timeout(limit, self.dial_now(origin)).await.map_err(slow)?.map(TokioIo::new)
    }

    async fn dial_now(&self, origin: &Origin) -> Result<Box<dyn Stream>, PullError> {
        let unreachable = |source| PullError::Unreachable { at: origin.to_string(), source };
        let socket = connect(origin).await.map_err(unreachable)?;
        if origin.scheme == Scheme::Http {
            return Ok(Box::new(socket));
        }
        let name = ServerName::try_from(origin.name.clone());
        let name = name.map_err(|error| unreachable(io::Error::other(error)))?;
        let tls = self.tls.get_or_try_init(|| self.trust()).await?;
        let secured = tls.connect(name, socket).await.map_err(|source| match source.kind() {
            // What rustls says about the other end; all else is the socket's.
            io::ErrorKind::InvalidData => PullError::Tls { at: origin.to_string(), source },
            _ => unreachable(source),
        })?;
        Ok(Box::new(secured))
    }

    async fn trust(&self) -> Result<TlsConnector, PullError> {
        let authorities = self.authorities.clone();
        let reading = tokio::task::spawn_blocking(move || trust::connector(authorities.as_deref()));
        Ok(reading.await.expect("reading does not panic")?)
    }
}

/// The first address that answers.
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

/// HTTP as far as it is spoken with strangers.
pub fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    builder
}
