//! Contexts: interpreters that run code again and again.
//!
//! [`Contexts`] is the registry. Each context has one task, its [`actor`], that owns the
//! interpreter and all that happens in it; whoever asks something leaves an order or a run with the
//! [`context`] and is answered by the actor. The life of a context:
//!
//! ```text
//!            ┌────────── the interpreter ended ◀───────────────┐
//!            ▼                                                  │
//! open ──▶ cold ──▶ starting ──▶ idle ◀──▶ running ──▶ interrupting
//!                                  │
//!                                  └──▶ closed
//! ```
//!
//! What the languages need is in one file for each; nothing else here knows any of them.

mod actor;
mod bash;
mod channel;
mod context;
mod current;
mod directory;
mod ending;
mod hearing;
mod interpreter;
mod ladder;
mod language;
mod late;
mod limits;
mod message;
mod node;
mod orders;
mod python;
mod source;
mod telling;
mod watch;

use std::cell::RefCell;
use std::rc::Rc;

use nix::sys::signal::Signal;
use protocol::limits::{ARGUMENTS_BYTES_MAX, CODE_BYTES_MAX, CONTEXTS_MAX};
use protocol::message::Reply;
use protocol::repl::{AnswerInput, Complete, Interrupt, OpenContext, Run};
use protocol::{ContextName, Fault, FaultCode};
use tokio::sync::oneshot;

use crate::agent::Agent;
use crate::flow::{Inlet, Outlet};
use crate::process::environment::check_names;
use crate::task::{self, Work};

use actor::Actor;
pub use context::Announcement;
use context::{Answer, Context, Order, QueuedRun};
use interpreter::Interpreter;
use language::{Driver, Language};

/// The spool of a run's events.
pub const RUN_SPOOL_BYTES: usize = limits::RUN_SPOOL_BYTES;

/// The registry.
#[derive(Default)]
pub struct Contexts {
    all: RefCell<Vec<Rc<Context>>>,
}

impl Contexts {
    fn get(&self, name: &ContextName) -> Result<Rc<Context>, Fault> {
        let all = self.all.borrow();
        let found = all.iter().find(|context| context.ask.context == *name).cloned();
        found.ok_or_else(|| Fault::new(FaultCode::NotFound, format!("there is no context {name}")))
    }

    /// The same, unless it is being closed.
    fn get_open(&self, name: &ContextName) -> Result<Rc<Context>, Fault> {
        let context = self.get(name)?;
        context.check_open()?;
        Ok(context)
    }

    /// Finds the context or makes it, which starts its interpreter.
    fn open(&self, agent: &Rc<Agent>, ask: &OpenContext) -> Result<Rc<Context>, Fault> {
        if let Ok(context) = self.get(&ask.context) {
            context.check_same(ask)?;
            context.check_open()?;
            return Ok(context);
        }
        check(ask)?;
        let language = Language::find(&ask.language).ok_or_else(|| unknown(&ask.language))?;
        if self.all.borrow().len() >= CONTEXTS_MAX {
            let message = format!("{CONTEXTS_MAX} contexts are open, which is the limit");
            return Err(Fault::new(FaultCode::Limit, message));
        }
        let begun = Interpreter::start(agent, language, ask, 1)?;
        let context = Context::new(ask.clone(), language);
        self.all.borrow_mut().push(context.clone());
        task::spawn(Actor::new(agent.clone(), context.clone(), begun).run());
        Ok(context)
    }

    fn remove(&self, context: &Context) {
        self.all.borrow_mut().retain(|other| other.ask.context != context.ask.context);
    }

    pub fn list(&self) -> Reply {
        let contexts = self.all.borrow().iter().map(|context| context.info()).collect();
        Reply::Contexts { contexts }
    }

    /// Queues a run whose code is here. Without a reply, `announce` is told it in time.
    pub fn run(
        &self,
        agent: &Rc<Agent>,
        ask: Run,
        code: Vec<u8>,
        outlet: Outlet,
        announce: impl FnOnce(Reply) -> Announcement,
    ) -> Result<Option<Reply>, Fault> {
        if code.len() > CODE_BYTES_MAX {
            return Err(too_long());
        }
        let context = self.open(agent, &ask.context)?;
        if ask.aside && matches!(context.language.driver, Driver::File(_)) {
            let message =
                format!("a context of {} has no place beside its code", ask.context.language);
            return Err(Fault::new(FaultCode::Unsupported, message));
        }
        let make = |number| QueuedRun {
            number,
            code,
            name: ask.name.unwrap_or_else(|| format!("<run {number}>")),
            deadline_ms: ask.deadline_ms,
            grace: ask.grace,
            input: ask.input,
            tied: ask.tied,
            aside: ask.aside,
            outlet,
            announce: None,
        };
        context.enqueue(make, announce)
    }

    pub fn watch(&self, name: &ContextName, outlet: Outlet) -> Result<Reply, Fault> {
        self.get(name)?.watch(outlet)?;
        Ok(Reply::Done {})
    }

    /// The environment, or the machine's identity, is another: interpreters that have run nothing yet
    /// are exchanged.
    pub fn renew(&self) {
        for context in &*self.all.borrow() {
            context.order(Order::Renew);
        }
    }

    /// What had to wait for a thaw goes on.
    pub fn wake(&self) {
        for context in &*self.all.borrow() {
            context.woken.notify_one();
        }
    }

    /// For the stop of an agent that is not PID 1.
    pub fn signal(&self, signal: Signal) {
        for context in &*self.all.borrow() {
            context.order(Order::Signal(signal));
        }
    }

    /// Whether no interpreter lives.
    pub fn are_gone(&self) -> bool {
        self.all.borrow().iter().all(|context| context.is_cold())
    }

    /// Whether no run is on.
    pub fn are_settled(&self) -> bool {
        self.all.borrow().iter().all(|context| context.is_settled())
    }
}

/// Makes a context, or finds it, and answers when its interpreter is ready.
pub fn open(agent: &Rc<Agent>, ask: &OpenContext) -> Pending {
    answered(agent.contexts.open(agent, ask), Order::Warm)
}

/// The code of a run that comes over its stream.
pub async fn streamed_code(inlet: Inlet) -> Result<Vec<u8>, Fault> {
    let mut code = Vec::new();
    while let Some(bytes) = inlet.next().await? {
        if code.len() + bytes.len() > CODE_BYTES_MAX {
            return Err(too_long());
        }
        code.extend_from_slice(&bytes);
        inlet.consumed(code.len() as u64);
    }
    Ok(code)
}

pub fn interrupt(agent: &Agent, ask: Interrupt, by: String) -> Pending {
    let context = agent.contexts.get(&ask.context);
    answered(context, |answer| Order::Interrupt { ask, by, answer })
}

pub fn answer_input(agent: &Agent, ask: AnswerInput) -> Pending {
    let context = agent.contexts.get(&ask.context);
    answered(context, |answer| Order::Input(ask, answer))
}

pub fn complete(agent: &Agent, ask: Complete) -> Pending {
    let is_place = |cursor| ask.code.is_char_boundary(cursor);
    let context = if usize::try_from(ask.cursor).is_ok_and(is_place) {
        agent.contexts.get(&ask.context)
    } else {
        let message = format!("{} is not a place in the code", ask.cursor);
        Err(Fault::new(FaultCode::Invalid, message))
    };
    answered(context, |answer| Order::Complete(ask, answer))
}

pub fn check_code(agent: &Agent, name: &ContextName, code: String) -> Pending {
    answered(agent.contexts.get(name), |answer| Order::Check(code, answer))
}

pub fn usage(agent: &Agent, name: &ContextName) -> Pending {
    answered(agent.contexts.get(name), Order::Usage)
}

pub fn restart(agent: &Agent, name: &ContextName, by: String) -> Pending {
    answered(agent.contexts.get_open(name), |answer| Order::Restart { by, answer })
}

pub fn close(agent: &Agent, name: &ContextName, by: String) -> Pending {
    answered(agent.contexts.get_open(name), |answer| Order::Close { by, answer })
}

/// An answer that an actor will give.
pub type Pending = Work<Result<Reply, Fault>>;

/// Leaves an order; the work is to wait for its answer.
fn answered(context: Result<Rc<Context>, Fault>, make: impl FnOnce(Answer) -> Order) -> Pending {
    let left = context.map(|context| {
        let (answer, answered) = oneshot::channel();
        context.order(make(answer));
        answered
    });
    pending(left)
}

fn pending(left: Result<oneshot::Receiver<Result<Reply, Fault>>, Fault>) -> Pending {
    Box::pin(async {
        let gone = || Err(Fault::new(FaultCode::Gone, "the context was closed meanwhile"));
        left?.await.unwrap_or_else(|_| gone())
    })
}

fn check(ask: &OpenContext) -> Result<(), Fault> {
    let sizes = ask.env.iter().map(|(name, value)| name.as_bytes().len() + value.as_bytes().len());
    let bytes: usize = sizes.sum();
    if bytes > ARGUMENTS_BYTES_MAX {
        let message =
            format!("{bytes} bytes of environment exceed the limit of {ARGUMENTS_BYTES_MAX}");
        return Err(Fault::new(FaultCode::Invalid, message));
    }
    check_names(&ask.env)
}

fn unknown(name: &str) -> Fault {
    let known: Vec<_> = language::ALL.iter().map(|language| language.name).collect();
    let message = format!("{name:?} is not a language here; there are {}", known.join(", "));
    Fault::new(FaultCode::Unsupported, message)
}

fn too_long() -> Fault {
    let message = format!("the code exceeds the limit of {CODE_BYTES_MAX} bytes");
    Fault::new(FaultCode::Limit, message)
}
