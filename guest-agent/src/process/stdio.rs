//! A program's descriptors 0, 1 and 2: three pipes or one terminal.
//!
//! Only `process::spawn` calls it. `session` reads and writes the agent's ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

use crate::sys::lookup::open_device;
use crate::sys::spawn::HANDED_LAST;
use crate::sys::{descriptor, pty};

/// The number of the empty device.
const NULL: (u64, u64) = (1, 3);

/// A program's descriptors 0, 1 and 2.
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

/// Both sides of a program's descriptors. `theirs` is closed once the program has started, so that
/// the ends of streams can be seen.
pub struct Ends {
    pub ours: Stdio,
    pub theirs: [End; 3],
}

/// A program's side of one descriptor.
pub enum End {
    Own(OwnedFd),
    /// The empty device, which all programs without input share: nothing that one does to it is visible to
    /// another.
    Empty(BorrowedFd<'static>),
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(end) => end.as_fd(),
            Self::Empty(device) => *device,
        }
    }
}

/// The empty device, opened for the first program that wants it.
static EMPTY: OnceLock<OwnedFd> = OnceLock::new();

fn empty_input() -> io::Result<End> {
    let device = if let Some(device) = EMPTY.get() {
        device
    } else {
        let device = lift(open_device(c"/dev/null", NULL, OFlag::O_RDONLY)?)?;
        EMPTY.get_or_init(|| device)
    };
    Ok(End::Empty(device.as_fd()))
}

pub fn open(plan: StdioPlan) -> io::Result<Ends> {
    match plan {
        StdioPlan::Pipes { stdin } => {
            let (input, stdin) = if stdin {
                let (read, write) = pipe()?;
                set_nonblocking(&write)?;
                (End::Own(lift(read)?), Some(write))
            } else {
                (empty_input()?, None)
            };
            let (stdout, output) = output_pipe()?;
            let (stderr, errors) = output_pipe()?;
            let theirs = [input, End::Own(lift(output)?), End::Own(lift(errors)?)];
            Ok(Ends { ours: Stdio::Pipes { stdin, stdout, stderr }, theirs })
        }
        StdioPlan::Pty { rows, cols } => {
            let pty::Pty { controller, terminal } = pty::open(rows, cols)?;
            let terminal = lift(terminal)?;
            Ok(Ends {
                ours: Stdio::Pty { controller },
                theirs: [terminal.try_clone()?, terminal.try_clone()?, terminal].map(End::Own),
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

/// Only our end: the program's end is a separate open file, and must block.
fn set_nonblocking(end: &OwnedFd) -> io::Result<()> {
    fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Moves a descriptor above those that a program receives. It is among them only if the agent was
/// started without a standard descriptor.
pub fn lift(end: OwnedFd) -> io::Result<OwnedFd> {
    if end.as_raw_fd() > HANDED_LAST {
        return Ok(end);
    }
    descriptor::duplicate_above(end.as_fd(), HANDED_LAST)
}
