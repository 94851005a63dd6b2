//! The signals that the agent is sent, as events of its loop.
//!
//! No handler of ours ever runs: the signals are blocked before there is a thread or a runtime, and
//! read from a descriptor. Programs start with a clean mask, which `sys::spawn` sees to.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::unix::AsyncFd;

use crate::sys::ready;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A child, or several, have ended.
    Child,
    /// The agent must end. PID 1 sends this when it ends the machine.
    Stop { by_init: bool },
}

/// The proof that [`block`] was called.
#[derive(Debug)]
pub struct Blocked(SigSet);

/// Blocks what the agent listens to. The first thing that `main` does: a thread that exists before
/// would still be interrupted.
pub fn block() -> io::Result<Blocked> {
    let mut handled = SigSet::empty();
    handled.add(Signal::SIGCHLD);
    // HUP means that a terminal or supervisor has gone. It is blocked so that it does not end the
    // agent, and ignored.
    for signal in STOPPING.into_iter().chain([Signal::SIGHUP]) {
        handled.add(signal);
    }
    handled.thread_block()?;
    Ok(Blocked(handled))
}

/// The signals that end the agent. TERM and INT come from whoever started it, PWR from a power
/// button.
const STOPPING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGPWR];

/// The descriptor at which the blocked signals arrive.
#[derive(Debug)]
pub struct Signals(AsyncFd<SignalFd>);

impl Signals {
    /// Begins to listen. To be called within the runtime.
    pub fn listen(blocked: &Blocked) -> io::Result<Self> {
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let descriptor = SignalFd::with_flags(&blocked.0, flags)?;
        Ok(Self(ready::watch_signals(descriptor)?))
    }

    /// The next signal that the agent acts on.
    pub async fn next(&mut self) -> io::Result<Notice> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.get_inner().read_signal()? {
                None => ready.clear_ready(),
                Some(info) => {
                    if let Some(notice) = meaning(info.ssi_signo, info.ssi_pid) {
                        return Ok(notice);
                    }
                }
            }
        }
    }
}

fn meaning(number: u32, sender: u32) -> Option<Notice> {
    let signal = Signal::try_from(number as i32).ok()?;
    if signal == Signal::SIGCHLD {
        return Some(Notice::Child);
    }
    STOPPING.contains(&signal).then_some(Notice::Stop { by_init: sender == 1 })
}
