//! What `/proc` tells about processes.
//!
//! `process::tree` and `metrics` read it. Everything here may have changed when it is returned: a
//! process that has gone meanwhile is left out, never an error.

use std::fs::File;
use std::io::Read;

use nix::unistd::Pid;
use protocol::fault::clip_to;
use protocol::limits::COMMAND_BYTES_MAX;
use protocol::sorted::SortedMap;

/// Processes that are looked at in one scan; a machine of ours has far fewer, and a fork bomb must
/// not make the scan endless.
const PROCESSES_MAX: usize = 65_536;

/// Bytes of a process's environment that are searched: the kernel's limit for all of it is 2 MiB by
/// default, and a session's variable stands where its `execve` put it.
const ENVIRONMENT_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// A process, by its place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: Pid,
    pub parent: Pid,
    pub group: Pid,
    pub session: Pid,
    /// Whether it has ended and only awaits its parent.
    pub zombie: bool,
}

/// Every process that this agent can see.
pub fn processes() -> SortedMap<Pid, Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return SortedMap::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .take(PROCESSES_MAX)
        .filter_map(|pid: i32| process(Pid::from_raw(pid)))
        .map(|process| (process.pid, process))
        .collect()
}

/// One process, if it exists.
pub fn process(pid: Pid) -> Option<Process> {
    parse_stat(&read_start(&format!("/proc/{pid}/stat"), 1024)?)
}

/// `pid (name) state ppid pgrp session …`, where the name may hold spaces and parentheses.
fn parse_stat(text: &[u8]) -> Option<Process> {
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let pid = text.split(|byte| *byte == b' ').next()?;
    let rest = std::str::from_utf8(text.get(name_end + 2..)?).ok()?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok().map(Pid::from_raw);
    Some(Process {
        pid: Pid::from_raw(std::str::from_utf8(pid).ok()?.parse().ok()?),
        parent: number()?,
        group: number()?,
        session: number()?,
        zombie: matches!(state, "Z" | "X"),
    })
}

/// Whether the environment that the process was executed with has exactly this `name=value`.
pub fn has_variable(pid: Pid, assignment: &str) -> bool {
    read_start(&format!("/proc/{pid}/environ"), ENVIRONMENT_BYTES_MAX)
        .is_some_and(|text| text.split(|byte| *byte == 0).any(|part| part == assignment.as_bytes()))
}

/// The command line with spaces between the arguments, or the kernel's short name in brackets, cut
/// to [`COMMAND_BYTES_MAX`].
pub fn command_line(pid: Pid) -> Option<String> {
    let line = read_start(&format!("/proc/{pid}/cmdline"), COMMAND_BYTES_MAX as u64)?;
    let line = line.strip_suffix(&[0]).unwrap_or(&line);
    let text = if line.is_empty() {
        let name = read_start(&format!("/proc/{pid}/comm"), 64)?;
        format!("[{}]", String::from_utf8_lossy(&name).trim_end())
    } else {
        String::from_utf8_lossy(line).replace('\0', " ")
    };
    // A replacement character is longer than the byte that it stands for.
    Some(clip_to(text, COMMAND_BYTES_MAX))
}

fn read_start(path: &str, bytes_max: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_hides_nothing() {
        let process = parse_stat(b"12 (a) b) S 3 4 5 0 -1\n").expect("it is well-formed");
        assert_eq!(process.pid, Pid::from_raw(12));
        assert_eq!(process.parent, Pid::from_raw(3));
        assert_eq!(process.group, Pid::from_raw(4));
        assert_eq!(process.session, Pid::from_raw(5));
        assert!(!process.zombie);
    }

    #[test]
    fn a_test_finds_itself() {
        let me = Pid::this();
        let all = processes();
        assert_eq!(all.get(&me).map(|process| process.parent), Some(Pid::parent()));
        assert!(command_line(me).is_some_and(|line| !line.is_empty()));
    }
}
