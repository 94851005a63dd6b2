//! A run under way, with all that must live as long as it: its place among the runs, the
//! activity of its sandbox, the lines that it will read.
//!
//! Dropping it gives the run up. One that is tied is interrupted by that; one that is not goes on,
//! and is read to its end here instead, because nothing else would answer its questions.

use std::collections::VecDeque;

use protocol::ContextName;
use protocol::repl::{self, AnswerInput, Event, Happening, Interrupt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::ask::RunRequest;
use super::event::{RunEvent, What};
use super::narrator::Narrator;
use super::result::{Gathering, RunResult};
use crate::Api;
use crate::admission::RunPermit;
use crate::budget::Share;
use crate::call::{CallDeadline, Inside, RunLimit, passed};
use crate::capture::{Capture, directory_of};
use crate::forms::artifacts::Captured;
use crate::forms::notebooks::InNotebook;
use crate::stream::Teller;
use crate::v1::exec::OnDisconnect;
use agent_client::guest::{Guest, GuestError, Queued, Run, RunCode};
use sandbox::refusal::{Code, Refusal};
use sandbox::{Activity, SandboxRef};
use services::artifact::{self, Scene};
use services::notebook::Turn;

/// See the module's description.
pub struct Carried {
    api: Api,
    which: SandboxRef,
    guest: Guest,
    run: Run,
    queued: Queued,
    keyboard: Keyboard,
    grace: repl::Grace,
    /// When a run that waited in the queue for too long is interrupted, once.
    deadline: Option<Instant>,
    on_disconnect: OnDisconnect,
    _activity: Option<Activity>,
    memory: Share,
    /// What keeps its artifacts, until it is over.
    capture: Option<Capture>,
    /// Its last event, which is sent once they are kept.
    ending: Option<(JoinHandle<Option<artifact::Captured>>, Event)>,
    captured: Option<Captured>,
    _permit: Option<RunPermit>,
    /// Of a run in a notebook, which goes on when this is dropped.
    turn: Option<InTurn>,
    in_notebook: Option<InNotebook>,
}

/// What answers the code when it asks for input.
#[derive(Debug)]
struct Keyboard {
    lines: VecDeque<String>,
    /// Whether the client can answer after the last line.
    is_clients: bool,
}

/// What a run is begun with, beside the request.
pub struct Beginning {
    pub api: Api,
    pub inside: Inside,
    pub permit: Option<RunPermit>,
    pub memory: Share,
    pub deadline: Option<CallDeadline>,
    pub turn: Option<InTurn>,
}

/// A notebook's turn, and what clients see of it.
pub struct InTurn {
    pub turn: Turn,
    pub place: InNotebook,
}

impl Carried {
    /// Asks for a run, and waits until it has its number. One that is to outlive its client is asked
    /// for by a task that does so too.
    pub async fn begin(
        beginning: Beginning,
        context: ContextName,
        request: RunRequest,
    ) -> Result<Self, Refusal> {
        if request.on_disconnect == OnDisconnect::Cancel {
            return Self::ask(beginning, context, request).await;
        }
        let (sender, begun) = oneshot::channel();
        tokio::spawn(async move {
            let opened = Self::ask(beginning, context, request).await;
            if let Err(Ok(mut abandoned)) = sender.send(opened) {
                abandoned.drain().await;
            }
        });
        begun.await.unwrap_or_else(|_| Err(broken()))
    }

    async fn ask(
        beginning: Beginning,
        context: ContextName,
        request: RunRequest,
    ) -> Result<Self, Refusal> {
        request.check()?;
        let Beginning { api, inside, permit, memory, deadline, mut turn } = beginning;
        let open = match &turn {
            Some(in_turn) => in_turn.turn.context.clone(),
            None if request.cache_key.is_some() => {
                let message = "cache_key: only runs in notebooks take it";
                return Err(Refusal::invalid(message).hint("use POST /v1/notebooks/…/run"));
            }
            None => request.open(&inside, context).await?,
        };
        // One that goes on when nobody waits for it any more does not care how long somebody does.
        let bound = deadline.filter(|_| request.on_disconnect == OnDisconnect::Cancel);
        let limit = RunLimit::of(request.timeout(), bound);
        let deadline = deadline.map(|deadline| deadline.at);
        let capture = if request.artifacts {
            let workdir = directory_of(&inside, &open.context, open.cwd.as_ref()).await?;
            let scene = Scene { workdir, user: open.user.clone(), ..Scene::default() };
            let capture = Capture::begin(&api, &inside, scene).await?.within(deadline);
            Some(match &turn {
                Some(InTurn { turn, place }) => capture.of_notebook(&place.notebook, turn.number),
                None => capture,
            })
        } else {
            None
        };
        let grace = request.grace.into();
        let ask = RunCode {
            context: open,
            code: request.code.into(),
            name: request.name,
            deadline: limit.map(|limit| limit.time),
            reported_deadline: limit.map(|limit| limit.reported),
            grace,
            input: request.input || request.stdin.is_some(),
            tied: request.on_disconnect == OnDisconnect::Cancel,
            aside: false,
        };
        let mut run = inside.guest.run_code_now(ask)?;
        if let Some(in_turn) = &mut turn {
            in_turn.turn.begin();
        }
        let queued = run.queued().await?;
        let lines = request.stdin.as_deref().unwrap_or_default();
        let lines = lines.split_inclusive('\n').map(str::to_owned).collect();
        Ok(Self {
            api,
            which: inside.which,
            guest: inside.guest,
            run,
            queued,
            keyboard: Keyboard { lines, is_clients: request.input },
            grace,
            deadline: bound.map(CallDeadline::gives_up_at),
            on_disconnect: request.on_disconnect,
            _activity: inside.activity,
            memory,
            capture,
            ending: None,
            captured: None,
            _permit: permit,
            turn,
            in_notebook: None,
        })
    }

    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    pub fn context(&self) -> &ContextName {
        self.run.context()
    }

    pub fn queued(&self) -> Queued {
        self.queued
    }

    pub fn goes_on(&self) -> bool {
        self.on_disconnect == OnDisconnect::Detach
    }

    /// The next event for the client; `None` after the last one. Loses nothing when it is
    /// cancelled: requests to the guest meanwhile have been sent when it first waits.
    pub async fn next(&mut self) -> Result<Option<Event>, GuestError> {
        loop {
            if let Some((keeping, _)) = &mut self.ending {
                self.captured = keeping.await.unwrap_or_default().map(Captured::from);
                return Ok(self.ending.take().map(|(_, event)| event));
            }
            let event = tokio::select! {
                event = self.run.next() => event?,
                () = passed(self.deadline) => {
                    self.deadline = None;
                    self.run.interrupt(self.grace).await?;
                    continue;
                }
            };
            let Some(event) = event else { return Ok(None) };
            if let Some(in_turn) = &mut self.turn {
                in_turn.turn.record(&event);
            }
            if let Some(capture) = &mut self.capture {
                capture.see(&event.what, &self.memory);
            }
            let is_last = matches!(event.what, Happening::Finished(_));
            if is_last && (self.capture.is_some() || self.turn.is_some()) {
                let turn = self.turn.take().map(|in_turn| {
                    self.in_notebook = Some(in_turn.place);
                    in_turn.turn
                });
                let concluding = conclude(self.capture.take(), turn, event.run);
                self.ending = Some((tokio::spawn(concluding), event));
                continue;
            }
            let Happening::InputRequest { request, .. } = &event.what else {
                return Ok(Some(event));
            };
            let line = match self.keyboard.lines.pop_front() {
                None if self.keyboard.is_clients => return Ok(Some(event)),
                line => line,
            };
            let request = *request;
            self.answer(event.run, request, line).await?;
        }
    }

    /// Says a line to the run. One that has ended meanwhile does not want it any more.
    async fn answer(&self, run: u64, request: u64, line: Option<String>) -> Result<(), GuestError> {
        let line = line.map(Into::into);
        let ask = AnswerInput { context: self.context().clone(), run, request, line };
        match self.guest.answer_input(ask).await {
            Ok(()) => Ok(()),
            Err(error) if error.fault_code().is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Why its events have broken off.
    pub async fn explained(&self, error: GuestError) -> Refusal {
        self.api.explained(&self.which, error.into()).await
    }

    /// What is sent about its artifacts before its last event.
    pub fn take_captured(&mut self, event: &Event) -> Option<RunEvent> {
        let captured = self.captured.take()?;
        Some(RunEvent::of(event, What::Artifacts { captured }))
    }

    /// Reads the run to its end, and sends nothing of it.
    pub async fn drain(&mut self) {
        // The client cannot answer any more.
        self.keyboard.is_clients = false;
        while let Ok(Some(_)) = self.next().await {}
    }

    /// The run as a whole, at its end.
    pub async fn gather(mut self, bytes_max: u64) -> Result<RunResult, Refusal> {
        let mut gathering = Gathering::new(self.context().clone(), bytes_max, self.memory.clone());
        while let Some(event) = self.next().await? {
            if let Some(mut result) = gathering.take(event) {
                result.notebook = self.in_notebook.take();
                result.captured = self.captured.take();
                return Ok(result);
            }
            if let Some(problem) = self.memory.refusal() {
                drop(gathering);
                if self.goes_on() {
                    self.drain().await;
                }
                return Err(problem);
            }
        }
        // A run sends its end or its failure before it closes.
        Err(GuestError::Malformed { what: "a run without an end" }.into())
    }

    /// The same for a run that goes on without its client.
    pub async fn gather_anyway(self, bytes_max: u64) -> Result<RunResult, Refusal> {
        let gathering = tokio::spawn(self.gather(bytes_max));
        gathering.await.unwrap_or_else(|_| Err(broken()))
    }

    /// Tells the client of the run as it goes on, to its end or to the client's.
    pub async fn tell(mut self, teller: Teller<RunEvent>) {
        if self.tell_all(&teller).await.is_none() && self.goes_on() {
            self.drain().await;
        }
    }

    /// `None` when the client is gone.
    async fn tell_all(&mut self, teller: &Teller<RunEvent>) -> Option<()> {
        let mut narrator = Narrator::default();
        teller.tell(&RunEvent::queued(self.queued)).await.ok()?;
        if let Some(in_turn) = &self.turn {
            teller.tell(&RunEvent::notebook(self.queued, &in_turn.place)).await.ok()?;
        }
        loop {
            let sent = match self.next().await {
                Ok(Some(event)) => {
                    let captured = self.take_captured(&event);
                    captured.into_iter().chain(narrator.tell(event)).collect::<Vec<_>>()
                }
                Ok(None) => return Some(()),
                Err(error) => {
                    let problem = self.explained(error).await;
                    let problem = RunEvent::problem(Some(self.queued.run), &problem);
                    return teller.tell(&problem).await.ok();
                }
            };
            for event in &sent {
                teller.tell(event).await.ok()?;
            }
        }
    }
}

/// What is done after a run's end, and before that is sent.
async fn conclude(
    capture: Option<Capture>,
    turn: Option<Turn>,
    run: u64,
) -> Option<artifact::Captured> {
    let captured = match capture {
        Some(capture) => Some(capture.end(Some(run)).await),
        None => None,
    };
    if let Some(mut turn) = turn {
        turn.count_artifacts(captured.as_ref().map_or(0, |files| files.artifacts.len() as u64));
        turn.end().await;
    }
    captured
}

/// Interrupts a run for the client that asked for it.
pub async fn interrupt(
    guest: &Guest,
    context: ContextName,
    run: Option<u64>,
    grace: repl::Grace,
) -> Result<Option<u64>, GuestError> {
    guest.interrupt(Interrupt { context, run, grace }).await
}

/// The task of a run is no more, which happens when the server ends.
fn broken() -> Refusal {
    Refusal::new(Code::Unavailable, "the server is stopping and cannot continue this answer")
}
