//! Identifies a process: pids are reused, so a process is identified by its pid, its start time and
//! the host's boot.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::limits::PROC_STAT_BYTES_MAX;

/// A process of this host, for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// Clock ticks since the host's boot, from `/proc/<pid>/stat`.
    pub started_ticks: u64,
    /// The kernel's id of the boot.
    pub boot_id: String,
}

/// The index of the start time after the process's name in `/proc/<pid>/stat`; field 22 of proc(5),
/// where the name is field 2.
const START_TIME_BEHIND_NAME: usize = 19;
/// The position of the state in the same count.
const STATE_BEHIND_NAME: usize = 0;
/// The position of the parent's pid in the same count.
const PARENT_BEHIND_NAME: usize = 1;

impl ProcessIdentity {
    /// The process that has `pid` now.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = read_bounded(&format!("/proc/{pid}/stat"))?;
        let (started_ticks, _) = parse_stat(&stat)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no start time in stat"))?;
        Ok(Self { pid, started_ticks, boot_id: boot_id()? })
    }

    /// Opens the process, or `None` if it has ended. Reads the start time after opening, so that
    /// the descriptor cannot be another process's.
    pub fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(self.is_current().then_some(descriptor))
    }

    /// Whether the pid still means this process, and it has not ended.
    pub fn is_current(&self) -> bool {
        let Ok(now) = Self::of(self.pid) else { return false };
        let ended = read_bounded(&format!("/proc/{}/stat", self.pid))
            .ok()
            .and_then(|stat| parse_stat(&stat))
            .is_none_or(|(_, state)| matches!(state, 'Z' | 'X'));
        now == *self && !ended
    }
}

/// The kernel's id of this boot of the host.
pub fn boot_id() -> io::Result<String> {
    Ok(read_bounded("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The parent of a process.
pub(super) fn parent_of(pid: u32) -> Option<u32> {
    let stat = read_bounded(&format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(") ")?;
    behind.split_ascii_whitespace().nth(PARENT_BEHIND_NAME)?.parse().ok()
}

/// Start time and state. The name stands in parentheses and may itself contain any byte, closing
/// parentheses included, so the last one counts.
fn parse_stat(stat: &str) -> Option<(u64, char)> {
    let (_, behind) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
    let started = fields.get(START_TIME_BEHIND_NAME)?.parse().ok()?;
    Some((started, fields.get(STATE_BEHIND_NAME)?.chars().next()?))
}

fn read_bounded(path: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(PROC_STAT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
