//! Connects from the host to what a sandbox may reach. It connects to the same address that it checked,
//! so a name that resolves differently a moment later gains nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::host::Host;
use super::limits::{ATTEMPT_DEADLINE, ATTEMPTS_MAX};
use super::lookup::{Lookup, LookupError};
use ::host::address::{NotPublic, Range, judge};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("it resolves to {address}, which is {what}")]
    Address { address: IpAddr, what: &'static str },
    #[error("cannot connect to {address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
}

/// The addresses of a name, all of which may be connected to.
pub async fn permitted(
    lookup: &Lookup,
    allow: &[Range],
    host: &Host,
) -> Result<Vec<IpAddr>, ConnectError> {
    let addresses = lookup.addresses(host).await?;
    let refused = |NotPublic { address, what }| ConnectError::Address { address, what };
    judge(&addresses, allow).map_err(refused)?;
    Ok(addresses)
}

/// Connects to the first address that answers.
pub async fn connect(addresses: &[IpAddr], port: u16) -> Result<TcpStream, ConnectError> {
    let mut last = ConnectError::Lookup(LookupError::NoSuchName);
    for ip in addresses.iter().take(ATTEMPTS_MAX) {
        let address = SocketAddr::new(*ip, port);
        match timeout(ATTEMPT_DEADLINE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A write must not wait for the acknowledgement of the previous one.
                let source = match stream.set_nodelay(true) {
                    Ok(()) => return Ok(stream),
                    Err(source) => source,
                };
                last = ConnectError::Connect { address, source };
            }
            Ok(Err(source)) => last = ConnectError::Connect { address, source },
            Err(_) => {
                let source = io::Error::from(io::ErrorKind::TimedOut);
                last = ConnectError::Connect { address, source };
            }
        }
    }
    Err(last)
}
