//! Running one program: its start, its outputs, its input and its end as one sequence of events.
//!
//! Everything is asked for in one write. [`Event::Exited`] comes when every byte that the program
//! had written at its end has been delivered, and never waits for the end of its pipes, which
//! survivors may hold open for ever.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use protocol::exit::ExitRecord;
use protocol::message::{Channel, Started};
use protocol::requests::{Origin, Release, Role, Start, Stdio};

use super::{Guest, GuestError, Output, Pending, Piece, Writer};

/// The holder of a program's outputs when its start names none.
const HOLDER: &str = "exec";

/// What happens to a program.
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
    Exited(ExitRecord),
}

/// A program that runs. Dropping it gives its streams up and leaves it running.
#[derive(Debug)]
pub struct Execution {
    started: Option<Pending<Started>>,
    exited: Exit,
    outputs: Vec<Tail>,
    /// The output that is asked first, so that a flood of one does not starve the other.
    turn: usize,
    input: Option<Writer>,
}

#[derive(Debug)]
enum Exit {
    Awaited(Pending<ExitRecord>),
    /// The program has ended; its last output is still on its way.
    Known(Box<ExitRecord>),
    Told,
}

/// One output, and how far it has been delivered.
#[derive(Debug)]
struct Tail {
    channel: Channel,
    output: Output,
    delivered: u64,
    ended: bool,
}

impl Execution {
    /// Queues everything at once and waits for nothing.
    pub fn begin(guest: &Guest, start: &Start) -> Result<Self, GuestError> {
        Self::begin_as(guest, start, start.holders.first().map_or(HOLDER, String::as_str))
    }

    /// The same as another holder than the first of the start, or as one that it does not name.
    /// Until the execution is dropped nothing is lost to it.
    pub fn begin_as(guest: &Guest, start: &Start, holder: &str) -> Result<Self, GuestError> {
        let (channels, has_input): (&[Channel], bool) = match start.stdio {
            Stdio::Pipes { stdin } => (&[Channel::Stdout, Channel::Stderr], stdin),
            Stdio::Pty { .. } => (&[Channel::Terminal], true),
        };
        let started = guest.start_now(start)?;
        // Beside a holder that the start names, that one keeps account of what is said.
        let is_only = start.holders.is_empty() || start.holders.iter().any(|one| one == holder);
        let mut outputs = Vec::with_capacity(channels.len());
        for &channel in channels {
            let from = Origin::Offset { offset: 0 };
            let role = Role::Holder { name: holder.to_owned() };
            // Its refusal is what the output says.
            let (output, _) = guest.subscribe_now(&start.session, channel, from, role)?;
            let output = if is_only { output.counted(guest.heard()) } else { output };
            outputs.push(Tail { channel, output, delivered: 0, ended: false });
        }
        let input = if has_input {
            // Its refusal is what the writer says.
            Some(guest.input_now(&start.session, None, false)?.0)
        } else {
            None
        };
        let exited = Exit::Awaited(guest.wait_now(&start.session)?);
        Ok(Self { started: Some(started), exited, outputs, turn: 0, input })
    }

    /// The program's input, if it has one, once.
    pub fn take_input(&mut self) -> Option<Writer> {
        self.input.take()
    }

    /// The next event; `None` behind the last. Asking for it acknowledges the output before. Loses
    /// nothing when it is cancelled.
    pub async fn next(&mut self) -> Result<Option<Event>, GuestError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, GuestError>> {
        if let Some(started) = &mut self.started {
            // A start that failed is the reason for all that fails after it, so it is looked at
            // first.
            let Poll::Ready(answer) = Pin::new(started).poll(cx) else { return Poll::Pending };
            self.started = None;
            return Poll::Ready(answer.map(|started| Some(Event::Started(started))));
        }
        if let Exit::Awaited(exited) = &mut self.exited
            && let Poll::Ready(answer) = Pin::new(exited).poll(cx)
        {
            match answer {
                Ok(record) => self.exited = Exit::Known(Box::new(record)),
                Err(error) => {
                    self.exited = Exit::Told;
                    return Poll::Ready(Err(error));
                }
            }
        }
        match &self.exited {
            Exit::Told => return Poll::Ready(Ok(None)),
            Exit::Known(_) | Exit::Awaited(_) => {}
        }
        if self.has_delivered() {
            return Poll::Ready(Ok(self.tell_exit()));
        }
        match self.poll_outputs(cx) {
            // The last thing to come may have been the end of a stream, which is no event.
            Poll::Pending if self.has_delivered() => Poll::Ready(Ok(self.tell_exit())),
            polled => polled,
        }
    }

    /// Whether the end is known and all that the program had written before it has been handed out.
    fn has_delivered(&self) -> bool {
        let Exit::Known(record) = &self.exited else { return false };
        self.outputs.iter().all(|tail| {
            record.complete_at(tail.channel).map_or(tail.ended, |at| tail.delivered >= at)
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
                    self.exited = Exit::Told;
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    fn tell_exit(&mut self) -> Option<Event> {
        self.outputs.iter_mut().for_each(|tail| tail.output.settle());
        match std::mem::replace(&mut self.exited, Exit::Told) {
            Exit::Known(record) => Some(Event::Exited(*record)),
            Exit::Awaited(_) | Exit::Told => None,
        }
    }
}

impl Tail {
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
                    return Poll::Ready(Ok(Event::Output { channel, offset, bytes }));
                }
                Poll::Ready(Piece::Gap { from, to }) => {
                    self.delivered = to;
                    return Poll::Ready(Ok(Event::Gap { channel, from, to }));
                }
                Poll::Ready(Piece::Failed(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Piece::End) => self.ended = true,
            }
        }
        match written {
            // The record counts bytes that the stream did not have. They are lost, and said to be.
            Some(to) if to > self.delivered => {
                let from = std::mem::replace(&mut self.delivered, to);
                Poll::Ready(Ok(Event::Gap { channel, from, to }))
            }
            _ => Poll::Pending,
        }
    }
}

/// How a collected program ended.
#[derive(Clone, Debug)]
pub struct Finished {
    pub record: ExitRecord,
    /// Bytes of output that were lost, to a `drop_oldest` policy.
    pub missing_bytes: u64,
}

/// Runs a program to its end: feeds it `input`, hands its output on as it comes (a terminal's to
/// `stdout`), and releases the session unless its start names holders.
pub async fn collect(
    guest: &Guest,
    start: &Start,
    input: &[u8],
    mut stdout: impl FnMut(&[u8]),
    mut stderr: impl FnMut(&[u8]),
) -> Result<Finished, GuestError> {
    let mut execution = Execution::begin(guest, start)?;
    let writer = execution.take_input();
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
    let mut missing_bytes = 0_u64;
    let record = loop {
        let event = tokio::select! {
            biased;
            () = &mut feed, if feeding => {
                feeding = false;
                continue;
            }
            event = execution.next() => event?,
        };
        match event {
            Some(Event::Started(_)) => {}
            Some(Event::Output { channel: Channel::Stderr, bytes, .. }) => stderr(&bytes),
            Some(Event::Output { bytes, .. }) => stdout(&bytes),
            Some(Event::Gap { from, to, .. }) => {
                missing_bytes = missing_bytes.saturating_add(to.saturating_sub(from));
            }
            Some(Event::Exited(record)) => break record,
            // An execution tells its end or its failure before it says that there is no more.
            None => return Err(GuestError::Malformed { what: "no exit record" }),
        }
    };
    if start.holders.is_empty() {
        let release =
            Release { session: start.session.clone(), holder: None, kill_survivors: false };
        // Nobody needs to wait for it: if it fails, the session was forgotten already.
        drop(guest.release_now(release));
    }
    Ok(Finished { record, missing_bytes })
}
