//! The outputs of one session that is recorded.

use std::future::poll_fn;
use std::task::Poll;

use protocol::ExitRecord;
use protocol::message::Channel;

use super::publication::{Landed, Publication};
use agent_client::guest::{Output, Piece};

/// See the module's description.
#[derive(Default)]
pub(super) struct Outputs {
    pub all: Vec<RecordedOutput>,
    /// Which is asked first, in turn, so that a loud one does not silence the other.
    turn: usize,
    reported: bool,
}

pub(super) struct RecordedOutput {
    pub channel: Channel,
    pub output: Output,
    /// Up to here everything is in the log or named in it as a gap.
    pub reached: u64,
    pub rest: OutputState,
    /// On its way to the fleet's log, where it must be durable.
    pub publication: Option<Publication>,
}

/// The rest of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputState {
    /// Anything.
    Open,
    /// It has ended, and all of it has come.
    Nothing,
    /// Nothing over this link.
    Lost,
}

/// What comes of an output.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is moved once")]
pub(super) enum Arrival {
    /// From the agent.
    Piece(Piece),
    /// At the fleet's log.
    Landed(Landed),
}

impl Outputs {
    /// The next of any output; pending forever if there is none.
    pub async fn next(&mut self) -> (usize, Arrival) {
        let count = self.all.len();
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn;
        poll_fn(|context| {
            for index in (0..count).map(|step| first.wrapping_add(step) % count) {
                let recorded = &mut self.all[index];
                if let Some(publication) = &mut recorded.publication
                    && let Poll::Ready(landed) = publication.poll_landed(context)
                {
                    return Poll::Ready((index, Arrival::Landed(landed)));
                }
                if recorded.rest != OutputState::Open {
                    continue;
                }
                if let Poll::Ready(piece) = recorded.output.poll_next(context) {
                    return Poll::Ready((index, Arrival::Piece(piece)));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Whether all that the program wrote before it ended has come.
    pub fn have_all(&self, record: &ExitRecord) -> bool {
        self.all.iter().all(|recorded| {
            let complete_at = record.complete_at(recorded.channel);
            let has_ended = recorded.rest == OutputState::Nothing && recorded.has_landed();
            has_ended || complete_at.is_some_and(|at| recorded.reached >= at)
        })
    }

    /// Up to where everything is in the log.
    pub fn reached(&self) -> Vec<(Channel, u64)> {
        self.all.iter().map(|recorded| (recorded.channel, recorded.reached)).collect()
    }

    pub fn have_ended(&self) -> bool {
        self.all.iter().all(|recorded| recorded.rest == OutputState::Nothing)
    }

    /// Whether nothing more comes over this link.
    pub fn have_settled(&self) -> bool {
        self.all.iter().all(|recorded| recorded.rest != OutputState::Open) && self.have_landed()
    }

    /// Whether the fleet's log has all of what has come.
    pub fn have_landed(&self) -> bool {
        self.all.iter().all(RecordedOutput::has_landed)
    }

    pub fn report_once(&mut self, report: impl FnOnce()) {
        if !std::mem::replace(&mut self.reported, true) {
            report();
        }
    }
}

impl RecordedOutput {
    fn has_landed(&self) -> bool {
        self.publication.as_ref().is_none_or(Publication::is_idle)
    }
}
