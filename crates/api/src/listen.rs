//! Where the server listens: TCP, with TLS when there is a certificate, or a Unix socket.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::call::Peer;
use super::limits::KEEPALIVE_IDLE;
use host::paths::PRIVATE_FILE;
use settings::Listen;

/// A bound address.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A connection, whatever carries it.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for T {}

/// A connection that was accepted and belongs to no thread yet.
pub enum Accepted {
    Tcp(StdTcpStream),
    Unix(StdUnixStream),
}

impl Accepted {
    /// The connection, for the runtime that this is called in.
    pub fn begin(self) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::Tcp(stream) => Box::new(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Box::new(UnixStream::from_std(stream)?),
        })
    }
}

impl Listener {
    pub async fn bind(on: &Listen) -> io::Result<Self> {
        match on {
            Listen::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            Listen::Unix(path) => {
                // A socket with a listener must not be taken over.
                if std::os::unix::net::UnixStream::connect(path).is_ok() {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                match fs::symlink_metadata(path) {
                    Ok(there) if is_socket(&there) => fs::remove_file(path)?,
                    Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
                    Err(_) => {}
                }
                let listener = UnixListener::bind(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE_FILE))?;
                Ok(Self::Unix(listener, path.clone()))
            }
        }
    }

    /// Where it is really bound; a port of 0 has become one.
    pub fn address(&self) -> Listen {
        match self {
            Self::Tcp(listener) => {
                let unknown = || SocketAddr::from(([0, 0, 0, 0], 0));
                Listen::Tcp(listener.local_addr().unwrap_or_else(|_| unknown()))
            }
            Self::Unix(_, path) => Listen::Unix(path.clone()),
        }
    }

    pub async fn accept(&self) -> io::Result<(Accepted, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are written whole, and waiting to send more would only delay them.
                stream.set_nodelay(true)?;
                setsockopt(&stream, sockopt::KeepAlive, &true)?;
                setsockopt(&stream, sockopt::TcpKeepIdle, &(KEEPALIVE_IDLE.as_secs() as u32))?;
                Ok((Accepted::Tcp(stream.into_std()?), Peer::Tcp(peer)))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Accepted::Unix(stream.into_std()?), Peer::Local))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_socket(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&metadata.file_type())
}
