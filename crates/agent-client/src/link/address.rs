//! The address of an agent, and its text form.
//!
//! Used by the link to dial, and by everything above as a text: in records, on the command line,
//! in the control protocol. Parsing never touches the file system or a socket.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The address of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A plain Unix socket on which an agent listens: `unix:/run/agent.sock`.
    Unix { path: PathBuf },
    /// The Unix socket by which a VMM leads to a vsock port of its guest: `hybrid:/run/v.sock:1024`.
    Hybrid { path: PathBuf, port: u32 },
    /// A vsock port of a machine of this host: `vsock:3:1024`.
    Vsock { cid: u32, port: u32 },
    /// The Unix socket by which a VMM leads to a virtio-serial port of its guest, for one caller at a
    /// time: `serial:/run/serial.sock`.
    Serial { path: PathBuf },
}

/// Why a text is not an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an address: write unix:/path, hybrid:/path:port, vsock:cid:port or serial:/path"
)]
pub struct InvalidAddress(pub String);

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_address(text).ok_or_else(|| InvalidAddress(text.to_owned()))
    }
}

fn parse_address(text: &str) -> Option<Address> {
    let (scheme, rest) = text.split_once(':')?;
    match scheme {
        "unix" => Some(Address::Unix { path: parse_path(rest)? }),
        "serial" => Some(Address::Serial { path: parse_path(rest)? }),
        "hybrid" => {
            // The path may hold colons; a port does not.
            let (path, port) = rest.rsplit_once(':')?;
            Some(Address::Hybrid { path: parse_path(path)?, port: parse_number(port)? })
        }
        "vsock" => {
            let (cid, port) = rest.split_once(':')?;
            Some(Address::Vsock { cid: parse_number(cid)?, port: parse_number(port)? })
        }
        _ => None,
    }
}

/// A socket's path holds no NUL: the kernel would cut it there and dial somewhere else.
fn parse_path(text: &str) -> Option<PathBuf> {
    (!text.is_empty() && !text.contains('\0')).then(|| PathBuf::from(text))
}

/// `u32::from_str` takes a leading plus sign, which an address has no use for.
fn parse_number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { path } => write!(f, "unix:{}", path.display()),
            Self::Hybrid { path, port } => write!(f, "hybrid:{}:{port}", path.display()),
            Self::Vsock { cid, port } => write!(f, "vsock:{cid}:{port}"),
            Self::Serial { path } => write!(f, "serial:{}", path.display()),
        }
    }
}

impl Address {
    /// The socket file that is dialled, where there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unix { path } | Self::Hybrid { path, .. } | Self::Serial { path } => Some(path),
            Self::Vsock { .. } => None,
        }
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
