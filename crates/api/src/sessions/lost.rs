//! A sandbox that is gone with its node, as the fleet's log has it: found, read from an offset on, and the answer
//! at the end of it.

use std::collections::{BTreeMap, VecDeque};

use protocol::SessionId;
use protocol::message::Channel;
use serde_json::{Value, json};

use super::feed::FeedEvent;
use super::find::Session;
use crate::call::{Call, LostLife};
use node::{LogAway, LostEntries, LostHistory, LostLog, LostSession};
use sandbox::SandboxRef;
use sandbox::log::{Event, Extent, RecordedSession};
use sandbox::refusal::{Code, Reason, Refusal};

/// A piece for a reader, as a feed has them.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// See the module's description.
pub struct Lost {
    pub which: SandboxRef,
    pub log: LostLog,
    pub history: LostHistory,
    life: LostLife,
}

impl Lost {
    /// Finds the log. A sandbox that has none is only lost.
    pub async fn open(call: &Call, life: LostLife) -> Result<Self, Refusal> {
        let which = call.which()?;
        let found = match call.api.node() {
            Some(node) => {
                {
                    // Boxed: few calls wait for it.
                    let found = node.lost_log(&which, (&life.node, &life.incarnation));
                    Box::pin(found).await?
                }
            }
            None => None,
        };
        let Some(log) = found else {
            return Err(gone(&which, &life).hint("nothing of its output was durable"));
        };
        let history = log.history().await?;
        Ok(Self { which, log, history, life })
    }

    /// The last session of a name.
    pub fn session(&self, wanted: &SessionId) -> Result<&LostSession, Refusal> {
        let found = self.history.sessions.iter().rfind(|known| known.session == *wanted);
        found.ok_or_else(|| {
            let message = format!("the fleet's log has no session {wanted} of {}", self.which);
            Refusal::not_found(message)
                .because(Reason::Lost)
                .details(json!({ "node": self.life.node }))
                .hint("GET …/sessions lists those that it has")
        })
    }

    /// The answer after the last byte that outlived the node. `ends` is where the outputs end.
    pub fn refusal(&self, ends: &Value) -> Refusal {
        gone(&self.which, &self.life)
            .details(json!({ "at_ms": self.log.at_ms, "last_durable_offset": ends }))
    }

    /// Where the outputs of the sessions end of which no end is known.
    pub async fn open_ends(&self) -> Result<Value, Refusal> {
        Ok(json!(self.log.open_ends(&self.history).await?))
    }
}

/// A session of it, as one that only a log has.
pub fn recorded(of: &LostSession, ends: &BTreeMap<Channel, u64>) -> Session {
    let mut outputs: BTreeMap<_, _> =
        ends.iter().map(|(channel, end)| (*channel, Extent { oldest: 0, end: *end })).collect();
    if of.is_terminal {
        outputs.entry(Channel::Terminal).or_default();
    }
    Session::Recorded(RecordedSession {
        session: of.session.clone(),
        run: of.run,
        command: of.command.clone(),
        exit: of.exit.clone(),
        outputs,
        is_released: true,
    })
}

/// Offsets by the names of channels.
pub fn offsets(ends: &BTreeMap<Channel, u64>) -> Value {
    let named = ends.iter().map(|(channel, end)| (channel.name().to_owned(), json!(end)));
    Value::Object(named.collect())
}

fn gone(which: &SandboxRef, life: &LostLife) -> Refusal {
    Refusal::new(Code::Gone, format!("{which} was lost with its node {}", life.node))
        .because(Reason::Lost)
        .details(json!({ "node": life.node, "incarnation": life.incarnation }))
}

/// The outputs of one session from these offsets on, in the order in which they were stored.
pub struct LostFeed {
    entries: LostEntries,
    at: BTreeMap<Channel, u64>,
    ready: VecDeque<FeedEvent>,
}

impl LostFeed {
    pub fn new(entries: LostEntries, at: BTreeMap<Channel, u64>) -> Self {
        Self { entries, at, ready: VecDeque::new() }
    }

    /// The next piece; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<FeedEvent>, LogAway> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            let Some(entry) = self.entries.next().await? else { return Ok(None) };
            self.take(entry.event);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Output { channel, offset, bytes, .. } => {
                let Some(at) = self.at.get_mut(&channel) else { return };
                let end = offset + bytes.len() as u64;
                if end <= *at {
                    return;
                }
                let early = at.saturating_sub(offset);
                let mut offset = offset + early;
                for piece in bytes[early as usize..].chunks(PIECE_BYTES_MAX) {
                    self.ready.push_back(FeedEvent::Output {
                        channel,
                        offset,
                        bytes: piece.to_vec(),
                    });
                    offset += piece.len() as u64;
                }
                *at = end;
            }
            Event::Gap { channel, from, to, .. } => {
                let Some(at) = self.at.get_mut(&channel).filter(|at| **at < to) else { return };
                self.ready.push_back(FeedEvent::Gap { channel, from: from.max(*at), to });
                *at = to;
            }
            _ => {}
        }
    }
}
