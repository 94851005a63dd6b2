//! The two ends of a stream inside the agent: an [`Outlet`] is written by the agent's parts and
//! read by clients, an [`Inlet`] the other way round.
//!
//! Neither knows what the bytes are. Both are used on the event loop's thread alone, and nothing
//! is borrowed across an await.

mod inlet;
mod outlet;

pub use inlet::Inlet;
pub use outlet::{Outlet, Pin};

use std::rc::Rc;

use protocol::{Fault, StreamId};

/// The far end of a stream as its near end sees it: a client, over whatever link it has now.
/// Implemented by `serve`.
pub trait Wire {
    /// New bytes can be fetched.
    fn wake(&self, stream: StreamId);
    /// Everything below `to` has been taken.
    fn consumed(&self, stream: StreamId, to: u64);
    /// The stream is given up.
    fn reset(&self, stream: StreamId, fault: Fault);
}

/// One stream of one client.
#[derive(Clone)]
pub struct Tap {
    pub wire: Rc<dyn Wire>,
    pub stream: StreamId,
}

impl Tap {
    /// Two taps are the same when they are the same stream of the same client.
    pub fn is(&self, other: &Tap) -> bool {
        self.stream == other.stream && Rc::ptr_eq(&self.wire, &other.wire)
    }
}
