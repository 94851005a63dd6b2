//! From one link to the next: what is kept over a cut, what is reported about it, and what fails.
//!
//! The driver calls it, under the lock. The comparing of offsets is `protocol::mux`'s; here its
//! outcome is handed to those who wait.

use protocol::hello::{Resume, Welcome};
use protocol::mux::{Ended, Mux, Side};

use super::state::{Call, Outcome, Phase, State};
use super::{Failure, LinkError};

impl State {
    /// The link is gone; a new one may follow, unless there is nobody to dial.
    pub fn cut(&mut self) {
        self.mux.cut();
        if matches!(self.phase, Phase::Up) {
            self.phase = if self.forsaken { Phase::Closing } else { Phase::Down };
        }
    }

    /// What the next hello says about the last link.
    pub fn resume(&self) -> Resume {
        let (streams, unanswered) = (self.mux.positions(), self.calls.unanswered());
        Resume { token: self.token, streams, unanswered }
    }

    /// A new link is up.
    pub fn begin(&mut self, welcome: &Welcome) {
        self.agent = welcome.agent;
        self.token = welcome.token;
        self.info = welcome.info.clone();
        if matches!(self.phase, Phase::Down) {
            self.phase = Phase::Up;
        }
        if !welcome.resumed {
            self.abandon(&LinkError::ResumeRefused);
            return;
        }
        let unopened = self.calls.unopened(&welcome.taken);
        for (stream, ended) in self.mux.resume(&welcome.streams, &unopened) {
            match ended {
                Ended::Complete => self.complete(stream),
                Ended::Lost => self.fail_stream(stream, &LinkError::ResumeRefused.into()),
                Ended::Reset(fault) => self.fail_stream(stream, &fault.into()),
            }
        }
        self.calls.resend(&welcome.taken, &mut self.mux);
        self.hurry();
    }

    pub(super) fn finish(&mut self, error: &LinkError) {
        if !matches!(self.phase, Phase::Over(_)) {
            self.phase = Phase::Over(error.clone());
            self.abandon(error);
        }
    }

    /// Everything under way fails.
    fn abandon(&mut self, error: &LinkError) {
        self.mux = Mux::new(Side::Host);
        let failure = Failure::Link(error.clone());
        self.calls.abandon();
        // Not those that `calls` names: an answer that cost the link has left its list already.
        let awaited = |call: &Call| !matches!(call.outcome, Outcome::Known(_));
        let requests = self.requests.iter().filter(|(_, call)| awaited(call));
        let ids: Vec<_> = requests.map(|(id, _)| *id).collect();
        for id in ids {
            self.settle(id, Err(failure.clone()));
        }
        let streams: Vec<_> = self.streams.keys().copied().collect();
        for stream in streams {
            self.fail_stream(stream, &failure);
        }
    }
}
