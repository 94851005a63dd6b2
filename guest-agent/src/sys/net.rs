//! Network interfaces, as far as an agent without a netlink library needs them.
//!
//! `boot` calls it once for each interface.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// Brings the loopback interface up; the kernel then gives it its addresses by itself.
pub fn raise_loopback() -> io::Result<()> {
    Interface::named("lo")?.raise()
}

/// Gives an interface its address, brings it up and makes `gateway` the way to everybody who is no
/// neighbour.
pub fn raise(
    name: &str,
    address: Ipv4Addr,
    mask: Ipv4Addr,
    gateway: Option<Ipv4Addr>,
) -> io::Result<()> {
    let mut interface = Interface::named(name)?;
    for (request, given) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, mask)] {
        interface.request.ifr_ifru.ifru_addr = socket_address(given);
        interface.ask(request)?;
    }
    interface.raise()?;
    match gateway {
        Some(gateway) => interface.lead_through(gateway),
        None => Ok(()),
    }
}

/// What the kernel is asked with, about one interface.
struct Interface {
    socket: OwnedFd,
    request: libc::ifreq,
}

impl Interface {
    /// Cuts a name that is longer than the kernel has room for.
    fn named(name: &str) -> io::Result<Self> {
        let family = AddressFamily::Inet;
        let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        let mut request = libc::ifreq {
            ifr_name: [0; libc::IFNAMSIZ],
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_addr: socket_address(Ipv4Addr::UNSPECIFIED),
            },
        };
        let room = &mut request.ifr_name[..libc::IFNAMSIZ - 1];
        for (to, from) in room.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        Ok(Self { socket, request })
    }

    fn ask(&mut self, request: libc::c_ulong) -> io::Result<()> {
        // SAFETY: the kernel reads and writes one `ifreq` for each of these requests.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), request as _, &raw mut self.request) };
        if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn raise(&mut self) -> io::Result<()> {
        self.ask(libc::SIOCGIFFLAGS)?;
        // SAFETY: SIOCGIFFLAGS has just filled this member of the union.
        let flags = unsafe { self.request.ifr_ifru.ifru_flags };
        self.request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as i16;
        self.ask(libc::SIOCSIFFLAGS)
    }

    fn lead_through(&self, gateway: Ipv4Addr) -> io::Result<()> {
        let everybody = socket_address(Ipv4Addr::UNSPECIFIED);
        // SAFETY: every member of the structure may be zero, its pointer too.
        let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
        (route.rt_dst, route.rt_genmask) = (everybody, everybody);
        route.rt_gateway = socket_address(gateway);
        route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
        // SAFETY: the kernel reads one `rtentry`, which `route` is, and its pointer is null.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCADDRT as _, &raw const route) };
        if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// An address without a port, in the shape that all families share.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    /// Where the address is, behind the port.
    const ADDRESS_AT: usize = 2;
    let mut shared = libc::sockaddr { sa_family: libc::AF_INET as u16, sa_data: [0; 14] };
    for (to, from) in shared.sa_data[ADDRESS_AT..].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    shared
}
