//! One run: its code on the way in, its events on the way out.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use otel::Span;
use protocol::ContextName;
use protocol::repl::{Event, Grace, Happening, Interrupt, RunEnd, parse_record};

use super::clip;
use super::life::Life;
use super::ran::{Collected, Ran};
use crate::guest::provenance::RunAccount;
use crate::guest::records::Records;
use crate::guest::trace;
use crate::guest::{Guest, GuestError, Observed, Output, Pending, Piece, Writer};

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
    place: RunState,
    output: Output,
    records: Records,
    code: Option<Code>,
    /// The deadline that its end reports, if that is not the agent's own.
    pub(super) reported_deadline_ms: Option<u64>,
    /// Its part of a trace, until it has ended.
    pub(super) span: Option<Span>,
    /// It is the host's own, and nobody else learns of it.
    pub(super) is_aside: bool,
    /// What it has written by now, where somebody keeps that.
    pub(super) account: Option<Box<RunAccount>>,
}

/// The state of a run.
#[derive(Debug)]
enum RunState {
    Requested(Pending<Queued>),
    Accepted {
        queued: Queued,
        life: Life,
    },
    /// It was refused, or its events have broken off, and that was reported.
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
        let output = output.counted(guest.output_counter());
        let (guest, place) = (guest.clone(), RunState::Requested(queued));
        let records = Records::default();
        Self {
            guest,
            context,
            place,
            output,
            records,
            code,
            reported_deadline_ms: None,
            span: None,
            is_aside: false,
            account: None,
        }
    }

    pub fn context(&self) -> &ContextName {
        &self.context
    }

    /// Known once the run is queued.
    pub fn number(&self) -> Option<u64> {
        match &self.place {
            RunState::Accepted { queued, .. } => Some(queued.run),
            RunState::Requested(_) | RunState::Failed => None,
        }
    }

    /// The run's number and place, as soon as it has them. Safe to cancel, and to ask again.
    pub async fn queued(&mut self) -> Result<Queued, GuestError> {
        poll_fn(|cx| self.poll_queued(cx)).await
    }

    fn poll_queued(&mut self, cx: &mut Context<'_>) -> Poll<Result<Queued, GuestError>> {
        self.feed(cx);
        let answer = match &mut self.place {
            RunState::Requested(pending) => ready!(Pin::new(pending).poll(cx)),
            RunState::Accepted { queued, .. } => return Poll::Ready(Ok(*queued)),
            RunState::Failed => {
                let what = "no number for a run";
                return Poll::Ready(Err(GuestError::Malformed { what }));
            }
        };
        self.place = match &answer {
            Ok(queued) => RunState::Accepted { queued: *queued, life: Life::new(queued.run) },
            Err(_) => RunState::Failed,
        };
        if let Ok(Queued { run, .. }) = &answer
            && !self.is_aside
        {
            let (context, run) = (&self.context, *run);
            self.guest.observer().tell(Observed::RunQueued { context, run });
        }
        Poll::Ready(answer)
    }

    /// The next event; `None` after the last one, or after a failure. The call confirms that the
    /// previous one is safe. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Event>, GuestError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, GuestError>> {
        if matches!(self.place, RunState::Failed) {
            return Poll::Ready(Ok(None));
        }
        let polled = ready!(self.poll_event(cx));
        if let Err(error) = &polled {
            if let Some(mut span) = self.span.take() {
                trace::fail(&mut span, error);
            }
            self.place = RunState::Failed;
        }
        Poll::Ready(polled)
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, GuestError>> {
        // The number comes first: no event counts that is not this run's.
        ready!(self.poll_queued(cx))?;
        let RunState::Accepted { life, .. } = &mut self.place else { return Poll::Ready(Ok(None)) };
        loop {
            if let Some(mut event) = self.records.take(parse_record)? {
                life.admit(&event)?;
                if let Happening::Finished(finished) = &mut event.what
                    && let RunEnd::TimedOut { limit_ms } = &mut finished.end
                    && let Some(reported) = self.reported_deadline_ms
                {
                    *limit_ms = reported;
                }
                if let Happening::Finished(end) = &event.what {
                    if let Some(mut span) = self.span.take() {
                        trace::finished(&mut span, event.run, end);
                    }
                    if !self.is_aside {
                        let (context, run) = (&self.context, event.run);
                        self.guest.observer().tell(Observed::RunEnded { context, run, end });
                    }
                }
                let event = clip::event(event);
                self.account = self.account.take().and_then(|account| account.add(&event));
                return Poll::Ready(Ok(Some(event)));
            }
            match ready!(self.output.poll_next(cx)) {
                Piece::Bytes { bytes, .. } => self.records.extend(&bytes),
                Piece::End if !self.records.is_empty() => {
                    return malformed("a run that ends within an event");
                }
                // A finished run has nothing missing.
                Piece::End | Piece::Failed(_) if life.is_over() => return Poll::Ready(Ok(None)),
                Piece::End => return malformed("a run without an end"),
                Piece::Gap { .. } => return malformed("a run with a gap"),
                Piece::Failed(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Writes as much of the code as there is room for. The answer or the events give the reason
    /// for a failure.
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

    /// Reads the run to its end, and keeps at most `bytes_max` of its output.
    pub async fn collect(mut self, bytes_max: usize) -> Result<Ran, GuestError> {
        let Queued { run, .. } = self.queued().await?;
        let mut collected = Collected::new(run, bytes_max);
        while let Some(event) = self.next().await? {
            if let Some(ran) = collected.take(event) {
                return Ok(ran);
            }
        }
        // A run reports its end or its failure before the end of its events.
        Err(GuestError::Malformed { what: "a run without an end" })
    }
}

fn malformed<T>(what: &'static str) -> Poll<Result<T, GuestError>> {
    Poll::Ready(Err(GuestError::Malformed { what }))
}
