//! Decides which addresses belong to the public internet, which to private networks, and which to
//! this host. All that connects on behalf of strangers asks here: sandboxes' egress, and registries
//! that send a pull elsewhere. Pure, except that it looks which addresses this host has.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, as in `10.1.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    address: IpAddr,
    bits: u8,
}

/// The error for a text that is not an address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an address range such as 10.1.2.0/24 or fd00::/8")]
pub struct InvalidRange;

impl Range {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    const fn v6(a: u16, b: u16, bits: u8) -> Self {
        Self { address: IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)), bits }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

impl FromStr for Range {
    type Err = InvalidRange;

    fn from_str(text: &str) -> Result<Self, InvalidRange> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidRange)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(bits_max), |bits| bits.parse().map_err(|_| InvalidRange))?;
        if bits > bits_max {
            return Err(InvalidRange);
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// IPv4 addresses that are not public, and what they are. From the IANA's registry; clouds'
/// metadata addresses are added.
const V4: &[(Range, &str)] = &[
    (Range::v4(0, 0, 0, 0, 8), "this network"),
    (Range::v4(10, 0, 0, 0, 8), "private"),
    (Range::v4(100, 64, 0, 0, 10), "a carrier's own"),
    (Range::v4(127, 0, 0, 0, 8), "loopback"),
    (Range::v4(169, 254, 0, 0, 16), "link-local, used for cloud metadata"),
    (Range::v4(168, 63, 129, 16, 32), "a cloud provider's internal service"),
    (Range::v4(172, 16, 0, 0, 12), "private"),
    (Range::v4(192, 0, 0, 0, 24), "reserved"),
    (Range::v4(192, 0, 2, 0, 24), "for documentation"),
    (Range::v4(192, 88, 99, 0, 24), "a relay's"),
    (Range::v4(192, 168, 0, 0, 16), "private"),
    (Range::v4(198, 18, 0, 0, 15), "for measurements"),
    (Range::v4(198, 51, 100, 0, 24), "for documentation"),
    (Range::v4(203, 0, 113, 0, 24), "for documentation"),
    (Range::v4(224, 0, 0, 0, 4), "multicast"),
    (Range::v4(240, 0, 0, 0, 4), "reserved"),
];

/// The public range of IPv6 so far.
const V6_GLOBAL: Range = Range::v6(0x2000, 0, 3);

/// Exceptions within it.
const V6: &[(Range, &str)] = &[
    // Tunnels that embed an IPv4 address, and more of that kind.
    (Range::v6(0x2001, 0, 23), "reserved or used for tunnels"),
    (Range::v6(0x2001, 0x0db8, 32), "for documentation"),
    (Range::v6(0x2002, 0, 16), "a tunnel's"),
    (Range::v6(0x3fff, 0, 20), "for documentation"),
];

/// The reason why an address is not public; `None` if it is public.
pub fn special(address: IpAddr) -> Option<&'static str> {
    let within = |ranges: &[(Range, &'static str)]| {
        ranges.iter().find(|(range, _)| range.contains(address)).map(|(_, what)| *what)
    };
    match address {
        IpAddr::V4(_) => within(V4),
        IpAddr::V6(_) if !V6_GLOBAL.contains(address) => {
            Some("loopback, link-local, private, reserved or an embedded IPv4 address")
        }
        IpAddr::V6(_) => within(V6),
    }
}

/// An address that must not be connected to, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPublic {
    pub address: IpAddr,
    pub what: &'static str,
}

/// Checks all addresses of one name. A forbidden one spoils the others: a name's owner who mixes them is
/// hostile. `allow` is what the operator allows in addition.
pub fn judge(addresses: &[IpAddr], allow: &[Range]) -> Result<(), NotPublic> {
    let own = own_addresses();
    addresses.iter().try_for_each(|address| check(*address, allow, &own))
}

fn check(address: IpAddr, allow: &[Range], own: &[IpAddr]) -> Result<(), NotPublic> {
    if allow.iter().any(|range| range.contains(address)) {
        return Ok(());
    }
    match special(address) {
        Some(what) => Err(NotPublic { address, what }),
        None if own.contains(&address) => Err(NotPublic { address, what: "the host's own" }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_refused_unless_the_operator_allows_them() {
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let allow: Vec<Range> = vec!["10.1.2.0/24".parse().unwrap()];
        check(address("1.1.1.1"), &[], &[]).unwrap();
        check(address("10.1.2.3"), &allow, &[]).unwrap();
        for text in ["10.1.3.3", "127.0.0.1", "169.254.169.254", "::ffff:10.1.2.3"] {
            check(address(text), &allow, &[]).unwrap_err();
        }
        check(address("1.1.1.1"), &[], &[address("1.1.1.1")]).unwrap_err();
        check(address("10.1.2.3"), &allow, &[address("10.1.2.3")]).unwrap();
        judge(&[address("1.1.1.1"), address("127.0.0.1")], &[]).unwrap_err();
    }

    #[test]
    fn this_hosts_addresses_are_known() {
        assert!(own_addresses().contains(&"127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn addresses_of_the_internet_are_not_special() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001:81b::200e",
            "2001:4860:4860::8888",
        ] {
            assert_eq!(special(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn every_other_address_is_in_whatever_form() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:4136:e378::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
        ] {
            assert!(special(text.parse().unwrap()).is_some(), "{text}");
        }
    }

    #[test]
    fn a_range_has_its_own_kind_of_addresses_alone() {
        let range: Range = "10.1.2.0/24".parse().unwrap();
        assert!(range.contains("10.1.2.255".parse().unwrap()));
        assert!(!range.contains("10.1.3.0".parse().unwrap()));
        assert!(!range.contains("::ffff:10.1.2.3".parse().unwrap()), "it is another form");
        let all: Range = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("255.1.1.1".parse().unwrap()));
        assert!("fd00::/8".parse::<Range>().unwrap().contains("fd12::1".parse().unwrap()));
        assert_eq!("127.0.0.1".parse::<Range>().unwrap().to_string(), "127.0.0.1/32");
        for text in ["", "10.0.0.0/33", "10/8", "10.0.0.0/", "::/129", "a.org", "1.2.3.4/-1"] {
            assert_eq!(text.parse::<Range>(), Err(InvalidRange), "{text}");
        }
    }
}
