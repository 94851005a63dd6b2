//! Network interfaces, as far as an agent without a netlink library needs them.
//!
//! `boot` calls it once for each interface, and `port` for addresses that stand for the host.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::sys::socket::sockopt::ReuseAddr;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, SockaddrIn, accept4, bind, recvfrom,
    sendto, setsockopt, socket,
};
use protocol::egress::{DATAGRAM_BYTES_MAX, EGRESS_ADDRESS, EGRESS_PREFIX_BITS};

/// An alias of the loopback: its addresses are the sandbox's own, and lead nowhere else.
const ALIAS: &str = "lo:0";
const ALIAS_MASK: Ipv4Addr = Ipv4Addr::from_bits(u32::MAX << (u32::BITS - EGRESS_PREFIX_BITS));

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

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

/// Listens at an address of the range that stands for the host, which is the sandbox's own from then on.
pub fn listen(at: SocketAddr, datagrams: bool) -> io::Result<OwnedFd> {
    let SocketAddr::V4(at) = at else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
    raise(ALIAS, EGRESS_ADDRESS, ALIAS_MASK, None)?;
    let kind = if datagrams { SockType::Datagram } else { SockType::Stream };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Inet, kind, flags, None)?;
    setsockopt(&socket, ReuseAddr, &true)?;
    bind(socket.as_raw_fd(), &SockaddrIn::from(at))?;
    if !datagrams {
        nix::sys::socket::listen(&socket, Backlog::new(BACKLOG)?)?;
    }
    Ok(socket)
}

/// Takes the next connection.
pub fn accept(listener: &impl AsRawFd) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let number = accept4(listener.as_raw_fd(), flags)?;
    // SAFETY: the kernel has just made the descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Answers the next DNS query that came as a datagram: it must be repeated over TCP.
pub fn turn_away(socket: &impl AsRawFd) -> io::Result<()> {
    /// In the third byte of a message: it is an answer, and there is more than fits.
    const ANSWER_IS_CUT: u8 = 0b1000_0010;
    /// In the fourth: the server asks others. One that does not and knows nothing is passed over.
    const ASKS_OTHERS: u8 = 0b1000_0000;
    let mut bytes = [0; DATAGRAM_BYTES_MAX];
    let (count, from) = recvfrom::<SockaddrIn>(socket.as_raw_fd(), &mut bytes)?;
    bytes[2] |= ANSWER_IS_CUT;
    bytes[3] |= ASKS_OTHERS;
    if let Some(from) = from {
        // The client repeats lost datagrams.
        sendto(socket.as_raw_fd(), &bytes[..count], &from, MsgFlags::empty()).ok();
    }
    Ok(())
}

/// The argument of calls about one interface.
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

/// An address without a port, in the layout that all families share.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    /// The offset of the address, after the port.
    const ADDRESS_AT: usize = 2;
    let mut shared = libc::sockaddr { sa_family: libc::AF_INET as u16, sa_data: [0; 14] };
    for (to, from) in shared.sa_data[ADDRESS_AT..].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    shared
}
