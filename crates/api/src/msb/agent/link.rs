//! What all that happens over one connection shares: the way to the client, what it has begun, and the rules for
//! doing something in the sandbox.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::frame::encode;
use super::handles::Handles;
use crate::Api;
use crate::body::Gone;
use crate::budget::{Portion, Share};
use crate::call::{Inside, Peer};
use crate::caller::Caller;
use crate::msb::limits::{CONTROLS_WAITING_MAX, EXCHANGES_MAX, INPUTS_WAITING_MAX};
use crate::trail::Trail;
use access::audit::Door;
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Refusal};

/// What a connection is about.
pub struct Seat {
    pub api: Api,
    pub caller: Caller,
    pub peer: Peer,
    pub trail: Trail,
    pub memory: Share,
    pub which: SandboxRef,
}

/// What all that happens over a connection shares.
pub struct Link {
    pub seat: Seat,
    pub handles: Handles,
    replies: mpsc::Sender<Bytes>,
    exchanges: Mutex<HashMap<u32, Exchange>>,
}

/// Bytes for a program or a file, with the memory that they take.
pub struct Input {
    pub bytes: Vec<u8>,
    _memory: Portion,
}

/// What a client may still say of something that it has begun.
#[derive(Clone)]
pub struct Exchange {
    inputs: mpsc::Sender<Input>,
    controls: mpsc::Sender<Control>,
}

impl Exchange {
    /// Waits until there is room for it. What has ended takes nothing.
    pub async fn pass(&self, bytes: Vec<u8>, memory: Portion) {
        let _ = self.inputs.send(Input { bytes, _memory: memory }).await;
    }

    /// A program that does not take so many signals needs no more.
    pub fn control(&self, control: Control) {
        let _ = self.controls.try_send(control);
    }
}

/// What a client sends into an exchange, as its program gets it.
pub struct Incoming {
    pub inputs: mpsc::Receiver<Input>,
    pub controls: mpsc::Receiver<Control>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Signal(i32),
    Size { rows: u16, columns: u16 },
}

impl Link {
    pub fn new(seat: Seat, replies: mpsc::Sender<Bytes>) -> Self {
        let (handles, exchanges) = (Handles::default(), Mutex::default());
        Self { seat, handles, replies, exchanges }
    }

    /// Sends a message.
    pub async fn send(
        &self,
        number: u32,
        kind: &str,
        payload: &impl Serialize,
    ) -> Result<(), Gone> {
        self.replies.send(encode(number, kind, payload)).await.map_err(|_| Gone)
    }

    /// Does something in the sandbox, with its own record in the audit log.
    pub async fn recorded<T, F>(
        &self,
        operation: &str,
        looks: bool,
        work: impl FnOnce(Inside, Trail) -> F,
    ) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        let trail = self.seat.trail.within(Door::Rest, operation, looks);
        trail.sandbox(&self.seat.which);
        trail.admit()?;
        let done = async {
            self.readmit()?;
            let inside = self.seat.api.inside(self.seat.which.clone()).await?;
            work(inside.on(&trail), trail.clone()).await
        };
        let done = done.await;
        trail.ended(done.as_ref().err().map(|refusal| refusal.code));
        done
    }

    /// A connection may be open for long: a key that has been revoked meanwhile is good for nothing more.
    fn readmit(&self) -> Result<(), Refusal> {
        let Seat { api, caller, peer, .. } = &self.seat;
        match caller {
            Caller::Holder(grant) => api.door().readmit(Some(grant), *peer).map(drop),
            Caller::Anybody | Caller::Local | Caller::Visitor(_) => Ok(()),
        }
    }

    /// Says that a message cannot be carried out. Nothing follows under its number.
    pub async fn refuse(&self, number: u32, kind: &str, about: Option<&str>, why: &str) {
        let error = json!({ "kind": kind, "message": why, "offending_type": about });
        // A client that is gone needs no message.
        let _ = self.send(number, "core.error", &error).await;
    }

    pub fn begin(&self, number: u32) -> Result<Incoming, Refusal> {
        let mut exchanges = self.exchanges();
        if exchanges.contains_key(&number) {
            return Err(Refusal::invalid(format!("the number {number} is in use")));
        }
        if exchanges.len() >= EXCHANGES_MAX {
            let message = format!("a connection has at most {EXCHANGES_MAX} requests at once");
            return Err(Refusal::new(Code::LimitReached, message));
        }
        let (inputs, incoming_inputs) = mpsc::channel(INPUTS_WAITING_MAX);
        let (controls, incoming_controls) = mpsc::channel(CONTROLS_WAITING_MAX);
        exchanges.insert(number, Exchange { inputs, controls });
        Ok(Incoming { inputs: incoming_inputs, controls: incoming_controls })
    }

    pub fn end(&self, number: u32) {
        self.exchanges().remove(&number);
    }

    pub fn exchange(&self, number: u32) -> Option<Exchange> {
        self.exchanges().get(&number).cloned()
    }

    fn exchanges(&self) -> MutexGuard<'_, HashMap<u32, Exchange>> {
        // Nothing in it is ever half-changed.
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
