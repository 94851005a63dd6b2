//! **The only waiter of the program.** Everything that dies below the agent is collected here: the
//! leaders of sessions, whose exits are handed to those who started them, and orphans that nobody
//! knows, which are only counted.
//!
//! No exit can be lost, however soon it comes: a start is entered before its child is born, and the kernel
//! enters the child's number before the child runs, so that a process is known before it can be reaped.
//! And no signal can hit a stranger: [`Reaper::signal`] takes the lock that [`Reaper::reap`] takes to
//! collect, and a child that has not been collected keeps its number.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::exit::{Cause, SpawnFailure, SpawnStage, Usage};
use protocol::sorted::SortedMap;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

use super::spawners::Spawners;
use crate::limits::{START_STUCK, START_WAIT_MAX};
use crate::process::Prepared;
use crate::sys::spawn::Birth;
pub use crate::sys::wait::Status;
use crate::sys::wait::{self, Next};

/// Children that one call of [`Reaper::reap`] collects before it lets the loop turn. A storm of
/// dying orphans must not keep the agent from answering.
const REAPED_PER_TURN_MAX: usize = 256;

/// The end of a registered process.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    pub status: Status,
    /// For the process and the children that it waited for. The session fills in
    /// `memory_bytes_peak`.
    pub usage: Usage,
}

impl From<Status> for Cause {
    fn from(status: Status) -> Self {
        match status {
            Status::Exited { code } => Self::Exited { code },
            Status::Signaled { signal, core_dumped } => Self::Signaled { signal, core_dumped },
        }
    }
}

/// A program that is being started, and the promise of its end.
pub struct Starting {
    pub birth: Arc<Birth>,
    /// Fails if the start does.
    pub exit: oneshot::Receiver<Exit>,
    pub outcome: Outcome,
}

/// The promise of a start's result.
pub struct Outcome {
    reaper: Reaper,
    birth: Arc<Birth>,
    /// If it had to wait for a thread.
    ticket: Option<u64>,
    result: oneshot::Receiver<Result<(), SpawnFailure>>,
}

/// The result of [`Reaper::reap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// No children at all.
    None,
    /// Children that live.
    Living,
    /// More to collect; call again soon.
    Dead,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Programs that were started.
    pub started: u64,
    /// How many of those have been collected.
    pub reaped: u64,
    /// Others that were collected: orphans, and children that failed to execute.
    pub strangers: u64,
}

/// The handle; clones are of the same reaper.
#[derive(Clone)]
pub struct Reaper {
    state: Arc<Mutex<State>>,
    collected: watch::Sender<u64>,
    spawners: Arc<Spawners>,
}

#[derive(Default)]
struct State {
    registered: SortedMap<Pid, oneshot::Sender<Exit>>,
    /// Starts under way; as many as there are waiting requests for one.
    births: Vec<Expected>,
    counts: Counts,
}

/// A start under way, whose child may have been born.
struct Expected {
    birth: Arc<Birth>,
    /// Until the child has been collected.
    exit: Option<oneshot::Sender<Exit>>,
}

impl State {
    /// Whether this is a child that has not been collected yet, and no orphan.
    fn has(&self, pid: Pid) -> bool {
        let is_it = |start: &Expected| start.exit.is_some() && start.birth.child() == Some(pid);
        self.registered.contains_key(&pid) || self.births.iter().any(is_it)
    }

    /// Whom the exit of this child is for.
    fn collected(&mut self, pid: Pid) -> Option<oneshot::Sender<Exit>> {
        let born = self.births.iter_mut().find(|start| start.birth.child() == Some(pid));
        self.registered.remove(&pid).or_else(|| born?.exit.take())
    }

    /// A start is over.
    fn settle(&mut self, birth: &Arc<Birth>, started: bool) {
        let Some(at) = self.births.iter().position(|start| Arc::ptr_eq(&start.birth, birth)) else {
            return;
        };
        let exit = self.births.swap_remove(at).exit;
        if !started {
            // A child that was collected was no program.
            let collected = u64::from(exit.is_none());
            self.counts.reaped -= collected;
            self.counts.strangers += collected;
            return;
        }
        self.counts.started += 1;
        if let (Some(child), Some(exit)) = (birth.child(), exit) {
            self.registered.insert(child, exit);
        }
    }
}

impl Reaper {
    /// Makes the agent adopt orphans of its descendants; PID 1 does so anyway.
    pub fn new() -> io::Result<Self> {
        if Pid::this() != Pid::from_raw(1) {
            crate::sys::prctl::adopt_orphans()?;
        }
        let collected = watch::Sender::new(0);
        Ok(Self { state: Arc::default(), collected, spawners: Arc::default() })
    }

    /// Begins to start a program.
    pub fn spawn(&self, prepared: Prepared) -> Starting {
        let birth = Arc::new(Birth::default());
        let (exit_sender, exit) = oneshot::channel();
        let (sender, result) = oneshot::channel();
        let expected = Expected { birth: birth.clone(), exit: Some(exit_sender) };
        self.lock().births.push(expected);
        let (reaper, born) = (self.clone(), birth.clone());
        let ticket = self.spawners.give(Box::new(move || {
            let started = prepared.start(&born);
            reaper.lock().settle(&born, started.is_ok());
            // If nobody waits for it, the exit is of no use either.
            sender.send(started).ok();
        }));
        let outcome = Outcome { reaper: self.clone(), birth: birth.clone(), ticket, result };
        Starting { birth, exit, outcome }
    }

    /// Collects the dead. To be called on every [`Notice::Child`], and again when it says so;
    /// signals coalesce, so one call stands for any number of deaths.
    ///
    /// [`Notice::Child`]: super::signals::Notice::Child
    pub fn reap(&self) -> Remaining {
        let mut collected = 0;
        let remaining = loop {
            if collected == REAPED_PER_TURN_MAX {
                break Remaining::Dead;
            }
            let mut state = self.lock();
            match wait::any_child() {
                Next::Death(death) => {
                    collected += 1;
                    match state.collected(death.pid) {
                        Some(sender) => {
                            state.counts.reaped += 1;
                            // If the receiver was dropped, nobody needs the exit.
                            sender.send(Exit { status: death.status, usage: death.usage }).ok();
                        }
                        None => state.counts.strangers += 1,
                    }
                }
                Next::AllAlive => break Remaining::Living,
                Next::NoChildren => break Remaining::None,
            }
        };
        if collected > 0 {
            self.collected.send_modify(|sum| *sum += collected as u64);
        }
        remaining
    }

    /// Gives the agent its own score back where a start hangs.
    pub fn settle_births(&self) {
        for start in &self.lock().births {
            start.birth.settle();
        }
    }

    /// Sends `signal` to one registered process. `false` if it has been collected already.
    pub fn signal(&self, pid: Pid, signal: Signal) -> bool {
        let state = self.lock();
        state.has(pid) && kill(pid, signal).is_ok()
    }

    /// Sends a signal by number, including real-time signals.
    pub fn send(&self, pid: Pid, number: i32) {
        let state = self.lock();
        if state.has(pid) {
            crate::sys::signal::send(pid, number);
        }
    }

    /// Sends a signal to the process group that a registered process leads.
    pub fn send_group(&self, leader: Pid, number: i32) {
        let state = self.lock();
        if state.has(leader) {
            crate::sys::signal::send(Pid::from_raw(-leader.as_raw()), number);
        }
    }

    /// Whether a registered process has not been collected yet.
    #[cfg(test)]
    pub fn is_registered(&self, pid: Pid) -> bool {
        self.lock().has(pid)
    }

    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Changes whenever something has been collected.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.collected.subscribe()
    }

    /// A panic elsewhere while the lock was held leaves the table as it was, and PID 1 must
    /// continue.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outcome {
    /// The process that has executed, as soon as there is one.
    pub async fn known(mut self) -> Result<Pid, SpawnFailure> {
        if let Some(ticket) = self.ticket {
            let until = Instant::now() + START_WAIT_MAX;
            while Instant::now() < until {
                if let Ok(result) = timeout(START_STUCK, &mut self.result).await {
                    return self.settled(result.ok());
                }
                if self.birth.child().is_some() {
                    break;
                }
                self.reaper.spawners.reinforce();
            }
            if self.reaper.spawners.withdraw(ticket) {
                return self.settled(None);
            }
        }
        // If it hangs, then in a thread of its own, until the file system answers.
        let result = (&mut self.result).await;
        self.settled(result.ok())
    }

    /// Without a result, no thread has begun with the start, and none will.
    fn settled(&self, result: Option<Result<(), SpawnFailure>>) -> Result<Pid, SpawnFailure> {
        match (result, self.birth.child()) {
            (Some(Err(failure)), _) => Err(failure),
            (Some(Ok(())), Some(child)) => Ok(child),
            (None, _) | (_, None) => {
                self.reaper.lock().settle(&self.birth, false);
                let subject = "other programs are starting and none gets on".to_owned();
                Err(SpawnFailure { stage: SpawnStage::Fork, errno: libc::EAGAIN, subject })
            }
        }
    }

    /// The same for tests, which have no event loop.
    #[cfg(test)]
    pub fn wait(mut self) -> Result<Pid, SpawnFailure> {
        loop {
            match self.result.try_recv() {
                Ok(result) => return self.settled(Some(result)),
                Err(oneshot::error::TryRecvError::Empty) => std::thread::yield_now(),
                Err(oneshot::error::TryRecvError::Closed) => return self.settled(None),
            }
        }
    }
}
