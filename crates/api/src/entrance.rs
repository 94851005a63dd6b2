//! Where a connection came in.

use super::peer::Peer;

/// Where a connection came to, as a call needs it.
#[derive(Clone, Copy, Debug)]
pub struct Entrance {
    pub peer: Peer,
    /// Only this machine can reach the address.
    pub is_local: bool,
    /// It speaks TLS.
    pub is_tls: bool,
}

impl Entrance {
    pub fn scheme(self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}
