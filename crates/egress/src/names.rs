//! Maps names to addresses in one sandbox. A name keeps its address for as long as the sandbox lives, also
//! after a restart of the bridge. Programs cache addresses, so an address is never given to a second name.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use protocol::egress::{EGRESS_ADDRESS, EGRESS_PREFIX_BITS};
use tokio::io::AsyncWriteExt;

use super::host::Host;
use super::limits::NAMES_FILE_BYTES_MAX;

/// The file in the sandbox's directory: a name a line, in the order of their addresses.
pub const FILE: &str = "egress.names";

/// Addresses after the sandbox's own, without the last of the range.
const ADDRESSES: u32 = (1 << (u32::BITS - EGRESS_PREFIX_BITS)) - 3;

/// The names of one sandbox, with their addresses.
#[derive(Debug)]
pub struct Names {
    at_once_max: usize,
    by_host: HashMap<Host, Entry>,
    by_address: HashMap<Ipv4Addr, Host>,
    /// Addresses that were ever given.
    given: u32,
    /// Counts uses, to find the oldest.
    clock: u64,
    file: Option<PathBuf>,
}

#[derive(Debug)]
struct Entry {
    address: Ipv4Addr,
    used: u64,
    /// Connections at the moment.
    connections: usize,
    /// Whether the guest listens at it by now.
    is_open: bool,
}

/// The state of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameAddress {
    pub address: Ipv4Addr,
    /// The guest does not listen there yet.
    pub is_new: bool,
    /// The address that another name has lost for this.
    pub lost: Option<Ipv4Addr>,
}

/// Why a name gets no address.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    #[error("the sandbox may use {names_max} names at once, and all of them have connections")]
    Busy { names_max: usize },
    #[error("the sandbox has used up all {ADDRESSES} addresses")]
    UsedUp,
    #[error("the name could not be saved: {0}")]
    File(#[from] io::Error),
}

impl Names {
    /// The names of a sandbox that keeps them in this directory, if it keeps them.
    pub async fn open(directory: Option<&Path>, names_max: usize) -> io::Result<Self> {
        let mut names = Self {
            at_once_max: names_max,
            by_host: HashMap::new(),
            by_address: HashMap::new(),
            given: 0,
            clock: 0,
            file: directory.map(|directory| directory.join(FILE)),
        };
        let Some(file) = names.file.clone() else { return Ok(names) };
        let text = match tokio::fs::metadata(&file).await {
            Ok(found) if found.len() <= NAMES_FILE_BYTES_MAX => {
                tokio::fs::read_to_string(&file).await?
            }
            Ok(_) => return Err(io::Error::from(io::ErrorKind::FileTooLarge)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            Err(error) => return Err(error),
        };
        let known: Vec<&str> = text.lines().collect();
        names.given = known.len() as u32;
        let mut entries: Vec<(u32, Host)> = Vec::new();
        for (index, line) in known.iter().enumerate() {
            if let Ok(host) = line.parse() {
                entries.push((index as u32, host));
            }
        }
        // A name that is there twice has lost its first address.
        for (index, host) in entries.into_iter().rev() {
            if names.by_host.len() < names_max && !names.by_host.contains_key(&host) {
                names.insert(host, address(index), 0);
            }
        }
        // A line that was cut in writing would run into the next.
        if !text.is_empty() && !text.ends_with('\n') {
            append(&file, "\n").await?;
        }
        Ok(names)
    }

    fn insert(&mut self, host: Host, address: Ipv4Addr, used: u64) {
        self.by_address.insert(address, host.clone());
        self.by_host.insert(host, Entry { address, used, connections: 0, is_open: false });
    }

    /// The address of a name, which it gets now if it has none.
    pub async fn give(&mut self, host: &Host) -> Result<NameAddress, NamesError> {
        self.clock += 1;
        if let Some(entry) = self.by_host.get_mut(host) {
            entry.used = self.clock;
            return Ok(NameAddress { address: entry.address, is_new: !entry.is_open, lost: None });
        }
        if self.given >= ADDRESSES {
            return Err(NamesError::UsedUp);
        }
        let lost =
            if self.by_host.len() >= self.at_once_max { Some(self.take_oldest()?) } else { None };
        if let Some(file) = &self.file {
            append(file, &format!("{host}\n")).await?;
        }
        let address = address(self.given);
        self.given += 1;
        self.insert(host.clone(), address, self.clock);
        Ok(NameAddress { address, is_new: true, lost })
    }

    fn take_oldest(&mut self) -> Result<Ipv4Addr, NamesError> {
        let idle = self.by_host.iter().filter(|(_, entry)| entry.connections == 0);
        let oldest = idle.min_by_key(|(_, entry)| entry.used).map(|(host, _)| host.clone());
        let busy = NamesError::Busy { names_max: self.at_once_max };
        let Some(entry) = oldest.and_then(|host| self.by_host.remove(&host)) else {
            return Err(busy);
        };
        self.by_address.remove(&entry.address);
        Ok(entry.address)
    }

    /// Allows so many names at once from now on. Returns the addresses of those that have no place any more; a name
    /// with connections keeps its own.
    pub fn allow_at_once(&mut self, names_max: usize) -> Vec<Ipv4Addr> {
        self.at_once_max = names_max;
        let mut lost = Vec::new();
        while self.by_host.len() > names_max
            && let Ok(address) = self.take_oldest()
        {
            lost.push(address);
        }
        lost
    }

    /// The names at whose addresses the guest listens.
    pub fn listening(&self) -> Vec<(Host, Ipv4Addr)> {
        let open = self.by_host.iter().filter(|(_, entry)| entry.is_open);
        open.map(|(host, entry)| (host.clone(), entry.address)).collect()
    }

    /// The guest does not listen there any more.
    pub fn closed(&mut self, host: &Host) {
        if let Some(entry) = self.by_host.get_mut(host) {
            entry.is_open = false;
        }
    }

    /// The guest listens at the address of this name.
    pub fn opened(&mut self, host: &Host) {
        if let Some(entry) = self.by_host.get_mut(host) {
            entry.is_open = true;
        }
    }

    pub fn host(&self, address: Ipv4Addr) -> Option<Host> {
        self.by_address.get(&address).cloned()
    }

    /// A connection to this name begins, or ends.
    pub fn count(&mut self, host: &Host, begins: bool) {
        self.clock += 1;
        if let Some(entry) = self.by_host.get_mut(host) {
            entry.used = self.clock;
            entry.connections =
                if begins { entry.connections + 1 } else { entry.connections.saturating_sub(1) };
        }
    }

    /// All names that have an address.
    pub fn all(&self) -> Vec<Host> {
        self.by_host.keys().cloned().collect()
    }
}

fn address(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(EGRESS_ADDRESS.to_bits() + 1 + index)
}

/// Copies one sandbox's names for another that continues from its snapshot, if it has any: addresses that its
/// programs remember mean the same there.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::copy(from.join(FILE), to.join(FILE)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

async fn append(file: &Path, text: &str) -> io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    let mut file = options.create(true).append(true).mode(0o600).open(file).await?;
    file.write_all(text.as_bytes()).await?;
    file.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES_MAX: usize = 50;

    fn host(number: usize) -> Host {
        format!("h{number}.org").parse().unwrap()
    }

    #[tokio::test]
    async fn a_name_keeps_its_address_over_a_restart() {
        let directory = std::env::temp_dir().join(format!("burrow-names-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut names = Names::open(Some(&directory), 9).await.unwrap();
        let first = names.give(&host(1)).await.unwrap();
        let second = names.give(&host(2)).await.unwrap();
        assert_eq!(first.address, Ipv4Addr::new(198, 18, 0, 2));
        assert_ne!(first.address, second.address);
        names.opened(&host(1));
        assert!(!names.give(&host(1)).await.unwrap().is_new);
        let mut names = Names::open(Some(&directory), 9).await.unwrap();
        assert_eq!(names.host(second.address), Some(host(2)));
        let again = names.give(&host(1)).await.unwrap();
        assert_eq!(
            (again.address, again.is_new),
            (first.address, true),
            "nobody listens there yet"
        );
        assert_eq!(names.give(&host(3)).await.unwrap().address, Ipv4Addr::new(198, 18, 0, 4));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn the_name_that_was_used_longest_ago_goes_and_its_address_is_never_given_again() {
        let mut names = Names::open(None, NAMES_MAX).await.unwrap();
        let first = names.give(&host(0)).await.unwrap().address;
        for number in 1..NAMES_MAX {
            assert_eq!(names.give(&host(number)).await.unwrap().lost, None);
        }
        names.count(&host(0), true);
        let more = names.give(&host(NAMES_MAX)).await.unwrap();
        assert_eq!(more.lost, Some(address(1)), "the first has a connection");
        let again = names.give(&host(1)).await.unwrap();
        assert!(again.is_new && again.address > more.address, "another than it had");
        assert_eq!(names.host(first), Some(host(0)));
        for number in names.all() {
            names.count(&number, true);
        }
        assert!(matches!(names.give(&host(9999)).await, Err(NamesError::Busy { .. })));
    }
}
