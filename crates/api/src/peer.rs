//! The address of a connection's client.

use std::net::SocketAddr;

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    Tcp(SocketAddr),
    /// On a Unix socket.
    Local,
}
