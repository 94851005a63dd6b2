//! A context as clients see it: its queue and its present state. Its [`actor`](super::actor) alone takes
//! runs and orders out of the queue.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use protocol::limits::{CODE_QUEUED_BYTES_MAX, RUNS_QUEUED_MAX};
use protocol::message::Reply;
use protocol::repl::{
    AnswerInput, Complete, ContextInfo, ContextState, Event, Finished, Grace, Happening,
    Interpreter, Interrupt, OpenContext, RunEnd, encode_record,
};
use protocol::requests::GroupLimits;
use protocol::{Fault, FaultCode};
use tokio::sync::{Notify, oneshot};

use super::language::Language;
use super::limits::WATCHES_MAX;
use super::watch::Watch;
use crate::flow::Outlet;
use crate::sys::clock;

/// Where an order's answer goes.
pub type Answer = oneshot::Sender<Result<Reply, Fault>>;

/// See the module's description.
pub struct Context {
    pub ask: OpenContext,
    pub language: &'static Language,
    opened_at_ms: u64,
    state: RefCell<State>,
    pub woken: Notify,
}

struct State {
    queue: VecDeque<QueuedRun>,
    orders: VecDeque<Order>,
    watches: Vec<Rc<Watch>>,
    /// The number of the run that was queued last.
    last_number: u64,
    /// Its first interpreter is being started.
    opening: bool,
    closing: bool,
    view: View,
}

/// The state that the actor publishes.
#[derive(Clone)]
pub struct View {
    pub state: ContextState,
    pub interpreter: Option<Interpreter>,
    pub interpreters: u64,
    pub runs: u64,
    pub running: Option<u64>,
    pub lost: Option<String>,
    pub warnings: Vec<String>,
}

/// Answers the request of a run: of one that begins at once together with its first event, so that the client
/// is woken once instead of twice; and of one whose context is only being opened when that is done or refused.
pub type Announcement = Box<dyn FnOnce(Result<(), Fault>)>;

/// A run that waits for its turn.
pub struct QueuedRun {
    pub number: u64,
    pub code: Vec<u8>,
    pub name: String,
    pub deadline_ms: Option<u64>,
    pub grace: Grace,
    pub input: bool,
    pub tied: bool,
    pub aside: bool,
    pub outlet: Outlet,
    pub announce: Option<Announcement>,
}

/// A request to a context, other than a run.
pub enum Order {
    /// Answered when the interpreter is ready.
    Warm(Answer),
    Restart {
        by: String,
        answer: Answer,
    },
    Close {
        by: String,
        answer: Answer,
    },
    Interrupt {
        ask: Interrupt,
        by: String,
        answer: Answer,
    },
    Input(AnswerInput, Answer),
    Complete(Complete, Answer),
    Check(String, Answer),
    Usage(Answer),
    /// Replace the interpreter if it has run nothing yet.
    Renew,
    /// The agent is stopping.
    Signal(nix::sys::signal::Signal),
}

impl Context {
    pub fn new(ask: OpenContext, language: &'static Language) -> Rc<Self> {
        let view = View {
            state: ContextState::Cold,
            interpreter: None,
            interpreters: 0,
            runs: 0,
            running: None,
            lost: None,
            warnings: Vec::new(),
        };
        Rc::new(Self {
            ask,
            language,
            opened_at_ms: clock::wall_ms(),
            state: RefCell::new(State {
                queue: VecDeque::new(),
                orders: VecDeque::new(),
                watches: Vec::new(),
                last_number: 0,
                opening: true,
                closing: false,
                view,
            }),
            woken: Notify::new(),
        })
    }

    /// Whether a client that asks so means this context.
    pub fn check_same(&self, ask: &OpenContext) -> Result<(), Fault> {
        let own = &self.ask;
        let differs = if super::languages::find(&ask.language).map(|language| language.name)
            != Some(self.language.name)
        {
            format!("language ({})", self.language.name)
        } else if ask.program.is_some() && ask.program != own.program {
            "program".to_owned()
        } else if ask.cwd.is_some() && ask.cwd != own.cwd {
            "working directory".to_owned()
        } else if !ask.env.is_empty() && ask.env != own.env {
            "environment".to_owned()
        } else if ask.user.is_some() && ask.user != own.user {
            "user".to_owned()
        } else if ask.limits != GroupLimits::default() && ask.limits != own.limits {
            "limits".to_owned()
        } else {
            return Ok(());
        };
        let message = format!("context {} exists and has another {differs}", own.context);
        Err(Fault::new(FaultCode::Conflict, message))
    }

    /// Queues a run. Its number and the number of runs ahead of it are returned or, if it is about to
    /// begin or the context only being opened, announced later.
    pub fn enqueue(
        &self,
        make: impl FnOnce(u64) -> QueuedRun,
        announce: impl FnOnce(Reply) -> Announcement,
    ) -> Result<Option<Reply>, Fault> {
        self.check_open()?;
        let mut state = self.state.borrow_mut();
        if state.queue.len() >= RUNS_QUEUED_MAX {
            let message = format!("{RUNS_QUEUED_MAX} runs wait in {}", self.ask.context);
            return Err(Fault::new(FaultCode::Limit, message));
        }
        let mut run = make(state.last_number + 1);
        let waiting: usize = state.queue.iter().map(|run| run.code.len()).sum();
        if waiting + run.code.len() > CODE_QUEUED_BYTES_MAX {
            let message = format!("{waiting} bytes of code wait in {}", self.ask.context);
            return Err(Fault::new(FaultCode::Limit, message));
        }
        state.last_number += 1;
        let ahead = state.queue.len() + usize::from(state.view.running.is_some());
        let mut reply = Some(Reply::Queued { run: run.number, ahead: ahead as u32 });
        if state.opening || ahead == 0 && state.view.state == ContextState::Idle {
            run.announce = reply.take().map(announce);
        }
        state.queue.push_back(run);
        drop(state);
        self.woken.notify_one();
        Ok(reply)
    }

    pub fn order(&self, order: Order) {
        self.state.borrow_mut().orders.push_back(order);
        self.woken.notify_one();
    }

    pub fn check_open(&self) -> Result<(), Fault> {
        if self.state.borrow().closing {
            let message = format!("context {} is being closed", self.ask.context);
            return Err(Fault::new(FaultCode::Gone, message));
        }
        Ok(())
    }

    pub fn watch(&self, outlet: Outlet) -> Result<(), Fault> {
        self.check_open()?;
        let mut state = self.state.borrow_mut();
        state.watches.retain(|watch| !watch.is_abandoned());
        if state.watches.len() >= WATCHES_MAX {
            let message = format!("{WATCHES_MAX} clients watch {}", self.ask.context);
            return Err(Fault::new(FaultCode::Limit, message));
        }
        state.watches.push(Watch::begin(outlet));
        Ok(())
    }

    pub fn info(&self) -> ContextInfo {
        let state = self.state.borrow();
        let view = state.view.clone();
        ContextInfo {
            context: self.ask.context.clone(),
            language: self.language.name.to_owned(),
            state: view.state,
            interpreter: view.interpreter,
            interpreters: view.interpreters,
            runs: view.runs,
            running: view.running,
            queued: state.queue.len() as u32,
            opened_at_ms: self.opened_at_ms,
            cwd: self.ask.cwd.clone(),
            lost: view.lost,
            warnings: view.warnings,
        }
    }

    /// Whether it has no interpreter.
    pub fn is_cold(&self) -> bool {
        self.state.borrow().view.state == ContextState::Cold
    }

    /// Whether no run is under way.
    pub fn is_settled(&self) -> bool {
        self.state.borrow().view.running.is_none()
    }

    // The rest is for the actor.

    pub fn take_order(&self) -> Option<Order> {
        self.state.borrow_mut().orders.pop_front()
    }

    /// Drops all orders, which tells their clients that no answer will come.
    pub fn forget_orders(&self) {
        self.state.borrow_mut().orders.clear();
    }

    pub fn has_queued(&self) -> bool {
        !self.state.borrow().queue.is_empty()
    }

    /// The next run whose client still wants it.
    pub fn take_run(&self) -> Option<QueuedRun> {
        loop {
            let run = self.state.borrow_mut().queue.pop_front()?;
            if !(run.tied && run.outlet.is_abandoned()) {
                return Some(run);
            }
            run.cancel("its client has gone");
        }
    }

    /// Takes a run out of the queue.
    pub fn cancel(&self, number: u64, reason: &str) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(at) = state.queue.iter().position(|run| run.number == number) else {
            return false;
        };
        let run = state.queue.remove(at).expect("it was found there");
        drop(state);
        run.cancel(reason);
        true
    }

    /// Takes the next run that is not the host's own out of the queue.
    pub fn cancel_next(&self, reason: &str) -> Option<u64> {
        let state = self.state.borrow();
        let number = state.queue.iter().find(|run| !run.aside)?.number;
        drop(state);
        self.cancel(number, reason).then_some(number)
    }

    pub fn cancel_all(&self, reason: &str) {
        let all = std::mem::take(&mut self.state.borrow_mut().queue);
        for run in all {
            run.cancel(reason);
        }
    }

    pub fn publish(&self, update: impl FnOnce(&mut View)) {
        update(&mut self.state.borrow_mut().view);
    }

    /// Whether no interpreter of it has run yet.
    pub fn is_opening(&self) -> bool {
        self.state.borrow().opening
    }

    /// Its first interpreter runs: the requests that have waited for that are answered.
    pub fn opened(&self) {
        let mut state = self.state.borrow_mut();
        state.opening = false;
        let announcements: Vec<_> =
            state.queue.iter_mut().filter_map(|run| run.announce.take()).collect();
        drop(state);
        for announce in announcements {
            announce(Ok(()));
        }
    }

    /// It cannot be opened: the requests that have waited for that are refused.
    pub fn not_opened(&self, fault: &Fault) {
        let all = std::mem::take(&mut self.state.borrow_mut().queue);
        for announce in all.into_iter().filter_map(|run| run.announce) {
            announce(Err(fault.clone()));
        }
    }

    pub fn close_to_clients(&self) {
        self.state.borrow_mut().closing = true;
    }

    /// Sends a record to every watch.
    pub fn show(&self, record: &[u8], at_us: u64) {
        let mut state = self.state.borrow_mut();
        if state.watches.is_empty() {
            return;
        }
        state.watches.retain(|watch| !watch.is_abandoned());
        for watch in &state.watches {
            watch.offer(record, at_us);
        }
    }

    pub fn is_watched(&self) -> bool {
        !self.state.borrow().watches.is_empty()
    }

    pub fn end_watches(&self) {
        for watch in std::mem::take(&mut self.state.borrow_mut().watches) {
            watch.end();
        }
    }
}

impl QueuedRun {
    /// Ends a run that never began.
    fn cancel(self, reason: &str) {
        if let Some(announce) = self.announce {
            announce(Ok(()));
        }
        let finished = Finished {
            end: RunEnd::Cancelled { reason: reason.to_owned() },
            duration_us: 0,
            cpu_us: None,
            memory_bytes_peak: None,
            state_kept: true,
            rung: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            cached: None,
        };
        let mut record = Vec::new();
        let what = Happening::Finished(finished);
        encode_record(&Event { run: self.number, at_us: clock::wall_us(), what }, &mut record);
        // A new stream has room for this.
        self.outlet.push(&record);
        self.outlet.close();
    }
}
