//! Processors, memory and disk space that are added to a machine while it runs.
//!
//! `run` starts [`watch`] in a machine. The kernel reports each change: the agent switches processors on and
//! grows the file system of the writable layer with its disk. The kernel switches memory on by itself, once
//! it is configured to. Code that reports the amount reads it again.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use nix::sys::statvfs::fstatvfs;
use tokio::io::Interest;

use crate::ground::Ground;
use crate::sys::{grow, ready, uevent};
use crate::task;

/// The longest event that is read.
const EVENT_BYTES_MAX: usize = 2048;

/// The file that makes the kernel use new memory at once.
const MEMORY_POLICY: &str = "/sys/devices/system/memory/auto_online_blocks";

/// Where the file system of the writable layer is mounted: as the root, or at a separate directory.
const WRITTEN: [&str; 2] = ["/", "/dev/shm"];

/// The unit in which the kernel reports a disk's size.
const SECTOR_BYTES: u64 = 512;

/// Watches for as long as the agent lives, if the kernel allows it.
pub async fn watch(ground: Rc<Ground>) {
    fs::write(MEMORY_POLICY, "online").ok();
    let disk = WRITTEN.into_iter().find_map(Disk::below).map(Arc::new);
    let listening = uevent::listen().and_then(|socket| ready::watch(socket, Interest::READABLE));
    // Listening began before, so that no change is missed.
    grow(disk.as_ref()).await;
    let Ok(socket) = listening else { return };
    let mut buffer = [0; EVENT_BYTES_MAX];
    while let Ok(mut ready) = socket.readable().await {
        match uevent::take(&socket, &mut buffer) {
            Ok(count) => match parse_event(&buffer[..count]) {
                Some(Event::Processor { added }) => {
                    if let Some(path) = added {
                        fs::write(["/sys", path, "/online"].concat(), "1").ok();
                    }
                    ground.count_cpus();
                }
                Some(Event::Disk) => grow(disk.as_ref()).await,
                None => {}
            },
            Err(Errno::EAGAIN) => ready.clear_ready(),
            // Events were lost, so everything is checked.
            Err(Errno::ENOBUFS) => {
                ground.count_cpus();
                grow(disk.as_ref()).await;
            }
            Err(_) => return,
        }
    }
}

/// A change that the agent acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event<'a> {
    /// A processor was added, at this path, or has changed.
    Processor { added: Option<&'a str> },
    /// A disk has changed.
    Disk,
}

/// Reads the first line of an event, `ACTION@PATH`, which ends with a zero byte.
fn parse_event(event: &[u8]) -> Option<Event<'_>> {
    let line = event.split(|byte| *byte == 0).next()?;
    let (action, path) = std::str::from_utf8(line).ok()?.split_once('@')?;
    let number = path.strip_prefix("/devices/system/cpu/cpu");
    if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
        return Some(Event::Processor { added: (action == "add").then_some(path) });
    }
    (action == "change" && path.contains("/block/")).then_some(Event::Disk)
}

/// A file system that is on a disk.
struct Disk {
    directory: File,
    /// The file in which the kernel reports the disk's size.
    size: PathBuf,
}

impl Disk {
    fn below(directory: &str) -> Option<Self> {
        let directory = File::open(directory).ok()?;
        let device = directory.metadata().ok()?.dev();
        let size = format!("/sys/dev/block/{}:{}/size", major(device), minor(device));
        let size = PathBuf::from(size);
        // A file system without a disk has a device number, too.
        size.exists().then_some(Self { directory, size })
    }

    fn grow(&self) {
        let size = fs::read_to_string(&self.size).ok();
        let Some(sectors) = size.and_then(|size| size.trim().parse::<u64>().ok()) else { return };
        let Ok(found) = fstatvfs(&self.directory) else { return };
        let blocks = sectors.saturating_mul(SECTOR_BYTES) / found.block_size().max(1);
        // Fails for a disk that has shrunk or a file system that cannot grow; both stay as they are.
        grow::resize(self.directory.as_fd(), blocks).ok();
    }
}

async fn grow(disk: Option<&Arc<Disk>>) {
    let Some(disk) = disk.cloned() else { return };
    let grown = move || {
        disk.grow();
        Ok(())
    };
    task::blocking(grown).await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_processors_are_distinguished_from_changed_ones() {
        let path = "/devices/system/cpu/cpu1";
        let event = format!("add@{path}\0ACTION=add\0SUBSYSTEM=cpu\0");
        let added = Some(path);
        assert_eq!(parse_event(event.as_bytes()), Some(Event::Processor { added }));
        // Nothing but a number, because the path is written to.
        assert_eq!(parse_event(b"add@/devices/system/cpu/cpu1/../../net\0"), None);
        assert_eq!(parse_event(b"add@/devices/system/cpu/cpufreq\0"), None);
        let gone = b"offline@/devices/system/cpu/cpu1\0";
        assert_eq!(parse_event(gone), Some(Event::Processor { added: None }));
    }

    #[test]
    fn a_disk_that_changes_is_noticed() {
        let event = b"change@/devices/pci0000:00/0000:00:04.0/virtio1/block/vdb\0RESIZE=1\0";
        assert_eq!(parse_event(event), Some(Event::Disk));
        assert_eq!(parse_event(b"add@/devices/virtual/block/loop0\0"), None);
    }

    #[test]
    fn anything_else_is_nothing() {
        let events: [&[u8]; 5] =
            [b"", b"\0", b"add@", b"libudev\0\xfe\xed", b"change@/devices/virtual/net/lo\0"];
        for event in events {
            assert_eq!(parse_event(event), None, "{event:?}");
        }
    }
}
