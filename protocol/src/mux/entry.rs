//! One stream in the multiplexer's table: its two halves, and what happens to them on a new link.

use crate::fault::Fault;
use crate::hello::StreamPosition;
use crate::stream::{Receiver, Sender};

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) sender: Option<Sender>,
    pub(super) receiver: Option<Receiver>,
    /// The peer has sent something about it, so it has the stream open or had.
    pub(super) known_to_peer: bool,
    /// Stands in `Mux::ready`.
    pub(super) queued: bool,
    /// Stands in `Mux::owed`.
    pub(super) ack_owed: bool,
}

/// Why a new link could not resume a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer had all of it.
    Complete,
    /// The peer no longer has it; what had not arrived is lost.
    Lost,
    /// The peer gave it up, and the word of it was lost with the old link.
    Reset(Fault),
}

impl Stream {
    pub(super) fn is_done(&self) -> bool {
        self.sender.as_ref().is_none_or(Sender::is_done)
            && self.receiver.as_ref().is_none_or(Receiver::is_done)
    }

    pub(super) fn resume(&mut self, theirs: &StreamPosition) -> Option<Ended> {
        if let Some(fault) = &theirs.gone {
            return Some(Ended::Reset(fault.clone()));
        }
        self.known_to_peer = true;
        let sender = self.sender.as_mut()?;
        let resumed = sender.resume(theirs.next, theirs.up_to, theirs.finished);
        (!resumed).then_some(Ended::Lost)
    }

    /// The peer never saw the stream; nothing of it can have been consumed.
    pub(super) fn restart(&mut self) -> Option<Ended> {
        if let Some(sender) = &mut self.sender {
            *sender = Sender::new(sender.acked());
        }
        None
    }

    /// An end forgets a stream only when it was done with it or gave it up.
    pub(super) fn after_peer_forgot(&self) -> Ended {
        let sent_all = self.sender.as_ref().is_none_or(Sender::has_ended);
        let received_all = self.receiver.as_ref().is_none_or(Receiver::is_finished);
        if sent_all && received_all { Ended::Complete } else { Ended::Lost }
    }
}
