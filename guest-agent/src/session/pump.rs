//! Copies from a program's descriptor to its outlet, while anybody holds the other end.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use protocol::requests::TerminalSize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::flow::Outlet;
use crate::limits::{
    PIPE_BYTES, PIPE_BYTES_WIDE, PUMP_BYTES_PER_TURN, TERMINAL_DRAIN_MAX, TERMINAL_QUIET,
};
use crate::sys::{pipe, pty, ready};

/// The reading end of one output.
pub struct Pump {
    source: Rc<AsyncFd<OwnedFd>>,
    outlet: Outlet,
    /// The pipe is as large as it will be.
    is_wide: Cell<bool>,
    /// Counts turns, so that the end of a session can distinguish silence from a flood.
    turns: watch::Sender<u64>,
}

/// What the end of a session may request from a pump.
#[derive(Clone)]
pub struct Gauge {
    source: Rc<AsyncFd<OwnedFd>>,
    outlet: Outlet,
    turns: watch::Receiver<u64>,
}

impl Pump {
    pub fn new(source: Rc<AsyncFd<OwnedFd>>, outlet: Outlet) -> (Self, Gauge) {
        let (turns, receiver) = watch::channel(0);
        let gauge = Gauge { source: source.clone(), outlet: outlet.clone(), turns: receiver };
        (Self { source, outlet, is_wide: Cell::new(false), turns }, gauge)
    }

    /// Runs until every writer has closed the other end.
    pub async fn run(self) {
        while self.outlet.room().await.is_ok() {
            let Ok(mut ready) = self.source.ready(Interest::READABLE).await else { break };
            match self.turn() {
                Turn::Drained => ready.clear_ready(),
                Turn::MoreLater => {}
                Turn::Ended => break,
            }
            drop(ready);
            self.turns.send_modify(|turns| *turns += 1);
            tokio::task::yield_now().await;
        }
        self.outlet.close();
        self.turns.send_modify(|turns| *turns += 1);
    }

    /// Reads until there is nothing, no room, or enough for one turn. Only the kernel's "nothing"
    /// ends the turns without waiting, so that an edge-triggered terminal does not stall after a
    /// short read; but it is asked again only in the next turn, when the link has had its own and a
    /// flooding program has written more.
    fn turn(&self) -> Turn {
        let mut taken = 0;
        while taken < PUMP_BYTES_PER_TURN {
            let mut room = 0;
            let read = self.outlet.fill_with(|space| {
                room = space.len();
                if room == 0 {
                    return Ok(0);
                }
                nix::unistd::read(self.source.as_fd(), space)
            });
            match read {
                Ok(0) if room == 0 => return Turn::MoreLater,
                Ok(0) => return Turn::Ended,
                Ok(count) => {
                    taken += count;
                    if taken >= PIPE_BYTES {
                        self.widen();
                    }
                    if count < room {
                        return Turn::MoreLater;
                    }
                }
                Err(Errno::EAGAIN) => return Turn::Drained,
                Err(Errno::EINTR) => {}
                // A terminal returns EIO when its last user is gone. Nothing more can be read.
                Err(_) => return Turn::Ended,
            }
        }
        Turn::MoreLater
    }

    /// A program that fills its pipe faster than the loop turns gets a larger one, and is woken less often. A
    /// user has a limit of such memory; beyond it the pipe stays as it is.
    fn widen(&self) {
        if !self.is_wide.replace(true) {
            fcntl(self.source.as_fd(), FcntlArg::F_SETPIPE_SZ(PIPE_BYTES_WIDE)).ok();
        }
    }
}

enum Turn {
    /// The kernel has nothing more now.
    Drained,
    /// There may be more, after others had their turn.
    MoreLater,
    Ended,
}

impl Gauge {
    /// How many bytes the program has written so far, read or not. Exact for a pipe.
    pub fn written(&self) -> u64 {
        let unread =
            if self.outlet.is_closed() { 0 } else { pipe::unread_bytes(self.source.as_fd()) };
        self.outlet.end() + unread
    }

    /// Waits until a terminal whose leader has ended has delivered its remaining output.
    pub async fn settle_terminal(mut self) {
        let settle = async {
            loop {
                if self.outlet.is_closed() {
                    return;
                }
                self.turns.mark_unchanged();
                let silent = match timeout(TERMINAL_QUIET, self.turns.changed()).await {
                    Ok(Ok(())) => false,
                    Ok(Err(_)) => return,
                    Err(_) => true,
                };
                // Silence is no end if it only means that nobody takes the output, or that the kernel has had
                // no time to deliver it.
                if silent && !pipe::is_readable(self.source.as_fd()) {
                    return;
                }
            }
        };
        timeout(TERMINAL_DRAIN_MAX, settle).await.ok();
    }
}

/// The controlling end of a session's terminal.
pub struct Terminal {
    controller: Rc<AsyncFd<OwnedFd>>,
}

impl Terminal {
    pub fn new(controller: Rc<AsyncFd<OwnedFd>>) -> Self {
        Self { controller }
    }

    pub fn size(&self) -> Option<TerminalSize> {
        let (rows, columns) = pty::size(self.controller.as_fd()).ok()?;
        Some(TerminalSize { rows, columns })
    }

    /// Sets the size; returns whether it has changed, in which case the kernel notifies the
    /// program.
    pub fn resize(&self, size: TerminalSize) -> bool {
        let controller = self.controller.as_fd();
        let before = pty::size(controller).ok();
        pty::resize(controller, size.rows, size.columns).is_ok()
            && before != Some((size.rows, size.columns))
    }

    /// Asks the program in the foreground to draw itself again.
    pub fn redraw(&self) {
        if let Some(group) = self.foreground_group() {
            // A group that has just ended needs no redraw.
            killpg(group, Signal::SIGWINCH).ok();
        }
    }

    pub fn foreground_group(&self) -> Option<Pid> {
        pty::foreground_group(self.controller.as_fd()).ok().filter(|group| group.as_raw() > 1)
    }

    /// The byte that means "end of file" to the program, if the terminal is in a mode that has one.
    pub fn end_of_file_byte(&self) -> Option<u8> {
        pty::end_of_input(self.controller.as_fd()).ok().flatten()
    }
}

/// Makes a descriptor usable by the event loop. It must be non-blocking.
pub fn register(fd: OwnedFd, interest: Interest) -> io::Result<Rc<AsyncFd<OwnedFd>>> {
    ready::watch(fd, interest).map(Rc::new)
}
