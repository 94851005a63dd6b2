//! One stream of one client, as the parts of the agent see it.

use std::rc::Rc;

use protocol::{Fault, StreamId};

/// The client at the other end of a stream, over the link that it has at the moment.
/// Implemented by `peer`.
pub trait Wire {
    /// New bytes can be fetched.
    fn wake(&self, stream: StreamId);
    /// Everything below `to` has been consumed.
    fn consumed(&self, stream: StreamId, to: u64);
    /// The stream is reset.
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
