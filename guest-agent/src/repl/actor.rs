//! The task of one context. It owns the interpreter and makes every change of its state.
//!
//! It is a loop over all possible events: a new order or run, a message from the driver, output in a pipe,
//! room at the run's reader, a deadline, the end of the interpreter. Only the loop waits, so that a slow
//! reader, a silent driver or an endless run delays nothing but its own run. Each kind of event is handled in
//! a file of its own: [`orders`](mod@super::orders), [`driver_messages`](mod@super::driver_messages),
//! [`events`](mod@super::events), [`ladder`](mod@super::ladder) and [`ending`](mod@super::ending).

use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use protocol::message::Reply;
use protocol::repl::{self, ContextState, Happening, RunEnd, Started};
use protocol::{Fault, FaultCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::context::{Answer, Context};
use super::current::{Current, Tails};
use super::interpreter::{Interpreter, Launch, StartedInterpreter};
use super::language::Outputs;
use super::late::LateOutput;
use super::limits::{READ_BYTES, SOURCES_MAX, STARTUP_MAX};
use super::registry::Registry;
use super::source::{NO_RUN, Source};
use crate::ground::Ground;
use crate::pid1::reaper::Exit;

/// See the module's description.
#[expect(clippy::struct_excessive_bools, reason = "each says one thing that is so or not")]
pub struct Actor {
    pub ground: Rc<Ground>,
    pub registry: Rc<Registry>,
    pub context: Rc<Context>,
    pub interpreter: Option<Interpreter>,
    /// The start of the next one.
    pub launch: Option<Launch>,
    pub phase: Phase,
    /// The interpreter has been ready once.
    pub was_ready: bool,
    pub exit: Option<oneshot::Receiver<Exit>>,
    pub sources: Vec<Source>,
    pub current: Option<Current>,
    pub pace: Pace,
    /// The number of the run that began last.
    pub begun: u64,
    /// Runs of this interpreter.
    count: u64,
    /// Nothing has run in the interpreter yet.
    is_fresh: bool,
    /// It was killed before its first run, to be replaced.
    pub renewing: bool,
    /// The pipes of the next run are made.
    prepared: bool,
    pub late: LateOutput,
    pub late_rests_until: Option<Instant>,
    pub asks: Vec<PendingQuery>,
    pub last_query: u64,
    /// Requests that wait until the interpreter is ready.
    pub warming: Vec<Answer>,
    pub closing: Option<Closing>,
    /// Ended runs whose readers have not read everything.
    pub tails: Tails,
    /// Why the last interpreter was lost, until a run has reported it.
    pub lost: Option<String>,
    /// Why the agent has killed it.
    pub killed_because: String,
    /// The output of an interpreter that is not ready yet.
    pub startup_words: Vec<u8>,
    pub buffer: Vec<u8>,
    pub record: Vec<u8>,
    pub over: bool,
}

/// The state of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The time by which it must report that it is ready.
    Starting(Instant),
    Ready,
    /// Its control channel is closed; it must end by itself before this time.
    Silent(Instant),
    /// It was killed and is not reaped yet.
    Killed,
}

/// How long the last run took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Longer, or unknown, or the machine has only one processor.
    Slow,
    /// Less than [`POLL_BRIEFLY`].
    Quick,
}

/// A completion or a check under way.
pub struct PendingQuery {
    pub id: u64,
    pub answer: Answer,
    pub until: Instant,
}

/// The end of a context under way.
pub struct Closing {
    pub answer: Answer,
    pub kill_at: Option<Instant>,
}

/// The pipes that are made for the run that comes next, before it has a number.
pub const NEXT_RUN: u64 = u64::MAX;

/// Everything that the loop waits for.
enum ActorEvent {
    /// There is an order, a run or room, or a deadline has passed.
    Woken,
    /// The driver may have sent something.
    Spoken,
    /// The source at this index may have output.
    Written(usize),
    Ended(Exit),
    /// The interpreter's program has executed, or has failed to.
    Launched(Result<Box<StartedInterpreter>, Fault>),
    /// The current run has no reader any more.
    Abandoned,
}

impl Actor {
    pub fn new(ground: Rc<Ground>, registry: Rc<Registry>, context: Rc<Context>) -> Self {
        let mut actor = Self {
            ground,
            registry,
            context,
            interpreter: None,
            launch: None,
            phase: Phase::Killed,
            was_ready: false,
            exit: None,
            sources: Vec::new(),
            current: None,
            pace: Pace::Slow,
            begun: 0,
            count: 0,
            is_fresh: true,
            renewing: false,
            prepared: false,
            late: LateOutput::default(),
            late_rests_until: None,
            asks: Vec::new(),
            last_query: 0,
            warming: Vec::new(),
            closing: None,
            tails: Tails::default(),
            lost: None,
            killed_because: String::new(),
            startup_words: Vec::new(),
            buffer: vec![0; READ_BYTES],
            record: Vec::new(),
            over: false,
        };
        actor.launch();
        actor
    }

    /// Runs until the context is closed.
    pub async fn run(mut self) {
        while !self.over {
            self.handle_orders();
            // In every turn: a flood must not delay a deadline.
            self.due();
            self.advance().await;
            self.publish();
            match self.next().await {
                ActorEvent::Woken => {}
                ActorEvent::Spoken => self.receive(),
                ActorEvent::Written(source) => self.read(source),
                ActorEvent::Ended(exit) => self.on_exit(exit),
                ActorEvent::Launched(result) => self.on_launched(result),
                ActorEvent::Abandoned => {
                    let by = "the client that asked for it, by leaving".to_owned();
                    self.climb(RunEnd::Interrupted { by }, repl::Grace::default());
                }
            }
        }
    }

    fn handle_orders(&mut self) {
        while let Some(order) = self.context.take_order() {
            self.handle_order(order);
        }
    }

    /// Takes over an interpreter that has been started.
    pub fn adopt_interpreter(&mut self, begun: StartedInterpreter) {
        let StartedInterpreter { mut interpreter, exit, sources } = begun;
        let warnings = std::mem::take(&mut interpreter.warnings);
        self.exit = Some(exit);
        self.interpreter = Some(interpreter);
        self.phase = Phase::Starting(Instant::now() + STARTUP_MAX);
        self.sources.extend(sources);
        self.was_ready = false;
        self.count = 0;
        self.is_fresh = true;
        self.renewing = false;
        self.prepared = false;
        self.startup_words.clear();
        self.context.publish(|view| {
            view.interpreters += 1;
            view.warnings = warnings;
        });
    }

    /// Does what is possible without another event.
    async fn advance(&mut self) {
        if let Some(current) = &mut self.current {
            current.flush(Instant::now());
            self.deliver_late_output();
            return;
        }
        if self.closing.is_some() && self.interpreter.is_none() {
            self.leave_launch();
            return self.end();
        }
        let wanted = self.renewing || self.context.has_queued() || !self.warming.is_empty();
        // Nothing is started while the workload is frozen. `next` waits for its thaw.
        let may_start = self.closing.is_none() && !self.ground.freezer.is_frozen();
        if self.interpreter.is_none() && self.launch.is_none() && wanted && may_start {
            self.launch();
        }
        if self.phase != Phase::Ready || self.interpreter.is_none() || self.closing.is_some() {
            return;
        }
        if !self.warming.is_empty() {
            self.publish();
            for answer in self.warming.drain(..) {
                answer.send(Ok(Reply::Context(self.context.info()))).ok();
            }
        }
        if !self.prepared {
            // The last run's output is sent first.
            tokio::task::yield_now().await;
            // Orders that came before a new run are handled before it.
            self.handle_orders();
            if self.phase == Phase::Ready && self.closing.is_none() {
                self.prepare();
            }
        }
        if self.phase == Phase::Ready && self.closing.is_none() && self.context.has_queued() {
            self.begin();
        }
    }

    /// Whether there is an interpreter whose first run has not begun.
    pub fn is_unused(&self) -> bool {
        self.interpreter.is_some() && self.is_fresh && self.phase != Phase::Killed
    }

    /// Fails everything that waits for an interpreter.
    pub fn refuse(&mut self, fault: &Fault) {
        for answer in self.warming.drain(..) {
            answer.send(Err(fault.clone())).ok();
        }
        self.context.cancel_all(&fault.message);
    }

    /// Makes the pipes of the next run.
    fn prepare(&mut self) {
        let Some(interpreter) = &mut self.interpreter else { return };
        match interpreter.prepare_outputs(NEXT_RUN) {
            Ok(sources) => self.sources.extend(sources),
            // Code can remove its own directory, and then nothing can run.
            Err(error) => {
                return self.kill(&format!("because its outputs cannot be made: {error}"));
            }
        }
        self.prepared = true;
        while self.sources.len() > SOURCES_MAX {
            let runs =
                self.sources.iter().map(|source| source.run).filter(|run| is_run_number(*run));
            let Some(oldest) = runs.min() else { break };
            self.sources.retain(|source| source.run != oldest);
        }
    }

    /// Keeps the pipes of an ended run for the next one, because no other process has them.
    pub fn keep_outputs(&mut self, number: u64) {
        if self.context.language.outputs == Outputs::Passed {
            for source in self.sources.iter_mut().filter(|source| source.run == number) {
                source.run = NEXT_RUN;
                self.prepared = true;
            }
        }
    }

    /// Begins the next run.
    fn begin(&mut self) {
        let Some(run) = self.context.take_run() else { return };
        let number = run.number;
        // Earlier output is not its own.
        self.drain(|source| !is_run_number(source.run));
        for source in self.sources.iter_mut().filter(|source| source.run == NEXT_RUN) {
            source.run = number;
        }
        self.prepared = false;
        self.count += u64::from(!run.aside);
        self.is_fresh = false;
        let Some(interpreter) = &mut self.interpreter else { return };
        interpreter.begin_accounts();
        let cpu_began_us = interpreter.cpu_us();
        let ordered = interpreter.order(&run);
        self.begun = number;
        self.current = Some(Current::new(run, cpu_began_us, self.ground.activities.begin()));
        if let Err(error) = ordered {
            let reason = format!("the code could not be handed over: {error}");
            self.kill(&format!("because {reason}"));
            return self.finish(RunEnd::Cancelled { reason }, false, None);
        }
        let is_aside = self.current.as_ref().is_some_and(|current| current.aside);
        // A client whose state is lost must know it. The host's own code need not.
        let lost = if is_aside { None } else { self.lost.take() };
        self.context.publish(|view| view.runs += u64::from(!is_aside));
        self.emit(number, Happening::Started(Started { count: self.count, lost }));
        self.deliver_late_output();
        if self.pace == Pace::Quick {
            self.poll_briefly();
        }
    }

    pub fn publish(&self) {
        let state = match (&self.interpreter, self.phase, &self.current) {
            (None, ..) if self.launch.is_some() => ContextState::Starting,
            (None, ..) => ContextState::Cold,
            (_, Phase::Starting(_), _) => ContextState::Starting,
            (_, _, Some(current)) if current.ladder.is_some() => ContextState::Interrupting,
            (_, _, Some(_)) => ContextState::Running,
            (_, _, None) => ContextState::Idle,
        };
        self.context.publish(|view| {
            view.state = state;
            let own = self.current.as_ref().filter(|current| !current.aside);
            view.running = own.map(|current| current.number);
            if view.lost != self.lost {
                view.lost.clone_from(&self.lost);
            }
            if state == ContextState::Cold {
                view.interpreter = None;
            }
        });
    }

    /// Waits for the next event.
    async fn next(&mut self) -> ActorEvent {
        let due = self.next_due();
        let Self {
            ground,
            context,
            interpreter,
            launch,
            exit,
            sources,
            current,
            late_rests_until,
            phase,
            ..
        } = self;
        let interpreter = interpreter.as_ref();
        let current = current.as_ref();
        let may_read = current.is_none_or(Current::may_read);
        let may_receive = may_read && !matches!(phase, Phase::Silent(_) | Phase::Killed);
        let number = current.map(|current| current.number);
        // Output of a run that has only just begun is read at its end.
        let is_quiet = current.is_some_and(Current::is_quiet);
        let written = poll_fn(|cx| {
            for (index, source) in sources.iter_mut().enumerate() {
                let own = source.run == NO_RUN || Some(source.run) == number;
                let open = if own && number.is_some() {
                    may_read && !is_quiet
                } else {
                    late_rests_until.is_none()
                };
                if open && source.poll_readable(cx).is_ready() {
                    return Poll::Ready(index);
                }
            }
            Poll::Pending
        });
        let ended = async {
            match exit {
                // The reaper outlives every interpreter.
                Some(exit) => match exit.await {
                    Ok(exit) => exit,
                    Err(_) => pending().await,
                },
                None => pending().await,
            }
        };
        let launched = async {
            match launch {
                Some(launch) => (&mut launch.work).await,
                None => pending().await,
            }
        };
        let spoken = async {
            match interpreter {
                Some(interpreter) if may_receive => interpreter.channel.readable().await,
                _ => pending().await,
            }
        };
        let sendable = async {
            match interpreter {
                Some(interpreter) if !interpreter.channel.is_flushed() => {
                    interpreter.channel.writable().await;
                }
                _ => pending().await,
            }
        };
        let room = async {
            match current {
                Some(current) if current.has_backlog() => current.outlet.room().await.ok(),
                _ => pending().await,
            };
        };
        let abandoned = async {
            match current {
                Some(current) if current.tied && current.ladder.is_none() => {
                    current.outlet.abandoned().await;
                }
                _ => pending().await,
            }
        };
        let thawed = async {
            if !ground.freezer.is_frozen() {
                return pending().await;
            }
            ground.freezer.thawed().await;
        };
        let time = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = context.woken.notified() => ActorEvent::Woken,
            // Output from before the end can still be read afterwards.
            exit = ended => ActorEvent::Ended(exit),
            result = launched => ActorEvent::Launched(result),
            () = spoken => ActorEvent::Spoken,
            index = written => ActorEvent::Written(index),
            () = sendable => {
                if let Some(interpreter) = &mut self.interpreter {
                    interpreter.channel.flush();
                }
                ActorEvent::Woken
            }
            () = room => ActorEvent::Woken,
            () = thawed => ActorEvent::Woken,
            () = abandoned => ActorEvent::Abandoned,
            () = time => ActorEvent::Woken,
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Starting(until) | Phase::Silent(until) => Some(until),
            Phase::Ready | Phase::Killed => None,
        };
        let phase = phase.filter(|_| self.interpreter.is_some());
        let closing = self.closing.as_ref().and_then(|closing| closing.kill_at);
        let asks = self.asks.first().map(|ask| ask.until);
        let current = self.current.as_ref().and_then(Current::due);
        let launch = self.launch.as_ref().map(|launch| launch.until);
        [phase, launch, closing, asks, current, self.late_rests_until].into_iter().flatten().min()
    }

    /// Acts on deadlines that have passed.
    fn due(&mut self) {
        let now = Instant::now();
        if self.late_rests_until.is_some_and(|until| until <= now) {
            self.late_rests_until = None;
        }
        match self.phase {
            // A frozen interpreter had no time to become ready.
            Phase::Starting(until)
                if until <= now && self.ground.freezer.was_frozen_within(STARTUP_MAX) =>
            {
                self.phase = Phase::Starting(now + STARTUP_MAX);
            }
            Phase::Starting(until) if until <= now => self.kill("because it took too long"),
            Phase::Silent(until) if until <= now => {
                self.kill("because its control channel was closed");
            }
            _ => {}
        }
        self.launch_is_due(now);
        if let Some(closing) = &mut self.closing
            && closing.kill_at.is_some_and(|at| at <= now)
        {
            closing.kill_at = None;
            self.kill("because it did not end when its context was closed");
        }
        // They are sorted by their deadlines.
        while self.asks.first().is_some_and(|ask| ask.until <= now) {
            let message = "the interpreter does not answer";
            let _ = self.asks.remove(0).answer.send(Err(Fault::new(FaultCode::Gone, message)));
        }
        self.climb_if_due(now);
    }
}

pub fn is_run_number(number: u64) -> bool {
    number != NO_RUN && number != NEXT_RUN
}

/// Only a panic ends an actor before its context is closed. Then nobody may be left waiting for it.
impl Drop for Actor {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.context.close_to_clients();
        self.registry.remove(&self.context);
        let fault =
            Fault::new(FaultCode::Gone, "the context's task panicked, which is a bug in the agent");
        if let Some(current) = &self.current {
            current.outlet.fail(&fault);
        }
        self.refuse(&fault);
        self.context.forget_orders();
        self.context.end_watches();
    }
}
