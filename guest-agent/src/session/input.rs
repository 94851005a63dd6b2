//! Into a program: one keyboard per session, held by one client at a time.
//!
//! The bytes that the program has been given are counted, so that a client that lost its link, or
//! takes the keyboard over, knows where to go on. A program that does not read stalls its own
//! writer and nobody else: the client's credit runs out.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use nix::errno::Errno;
use protocol::requests::Input;
use protocol::{ClientId, Fault, FaultCode};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::flow::{Inlet, Tap};
use crate::session::Session;

/// Where a session's input comes from, and how far it has come.
#[derive(Default)]
pub struct Keyboard {
    /// Bytes that the program has been given.
    at: Cell<u64>,
    /// No input will ever be taken: the program has none, has closed it, or had its end of file.
    closed: Cell<bool>,
    owner: RefCell<Option<Owner>>,
    /// Told when the owner changes or the input closes.
    changed: Notify,
}

struct Owner {
    inlet: Inlet,
    client: ClientId,
    name: String,
}

impl Keyboard {
    /// A keyboard of a program without input.
    pub fn none() -> Self {
        Self { closed: Cell::new(true), ..Self::default() }
    }

    pub fn owner(&self) -> Option<String> {
        self.owner.borrow().as_ref().map(|owner| owner.name.clone())
    }

    /// Whether a client can have the keyboard, and at which offset it would go on.
    pub fn check(&self, ask: &Input, client: ClientId) -> Result<u64, Fault> {
        let at = self.at.get();
        if self.closed.get() {
            return Err(Fault::new(FaultCode::Gone, "the program takes no input (any more)"));
        }
        if let Some(from) = ask.from
            && from != at
        {
            let message = format!("the input stands at {at}, not at {from}");
            return Err(Fault::new(FaultCode::Conflict, message));
        }
        match &*self.owner.borrow() {
            Some(owner) if !ask.take && owner.client != client => {
                let message = format!("the keyboard is held by {}", owner.name);
                Err(Fault::new(FaultCode::Exists, message))
            }
            _ => Ok(at),
        }
    }

    /// Gives the keyboard to a client; an earlier owner is told.
    pub fn open(&self, tap: Tap, client: ClientId, name: &str) -> Inlet {
        let inlet = Inlet::new(tap);
        let owner = Owner { inlet: inlet.clone(), client, name: name.to_owned() };
        let earlier = self.owner.borrow_mut().replace(owner);
        if let Some(earlier) = earlier {
            let message = format!("the keyboard was taken over by {name}");
            earlier.inlet.reset(&Fault::new(FaultCode::Gone, message));
        }
        self.changed.notify_one();
        inlet
    }

    /// The client's stream is closed; the keyboard is free.
    pub fn leave(&self, tap: &Tap) {
        let mut owner = self.owner.borrow_mut();
        if owner.as_ref().is_some_and(|owner| owner.inlet.tap().is(tap)) {
            *owner = None;
            self.changed.notify_one();
        }
    }

    pub fn client_gone(&self, client: ClientId) {
        let mut owner = self.owner.borrow_mut();
        if owner.as_ref().is_some_and(|owner| owner.client == client) {
            *owner = None;
            self.changed.notify_one();
        }
    }

    /// Ends the input for good and tells the owner.
    pub fn close(&self, why: &str) {
        self.closed.set(true);
        let owner = self.owner.borrow_mut().take();
        if let Some(owner) = owner {
            owner.inlet.reset(&Fault::new(FaultCode::Gone, why));
        }
        self.changed.notify_one();
    }

    fn inlet(&self) -> Option<Inlet> {
        self.owner.borrow().as_ref().map(|owner| owner.inlet.clone())
    }
}

/// Writes what the owner of the keyboard sends, until the program takes no more. Owns the pipe, so
/// that its end is the program's end of file.
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
            // Taken over or given up: whoever comes next goes on.
            Err(_) => keyboard.leave(inlet.tap()),
        }
    }
}

/// A pipe is closed. A terminal stays open for the next writer; its program is told the way a
/// person would, by the end-of-file key.
async fn end_input(session: &Rc<Session>, target: &AsyncFd<OwnedFd>, inlet: &Inlet) {
    let Some(terminal) = &session.terminal else {
        session.keyboard.closed.set(true);
        session.keyboard.owner.borrow_mut().take();
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
