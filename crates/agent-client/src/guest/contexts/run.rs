//! One run: its code on the way in, its events on the way out.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use protocol::ContextName;
use protocol::repl::{Event, Grace, Interrupt, parse_record};

use super::clip;
use super::life::Life;
use super::ran::{Collected, Ran};
use crate::guest::records::Records;
use crate::guest::{Guest, GuestError, Output, Pending, Piece, Writer};

/// The number of a run, and how many were before it when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    pub run: u64,
    pub ahead: u32,
}

/// A run that was asked for. Dropping it before its end gives its events up, which interrupts a run
/// that is tied to them.
#[derive(Debug)]
pub struct Run {
    guest: Guest,
    context: ContextName,
    place: Place,
    output: Output,
    records: Records,
    code: Option<Code>,
}

/// What is known of a run.
#[derive(Debug)]
enum Place {
    Asked(Pending<Queued>),
    Known {
        queued: Queued,
        life: Life,
    },
    /// It was refused, or its events have broken off, and that has been told.
    Failed,
}

/// Code that is too long for its request, on its way.
#[derive(Debug)]
struct Code {
    writer: Writer,
    bytes: Vec<u8>,
    written: usize,
}

impl Run {
    pub(super) fn new(
        guest: &Guest,
        context: ContextName,
        queued: Pending<Queued>,
        output: Output,
        writer: Writer,
        code: Vec<u8>,
    ) -> Self {
        let code = if code.is_empty() {
            // The host's half of the stream has nothing to carry.
            writer.close();
            None
        } else {
            Some(Code { writer, bytes: code, written: 0 })
        };
        let output = output.counted(guest.heard());
        let (guest, place) = (guest.clone(), Place::Asked(queued));
        Self { guest, context, place, output, records: Records::default(), code }
    }

    pub fn context(&self) -> &ContextName {
        &self.context
    }

    /// Known once the run is queued.
    pub fn number(&self) -> Option<u64> {
        match &self.place {
            Place::Known { queued, .. } => Some(queued.run),
            Place::Asked(_) | Place::Failed => None,
        }
    }

    /// The run's number and place, as soon as it has them. Safe to cancel, and to ask again.
    pub async fn queued(&mut self) -> Result<Queued, GuestError> {
        poll_fn(|cx| self.poll_queued(cx)).await
    }

    fn poll_queued(&mut self, cx: &mut Context<'_>) -> Poll<Result<Queued, GuestError>> {
        self.feed(cx);
        let answer = match &mut self.place {
            Place::Asked(pending) => ready!(Pin::new(pending).poll(cx)),
            Place::Known { queued, .. } => return Poll::Ready(Ok(*queued)),
            Place::Failed => {
                let what = "no number for a run";
                return Poll::Ready(Err(GuestError::Malformed { what }));
            }
        };
        self.place = match &answer {
            Ok(queued) => Place::Known { queued: *queued, life: Life::new(queued.run) },
            Err(_) => Place::Failed,
        };
        Poll::Ready(answer)
    }

    /// The next event; `None` behind the last one, or behind a failure. Asking for it says that the
    /// one before is in safe hands. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Result<Option<Event>, GuestError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, GuestError>> {
        if matches!(self.place, Place::Failed) {
            return Poll::Ready(Ok(None));
        }
        let polled = ready!(self.poll_event(cx));
        if polled.is_err() {
            self.place = Place::Failed;
        }
        Poll::Ready(polled)
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, GuestError>> {
        // The number comes first: no event counts that is not this run's.
        ready!(self.poll_queued(cx))?;
        let Place::Known { life, .. } = &mut self.place else { return Poll::Ready(Ok(None)) };
        loop {
            if let Some(event) = self.records.take(parse_record)? {
                life.admit(&event)?;
                return Poll::Ready(Ok(Some(clip::event(event))));
            }
            match ready!(self.output.poll_next(cx)) {
                Piece::Bytes { bytes, .. } => self.records.extend(&bytes),
                Piece::End if !self.records.is_empty() => {
                    return malformed("a run that ends within an event");
                }
                // Of a run that is over, nothing can be missing.
                Piece::End | Piece::Failed(_) if life.is_over() => return Poll::Ready(Ok(None)),
                Piece::End => return malformed("a run without an end"),
                Piece::Gap { .. } => return malformed("a run with a gap"),
                Piece::Failed(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Writes as much of the code as there is room for. A failure to do so has a reason, which the
    /// answer or the events tell.
    fn feed(&mut self, cx: &mut Context<'_>) {
        let Some(code) = &mut self.code else { return };
        while let Some(rest) = code.bytes.get(code.written..).filter(|rest| !rest.is_empty()) {
            match code.writer.poll_write(rest, cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(count)) => code.written += count,
                Poll::Ready(Err(_)) => {
                    self.code = None;
                    return;
                }
            }
        }
        code.writer.close();
        self.code = None;
    }

    /// Ends this run by the ladder, or takes it out of the queue. `None` when it was over already.
    pub async fn interrupt(&self, grace: Grace) -> Result<Option<u64>, GuestError> {
        let Some(run) = self.number() else { return Ok(None) };
        let context = self.context.clone();
        self.guest.interrupt(Interrupt { context, run: Some(run), grace }).await
    }

    /// Reads the run to its end, and keeps at most `bytes_max` of what it says.
    pub async fn collect(mut self, bytes_max: usize) -> Result<Ran, GuestError> {
        let Queued { run, .. } = self.queued().await?;
        let mut collected = Collected::new(run, bytes_max);
        while let Some(event) = self.next().await? {
            if let Some(ran) = collected.take(event) {
                return Ok(ran);
            }
        }
        // A run tells its end or its failure before it says that there is no more.
        Err(GuestError::Malformed { what: "a run without an end" })
    }
}

fn malformed<T>(what: &'static str) -> Poll<Result<T, GuestError>> {
    Poll::Ready(Err(GuestError::Malformed { what }))
}
