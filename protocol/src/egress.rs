//! What both ends agree on for egress: which addresses stand for the host.

/// The range of addresses that stand for names which a sandbox may reach: the one that is set apart
/// for measuring networks, which no host of the internet has. Its first is the sandbox's own.
pub const EGRESS_ADDRESS: core::net::Ipv4Addr = core::net::Ipv4Addr::new(198, 18, 0, 1);
pub const EGRESS_PREFIX_BITS: u32 = 15;
/// How much of one datagram is read. Only DNS queries arrive, which are far smaller.
pub const DATAGRAM_BYTES_MAX: usize = 4096;
