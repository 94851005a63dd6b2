//! What a client reads when an entry of an archive cannot be unpacked.

use nix::errno::Errno;
use protocol::Fault;

use super::super::beneath::refused_beneath;
use super::super::refusal::quoted;

/// The refusal to unpack an entry.
pub fn refused_entry(entry: &[u8], errno: Errno) -> Fault {
    match errno {
        Errno::EPERM => {
            let message = format!("may not unpack {}: {}", quoted(entry), errno.desc());
            Fault::io(message, errno as i32)
        }
        other => refused_beneath("unpack", entry, other),
    }
}
