//! Where a connection came in.

use std::sync::Arc;

use super::peer::Peer;
use host::tls::{Certificate, is_for};

/// Where a connection came to, as a call needs it.
#[derive(Clone, Copy, Debug)]
pub struct Entrance {
    pub peer: Peer,
    /// Only this machine can reach the address.
    pub is_local: bool,
    /// It speaks TLS.
    pub is_tls: bool,
}

/// The certificate that a client has shown, and that the operator's authority has signed: a request has it among its
/// extensions.
#[derive(Clone, Debug)]
pub struct ClientCertificate(pub Arc<Certificate<'static>>);

impl ClientCertificate {
    /// Whether it is for a host of this name or address.
    pub fn is_for(&self, host: &str) -> bool {
        is_for(&self.0, host)
    }
}

impl Entrance {
    pub fn scheme(self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}
