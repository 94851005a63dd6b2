//! Connects from the host to what a sandbox may reach. It connects to the same address that it checked,
//! so a name that resolves differently a moment later gains nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address::{Range, special};
use super::host::Host;
use super::limits::{ATTEMPT_DEADLINE, ATTEMPTS_MAX};
use super::lookup::{Lookup, LookupError};

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

/// The addresses of a name, all of which may be connected to. One that may not spoils the others: whoever
/// owns a name and mixes them means no good.
pub async fn permitted(
    lookup: &Lookup,
    allow: &[Range],
    host: &Host,
) -> Result<Vec<IpAddr>, ConnectError> {
    let addresses = lookup.addresses(host).await?;
    let own = own_addresses();
    for address in &addresses {
        check(*address, allow, &own)?;
    }
    Ok(addresses)
}

fn check(address: IpAddr, allow: &[Range], own: &[IpAddr]) -> Result<(), ConnectError> {
    if allow.iter().any(|range| range.contains(address)) {
        return Ok(());
    }
    match special(address) {
        Some(what) => Err(ConnectError::Address { address, what }),
        None if own.contains(&address) => {
            Err(ConnectError::Address { address, what: "the host's own" })
        }
        None => Ok(()),
    }
}

/// The addresses of this host, whose services believe themselves among their own.
fn own_addresses() -> Vec<IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    all.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    })
    .collect()
}

/// Connects to the first address that answers.
pub async fn connect(addresses: &[IpAddr], port: u16) -> Result<TcpStream, ConnectError> {
    let mut last = ConnectError::Lookup(LookupError::NoSuchName);
    for ip in addresses.iter().take(ATTEMPTS_MAX) {
        let address = SocketAddr::new(*ip, port);
        match timeout(ATTEMPT_DEADLINE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // What is sent in one piece must not wait for the acknowledgement of the last.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_internets_is_refused_unless_the_operator_allows_it() {
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let allow: Vec<Range> = vec!["10.1.2.0/24".parse().unwrap()];
        check(address("1.1.1.1"), &[], &[]).unwrap();
        check(address("10.1.2.3"), &allow, &[]).unwrap();
        for text in ["10.1.3.3", "127.0.0.1", "169.254.169.254", "::ffff:10.1.2.3"] {
            check(address(text), &allow, &[]).unwrap_err();
        }
        check(address("1.1.1.1"), &[], &[address("1.1.1.1")]).unwrap_err();
        check(address("10.1.2.3"), &allow, &[address("10.1.2.3")]).unwrap();
    }

    #[test]
    fn this_hosts_addresses_are_known() {
        assert!(own_addresses().contains(&"127.0.0.1".parse().unwrap()));
    }
}
