//! Talking to the host before there is an event loop: it reads the boot frame, and it sends a goodbye
//! when the sandbox cannot be set up.
//!
//! `main` uses it on descriptor 0, which it only borrows: the supervisor must not keep the link
//! open, so only the sandbox's first process takes the descriptors ([`take`]). In a machine
//! `boot::machine` uses it on the connection that it has made.

pub mod serial;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike};
use protocol::boot::BootConfig;
use protocol::codec::{BodyError, decode_body, encode_message};
use protocol::frame::{self, FrameError, Kind};
use protocol::hello::{Goodbye, GoodbyeReason};
use protocol::limits::{FRAME_BYTES_MAX, HELLO_DEADLINE};

use crate::limits::GOODBYE_FLUSH_MAX;
use crate::sys::descriptor::{Standard, duplicate_above, replace_standard};

/// Why no configuration was received.
#[derive(Debug, thiserror::Error)]
pub enum BootFrameError {
    #[error("no boot frame received: {0} (only host-bridge should start this)")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("expected a boot frame, received a {0} frame")]
    Other(&'static str),
}

/// Reads the boot frame and not one byte more: the event loop reads what follows.
pub fn read_boot_frame(host: BorrowedFd<'_>) -> Result<BootConfig, BootFrameError> {
    let deadline = TimeVal::seconds(HELLO_DEADLINE.as_secs() as i64);
    setsockopt(&host, ReceiveTimeout, &deadline).map_err(io::Error::from)?;
    let config = read_frame(host)?;
    setsockopt(&host, ReceiveTimeout, &TimeVal::seconds(0)).map_err(io::Error::from)?;
    Ok(config)
}

/// Reads it from a file that is not a socket.
pub fn read_frame(host: BorrowedFd<'_>) -> Result<BootConfig, BootFrameError> {
    let mut frame = vec![0; 4];
    read_exact(host, &mut frame)?;
    frame::parse_frame(&frame)?;
    let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
    assert!(length <= FRAME_BYTES_MAX, "the parser has judged the length");
    frame.resize(4 + length, 0);
    read_exact(host, &mut frame[4..])?;
    match parse_boot_frame(&frame)? {
        Some((config, _)) => Ok(config),
        None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

/// The boot frame at the beginning of these bytes, once it is complete, and its length.
fn parse_boot_frame(bytes: &[u8]) -> Result<Option<(BootConfig, usize)>, BootFrameError> {
    match frame::parse_frame(bytes)? {
        Some((frame, length)) if frame.kind == Kind::Boot => {
            Ok(Some((decode_body(Kind::Boot, frame.body)?, length)))
        }
        Some((frame, _)) => Err(BootFrameError::Other(frame.kind.name())),
        None => Ok(None),
    }
}

/// Tells the host why the sandbox cannot be started.
pub fn say_boot_failed(host: BorrowedFd<'_>, message: &str) {
    let message = protocol::fault::clip(message.to_owned());
    let mut frame = Vec::new();
    let goodbye = Goodbye { reason: GoodbyeReason::BootFailed, message };
    encode_message(Kind::Goodbye, 0, &goodbye, &mut frame);
    // The host may be gone. A new socket accepts a message of this size at once.
    nix::unistd::write(host, &frame).ok();
}

/// Waits until the host has closed its end, so that the last message is not lost with the machine.
pub fn await_end(host: BorrowedFd<'_>) {
    let deadline = TimeVal::seconds(GOODBYE_FLUSH_MAX.as_secs() as i64);
    if setsockopt(&host, ReceiveTimeout, &deadline).is_ok() {
        while matches!(nix::unistd::read(host, &mut [0; 64]), Ok(1..)) {}
    }
}

/// Takes a standard descriptor for the agent's own, out of the way of the programs to come, and
/// puts the empty device in its place.
pub fn take(standard: Standard) -> io::Result<OwnedFd> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let from = match standard {
        Standard::Input => stdin.as_fd(),
        Standard::Output => stdout.as_fd(),
    };
    let taken = duplicate_above(from, LAST_STANDARD)?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    replace_standard(null.as_fd(), standard)?;
    Ok(taken)
}

/// The number of standard error.
const LAST_STANDARD: i32 = 2;

fn read_exact(from: BorrowedFd<'_>, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match nix::unistd::read(from, into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => into = &mut into[count..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
