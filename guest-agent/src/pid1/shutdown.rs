//! Ending everything in order: TERM → grace → KILL → reap until none is left.
//!
//! `run` does it once; the clients are informed afterwards. As PID 1 the agent ends every visible
//! process; otherwise only those of its own sessions.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, timeout_at};

use super::reaper::{Reaper, Remaining};

/// The sessions of an agent that shares its machine with others.
pub trait Sessions {
    /// Sends `signal` to every process of every session.
    fn signal(&mut self, signal: Signal);
    /// Whether all of them have ended.
    fn are_gone(&mut self) -> bool;
}

/// The processes that a shutdown ends.
pub enum Scope<'a> {
    /// Every process of a machine. Only for its init.
    Machine,
    /// All processes of a namespace, which may have come from outside. Only for its PID 1.
    Namespace,
    Sessions(&'a mut dyn Sessions),
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Nothing had to be killed.
    pub gently: bool,
    /// Nothing is left.
    pub completely: bool,
}

/// How often the reaper is asked when no death wakes us: members of a session need not be our
/// children.
const POLL: Duration = Duration::from_millis(20);

/// How long killed processes may take to be gone. One that is stuck in the kernel never is.
const KILLED_GONE_WITHIN: Duration = Duration::from_secs(2);

/// Ends the processes. Returns as soon as none is left, however long the grace.
pub async fn end_processes(reaper: &Reaper, mut scope: Scope<'_>, grace: Duration) -> Ended {
    scope.signal(Signal::SIGTERM);
    // A stopped process receives TERM only when it continues.
    scope.signal(Signal::SIGCONT);
    if until_gone(reaper, &mut scope, grace).await {
        return Ended { gently: true, completely: true };
    }
    scope.signal(Signal::SIGKILL);
    let completely = until_gone(reaper, &mut scope, KILLED_GONE_WITHIN).await;
    Ended { gently: false, completely }
}

async fn until_gone(reaper: &Reaper, scope: &mut Scope<'_>, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    let mut deaths = reaper.watch();
    loop {
        deaths.mark_unchanged();
        // The loop that normally does this may be the one that runs the shutdown.
        let remaining = reaper.reap();
        if scope.is_gone(remaining) {
            return true;
        }
        let now = Instant::now();
        if now >= deadline {
            return false;
        }
        if remaining == Remaining::Dead {
            tokio::task::yield_now().await;
            continue;
        }
        // Either way there is something to look at.
        timeout_at(deadline.min(now + POLL), deaths.changed()).await.ok();
    }
}

impl Scope<'_> {
    fn signal(&mut self, signal: Signal) {
        match self {
            // As PID 1 this reaches every process of the namespace except ourselves.
            Self::Machine | Self::Namespace => {
                assert_eq!(Pid::this(), Pid::from_raw(1), "only PID 1 owns its machine");
                kill(Pid::from_raw(-1), signal).ok();
            }
            Self::Sessions(sessions) => sessions.signal(signal),
        }
    }

    fn is_gone(&mut self, remaining: Remaining) -> bool {
        match self {
            // All orphans are PID 1's children. The kernel's own threads are not, and never end.
            Self::Machine => remaining == Remaining::None,
            // A process that entered the namespace from outside is no child, and shows only here.
            Self::Namespace => {
                remaining == Remaining::None && kill(Pid::from_raw(-1), None) == Err(Errno::ESRCH)
            }
            Self::Sessions(sessions) => sessions.are_gone(),
        }
    }
}
