//! The one network interface that the kernel command line may describe: `eth0,10.0.2.15/24,10.0.2.2`.
//! Pure.

use std::net::Ipv4Addr;

/// An interface with an address that does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    pub interface: String,
    pub address: Ipv4Addr,
    /// The length of the network's prefix.
    pub prefix: u8,
    /// The default gateway.
    pub gateway: Option<Ipv4Addr>,
}

/// The longest name that the kernel has room for.
const NAME_BYTES_MAX: usize = 15;

impl Network {
    /// The address of the neighbourhood with all bits of the prefix set, as the kernel wants it.
    pub fn mask(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }
}

/// Reads `INTERFACE,ADDRESS/PREFIX[,GATEWAY]`.
pub fn parse_network(text: &str) -> Option<Network> {
    let mut parts = text.split(',');
    let interface = parts.next().filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()))?;
    let (address, prefix) = parts.next()?.split_once('/')?;
    let gateway = match parts.next() {
        Some(gateway) => Some(gateway.parse().ok()?),
        None => None,
    };
    if parts.next().is_some() {
        return None;
    }
    Some(Network {
        interface: interface.to_owned(),
        address: address.parse().ok()?,
        prefix: prefix.parse().ok().filter(|bits| *bits <= 32)?,
        gateway,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_an_address_and_a_gateway_are_read() {
        let network = parse_network("eth0,10.0.2.15/24,10.0.2.2").unwrap();
        assert_eq!(network.interface, "eth0");
        assert_eq!(network.address, Ipv4Addr::new(10, 0, 2, 15));
        assert_eq!(network.mask(), Ipv4Addr::new(255, 255, 255, 0));
        assert_eq!(network.gateway, Some(Ipv4Addr::new(10, 0, 2, 2)));
        assert_eq!(parse_network("tap7,192.168.0.1/32").unwrap().gateway, None);
    }

    #[test]
    fn every_prefix_has_its_mask() {
        for prefix in 0..=32 {
            let text = format!("eth0,1.2.3.4/{prefix}");
            let mask = u32::from(parse_network(&text).unwrap().mask());
            assert_eq!((mask.leading_ones(), mask.count_ones()), (prefix, prefix));
        }
    }

    #[test]
    fn invalid_networks_are_refused() {
        for text in [
            "",
            "eth0",
            "eth0,",
            "eth0,10.0.0.1",
            "eth0,10.0.0.1/33",
            "eth0,10.0.0.1/-1",
            "eth0,10.0.0/24",
            ",10.0.0.1/24",
            "eth0,10.0.0.1/24,",
            "eth0,10.0.0.1/24,10.0.0.2,more",
            "sixteen-letters-,10.0.0.1/24",
        ] {
            assert_eq!(parse_network(text), None, "{text}");
        }
    }
}
