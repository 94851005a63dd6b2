//! The sandbox's memory under version 1 of control groups: its limit, and how many processes the kernel has
//! killed for exceeding it.
//!
//! `boot` opens it before the sandbox is closed, and keeps two readable files and no directory. They are on
//! a detached mount of the group, so nothing above the group can be reached from them. `Groups` reads from it
//! what version 2 does not have.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::account::field;
use super::{Directory, own_version_1};
use crate::sys::{mount, mountinfo};

/// The name of a group that is a sandbox's own begins with it.
const PREFIX: &str = "burrow-";
/// Either file is far shorter.
const FILE_BYTES_MAX: usize = 4096;
/// The kernel's value for no limit is slightly below the largest number.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// See the module's description.
#[derive(Debug)]
pub struct OlderMemory {
    events: File,
    limit: File,
}

impl OlderMemory {
    /// Opens the group of memory that this process is in, if that is a sandbox's own.
    pub fn open() -> Option<Self> {
        let mounts = mountinfo::parse(&std::fs::read("/proc/self/mountinfo").ok()?);
        let memberships = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let group = own_version_1(&mounts, &memberships, "memory")?;
        let is_own = group.file_name()?.to_str()?.starts_with(PREFIX);
        is_own.then(|| Self::within(&mount::copy(&group).ok()?.into()).ok()).flatten()
    }

    pub(super) fn within(group: &Directory) -> io::Result<Self> {
        let events = group.open_to_read("memory.oom_control")?;
        Ok(Self { events, limit: group.open_to_read("memory.limit_in_bytes")? })
    }

    /// So far. Kernels before 4.13 do not report it.
    pub fn oom_kills(&self) -> Option<u64> {
        field(&read(&self.events)?, "oom_kill")
    }

    pub fn limit_bytes(&self) -> Option<u64> {
        read(&self.limit)?.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED_BYTES)
    }
}

fn read(file: &File) -> Option<String> {
    let mut text = vec![0; FILE_BYTES_MAX];
    let count = file.read_at(&mut text, 0).ok()?;
    text.truncate(count);
    String::from_utf8(text).ok()
}
