//! Input for a session's program: bytes from the owner of the keyboard are written to its pipe or
//! terminal.
//!
//! `starting` runs it for each session. A program that does not read stalls only its own writer:
//! the client's credit is used up.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::program::Session;
use crate::flow::Inlet;

/// Writes the input from the owner of the keyboard, until the program accepts no more. Owns the
/// pipe, so that its end is the program's end of file.
pub async fn run(session: Rc<Session>, target: Rc<AsyncFd<OwnedFd>>) {
    let keyboard = &session.keyboard;
    while !keyboard.closed.get() {
        let Some(inlet) = keyboard.inlet() else {
            keyboard.changed.notified().await;
            continue;
        };
        let next = tokio::select! {
            next = inlet.next() => next,
            () = keyboard.changed.notified() => continue,
        };
        match next {
            Ok(Some(bytes)) => {
                if write_all(&session, &target, &inlet, &bytes).await.is_err() {
                    keyboard.close("the program has closed its input");
                }
            }
            Ok(None) => {
                inlet.consumed(keyboard.at.get());
                end_input(&session, &target, &inlet).await;
            }
            // Taken over or dropped: the next writer continues.
            Err(_) => keyboard.leave(inlet.tap()),
        }
    }
}

/// A pipe is closed. A terminal stays open for the next writer; its program gets the end-of-file
/// key, as from a person.
async fn end_input(session: &Rc<Session>, target: &AsyncFd<OwnedFd>, inlet: &Inlet) {
    let Some(terminal) = &session.terminal else {
        session.keyboard.finish();
        return;
    };
    if let Some(byte) = terminal.end_of_file_byte() {
        // A terminal that is gone needs no end of file.
        write_some(target, &[byte]).await.ok();
    }
    session.keyboard.leave(inlet.tap());
}

async fn write_all(
    session: &Session,
    target: &AsyncFd<OwnedFd>,
    inlet: &Inlet,
    mut bytes: &[u8],
) -> Result<(), Errno> {
    let keyboard = &session.keyboard;
    while !bytes.is_empty() && !keyboard.closed.get() {
        // A writer that lost the keyboard must not type on.
        let count = tokio::select! {
            written = write_some(target, bytes) => written?,
            () = inlet.failed() => return Ok(()),
        };
        keyboard.at.set(keyboard.at.get() + count as u64);
        bytes = &bytes[count..];
        inlet.consumed(keyboard.at.get());
    }
    Ok(())
}

async fn write_some(target: &AsyncFd<OwnedFd>, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        let mut ready = target.ready(Interest::WRITABLE).await.map_err(|_| Errno::EPIPE)?;
        match nix::unistd::write(target.as_fd(), bytes) {
            Ok(count) => return Ok(count),
            Err(Errno::EAGAIN) => ready.clear_ready(),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
