//! The signals that the agent is sent, as events of its loop.
//!
//! No handler of ours ever runs: the signals are blocked before there is a thread or a runtime, and
//! read from a descriptor. Programs start with a clean mask, which `sys::spawn` sees to.

use std::io;
use std::mem::offset_of;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::unix::AsyncFd;

use crate::sys::ready;

/// What a signal requests.
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

/// Blocks the signals that the agent reads. The first thing in `main`: threads that exist earlier
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

/// The signals that end the agent. TERM and INT come from its parent, PWR from a power button.
const STOPPING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGPWR];

/// The size of the kernel's report about one signal, and the offsets of its number and its sender.
const INFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();
const NUMBER_AT: usize = offset_of!(libc::signalfd_siginfo, ssi_signo);
const SENDER_AT: usize = offset_of!(libc::signalfd_siginfo, ssi_pid);
/// Signals that are read at once. Those of one kind are one, so there is never a second full read.
const READ_AT_ONCE: usize = 8;

/// The descriptor at which the blocked signals arrive.
#[derive(Debug)]
pub struct Signals {
    descriptor: AsyncFd<SignalFd>,
    /// Signals that were read and not handled yet, the newest first.
    read: Vec<Notice>,
}

impl Signals {
    /// Begins to listen. To be called within the runtime.
    pub fn listen(blocked: &Blocked) -> io::Result<Self> {
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let descriptor = SignalFd::with_flags(&blocked.0, flags)?;
        Ok(Self { descriptor: ready::watch_signals(descriptor)?, read: Vec::new() })
    }

    /// The next signal that the agent acts on.
    pub async fn next(&mut self) -> io::Result<Notice> {
        loop {
            if let Some(notice) = self.read.pop() {
                return Ok(notice);
            }
            let mut ready = self.descriptor.readable().await?;
            let mut infos = [0; INFO_BYTES * READ_AT_ONCE];
            let filled = match nix::unistd::read(ready.get_inner(), &mut infos) {
                Ok(filled) => filled,
                Err(Errno::EAGAIN) => 0,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            // There are no more, so the kernel need not be asked; it reports the next one.
            if filled < infos.len() {
                ready.clear_ready();
            }
            let word =
                |info: &[u8], at| info[at..].first_chunk().map(|word| u32::from_ne_bytes(*word));
            let infos = infos[..filled].chunks_exact(INFO_BYTES).rev();
            self.read.extend(
                infos.filter_map(|info| meaning(word(info, NUMBER_AT)?, word(info, SENDER_AT)?)),
            );
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
