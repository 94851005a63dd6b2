//! The message for an archive's entry that cannot be unpacked.

use nix::errno::Errno;
use protocol::Fault;

use super::super::refusal::{quoted, refused_unlinked};
use crate::lookup::Refused;

/// The refusal to unpack an entry.
pub fn refused_entry(entry: &[u8], why: impl Into<Refused>) -> Fault {
    match why.into() {
        Refused::Errno(Errno::EPERM) => {
            let message = format!("may not unpack {}: {}", quoted(entry), Errno::EPERM.desc());
            Fault::io(message, Errno::EPERM as i32)
        }
        other => refused_unlinked("unpack", entry, other),
    }
}
