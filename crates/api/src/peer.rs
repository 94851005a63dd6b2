//! Where the client of a connection is.

use std::net::SocketAddr;

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    Tcp(SocketAddr),
    /// On a Unix socket.
    Local,
}
