//! The process that outlives us by a moment, so that a terminal is restored even when we are
//! killed with SIGKILL.
//!
//! ```text
//! host-bridge attach                       host-bridge __terminal-guard
//!   │ spawn: own process group, same session ──▶ blocks INT QUIT HUP TERM TTOU TTIN TSTP
//!   │                                            reads the mode of the terminal (its stderr)
//!   │◀────────────────────────── ready ────────  writes one byte to stdout
//!   │ enters raw mode                            reads stdin
//!   │ leaves raw mode
//!   │── dismissed (one byte) ────────────────▶   exits
//!   ✗  killed: the pipe ends without a byte ─▶   restores, exits
//! ```

use std::io::{Read, Write, stderr, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::form::{SCREEN_IN_ORDER, raw_form};

/// The hidden verb that makes this program a guardian.
pub const VERB: &str = "__terminal-guard";

/// How long a guardian may take to be ready. It is a re-execution of a program that is in the page
/// cache; a host that needs longer is in trouble, and a person is waiting.
const READY_DEADLINE: Duration = Duration::from_secs(2);

const READY: u8 = b'r';
const DISMISSED: u8 = b'd';

/// Why the guardian could not be started.
#[derive(Debug, thiserror::Error)]
pub enum GuardianError {
    #[error("cannot start the guardian of the terminal: {0}")]
    Spawn(#[source] std::io::Error),
    #[error("the guardian of the terminal did not become ready")]
    NotReady,
}

/// A running guardian.
pub struct Guardian {
    child: Child,
}

impl Guardian {
    /// Starts a guardian over `terminal` and waits until it has read the mode, so that it restores
    /// the mode from before us.
    pub(super) fn start(terminal: BorrowedFd<'_>) -> Result<Self, GuardianError> {
        let terminal = terminal.try_clone_to_owned().map_err(GuardianError::Spawn)?;
        let child = Command::new("/proc/self/exe")
            .arg0("host-bridge")
            .arg(VERB)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(terminal)
            .process_group(0)
            .spawn()
            .map_err(GuardianError::Spawn)?;
        let mut guardian = Self { child };
        if guardian.is_ready() {
            Ok(guardian)
        } else {
            guardian.dismiss();
            Err(GuardianError::NotReady)
        }
    }

    fn is_ready(&mut self) -> bool {
        let Some(mut ready) = self.child.stdout.take() else { return false };
        let timeout = PollTimeout::try_from(READY_DEADLINE).unwrap_or(PollTimeout::ZERO);
        let mut polled = [PollFd::new(ready.as_fd(), PollFlags::POLLIN)];
        let mut word = [0];
        nix::poll::poll(&mut polled, timeout).is_ok_and(|count| count > 0)
            && ready.read_exact(&mut word).is_ok()
            && word == [READY]
    }

    /// Ends the guardian, because the terminal is restored already.
    pub(super) fn dismiss(mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            let _ = pipe.write_all(&[DISMISSED]);
        }
        // It ends at once; waiting for it prevents a zombie and a late write to the shell's
        // terminal.
        let _ = self.child.wait();
    }
}

/// The hidden verb. Call it before any thread is started: signals are blocked for the calling
/// thread only.
pub fn watch() {
    let mut blocked = SigSet::empty();
    // Blocking SIGTTOU lets a process outside the foreground group set the mode.
    for signal in [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGTERM,
        Signal::SIGTTOU,
        Signal::SIGTTIN,
        Signal::SIGTSTP,
        Signal::SIGPIPE,
    ] {
        blocked.add(signal);
    }
    let (Ok(()), Ok(mode)) = (blocked.thread_block(), tcgetattr(stderr())) else { return };
    let mut ready = stdout().lock();
    if ready.write_all(&[READY]).and_then(|()| ready.flush()).is_err() {
        return;
    }
    let mut word = [0];
    if stdin().lock().read_exact(&mut word).is_ok() {
        return;
    }
    // A shell that has already set its own mode is right.
    let ours = tcgetattr(stderr()).is_ok_and(|now| {
        let raw = raw_form(&mode);
        now.local_modes == raw.local_modes && now.input_modes == raw.input_modes
    });
    let mut screen = stderr().lock();
    let _ = screen.write_all(SCREEN_IN_ORDER).and_then(|()| screen.flush());
    if ours {
        let _ = tcsetattr(stderr(), OptionalActions::Now, &mode);
    }
}
