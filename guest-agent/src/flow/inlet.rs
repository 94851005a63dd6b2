//! Bytes from a client that their consumer has not read yet. The client's credit bounds them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use protocol::Fault;
use tokio::sync::Notify;

use super::tap::Tap;

/// See the module's description. Clones are the same inlet.
#[derive(Clone)]
pub struct Inlet(Rc<Inner>);

struct Inner {
    tap: Tap,
    state: RefCell<State>,
    /// Notified when bytes arrive or the stream ends.
    arrived: Notify,
    failed: Notify,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    end: Option<End>,
}

enum End {
    Fin,
    Failed(Fault),
}

impl Inlet {
    pub fn new(tap: Tap) -> Self {
        let (arrived, failed) = (Notify::new(), Notify::new());
        Self(Rc::new(Inner { tap, state: RefCell::default(), arrived, failed }))
    }

    pub fn tap(&self) -> &Tap {
        &self.0.tap
    }

    /// New bytes have arrived.
    pub fn push(&self, bytes: &[u8]) {
        let mut state = self.0.state.borrow_mut();
        if state.end.is_none() {
            state.chunks.push_back(bytes.to_vec());
            self.0.arrived.notify_one();
        }
    }

    /// The client has sent everything.
    pub fn finish(&self) {
        self.0.state.borrow_mut().end.get_or_insert(End::Fin);
        self.0.arrived.notify_one();
    }

    /// The stream is gone. Bytes that were not read are dropped.
    pub fn fail(&self, fault: Fault) {
        let mut state = self.0.state.borrow_mut();
        state.chunks.clear();
        state.end = Some(End::Failed(fault));
        drop(state);
        self.0.arrived.notify_one();
        self.0.failed.notify_waiters();
    }

    /// The next bytes, or `None` at the end. There may be one waiting caller at a time. Cancelling it
    /// loses nothing.
    pub async fn next(&self) -> Result<Option<Vec<u8>>, Fault> {
        loop {
            {
                let mut state = self.0.state.borrow_mut();
                if let Some(chunk) = state.chunks.pop_front() {
                    return Ok(Some(chunk));
                }
                match &state.end {
                    None => {}
                    Some(End::Fin) => return Ok(None),
                    Some(End::Failed(fault)) => return Err(fault.clone()),
                }
            }
            self.0.arrived.notified().await;
        }
    }

    /// Resolves when the stream has failed.
    pub async fn failed(&self) {
        while !matches!(self.0.state.borrow().end, Some(End::Failed(_))) {
            self.0.failed.notified().await;
        }
    }

    /// Everything below `to` has reached its destination, so the client may send more.
    pub fn consumed(&self, to: u64) {
        self.0.tap.wire.consumed(self.0.tap.stream, to);
    }

    /// Resets the stream.
    pub fn reset(&self, fault: &Fault) {
        self.fail(fault.clone());
        self.0.tap.wire.reset(self.0.tap.stream, fault.clone());
    }
}
