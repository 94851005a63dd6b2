//! A program's descriptors 0, 1 and 2: three pipes or one terminal.
//!
//! Only `process::spawn` calls it. Reading and writing the agent's ends is left to `session`.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

use crate::sys::spawn::HANDED_LAST;
use crate::sys::{descriptor, pty};

/// What a program's descriptors 0, 1 and 2 are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdioPlan {
    /// Three pipes; without `stdin` the input is empty.
    Pipes { stdin: bool },
    /// One terminal.
    Pty { rows: u16, cols: u16 },
}

/// The agent's ends, all non-blocking and close-on-exec.
pub enum Stdio {
    Pipes { stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd },
    Pty { controller: OwnedFd },
}

/// Both sides of a program's descriptors. `theirs` is closed once the program has started, so
/// that the ends of streams can be seen.
pub struct Ends {
    pub ours: Stdio,
    pub theirs: [OwnedFd; 3],
}

pub fn open(plan: StdioPlan) -> io::Result<Ends> {
    match plan {
        StdioPlan::Pipes { stdin } => {
            let (input, stdin) = if stdin {
                let (read, write) = pipe()?;
                set_nonblocking(&write)?;
                (read, Some(write))
            } else {
                (OpenOptions::new().read(true).open("/dev/null")?.into(), None)
            };
            let (stdout, output) = output_pipe()?;
            let (stderr, errors) = output_pipe()?;
            Ok(Ends {
                ours: Stdio::Pipes { stdin, stdout, stderr },
                theirs: [lift(input)?, lift(output)?, lift(errors)?],
            })
        }
        StdioPlan::Pty { rows, cols } => {
            let pty::Pty { controller, terminal } = pty::open(rows, cols)?;
            let terminal = lift(terminal)?;
            Ok(Ends {
                ours: Stdio::Pty { controller },
                theirs: [terminal.try_clone()?, terminal.try_clone()?, terminal],
            })
        }
    }
}

/// The pipe of an output, of which our end does not wait.
pub fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe()?;
    set_nonblocking(&ours)?;
    Ok((ours, theirs))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)
}

/// Of our end alone: the program's end is its own open file, and must block.
fn set_nonblocking(end: &OwnedFd) -> io::Result<()> {
    fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Moves a descriptor above those that a program is handed. It lies among them only when the agent
/// was started without a standard descriptor of its own.
pub fn lift(end: OwnedFd) -> io::Result<OwnedFd> {
    if end.as_raw_fd() > HANDED_LAST {
        return Ok(end);
    }
    descriptor::duplicate_above(end.as_fd(), HANDED_LAST)
}
