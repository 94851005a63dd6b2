//! Pseudo-terminals: opening a pair, its size, and who is in front of it.
//!
//! `process` opens them; `session` resizes them and asks for the byte that means "end of input".
//! Reading and writing are left to the owner of the descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::sys::termios::{LocalFlags, SpecialCharacterIndices, tcgetattr};
use nix::unistd::Pid;

use super::lookup::open_device;

/// Both ends of a new pseudo-terminal, close-on-exec.
pub struct Pty {
    /// The agent's end, non-blocking.
    pub controller: OwnedFd,
    /// The program's end.
    pub terminal: OwnedFd,
}

/// `TIOCGPTPEER`: opens the terminal of a controller without a path, so that it works whatever is
/// mounted at `/dev/pts`.
const TIOCGPTPEER: u64 = 0x5441;

/// The number of the device that makes pseudo-terminals.
const MULTIPLEXER: (u64, u64) = (5, 2);

/// Opens a pseudo-terminal of the given size.
pub fn open(rows: u16, cols: u16) -> io::Result<Pty> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    let controller = open_device(c"/dev/ptmx", MULTIPLEXER, flags)?;

    let locked: libc::c_int = 0;
    // SAFETY: the kernel reads one int, which `locked` is.
    let unlocked =
        unsafe { libc::ioctl(controller.as_raw_fd(), libc::TIOCSPTLCK as _, &raw const locked) };
    if unlocked != 0 {
        return Err(io::Error::last_os_error());
    }

    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the request takes open flags by value and touches no memory.
    let number = unsafe { libc::ioctl(controller.as_raw_fd(), TIOCGPTPEER as _, flags) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor has just been opened and nobody else knows it.
    let terminal = unsafe { OwnedFd::from_raw_fd(number) };

    let pty = Pty { controller, terminal };
    resize(std::os::fd::AsFd::as_fd(&pty.controller), rows, cols)?;
    Ok(pty)
}

/// Sets the size; the kernel sends SIGWINCH to the foreground group if it has changed.
pub fn resize(controller: BorrowedFd<'_>, rows: u16, cols: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads one `winsize`, which `size` is.
    let result =
        unsafe { libc::ioctl(controller.as_raw_fd(), libc::TIOCSWINSZ as _, &raw const size) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The size as (rows, columns).
pub fn size(controller: BorrowedFd<'_>) -> io::Result<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one `winsize`, which `size` is.
    let result =
        unsafe { libc::ioctl(controller.as_raw_fd(), libc::TIOCGWINSZ as _, &raw mut size) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok((size.ws_row, size.ws_col)) }
}

/// The process group that reads the keyboard: the one that Ctrl-C would reach.
pub fn foreground_group(controller: BorrowedFd<'_>) -> io::Result<Pid> {
    let mut group: libc::pid_t = 0;
    // SAFETY: the kernel writes one pid, which `group` is.
    let result =
        unsafe { libc::ioctl(controller.as_raw_fd(), libc::TIOCGPGRP as _, &raw mut group) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(group)) }
}

/// The byte that means "end of input" to the line discipline; `None` in raw mode, which has no such
/// byte. It ends the input only at the start of a line; elsewhere it takes two.
pub fn end_of_input(controller: BorrowedFd<'_>) -> io::Result<Option<u8>> {
    let settings = tcgetattr(controller)?;
    let byte = settings.control_chars[SpecialCharacterIndices::VEOF as usize];
    Ok((settings.local_flags.contains(LocalFlags::ICANON) && byte != 0).then_some(byte))
}
