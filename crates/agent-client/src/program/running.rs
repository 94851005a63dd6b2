//! A program that runs: its start, its outputs, its input and its end as one sequence of events.
//!
//! [`Event::Ended`] follows when every byte that the program had written at its end has been
//! delivered. It never waits for the end of the program's pipes, which survivors may hold open
//! forever.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use otel::Span;
use protocol::SessionId;
use protocol::exit::{Cause, ExitRecord};
use protocol::message::{Channel, Started};
use protocol::requests::{Origin, Role, Stdio};

use super::{Ended, Leash, OnDrop, Program, Sink};
use crate::guest::trace;
use crate::guest::{Guest, GuestError, Output, Pending, Piece, Writer, is_recorded};

/// The holder of a program's outputs when its start names none.
const HOLDER: &str = "exec";

/// An event of a program.
#[derive(Clone, Debug)]
pub enum Event {
    Started(Started),
    Output {
        channel: Channel,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Output that no longer exists.
    Gap {
        channel: Channel,
        from: u64,
        to: u64,
    },
    /// The last event.
    Ended(Ended),
}

/// A program that runs. Dropping it gives its streams up, and ends the program or leaves it running
/// as the program's [`super::OnDrop`] says.
#[derive(Debug)]
pub struct Running {
    // The first field, so that its requests go out before the streams are given up.
    leash: Leash,
    started: Start,
    exited: Exit,
    outputs: Vec<Reader>,
    /// The output that is asked first, so that a flood of one does not starve the other.
    turn: usize,
    input: Option<Writer>,
    reported_deadline_ms: Option<u64>,
    /// Its part of a trace, until it has ended.
    span: Option<Span>,
}

/// The answer to the start.
#[derive(Debug)]
enum Start {
    Awaited(Pending<Started>),
    /// No event of it has been given yet.
    Known(Started),
    Given,
}

#[derive(Debug)]
enum Exit {
    Awaited(Pending<ExitRecord>),
    /// The program has ended; its last output is still on its way.
    Known(Box<ExitRecord>),
    Given,
}

/// One output, how far it has been delivered, and how much of it was lost.
#[derive(Debug)]
struct Reader {
    channel: Channel,
    output: Output,
    delivered: u64,
    bytes: u64,
    missing_bytes: u64,
    ended: bool,
}

impl Running {
    pub(super) fn begin(guest: &Guest, program: Program) -> Result<Self, GuestError> {
        let Program { mut start, reader, on_drop, reported_deadline_ms } = program;
        let span = guest.program_span(&start);
        if let Some(span) = &span {
            trace::pass_on(span, &mut start);
        }
        let (channels, has_input): (&[Channel], bool) = match start.stdio {
            Stdio::Pipes { stdin } => (&[Channel::Stdout, Channel::Stderr], stdin),
            Stdio::Pty { .. } => (&[Channel::Terminal], true),
        };
        let session = start.session.clone();
        let reader = reader.or_else(|| start.holders.first().cloned());
        let reader = reader.unwrap_or_else(|| HOLDER.to_owned());
        // Beside a holder that the start names, that one keeps account of the output.
        let is_only = start.holders.is_empty() || start.holders.contains(&reader);
        // A program may end at once, and be forgotten when its recorder has read it: its readers ask
        // with the start, and not a moment later.
        let batch = guest.batch();
        let is_recorded = is_recorded(&start) || guest.output_rules().record_all();
        let account = if is_recorded { None } else { guest.provenance().program(&start.program) };
        let started = guest.start_owned_now(start)?;
        let leash = Leash::new(guest.clone(), session, on_drop).accounting(account);
        let session = leash.session();
        let mut outputs = Vec::with_capacity(channels.len());
        for &channel in channels {
            let from = Origin::Offset { offset: 0 };
            let role = Role::Holder { name: reader.clone() };
            // The output reports its refusal.
            let (output, _) = guest.subscribe_now(session, channel, from, role)?;
            let output = if is_only { output.counted(guest.output_counter()) } else { output };
            outputs.push(Reader::new(channel, output));
        }
        let input = if has_input {
            // The writer reports its refusal.
            Some(guest.input_now(session, None, false)?.0)
        } else {
            None
        };
        let exited = Exit::Awaited(guest.wait_now(session)?);
        drop(batch);
        let started = Start::Awaited(started);
        Ok(Self { leash, started, exited, outputs, turn: 0, input, reported_deadline_ms, span })
    }

    pub fn session(&self) -> &SessionId {
        self.leash.session()
    }

    /// The program's input, if it has one, once.
    pub fn take_input(&mut self) -> Option<Writer> {
        self.input.take()
    }

    /// Changes what happens when it is dropped.
    pub fn on_drop(&mut self, on_drop: OnDrop) {
        self.leash.on_drop(on_drop);
    }

    /// Waits until the program has been started. [`Event::Started`] still comes.
    pub async fn started(&mut self) -> Result<&Started, GuestError> {
        poll_fn(|cx| self.poll_started(cx)).await?;
        match &self.started {
            Start::Known(started) => Ok(started),
            Start::Awaited(_) | Start::Given => Err(GuestError::Malformed { what: "no start" }),
        }
    }

    fn poll_started(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GuestError>> {
        let Start::Awaited(pending) = &mut self.started else { return Poll::Ready(Ok(())) };
        let Poll::Ready(answer) = Pin::new(pending).poll(cx) else { return Poll::Pending };
        self.started = Start::Given;
        trace::started(&mut self.span, &answer);
        Poll::Ready(answer.map(|started| {
            if started.repeated {
                // The session belonged to somebody else before, so we must not end it.
                self.leash.on_drop(OnDrop::Leave);
            } else {
                self.leash.begun();
            }
            self.started = Start::Known(started);
        }))
    }

    /// The next event; `None` after the last. The call acknowledges the output before it. Cancel
    /// safe.
    pub async fn next(&mut self) -> Result<Option<Event>, GuestError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, GuestError>> {
        // A start that failed is the reason for all that fails after it, so it is looked at first.
        match self.poll_started(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {}
        }
        if let Start::Known(started) = std::mem::replace(&mut self.started, Start::Given) {
            return Poll::Ready(Ok(Some(Event::Started(started))));
        }
        if let Exit::Awaited(exited) = &mut self.exited
            && let Poll::Ready(answer) = Pin::new(exited).poll(cx)
        {
            match answer {
                Ok(mut record) => {
                    if let (Cause::TimedOut { limit_ms }, Some(reported)) =
                        (&mut record.cause, self.reported_deadline_ms)
                    {
                        *limit_ms = reported;
                    }
                    self.exited = Exit::Known(Box::new(record));
                }
                Err(error) => {
                    self.exited = Exit::Given;
                    return Poll::Ready(Err(error));
                }
            }
        }
        match &self.exited {
            Exit::Given => return Poll::Ready(Ok(None)),
            Exit::Known(_) | Exit::Awaited(_) => {}
        }
        if self.has_delivered() {
            return Poll::Ready(Ok(self.give_end()));
        }
        match self.poll_outputs(cx) {
            // The last message may have been the end of a stream, which is no event.
            Poll::Pending if self.has_delivered() => Poll::Ready(Ok(self.give_end())),
            polled => polled,
        }
    }

    /// Whether the end is known and all that the program had written before it has been handed out.
    fn has_delivered(&self) -> bool {
        let Exit::Known(record) = &self.exited else { return false };
        self.outputs.iter().all(|reader| {
            record.complete_at(reader.channel).map_or(reader.ended, |at| reader.delivered >= at)
        })
    }

    fn poll_outputs(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, GuestError>> {
        let count = self.outputs.len();
        let first = self.turn;
        for at in (first..first + count).map(|at| at % count) {
            let written = match &self.exited {
                Exit::Known(record) => record.complete_at(self.outputs[at].channel),
                _ => None,
            };
            match self.outputs[at].poll_event(written, cx) {
                Poll::Ready(Ok(event)) => {
                    self.turn = (at + 1) % count;
                    return Poll::Ready(Ok(Some(event)));
                }
                Poll::Ready(Err(error)) => {
                    self.exited = Exit::Given;
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    fn give_end(&mut self) -> Option<Event> {
        self.outputs.iter_mut().for_each(|reader| reader.output.settle());
        let Exit::Known(record) = std::mem::replace(&mut self.exited, Exit::Given) else {
            return None;
        };
        self.leash.ended_with(&record);
        let mut ended =
            Ended { record: *record, stdout_bytes: 0, stderr_bytes: 0, missing_bytes: 0 };
        for reader in &self.outputs {
            match reader.channel {
                Channel::Stderr => ended.stderr_bytes = reader.bytes,
                Channel::Stdout | Channel::Terminal => ended.stdout_bytes = reader.bytes,
            }
            ended.missing_bytes = ended.missing_bytes.saturating_add(reader.missing_bytes);
        }
        if let Some(mut span) = self.span.take() {
            trace::ended(&mut span, &ended);
        }
        Some(Event::Ended(ended))
    }

    /// Runs the program to its end: feeds it `input`, unless its input was taken, and hands its
    /// output on to `sink`.
    pub async fn collect(
        &mut self,
        input: &[u8],
        sink: &mut impl Sink,
    ) -> Result<Ended, GuestError> {
        let writer = self.take_input();
        // A program need not read its input, so a failure to write it is not the caller's.
        let feed = async move {
            if let Some(mut writer) = writer
                && writer.write(input).await.is_ok()
            {
                writer.finish().await.ok();
            }
        };
        let mut feed = pin!(feed);
        let mut feeding = true;
        loop {
            let event = tokio::select! {
                biased;
                () = &mut feed, if feeding => {
                    feeding = false;
                    continue;
                }
                event = self.next() => event?,
            };
            match event {
                Some(Event::Started(_)) => {}
                Some(Event::Output { channel, bytes, .. }) => sink.add(channel, &bytes),
                Some(Event::Gap { channel, from, to }) => {
                    sink.lose(channel, to.saturating_sub(from));
                }
                Some(Event::Ended(ended)) => return Ok(ended),
                // The end or a failure is reported before the end of events.
                None => return Err(GuestError::Malformed { what: "no exit record" }),
            }
        }
    }
}

impl Reader {
    fn new(channel: Channel, output: Output) -> Self {
        Self { channel, output, delivered: 0, bytes: 0, missing_bytes: 0, ended: false }
    }

    /// The next event of this output. `written` is how much there is, once the program has ended.
    fn poll_event(
        &mut self,
        written: Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Event, GuestError>> {
        let channel = self.channel;
        if !self.ended {
            match self.output.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Piece::Bytes { offset, bytes }) => {
                    self.delivered = offset.saturating_add(bytes.len() as u64);
                    self.bytes = self.bytes.saturating_add(bytes.len() as u64);
                    return Poll::Ready(Ok(Event::Output { channel, offset, bytes }));
                }
                Poll::Ready(Piece::Gap { from, to }) => {
                    return Poll::Ready(Ok(self.lose(from, to)));
                }
                Poll::Ready(Piece::Failed(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Piece::End) => self.ended = true,
            }
        }
        match written {
            // The record counts bytes that the stream did not have. They are reported as lost.
            Some(to) if to > self.delivered => Poll::Ready(Ok(self.lose(self.delivered, to))),
            _ => Poll::Pending,
        }
    }

    fn lose(&mut self, from: u64, to: u64) -> Event {
        self.delivered = to;
        self.missing_bytes = self.missing_bytes.saturating_add(to.saturating_sub(from));
        Event::Gap { channel: self.channel, from, to }
    }
}
