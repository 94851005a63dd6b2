//! What version 1 of control groups says of a sandbox, where it holds the sandbox's memory or processors: what
//! version 2 does not have then.
//!
//! `boot` opens it before the sandbox is closed, and keeps a few readable files and no directory. They are on
//! detached mounts of the groups, so nothing above a group can be reached from them. `ground` asks for limits
//! and kills, and `metrics` for the rest.

use std::fs::File;
use std::io;

use super::account::{field, number, text};
use super::{Account, Directory, own_version_1};
use crate::sys::{mount, mountinfo};

/// The name of a group that is a sandbox's own begins with it.
const PREFIX: &str = "burrow-";
/// The kernel's value for no limit is slightly below the largest number.
const UNLIMITED_BYTES: u64 = 1 << 62;
const NS_PER_US: u64 = 1000;

/// The sandbox's own groups of version 1. There is one for each bound that it has.
#[derive(Debug, Default)]
pub struct OlderGroups {
    memory: Option<OlderMemory>,
    /// `cpu.stat`.
    processors: Option<File>,
}

#[derive(Debug)]
struct OlderMemory {
    events: File,
    limit: File,
    parts: Option<File>,
    peak: Option<File>,
}

impl OlderGroups {
    /// Opens those groups that this process is in and that are a sandbox's own.
    pub fn open() -> Self {
        let open = || {
            let mounts = mountinfo::parse(&std::fs::read("/proc/self/mountinfo").ok()?);
            let memberships = std::fs::read_to_string("/proc/self/cgroup").ok()?;
            let own = |controller, file| {
                let group = own_version_1(&mounts, &memberships, controller, file)?;
                let is_own = group.file_name()?.to_str()?.starts_with(PREFIX);
                is_own.then(|| Some(Directory::from(mount::copy(&group).ok()?))).flatten()
            };
            let memory = own("memory", "memory.limit_in_bytes");
            Some(Self::within(memory.as_ref(), own("cpu", "cpu.stat").as_ref()))
        };
        open().unwrap_or_default()
    }

    pub(super) fn within(memory: Option<&Directory>, processors: Option<&Directory>) -> Self {
        Self {
            memory: memory.and_then(|group| OlderMemory::within(group).ok()),
            processors: processors.and_then(|group| group.open_to_read("cpu.stat").ok()),
        }
    }

    /// How many processes of the sandbox the kernel has killed because memory ran out. Kernels before 4.13 do
    /// not report it.
    pub fn oom_kills(&self) -> Option<u64> {
        field(&text(&self.memory.as_ref()?.events)?, "oom_kill")
    }

    pub fn limit_bytes(&self) -> Option<u64> {
        number(&self.memory.as_ref()?.limit).filter(|bytes| *bytes < UNLIMITED_BYTES)
    }

    /// Adds what they account for and version 2 does not. Memory in use is not among it, since its sum would
    /// differ from that of a walk.
    pub fn complete(&self, account: &mut Account) {
        if let Some(memory) = &self.memory {
            let parts = memory.parts.as_ref().and_then(text);
            let part = |name| field(parts.as_deref()?, name);
            let complete = |known: &mut Option<u64>, ours| *known = known.or(ours);
            complete(&mut account.memory_bytes_max, self.limit_bytes());
            complete(&mut account.memory_bytes_peak, memory.peak.as_ref().and_then(number));
            // Files in memory are no cache: they cannot be dropped.
            let cached = part("total_cache").zip(part("total_shmem"));
            let cached = cached.map(|(cached, in_memory)| cached.saturating_sub(in_memory));
            complete(&mut account.cache_bytes, cached);
            // Without an account of swap there is no such line.
            complete(&mut account.swap_bytes, part("total_swap"));
            complete(&mut account.oom_kills, self.oom_kills());
        }
        if let Some(times) = self.processors.as_ref().and_then(text)
            && account.throttled_us.is_none()
        {
            account.throttled_us = field(&times, "throttled_time").map(|ns| ns / NS_PER_US);
        }
    }
}

impl OlderMemory {
    fn within(group: &Directory) -> io::Result<Self> {
        let open = |name| group.open_to_read(name);
        Ok(Self {
            events: open("memory.oom_control")?,
            limit: open("memory.limit_in_bytes")?,
            parts: open("memory.stat").ok(),
            peak: open("memory.max_usage_in_bytes").ok(),
        })
    }
}
