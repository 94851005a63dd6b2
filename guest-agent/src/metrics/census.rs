//! A walk over `/proc`: how many processes there are, how much CPU time they have used since the
//! last walk, and how much memory they have.
//!
//! `sampler` takes one for what the kernel does not account for the sandbox as a whole. CPU time needs care:
//! when a process ends, its time goes to the parent that waits for it, at a moment that no walk sees, or to
//! nobody if its parent ignores its children's ends. So time is not a sum over living processes, which could
//! decrease, but what has been added since the previous walk:
//!
//! - what each living process has used itself; nothing can hide that;
//! - the growth of the time of children that were waited for, less what was already counted while
//!   these children lived. What is missing there after one walk may appear in the next, if the
//!   child ended between the reading of its parent and its own.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Whence, lseek, read};

use super::limits::{
    DIRECTORY_BYTES, PROCESS_FILE_BYTES, PROCESSES_COUNTED_MAX, PROCESSES_PER_TURN,
    PROCESSES_READ_MAX,
};
use crate::cgroup::Directory;
use crate::process::procfs::{Spent, parse_number, parse_private_pages, parse_times};
use crate::sys::clock;
use crate::sys::dirent::read_entries;

/// The state between two walks. All buffers are reused.
pub struct Census {
    /// Only its descendants are counted.
    ancestor: Option<u32>,
    pids: Vec<u32>,
    /// Each kind of time is counted by itself.
    user: Accounts,
    system: Accounts,
    entries: Vec<u8>,
}

/// What is read of each process.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub times: bool,
    pub memory: bool,
}

/// The result of one walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub processes: u32,
    /// There were more than were looked into.
    pub partial: bool,
    /// CPU time since the walk before, or before the first.
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub private_pages: u64,
}

impl Census {
    pub fn new(ancestor: Option<u32>) -> Self {
        Self {
            ancestor,
            pids: Vec::new(),
            user: Accounts::default(),
            system: Accounts::default(),
            entries: vec![0; DIRECTORY_BYTES],
        }
    }

    /// Walks once through `proc`, and lets others have their turn in between.
    pub async fn take(&mut self, proc: &Directory, wanted: Wanted) -> Counted {
        let count = self.list(proc);
        let reads = wanted.times || wanted.memory || self.ancestor.is_some();
        let mut counted = Counted {
            processes: count as u32,
            partial: reads && count > self.pids.len(),
            ..Counted::default()
        };
        if !reads {
            return counted;
        }
        let mut members = 0;
        let now = clock::boot_ticks();
        self.user.begin();
        self.system.begin();
        for at in 0..self.pids.len() {
            if at % PROCESSES_PER_TURN == PROCESSES_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            if self.look_into(proc, self.pids[at], wanted, &mut counted.private_pages) {
                members += 1;
            }
        }
        counted.user_ticks = self.user.end(counted.partial, now);
        counted.system_ticks = self.system.end(counted.partial, now);
        if self.ancestor.is_some() {
            counted.processes = members;
        }
        counted
    }

    /// Lists the processes in the order of their numbers, as the kernel does, and says how many
    /// there are.
    fn list(&mut self, proc: &Directory) -> usize {
        self.pids.clear();
        let mut count = 0;
        if lseek(proc, 0, Whence::SeekSet).is_err() {
            return count;
        }
        while count < PROCESSES_COUNTED_MAX {
            let Ok(filled @ 1..) = read_entries(proc.as_fd(), &mut self.entries) else {
                break;
            };
            let mut rest = &self.entries[..filled];
            while let Some((pid, behind)) = next_pid(rest) {
                rest = behind;
                let Some(pid) = pid else { continue };
                count += 1;
                if self.pids.len() < PROCESSES_READ_MAX {
                    self.pids.push(pid);
                }
            }
        }
        count
    }

    /// Looks into one process, and says whether it counts.
    fn look_into(
        &mut self,
        proc: &Directory,
        pid: u32,
        wanted: Wanted,
        private_pages: &mut u64,
    ) -> bool {
        let mut buffer = [0; PROCESS_FILE_BYTES];
        if wanted.times || self.ancestor.is_some() {
            let times = match read_file(proc, pid, b"/stat", &mut buffer) {
                Ok(length) => parse_times(&buffer[..length]),
                // It has ended since it was listed; its parent is not known any more.
                Err(Errno::ENOENT | Errno::ESRCH) => return self.ancestor.is_none(),
                // Probably out of descriptors: what was known of it stays valid.
                Err(_) => None,
            };
            let Some(times) = times else {
                self.user.keep(pid);
                self.system.keep(pid);
                return true;
            };
            if let Some(ancestor) = self.ancestor
                && pid != ancestor
                && !self.user.is_known(times.parent)
                && !self.user.is_same(pid, times.began)
            {
                return false;
            }
            self.user.add(pid, times.began, times.user);
            self.system.add(pid, times.began, times.system);
        }
        if wanted.memory
            && let Ok(length) = read_file(proc, pid, b"/statm", &mut buffer)
        {
            let pages = parse_private_pages(&buffer[..length]).unwrap_or(0);
            *private_pages = private_pages.saturating_add(pages);
        }
        true
    }
}

/// The process of the first entry, if it is one, and the remaining entries.
fn next_pid(entries: &[u8]) -> Option<(Option<u32>, &[u8])> {
    /// The offsets of a `linux_dirent64`'s length and name.
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    let length = usize::from(u16::from_ne_bytes(*entries.get(LENGTH_AT..)?.first_chunk()?));
    let name = entries.get(NAME_AT..length)?;
    Some((parse_number(name).map(|pid| pid as u32), &entries[length..]))
}

/// Reads the beginning of a file of `/proc/PID`.
fn read_file(proc: &Directory, pid: u32, file: &[u8], buffer: &mut [u8]) -> nix::Result<usize> {
    let mut path = [0; 24];
    let mut begin = 10;
    path[begin..begin + file.len()].copy_from_slice(file);
    let mut rest = pid;
    while rest > 0 {
        begin -= 1;
        path[begin] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let opened = openat(proc, &path[begin..10 + file.len()], flags, Mode::empty())?;
    read(opened, buffer)
}

/// The state of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessUsage {
    pid: u32,
    began: u64,
    own: u64,
    waited: u64,
}

/// Computes the usage of one kind of time. Pure; processes are added in the order of their numbers.
#[derive(Default)]
struct Accounts {
    /// By the previous walk.
    known: Vec<ProcessUsage>,
    /// How many of these have been passed.
    passed: usize,
    /// By this walk.
    fresh: Vec<ProcessUsage>,
    own_grown: u64,
    waited_grown: u64,
    /// Time of known processes that have ended.
    ended: u64,
    /// Time of ended processes that had not appeared as waited time in the previous walk.
    owed: u64,
    /// When the walk before began.
    before: u64,
}

impl Accounts {
    fn begin(&mut self) {
        (self.passed, self.own_grown, self.waited_grown, self.ended) = (0, 0, 0, 0);
        self.fresh.clear();
    }

    /// The entry of this process in the walk before. Those before it have ended.
    fn advance_to(&mut self, pid: u32) -> Option<ProcessUsage> {
        while let Some(known) = self.known.get(self.passed)
            && known.pid <= pid
        {
            self.passed += 1;
            if known.pid == pid {
                return Some(*known);
            }
            self.add_ended(*known);
        }
        None
    }

    fn add_ended(&mut self, known: ProcessUsage) {
        self.ended += known.own + known.waited;
    }

    fn add(&mut self, pid: u32, began: u64, spent: Spent) {
        let is_first_walk = self.before == 0;
        let known = self.advance_to(pid);
        let (own, waited) = match known {
            Some(known) if known.began == began => (known.own, known.waited),
            other => {
                // The number has been given out again.
                if let Some(other) = other {
                    self.add_ended(other);
                }
                // A process that began since is all new. An older one was beyond the bound before,
                // or came from outside, and it is unknown when it used its time.
                let is_new = is_first_walk || began + 1 >= self.before;
                if is_new { (0, 0) } else { (spent.own, spent.waited) }
            }
        };
        self.own_grown += spent.own.saturating_sub(own);
        self.waited_grown += spent.waited.saturating_sub(waited);
        let Spent { own, waited } = spent;
        self.fresh.push(ProcessUsage { pid, began, own, waited });
    }

    /// The process exists, and its old values are the only ones.
    fn keep(&mut self, pid: u32) {
        if let Some(known) = self.advance_to(pid) {
            self.fresh.push(known);
        }
    }

    /// Whether this walk has counted a process of this number, or the one before has.
    fn is_known(&self, pid: u32) -> bool {
        let has =
            |list: &[ProcessUsage]| list.binary_search_by_key(&pid, |known| known.pid).is_ok();
        has(&self.fresh) || has(&self.known)
    }

    /// Whether the walk before has counted this very process.
    fn is_same(&self, pid: u32, began: u64) -> bool {
        let at = self.known.binary_search_by_key(&pid, |known| known.pid);
        at.is_ok_and(|at| self.known[at].began == began)
    }

    /// Ends a walk that began at `now`, and says how many ticks were used since the one before.
    fn end(&mut self, partial: bool, now: u64) -> u64 {
        let rest = self.passed;
        for at in rest..self.known.len() {
            let known = self.known[at];
            if !partial {
                self.add_ended(known);
            } else if self.fresh.len() < PROCESSES_READ_MAX {
                // It was not looked for.
                self.fresh.push(known);
            }
        }
        let counted_before = self.ended + self.owed;
        self.owed = counted_before.saturating_sub(self.waited_grown).min(self.ended);
        self.before = now.max(1);
        std::mem::swap(&mut self.known, &mut self.fresh);
        self.own_grown + self.waited_grown.saturating_sub(counted_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(pid, began, own, waited)`.
    type Row = (u32, u64, u64, u64);

    fn walk(accounts: &mut Accounts, now: u64, rows: &[Row]) -> u64 {
        accounts.begin();
        for &(pid, began, own, waited) in rows {
            accounts.add(pid, began, Spent { own, waited });
        }
        accounts.end(false, now)
    }

    fn walks(rows: &[&[Row]]) -> Vec<u64> {
        let mut accounts = Accounts::default();
        let mut now = 1000;
        let grown = |rows: &&[Row]| {
            now += 100;
            walk(&mut accounts, now, rows)
        };
        rows.iter().map(grown).collect()
    }

    #[test]
    fn an_ended_childs_time_is_not_counted_twice() {
        let grown = walks(&[
            &[(1, 0, 5, 0), (2, 900, 50, 0)],
            &[(1, 0, 6, 0), (2, 900, 150, 0)],
            // It used ten more before its end.
            &[(1, 0, 7, 160)],
            &[(1, 0, 7, 160)],
        ]);
        assert_eq!(grown, [55, 101, 11, 0]);
    }

    #[test]
    fn a_child_that_ends_behind_the_walks_back_is_counted_once() {
        let grown = walks(&[
            &[(1, 0, 0, 0), (2, 900, 500, 0)],
            // Its parent was read before it ended, and itself after.
            &[(1, 0, 0, 0)],
            &[(1, 0, 1, 510)],
            &[(1, 0, 2, 510)],
        ]);
        assert_eq!(grown, [500, 0, 11, 1]);
    }

    #[test]
    fn time_that_nobody_waits_for_hides_no_other() {
        let grown = walks(&[
            &[(1, 0, 0, 0), (2, 900, 5000, 0), (3, 900, 0, 0)],
            &[(1, 0, 0, 0), (3, 900, 100, 0)],
            &[(1, 0, 0, 0), (3, 900, 200, 0)],
            &[(1, 0, 0, 40), (3, 900, 300, 0)],
        ]);
        assert_eq!(grown, [5000, 100, 100, 140]);
    }

    #[test]
    fn short_lives_between_two_walks_are_counted_by_who_waited() {
        let grown = walks(&[&[(1, 0, 0, 0)], &[(1, 0, 0, 70)], &[(1, 0, 0, 150)]]);
        assert_eq!(grown, [0, 70, 80]);
    }

    #[test]
    fn a_number_that_is_reused_is_another_process() {
        let grown = walks(&[&[(1, 0, 0, 0), (2, 900, 50, 0)], &[(1, 0, 0, 50), (2, 1150, 30, 0)]]);
        assert_eq!(grown, [50, 30]);
    }

    #[test]
    fn processes_from_outside_bring_no_earlier_time() {
        let grown = walks(&[
            &[(1, 0, 0, 0)],
            &[(1, 0, 0, 0), (9, 10, 7000, 300)],
            &[(1, 0, 0, 0), (9, 10, 7040, 300)],
        ]);
        assert_eq!(grown, [0, 0, 40]);
    }

    #[test]
    fn an_entry_that_is_no_process_is_passed_over() {
        let mut entries = Vec::new();
        for name in ["self", "17", ".", "4194304", "1x"] {
            let length = (19 + name.len() + 1).next_multiple_of(8);
            let mut entry = vec![0; length];
            entry[16..18].copy_from_slice(&(length as u16).to_ne_bytes());
            entry[19..19 + name.len()].copy_from_slice(name.as_bytes());
            entries.extend(entry);
        }
        let (mut rest, mut pids) = (&entries[..], Vec::new());
        while let Some((pid, behind)) = next_pid(rest) {
            pids.extend(pid);
            rest = behind;
        }
        assert_eq!(pids, [17, 4_194_304, 1]);
        assert!(next_pid(&entries[..18]).is_none());
    }

    /// Whatever a guest does with its processes, no walk counts more than was ever shown.
    #[test]
    fn no_walk_invents_time() {
        let mut seed = 1_u64;
        let mut draw = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (seed >> 33) % end
        };
        for _ in 0..300 {
            let mut accounts = Accounts::default();
            for now in 0..20 {
                let mut rows: Vec<Row> = Vec::new();
                for pid in 1..20 {
                    if draw(3) == 0 {
                        rows.push((pid, draw(4), draw(100), draw(100)));
                    }
                }
                let shown: u64 = rows.iter().map(|(_, _, own, waited)| own + waited).sum();
                assert!(walk(&mut accounts, now, &rows) <= shown);
            }
        }
    }
}
