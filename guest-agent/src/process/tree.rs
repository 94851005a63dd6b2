//! All processes of one session: found, signalled, and named when they outlive its leader.
//!
//! `session` and `pid1::shutdown` call it. With a control group the kernel knows the members, and
//! neither `setsid` nor a double fork leaves it. Without one, a member has the leader's process
//! group or session, descends from a member, or has the session's variable in its environment. Only
//! a process that has lost its ancestors, left the terminal's session and cleared its environment
//! escapes then.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::exit::Survivor;
use protocol::limits::SURVIVORS_LISTED_MAX;
use protocol::sorted::{SortedMap, SortedSet, sort_by};

use super::environment::SESSION_VARIABLE;
use super::procfs::{self, Process};
use crate::cgroup::SessionGroup;

/// How often the members are listed again while each listing shows new processes. A fork bomb
/// without a control group can outrun any number of rounds; this many end every tree that does not
/// resist.
const ROUNDS_MAX: usize = 16;

/// The processes of a session.
pub struct Tree<'a> {
    pub session: &'a str,
    /// The first process, whose id is also that of its process group and session.
    pub leader: Pid,
    /// Whether the reaper has collected the leader, so that its number may belong to another.
    pub leader_reaped: bool,
    pub group: Option<&'a SessionGroup>,
}

/// The living processes of a session.
#[derive(Debug, Default)]
pub struct Members {
    /// The first [`SURVIVORS_LISTED_MAX`].
    pub listed: Vec<Survivor>,
    pub count: u32,
}

impl Tree<'_> {
    /// Sends `signal` to every member, and to those that appear meanwhile. Returns how many
    /// processes were reached.
    pub fn signal(&self, signal: Signal) -> usize {
        if signal == Signal::SIGKILL
            && let Some(group) = self.group
        {
            let count = self.pids().len();
            // A kernel before 5.14 has no such file; then the rounds below do it.
            if group.kill().is_ok() {
                return count;
            }
        }
        let mut reached = SortedSet::new();
        for _ in 0..ROUNDS_MAX {
            let fresh: Vec<Pid> =
                self.pids().into_iter().filter(|pid| !reached.contains(pid)).collect();
            if fresh.is_empty() {
                break;
            }
            for pid in fresh {
                // It may have ended, or have changed its user; either way it was tried.
                kill(pid, signal).ok();
                reached.insert(pid);
            }
        }
        reached.len()
    }

    /// Ends every member now.
    pub fn kill(&self) -> usize {
        self.signal(Signal::SIGKILL)
    }

    /// The members that are alive, in the order of their ids.
    pub fn members(&self) -> Members {
        let mut pids = self.pids();
        sort_by(&mut pids, |one, other| one < other);
        let mut members = Members::default();
        for pid in pids {
            members.count += 1;
            if members.listed.len() < SURVIVORS_LISTED_MAX
                && let Some(command) = procfs::command_line(pid)
            {
                members.listed.push(Survivor { pid: pid.as_raw() as u32, command });
            }
        }
        members
    }

    /// Whether all processes of the session have ended.
    pub fn is_gone(&self) -> bool {
        match self.group {
            // One small file instead of all of /proc.
            Some(group) => !group.is_populated(),
            None => self.pids().is_empty(),
        }
    }

    /// The living members. Never PID 1 and never the agent, whatever their environment contains.
    pub fn pids(&self) -> Vec<Pid> {
        self.listed().into_iter().filter(|pid| is_alive(*pid)).collect()
    }

    /// The members, including zombies, without reading each.
    pub fn listed(&self) -> Vec<Pid> {
        // Group 0 is that of kernel threads, and `killpg` reads it as the agent's own.
        assert!(self.leader.as_raw() > 1, "a session's leader is a process of its own");
        let listed = self.group.map(SessionGroup::pids);
        let pids = if let Some(Ok(pids)) = listed {
            pids
        } else {
            // If a group cannot be read, /proc is used.
            let processes = procfs::processes();
            let assignment = format!("{SESSION_VARIABLE}={}", self.session);
            let marked = |pid| procfs::has_variable(pid, &assignment);
            members_among(&processes, self.leader, self.leader_reaped, marked)
        };
        if pids.is_empty() {
            return pids;
        }
        let forbidden = [Pid::from_raw(0), Pid::from_raw(1), Pid::this()];
        pids.into_iter().filter(|pid| !forbidden.contains(pid)).collect()
    }
}

/// Whether it has not ended.
pub fn is_alive(pid: Pid) -> bool {
    procfs::process(pid).is_some_and(|process| !process.zombie)
}

/// The members of a session among all processes, including zombies, because they may have children.
fn members_among(
    processes: &SortedMap<Pid, Process>,
    leader: Pid,
    leader_reaped: bool,
    marked: impl Fn(Pid) -> bool,
) -> Vec<Pid> {
    // A number is reused only when no process has it as its group or session either. So if a dead
    // leader's number is a process again, none of our processes has it.
    let number_is_ours = !(leader_reaped && processes.contains_key(&leader));
    let me = Pid::this();
    let mut found: SortedSet<Pid> = processes
        .values()
        .filter(|process| process.pid != me)
        .filter(|process| {
            let bears_number =
                process.pid == leader || process.group == leader || process.session == leader;
            (number_is_ours && bears_number) || marked(process.pid)
        })
        .map(|process| process.pid)
        .collect();
    // Descendants of members are members: walk up from each process until the answer is known.
    for process in processes.values() {
        let mut line = vec![];
        let mut current = process;
        let belongs = loop {
            if found.contains(&current.pid) {
                break true;
            }
            line.push(current.pid);
            match processes.get(&current.parent) {
                // A list that was read while it changed may contain a circle.
                Some(parent) if !line.contains(&parent.pid) && parent.pid != me => current = parent,
                _ => break false,
            }
        };
        if belongs {
            for pid in line {
                found.insert(pid);
            }
        }
    }
    found.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(i32, i32, i32, i32)]) -> SortedMap<Pid, Process> {
        let id = Pid::from_raw;
        rows.iter()
            .map(|(pid, parent, group, session)| {
                let process = Process {
                    pid: id(*pid),
                    parent: id(*parent),
                    group: id(*group),
                    session: id(*session),
                    zombie: false,
                };
                (id(*pid), process)
            })
            .collect()
    }

    fn members(rows: &[(i32, i32, i32, i32)], reaped: bool, marked: &[i32]) -> Vec<i32> {
        let marked = |pid: Pid| marked.contains(&pid.as_raw());
        let found = members_among(&table(rows), Pid::from_raw(100), reaped, marked);
        let mut found: Vec<i32> = found.into_iter().map(Pid::as_raw).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn descendants_groups_sessions_and_marks_are_found() {
        let rows = [
            (1, 0, 1, 1),
            (100, 1, 100, 100),
            (101, 100, 101, 100),
            (102, 101, 102, 102),
            (103, 102, 103, 103),
            (104, 1, 104, 104),
            (105, 1, 100, 90),
            (200, 1, 200, 200),
            (201, 104, 201, 201),
        ];
        assert_eq!(members(&rows, false, &[104]), [100, 101, 102, 103, 104, 105, 201]);
    }

    #[test]
    fn a_number_that_was_reused_is_not_ours() {
        let rows = [(1, 0, 1, 1), (100, 1, 100, 100), (101, 100, 100, 100), (104, 1, 104, 104)];
        assert_eq!(members(&rows, true, &[104]), [104]);
    }

    #[test]
    fn a_reaped_leaders_group_is_still_ours() {
        let rows = [(1, 0, 1, 1), (101, 1, 100, 100)];
        assert_eq!(members(&rows, true, &[]), [101]);
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let rows = [(5, 6, 5, 5), (6, 5, 5, 5), (100, 1, 100, 100)];
        assert_eq!(members(&rows, false, &[]), [100]);
    }
}
