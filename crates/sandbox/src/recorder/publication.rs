//! Brings one output of a session into the fleet's log.
//!
//! ```text
//!  sync    pieces of the agent ─▶ waiting ─▶ flight ─▶ landed: the disk may have it, readers may see it
//!  async   what the disk has ───────────────▶ flight ─▶ landed
//! ```
//!
//! One flight at a time keeps the bytes in order: each names the one before it. What comes meanwhile goes with the next,
//! so a slow log makes flights larger, up to their bound. Under `sync` the agent's credit bounds what waits; under `async`
//! the log on disk is what waits, and what that has dropped becomes a gap.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use protocol::SessionId;
use protocol::fault::clip;
use protocol::message::{Channel, SessionInfo};
use tokio::sync::OnceCell;

use super::SharedLog;
use super::activity::run_of;
use crate::durable::{DurableLog, Line, NotAppended, OutputId, OutputPart};
use crate::limits::DURABLE_FLIGHT_BYTES;
use crate::log::{Recording, Run};
use agent_client::guest::Horizons;
use machine::BoxFuture;

/// Where a sandbox's output becomes durable.
#[derive(Clone)]
pub struct Durable {
    pub log: Arc<dyn DurableLog>,
    /// How far readers may see, under `sync`.
    pub horizons: Option<Horizons>,
}

impl Durable {
    pub(super) fn open(&self, info: &SessionInfo) -> Arc<Opening> {
        let line = Line::Started {
            session: info.session.clone(),
            run: run_of(info),
            command: clip(info.command.clone()),
            is_terminal: info.terminal,
        };
        Arc::new(Opening { log: Arc::clone(&self.log), line, once: OnceCell::new() })
    }
}

/// The start of a session, which the log has before anything else of it.
pub(super) struct Opening {
    log: Arc<dyn DurableLog>,
    line: Line,
    once: OnceCell<Result<(), NotAppended>>,
}

impl Opening {
    pub(super) async fn done(&self) -> Result<(), NotAppended> {
        self.once.get_or_init(|| self.log.note(self.line.clone())).await.clone()
    }
}

/// See the module's description.
pub(super) struct Publication {
    durable: Durable,
    opening: Arc<Opening>,
    output: OutputId,
    source: Source,
    flight: Option<BoxFuture<'static, Landed>>,
    /// Everything below is in the fleet's log. Not known before the first flight of `async`.
    reached: Option<u64>,
    /// Nothing more is appended.
    is_over: bool,
}

#[expect(clippy::large_enum_variant, reason = "each output has one")]
enum Source {
    Waiting(VecDeque<OutputPart>),
    Disk {
        /// Away while it is read.
        recording: Option<Recording>,
        to: u64,
    },
}

/// What a flight has brought.
pub(super) struct Landed {
    pub parts: Vec<OutputPart>,
    pub outcome: Result<u64, NotAppended>,
    recording: Option<Recording>,
}

impl Publication {
    pub(super) fn new(
        durable: &Durable,
        opening: &Arc<Opening>,
        output: OutputId,
        from: u64,
        log: &SharedLog,
    ) -> Self {
        let (source, reached) = if durable.horizons.is_some() {
            (Source::Waiting(VecDeque::new()), Some(from))
        } else {
            let (session, run) = (output.session.clone(), output.run);
            let directory = log.with(|log| log.directory().to_owned());
            let recording = Some(Recording::new(directory, session, run, output.channel));
            (Source::Disk { recording, to: from }, None)
        };
        let (durable, opening) = (durable.clone(), Arc::clone(opening));
        let publication =
            Self { durable, opening, output, source, flight: None, reached, is_over: false };
        publication.show(from);
        publication
    }

    /// Whether what comes from the agent waits for the log.
    pub(super) fn is_first(&self) -> bool {
        matches!(self.source, Source::Waiting(_))
    }

    /// Takes what the agent has sent, under `sync`.
    pub(super) fn offer(&mut self, part: OutputPart) {
        if let Source::Waiting(waiting) = &mut self.source {
            waiting.push_back(part);
        }
    }

    /// The disk has everything below, under `async`.
    pub(super) fn follow_to(&mut self, end: u64) {
        if let Source::Disk { to, .. } = &mut self.source {
            *to = end.max(*to);
        }
    }

    /// Whether the log has all that it was given. One that takes no more of what readers have already is not waited for.
    pub(super) fn is_idle(&self) -> bool {
        let is_drained = match &self.source {
            Source::Waiting(waiting) => waiting.is_empty(),
            Source::Disk { to, .. } => *to == 0 || self.reached.is_some_and(|at| at >= *to),
        };
        (self.is_over && !self.is_first()) || (is_drained && self.flight.is_none())
    }

    /// Lets readers see what is below.
    pub(super) fn show(&self, to: u64) {
        if let Some(horizons) = &self.durable.horizons {
            horizons.advance(&self.output.session, self.output.channel, to);
        }
    }

    /// The next flight that ends; pending when there is nothing to bring.
    pub(super) fn poll_landed(&mut self, cx: &mut Context<'_>) -> Poll<Landed> {
        if self.flight.is_none() && !self.is_over && !self.is_idle() {
            self.flight = self.depart();
        }
        let Some(flight) = &mut self.flight else { return Poll::Pending };
        let mut landed = std::task::ready!(flight.as_mut().poll(cx));
        self.flight = None;
        match &landed.outcome {
            Ok(to) => self.reached = Some(*to),
            Err(_) => self.is_over = true,
        }
        if let Source::Disk { recording, .. } = &mut self.source {
            *recording = landed.recording.take();
        }
        Poll::Ready(landed)
    }

    fn depart(&mut self) -> Option<BoxFuture<'static, Landed>> {
        let opening = Arc::clone(&self.opening);
        let (log, output) = (Arc::clone(&self.durable.log), self.output.clone());
        match &mut self.source {
            Source::Waiting(waiting) => {
                let part = load(waiting)?;
                Some(Box::pin(async move {
                    let outcome = async {
                        opening.done().await?;
                        log.append(output, part.clone()).await?;
                        Ok(part.to)
                    };
                    let outcome = outcome.await;
                    Landed { parts: vec![part], outcome, recording: None }
                }))
            }
            Source::Disk { recording, to } => {
                let Some(recording) = recording.take() else {
                    // Reading it has failed for good.
                    self.is_over = true;
                    return None;
                };
                let (reached, to) = (self.reached, *to);
                Some(Box::pin(async move {
                    let mut recording = Some(recording);
                    let outcome = async {
                        opening.done().await?;
                        let from = match reached {
                            Some(reached) => reached,
                            None => log.end(output.clone()).await?,
                        };
                        let parts = read(&mut recording, from, to).await;
                        let end = parts.last().map_or(from, |part| part.to);
                        for part in parts {
                            log.append(output.clone(), part).await?;
                        }
                        Ok(end)
                    };
                    let outcome = outcome.await;
                    Landed { parts: Vec::new(), outcome, recording }
                }))
            }
        }
    }
}

/// What follows each other of what waits, up to the bound of a flight.
fn load(waiting: &mut VecDeque<OutputPart>) -> Option<OutputPart> {
    let mut part = waiting.pop_front()?;
    while let Some(next) = waiting.front() {
        let is_gap = part.bytes.is_empty() || next.bytes.is_empty();
        let bytes = part.bytes.len() + next.bytes.len();
        if is_gap || next.offset != part.to || bytes > DURABLE_FLIGHT_BYTES {
            break;
        }
        if let Some(next) = waiting.pop_front() {
            part.bytes.extend(next.bytes);
            part.to = next.to;
        }
    }
    Some(part)
}

/// What the disk has from here on, up to the bound of a flight, with a gap for what it has no longer.
async fn read(recording: &mut Option<Recording>, from: u64, to: u64) -> Vec<OutputPart> {
    let Some(mut place) = recording.take() else { return Vec::new() };
    let reading = tokio::task::spawn_blocking(move || {
        let mut parts: Vec<OutputPart> = Vec::new();
        let (mut at, mut bytes) = (from, 0);
        while at < to && bytes < DURABLE_FLIGHT_BYTES {
            // A log that cannot be read has nothing.
            let Some((offset, piece)) = place.read(at, to).ok().flatten() else {
                parts.push(OutputPart { offset: at, to, bytes: Vec::new() });
                break;
            };
            if offset > at {
                parts.push(OutputPart { offset: at, to: offset, bytes: Vec::new() });
            }
            bytes += piece.len();
            at = offset + piece.len() as u64;
            match parts.last_mut() {
                Some(part) if !part.bytes.is_empty() => {
                    part.bytes.extend(piece);
                    part.to = at;
                }
                _ => parts.push(OutputPart { offset, to: at, bytes: piece }),
            }
        }
        place.rest();
        (place, parts)
    });
    match reading.await {
        Ok((place, parts)) => {
            *recording = Some(place);
            parts
        }
        Err(_) => Vec::new(),
    }
}

/// The output of a session, as the fleet's log names it.
pub(super) fn output_id(session: &SessionId, run: Run, channel: Channel) -> OutputId {
    OutputId { session: session.clone(), run, channel }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, bytes: &[u8]) -> OutputPart {
        OutputPart { offset, to: offset + bytes.len() as u64, bytes: bytes.to_vec() }
    }

    #[test]
    fn a_flight_takes_what_follows_each_other_up_to_its_bound() {
        let large = vec![b'x'; DURABLE_FLIGHT_BYTES - 1];
        let mut waiting = VecDeque::from([part(0, b"ab"), part(2, b"c")]);
        waiting.push_back(OutputPart { offset: 3, to: 9, bytes: Vec::new() });
        waiting.extend([part(9, b"d"), part(10, &large), part(10 + large.len() as u64, b"e")]);
        assert_eq!(load(&mut waiting), Some(part(0, b"abc")));
        assert_eq!(
            load(&mut waiting).map(|gap| (gap.offset, gap.to, gap.bytes.len())),
            Some((3, 9, 0))
        );
        let third = load(&mut waiting).unwrap();
        assert_eq!((third.offset, third.bytes.len()), (9, DURABLE_FLIGHT_BYTES));
        assert_eq!(load(&mut waiting).map(|last| last.bytes), Some(b"e".to_vec()));
        assert_eq!(load(&mut waiting), None);
    }
}
