//! Which ports are listened on inside a sandbox, as its kernel says.

use std::collections::BTreeMap;

use super::limits::SOCKETS_BYTES_MAX;
use agent_client::guest::{Guest, GuestError};

/// The kernel's tables of sockets.
const TABLE: &str = "/proc/net/tcp";
const TABLE_V6: &str = "/proc/net/tcp6";
/// The state of a socket that listens.
const LISTENS: &str = "0A";

/// Ports that are listened on, and whether they are reached at 127.0.0.1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening(BTreeMap<u16, bool>);

impl Listening {
    /// The sockets of a sandbox at this moment. A guest whose kernel has no such table has none:
    /// then a taken port is only noticed when the app fails to bind it.
    pub async fn read(guest: &Guest) -> Result<Self, GuestError> {
        let mut found = Self::default();
        for table in [TABLE, TABLE_V6] {
            match read_table(guest, table).await {
                Ok(text) => found.add(&text),
                Err(GuestError::Fault(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    pub fn has(&self, port: u16) -> bool {
        self.0.contains_key(&port)
    }

    /// Whether a listener at the port is reached at 127.0.0.1.
    pub fn is_reached(&self, port: u16) -> bool {
        self.0.get(&port).is_some_and(|is_reached| *is_reached)
    }

    /// Ports that were not listened on before.
    pub fn since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = u16> + 'a {
        self.0.keys().copied().filter(|port| !before.has(*port))
    }

    /// Adds a table. Invalid lines are skipped: the guest may show anything.
    fn add(&mut self, table: &str) {
        for line in table.lines() {
            let mut words = line.split_ascii_whitespace().skip(1);
            let (Some(local), Some(state)) = (words.next(), words.nth(1)) else { continue };
            let Some((address, port)) = local.split_once(':') else { continue };
            let Ok(port) = u16::from_str_radix(port, 16) else { continue };
            if state == LISTENS {
                *self.0.entry(port).or_default() |= takes_loopback(address);
            }
        }
    }
}

/// Whether a listener at this address accepts connections to 127.0.0.1. The address is in words of 32 bits,
/// each little-endian.
fn takes_loopback(address: &str) -> bool {
    const MAPPED: &str = "0000000000000000FFFF0000";
    let v4 = match address.strip_prefix(MAPPED) {
        Some(mapped) => mapped,
        None => address,
    };
    address.bytes().all(|byte| byte == b'0') || v4 == "00000000" || v4 == "0100007F"
}

/// One of the kernel's tables, as far as it is looked at.
async fn read_table(guest: &Guest, path: &str) -> Result<String, GuestError> {
    let (output, _, _) = guest.read_file(path, 0, Some(SOCKETS_BYTES_MAX as u64)).await?;
    let table = output.whole(SOCKETS_BYTES_MAX).await?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&table).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0
   1: 00000000:1388 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0
   2: 0100007F:1F91 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0
   3: 0500000A:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4 1 0
";
    const V6: &str = "\
   0: 00000000000000000000000000000000:0BB8 00000000000000000000000000000000:0000 0A 0
   1: 00000000000000000000000001000000:0BB9 00000000000000000000000000000000:0000 0A 0
   2: 0000000000000000FFFF00000100007F:0BBA 00000000000000000000000000000000:0000 0A 0
";

    #[test]
    fn listeners_are_read_from_the_kernels_tables() {
        let mut found = Listening::default();
        found.add(V4);
        found.add(V6);
        let expected =
            [(80, false), (3000, true), (3001, false), (3002, true), (5000, true), (8080, true)];
        assert_eq!(found, Listening(expected.into()));
        assert!(found.has(80) && !found.is_reached(80) && !found.has(8081));
    }

    #[test]
    fn nonsense_of_a_guest_is_passed_over() {
        let mut found = Listening::default();
        for wrong in ["", "\n\n", "0:", "0: x:y z 0A", "0: :FFFFF x 0A", "a b c d e f"] {
            found.add(wrong);
        }
        assert_eq!(found, Listening::default());
    }
}
