//! Reads about processes from `/proc`.
//!
//! `process::tree` and `metrics` use it. Everything here may be outdated when it is returned: a
//! process that has ended meanwhile is skipped, never an error.

use std::fs::File;
use std::io::Read;

use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::unistd::Pid;
use protocol::fault::clip_to;
use protocol::limits::COMMAND_BYTES_MAX;
use protocol::sorted::SortedMap;

use crate::sys::lookup::open_in_proc;

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
    let directory = open_in_proc(".", OFlag::O_RDONLY | OFlag::O_DIRECTORY);
    let Ok(mut directory) = directory.and_then(Dir::from_fd) else {
        return SortedMap::new();
    };
    directory
        .iter()
        .filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok())
        .take(PROCESSES_MAX)
        .filter_map(|pid: i32| process(Pid::from_raw(pid)))
        .map(|process| (process.pid, process))
        .collect()
}

/// One process, if it exists.
pub fn process(pid: Pid) -> Option<Process> {
    parse_stat(&read_start(&format!("{pid}/stat"), 1024)?)
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

/// The CPU time of one process, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub parent: u32,
    pub user: Spent,
    /// In the kernel.
    pub system: Spent,
    /// When it began, since the machine's start. With its number it is like no other process.
    pub began: u64,
}

/// CPU time of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Of the process itself, in all its threads.
    pub own: u64,
    /// Of the children that it has waited for, and of theirs.
    pub waited: u64,
}

impl Times {
    /// All of it.
    pub fn sum(&self) -> u64 {
        let of = |spent: Spent| spent.own.saturating_add(spent.waited);
        of(self.user).saturating_add(of(self.system))
    }
}

/// The times in `/proc/PID/stat`.
pub fn parse_times(stat: &[u8]) -> Option<Times> {
    // Only numbers follow the name, so whatever the name contains, the last parenthesis closes it.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    // The third field, which `proc(5)` counts from 1, is the first of these.
    let mut fields = stat.get(name_end + 2..)?.split(|byte| *byte == b' ');
    let parent = parse_number(fields.nth(4 - 3)?)? as u32;
    let mut time = |ahead| parse_number(fields.nth(ahead)?);
    let [user, system, waited_user, waited_system] = [time(14 - 5)?, time(0)?, time(0)?, time(0)?];
    Some(Times {
        parent,
        user: Spent { own: user, waited: waited_user },
        system: Spent { own: system, waited: waited_system },
        began: time(22 - 18)?,
    })
}

/// The pages of `/proc/PID/statm` that are private or shared with the process that it was forked
/// from: neither files nor explicitly shared memory.
pub fn parse_private_pages(statm: &[u8]) -> Option<u64> {
    let mut fields = statm.split(|byte| *byte == b' ');
    let resident = parse_number(fields.nth(1)?)?;
    Some(resident.saturating_sub(parse_number(fields.next()?)?))
}

/// The usage of one process by itself, as far as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub times: Times,
    pub private_pages: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// A process's usage, if it exists.
pub fn used(pid: Pid) -> Option<Used> {
    let read = |file: &str| read_start(&format!("{pid}/{file}"), 1024);
    let io = read("io").unwrap_or_default();
    let io = String::from_utf8_lossy(&io);
    let bytes = |name: &str| {
        let found = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.and_then(|number| parse_number(number.as_bytes())).unwrap_or(0)
    };
    Some(Used {
        times: parse_times(&read("stat")?)?,
        private_pages: parse_private_pages(&read("statm")?)?,
        read_bytes: bytes("read_bytes"),
        written_bytes: bytes("write_bytes"),
    })
}

/// The digits at the beginning; the kernel's few negative numbers count as nothing.
pub fn parse_number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits
        .map(|digit| u64::from(digit - b'0'))
        .try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(digit))?;
    match text.first() {
        Some(b'-') => Some(0),
        first => first.filter(|byte| byte.is_ascii_digit()).map(|_| number),
    }
}

/// Whether the environment that the process was executed with has exactly this `name=value`.
pub fn has_variable(pid: Pid, assignment: &str) -> bool {
    read_start(&format!("{pid}/environ"), ENVIRONMENT_BYTES_MAX)
        .is_some_and(|text| text.split(|byte| *byte == 0).any(|part| part == assignment.as_bytes()))
}

/// The command line with spaces between the arguments, or the kernel's short name in brackets, cut
/// to [`COMMAND_BYTES_MAX`].
pub fn command_line(pid: Pid) -> Option<String> {
    let line = read_start(&format!("{pid}/cmdline"), COMMAND_BYTES_MAX as u64)?;
    let line = line.strip_suffix(&[0]).unwrap_or(&line);
    let text = if line.is_empty() {
        let name = read_start(&format!("{pid}/comm"), 64)?;
        format!("[{}]", String::from_utf8_lossy(&name).trim_end())
    } else {
        String::from_utf8_lossy(line).replace('\0', " ")
    };
    // A replacement character is longer than the byte that it stands for.
    Some(clip_to(text, COMMAND_BYTES_MAX))
}

/// The beginning of a file in the agent's procfs.
fn read_start(name: &str, bytes_max: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(open_in_proc(name, OFlag::O_RDONLY).ok()?)
        .take(bytes_max)
        .read_to_end(&mut bytes)
        .ok()?;
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
    fn no_name_moves_the_times() {
        let rest = "S 3 4 5 0 -1 4194304 6 7 8 9 110 20 -1 40 20 0 1 0 777 2 3 4";
        for name in ["sh", "a b", ") S 1 1 (", "\n1 (x) R 9", "))))", "\u{ff}"] {
            let times = parse_times(format!("12 ({name}) {rest}\n").as_bytes());
            let spent = |own, waited| Spent { own, waited };
            let (user, system) = (spent(110, 0), spent(20, 40));
            let expected = Times { parent: 3, user, system, began: 777 };
            assert_eq!(times, Some(expected), "{name:?}");
        }
    }

    #[test]
    fn an_invalid_stat_has_no_times() {
        for text in ["", ")", "1 (x", "1 (x) S", "1 (x) S 1 2 3 4 5 6 7 8 9 10 a b c d e f g h i"] {
            assert_eq!(parse_times(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_number(b"99999999999999999999999"), None);
        assert_eq!(parse_number(b"-5"), Some(0));
        assert_eq!(parse_number(b""), None);
    }

    #[test]
    fn shared_pages_are_not_a_processs_own() {
        assert_eq!(parse_private_pages(b"765 445 417 5 0 123 0\n"), Some(28));
        assert_eq!(parse_private_pages(b"765 4 417 5 0 123 0\n"), Some(0));
        assert_eq!(parse_private_pages(b"765 445"), None);
    }

    #[test]
    fn a_test_finds_itself() {
        let me = Pid::this();
        let all = processes();
        assert_eq!(all.get(&me).map(|process| process.parent), Some(Pid::parent()));
        assert!(command_line(me).is_some_and(|line| !line.is_empty()));
    }
}
