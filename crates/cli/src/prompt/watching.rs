//! Follows events of the context besides our own runs: late output, a lost interpreter, and runs of
//! other clients. The output of other clients is not shown.

use std::collections::VecDeque;

use protocol::message::Channel;
use protocol::repl::{ContextInfo, Event, Happening, Late};

use super::words;
use agent_client::guest::{Events, Guest};

/// Our latest runs, of which a watch may still report events.
const OWN_RUNS_MAX: usize = 64;

/// Something to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Update {
    Output(Channel, Vec<u8>),
    Line(String),
}

/// A watch of the context, and what is known from it.
pub(super) struct ContextWatch {
    events: Option<Events>,
    tale: EventTracker,
}

/// The state derived from the watched events. Pure.
#[derive(Debug, Default)]
struct EventTracker {
    own: VecDeque<u64>,
    /// The current run, if it belongs to another client.
    running: Option<u64>,
    /// Runs of other clients that ended since the last notice.
    others: u64,
    /// Whether the loss of the previous interpreter was reported.
    loss_shown: bool,
    /// Late output has been shown, or a run has begun whose events could have contained it.
    late_told: bool,
}

impl ContextWatch {
    /// A context that cannot be watched is still one that can be used.
    pub(super) async fn begin(guest: &Guest, info: &ContextInfo) -> Self {
        let events = guest.watch_context(&info.context).await.ok();
        Self { events, tale: EventTracker { running: info.running, ..EventTracker::default() } }
    }

    /// Watches again after the context was closed and reopened.
    pub(super) async fn renew(&mut self, guest: &Guest, context: &protocol::ContextName) {
        if self.events.is_none() {
            self.events = guest.watch_context(context).await.ok();
        }
    }

    /// The next thing to show. Never returns when the watch has ended. Safe to cancel.
    pub(super) async fn next(&mut self) -> Update {
        loop {
            let Some(events) = &mut self.events else { return std::future::pending().await };
            match events.next().await {
                Ok(Some(event)) => {
                    if let Some(news) = self.tale.take(event) {
                        return news;
                    }
                }
                Ok(None) => {
                    self.events = None;
                    self.tale.running = None;
                    return Update::Line(
                        "the context was closed; the next input opens it again".to_owned(),
                    );
                }
                // The next run gets the reason.
                Err(_) => self.events = None,
            }
        }
    }

    /// Registers the number of a run of ours.
    pub(super) fn own(&mut self, run: u64) {
        self.tale.own(run);
    }

    /// The current run of another client.
    pub(super) fn running(&self) -> Option<u64> {
        self.tale.running
    }

    /// The number of runs of others that ended since the last call.
    pub(super) fn take_others(&mut self) -> u64 {
        std::mem::take(&mut self.tale.others)
    }

    /// Late output that one of our runs reports. A living watch has shown it already, except for earlier
    /// output, which the first run reports before anything else.
    pub(super) fn late_in_run(&mut self, late: Late) -> Option<Update> {
        let known = self.events.is_some() && self.tale.late_told;
        (!known).then(|| output(late))
    }

    /// One of our runs has passed the output from before it.
    pub(super) fn late_is_past(&mut self) {
        self.tale.late_told = true;
    }

    /// The message about an interpreter that a run found replaced; once for each.
    pub(super) fn loss(&mut self, reason: &str) -> Option<String> {
        let was_told = std::mem::take(&mut self.tale.loss_shown);
        (!was_told).then(|| words::lost(reason))
    }

    /// Marks the loss of the interpreter as reported.
    pub(super) fn loss_was_shown(&mut self) {
        self.tale.loss_shown = true;
    }
}

impl EventTracker {
    fn own(&mut self, run: u64) {
        if self.own.len() == OWN_RUNS_MAX {
            self.own.pop_front();
        }
        self.own.push_back(run);
        if self.running == Some(run) {
            self.running = None;
        }
    }

    fn take(&mut self, event: Event) -> Option<Update> {
        let ours = self.own.contains(&event.run);
        match event.what {
            Happening::Started(_) => {
                self.running = (!ours).then_some(event.run);
                None
            }
            Happening::Finished(_) => {
                self.running = None;
                self.others += u64::from(!ours);
                None
            }
            Happening::Late(late) => {
                self.late_told = true;
                Some(output(late))
            }
            Happening::Lost { reason } => {
                self.running = None;
                let was_shown = std::mem::replace(&mut self.loss_shown, true);
                (!was_shown).then(|| Update::Line(words::lost(&reason)))
            }
            _ => None,
        }
    }
}

fn output(late: Late) -> Update {
    let mut bytes = late.bytes.into_bytes();
    if late.dropped > 0 {
        let lost = format!("[{} bytes of late output were lost]\n", late.dropped);
        bytes.splice(..0, lost.into_bytes());
    }
    Update::Output(late.channel, bytes)
}

#[cfg(test)]
mod tests;
