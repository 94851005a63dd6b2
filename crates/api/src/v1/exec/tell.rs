//! A program as events: lines of JSON while it runs.

use std::collections::VecDeque;

use protocol::message::{Channel, Started};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::Api;
use crate::call::{Call, Inside};
use crate::capture::Capture;
use crate::forms::artifacts::Captured;
use crate::forms::exit::Exit;
use crate::forms::problem::Problem;
use crate::stream::Events;
use crate::v1::value::Content;
use agent_client::guest::GuestError;
use agent_client::program::{Characters, Event, Running};
use sandbox::SandboxRef;
use sandbox::refusal::Refusal;
use services::artifact;

/// The events of a program. `exited` and `problem` come last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExecEvent {
    Started {
        session: String,
        pid: u32,
        /// Requested options that this host could not provide.
        warnings: Vec<String>,
    },
    Stdout {
        /// The offset in the output where it begins, in bytes.
        offset: u64,
        #[serde(flatten)]
        content: Content,
    },
    Stderr {
        offset: u64,
        #[serde(flatten)]
        content: Content,
    },
    /// Output that no longer exists.
    Gap {
        channel: ChannelName,
        from: u64,
        to: u64,
    },
    /// The captured artifacts, if they were requested. `exited` follows.
    Artifacts {
        captured: Captured,
    },
    Exited {
        exit: Exit,
    },
    /// A request of the client on the WebSocket was not carried out. The program continues.
    Refused {
        problem: Problem,
    },
    /// The stream cannot continue.
    Problem {
        problem: Problem,
    },
}

/// An output of a session.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ChannelName {
    Stdout,
    Stderr,
    /// The one output of a terminal.
    Terminal,
}

/// Answers with events.
pub fn events(
    call: &mut Call,
    inside: Inside,
    running: Running,
    capture: Option<Capture>,
) -> Result<Events<ExecEvent>, Refusal> {
    let mut following = Following::new(&call.api, &inside.which, running, capture);
    Events::begin(call, |teller| async move {
        let _inside = inside;
        while let Some(event) = following.next().await {
            if teller.tell(&event).await.is_err() {
                return;
            }
        }
    })
}

/// A program that is followed to its end.
pub struct Following {
    api: Api,
    which: SandboxRef,
    running: Running,
    cuts: Cuts,
    /// Events that are ready and not sent yet.
    waiting: VecDeque<ExecEvent>,
    /// What keeps its artifacts, until it has ended.
    capture: Option<Capture>,
    /// What is sent once they are kept.
    ending: Option<(JoinHandle<artifact::Captured>, ExecEvent)>,
    /// Why there is no end, until that is sent.
    failure: Option<GuestError>,
    over: bool,
}

impl Following {
    pub fn new(api: &Api, which: &SandboxRef, running: Running, capture: Option<Capture>) -> Self {
        let (api, which) = (api.clone(), which.clone());
        let (cuts, waiting) = (Cuts::default(), VecDeque::new());
        let (failure, ending, over) = (None, None, false);
        Self { api, which, running, cuts, waiting, capture, ending, failure, over }
    }

    /// The next event; `None` after the last. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Option<ExecEvent> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if let Some((keeping, _)) = &mut self.ending {
                let captured = keeping.await.unwrap_or_default().into();
                let exited = self.ending.take().map(|(_, exited)| exited);
                self.waiting.push_back(ExecEvent::Artifacts { captured });
                self.waiting.extend(exited);
                continue;
            }
            if let Some(error) = &self.failure {
                let problem = Refusal::from(error.clone());
                let problem = self.api.explained(&self.which, problem).await.into();
                self.failure = None;
                return Some(ExecEvent::Problem { problem });
            }
            if self.over {
                return None;
            }
            match self.running.next().await {
                Ok(Some(event)) => self.take(event),
                Ok(None) => {
                    self.fail(GuestError::Malformed { what: "no exit record" });
                }
                Err(error) => self.fail(error),
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Output { channel, offset, bytes } => {
                let piece = self.cuts.take(channel, offset, bytes);
                self.waiting.extend(piece.map(|piece| output(channel, piece)));
            }
            Event::Gap { channel, from, to } => {
                let rest = self.cuts.finish(channel);
                self.waiting.extend(rest.map(|piece| output(channel, piece)));
                self.waiting.push_back(ExecEvent::Gap { channel: channel.into(), from, to });
            }
            Event::Ended(ended) => {
                self.flush();
                self.over = true;
                let exited = ExecEvent::Exited { exit: ended.record.into() };
                match self.capture.take() {
                    Some(capture) => {
                        self.ending = Some((tokio::spawn(capture.end(None)), exited));
                    }
                    None => self.waiting.push_back(exited),
                }
            }
            Event::Started(Started { pid, warnings, .. }) => {
                let session = self.running.session().to_string();
                self.waiting.push_back(ExecEvent::Started { session, pid, warnings });
            }
        }
    }

    fn fail(&mut self, error: GuestError) {
        self.flush();
        self.over = true;
        self.failure = Some(error);
    }

    fn flush(&mut self) {
        for channel in [Channel::Stdout, Channel::Stderr] {
            let rest = self.cuts.finish(channel);
            self.waiting.extend(rest.map(|piece| output(channel, piece)));
        }
    }
}

fn output(channel: Channel, (offset, content): (u64, Content)) -> ExecEvent {
    match channel {
        Channel::Stderr => ExecEvent::Stderr { offset, content },
        Channel::Stdout | Channel::Terminal => ExecEvent::Stdout { offset, content },
    }
}

/// Outputs cut where characters end, each with its place.
#[derive(Debug, Default)]
pub struct Cuts {
    stdout: Cut,
    stderr: Cut,
    terminal: Cut,
}

#[derive(Debug, Default)]
struct Cut {
    characters: Characters,
    /// The offset after the last byte received.
    end: u64,
}

impl Cuts {
    /// The part of an output that can be sent now.
    pub fn take(
        &mut self,
        channel: Channel,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Option<(u64, Content)> {
        let cut = self.of(channel);
        let begin = offset.saturating_sub(cut.characters.held());
        cut.end = offset.saturating_add(bytes.len() as u64);
        let whole = cut.characters.take(bytes);
        (!whole.is_empty()).then(|| (begin, Content::of(whole)))
    }

    /// What was held back, when nothing follows that belongs to it.
    pub fn finish(&mut self, channel: Channel) -> Option<(u64, Content)> {
        let cut = self.of(channel);
        let begin = cut.end.saturating_sub(cut.characters.held());
        let rest = cut.characters.finish();
        (!rest.is_empty()).then(|| (begin, Content::of(rest)))
    }

    fn of(&mut self, channel: Channel) -> &mut Cut {
        match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
            Channel::Terminal => &mut self.terminal,
        }
    }
}

impl From<Channel> for ChannelName {
    fn from(channel: Channel) -> Self {
        match channel {
            Channel::Stdout => Self::Stdout,
            Channel::Stderr => Self::Stderr,
            Channel::Terminal => Self::Terminal,
        }
    }
}

impl From<ChannelName> for Channel {
    fn from(name: ChannelName) -> Self {
        match name {
            ChannelName::Stdout => Self::Stdout,
            ChannelName::Stderr => Self::Stderr,
            ChannelName::Terminal => Self::Terminal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_comes_in_two_pieces_is_sent_whole_and_in_its_place() {
        let mut cuts = Cuts::default();
        let euro = "€".as_bytes();
        let text = |text: &str| Content::Text(text.to_owned());
        let bytes = [b"ab", &euro[..1]].concat();
        assert_eq!(cuts.take(Channel::Stdout, 10, bytes), Some((10, text("ab"))));
        assert_eq!(cuts.take(Channel::Stdout, 13, euro[1..2].to_vec()), None);
        assert_eq!(cuts.take(Channel::Stdout, 14, euro[2..].to_vec()), Some((12, text("€"))));
        assert_eq!(cuts.finish(Channel::Stdout), None);
        assert_eq!(cuts.take(Channel::Stderr, 0, euro[..2].to_vec()), None);
        let rest = Content::of(euro[..2].to_vec());
        assert_eq!(cuts.finish(Channel::Stderr), Some((0, rest)));
    }

    #[test]
    fn an_event_is_flat() {
        let event = ExecEvent::Stdout { offset: 3, content: Content::Text("x".to_owned()) };
        let value = serde_json::to_value(&event).unwrap();
        assert_eq!(value, serde_json::json!({ "type": "stdout", "offset": 3, "text": "x" }));
        assert_eq!(serde_json::from_value::<ExecEvent>(value).unwrap(), event);
    }
}
