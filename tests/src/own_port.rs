//! Ports of servers that tests start and end: nobody else gets one while its server is away.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

/// The first port that the kernel assigns only on request, and how many there are.
const PORTS: (u16, u16) = (20_000, 10_000);

/// A port that no other test gets while this lives. The name of a socket says whose it is, and ends with
/// this process at the latest.
pub struct OwnPort {
    number: u16,
    _claim: UnixListener,
}

impl OwnPort {
    /// # Panics
    /// When there is none.
    pub fn claim() -> Self {
        let (first, count) = PORTS;
        let own = (std::process::id() % u32::from(count)) as u16;
        let mut ports = (0..count).map(|step| first + (own + step) % count);
        let free = ports.find_map(|number| {
            let name =
                SocketAddr::from_abstract_name(format!("burrow-tests-port-{number}")).ok()?;
            let claim = UnixListener::bind_addr(&name).ok()?;
            let is_free = TcpListener::bind(("127.0.0.1", number)).is_ok();
            is_free.then_some(Self { number, _claim: claim })
        });
        free.expect("a port")
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}
