//! **The only waiter of the program.** Everything that dies below the agent is collected here: the
//! leaders of sessions, whose exits are handed to those who started them, and orphans that nobody
//! knows, which are only counted.
//!
//! No exit can be lost, however soon it comes: [`Reaper::spawn`] starts and registers under the
//! lock that [`Reaper::reap`] takes to collect, so that a process is known before it can be reaped.
//! And no signal can hit a stranger: [`Reaper::signal`] takes the same lock, and a child that has
//! not been collected keeps its number.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::exit::{Cause, SpawnFailure, Usage};
use protocol::sorted::SortedMap;
use tokio::sync::{oneshot, watch};

use crate::process::{self, Child, Command};
pub use crate::sys::wait::Status;
use crate::sys::wait::{self, Next};

/// Children that one call of [`Reaper::reap`] collects before it lets the loop turn. A storm of
/// dying orphans must not keep the agent from answering.
const REAPED_PER_TURN_MAX: usize = 256;

/// The end of a registered process.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    pub status: Status,
    /// Of the process and the children that it waited for. `memory_bytes_peak` is the session's to
    /// fill in.
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

/// A program that was started, and the promise of its end.
pub struct Started {
    pub child: Child,
    /// Fails only if the reaper itself is gone.
    pub exit: oneshot::Receiver<Exit>,
}

/// What [`Reaper::reap`] leaves behind.
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
    /// Of those, how many have been collected.
    pub reaped: u64,
    /// Others that were collected: orphans, and children that failed to execute.
    pub strangers: u64,
}

/// The handle; clones are of the same reaper.
#[derive(Clone)]
pub struct Reaper {
    state: Arc<Mutex<State>>,
    collected: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    registered: SortedMap<Pid, oneshot::Sender<Exit>>,
    counts: Counts,
}

impl Reaper {
    /// Makes the agent adopt orphans of its descendants; PID 1 does so anyway.
    pub fn new() -> io::Result<Self> {
        if Pid::this() != Pid::from_raw(1) {
            crate::sys::prctl::adopt_orphans()?;
        }
        Ok(Self { state: Arc::default(), collected: watch::Sender::new(0) })
    }

    /// Starts a program. It has executed when this returns.
    pub fn spawn(&self, command: Command<'_>) -> Result<Started, SpawnFailure> {
        let mut state = self.lock();
        let child = process::spawn(command)?;
        let (sender, exit) = oneshot::channel();
        state.registered.insert(child.pid, sender);
        state.counts.started += 1;
        Ok(Started { child, exit })
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
                    match state.registered.remove(&death.pid) {
                        Some(sender) => {
                            state.counts.reaped += 1;
                            // Whoever dropped the receiver has no use for the exit.
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

    /// Sends `signal` to one registered process. `false` if it has been collected already.
    pub fn signal(&self, pid: Pid, signal: Signal) -> bool {
        let state = self.lock();
        state.registered.contains_key(&pid) && kill(pid, signal).is_ok()
    }

    /// The same by number, real-time signals included.
    pub fn send(&self, pid: Pid, number: i32) {
        let state = self.lock();
        if state.registered.contains_key(&pid) {
            crate::sys::signal::send(pid, number);
        }
    }

    /// Sends a signal to the process group that a registered process leads.
    pub fn send_group(&self, leader: Pid, number: i32) {
        let state = self.lock();
        if state.registered.contains_key(&leader) {
            crate::sys::signal::send(Pid::from_raw(-leader.as_raw()), number);
        }
    }

    /// Whether a registered process has not been collected yet.
    #[cfg(test)]
    pub fn is_registered(&self, pid: Pid) -> bool {
        self.lock().registered.contains_key(&pid)
    }

    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Changes whenever something has been collected.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.collected.subscribe()
    }

    /// A panic elsewhere while the lock was held leaves the table as it was, and PID 1 must go on.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
