//! Who may type into a session: one client at a time.
//!
//! The bytes that the program has been given are counted, so that a client that lost its link, or
//! takes the keyboard over, knows where to continue. `input` writes them.

use std::cell::{Cell, RefCell};

use protocol::requests::Input;
use protocol::{ClientId, Fault, FaultCode};
use tokio::sync::Notify;

use crate::flow::{Inlet, Tap};

/// The source of a session's input, and its offset.
#[derive(Default)]
pub struct Keyboard {
    /// Bytes that the program has been given.
    pub(super) at: Cell<u64>,
    /// No input will ever be taken: the program has none, has closed it, or had its end of file.
    pub(super) closed: Cell<bool>,
    owner: RefCell<Option<Owner>>,
    /// Notified when the owner changes or the input closes.
    pub(super) changed: Notify,
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

    /// Whether a client can have the keyboard, and at which offset it would continue.
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

    /// Gives the keyboard to a client and notifies the earlier owner.
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

    /// Ends the input for good and notifies the owner.
    pub fn close(&self, why: &str) {
        self.closed.set(true);
        let owner = self.owner.borrow_mut().take();
        if let Some(owner) = owner {
            owner.inlet.reset(&Fault::new(FaultCode::Gone, why));
        }
        self.changed.notify_one();
    }

    /// Ends the input for good, after its end of file. The owner knows.
    pub(super) fn finish(&self) {
        self.closed.set(true);
        self.owner.borrow_mut().take();
    }

    pub(super) fn inlet(&self) -> Option<Inlet> {
        self.owner.borrow().as_ref().map(|owner| owner.inlet.clone())
    }
}
