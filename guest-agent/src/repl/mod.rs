//! Contexts: interpreters that run code again and again.
//!
//! [`Contexts`] is the interface for others, and the [`registry`] has the open contexts. Each context has one
//! task, its [`actor`], which owns the interpreter. A request puts an order or a run into the [`context`]'s
//! queue, and the actor answers it. The life of a context:
//!
//! ```text
//!            ┌────────── the interpreter ended ◀───────────────┐
//!            ▼                                                  │
//! open ──▶ cold ──▶ starting ──▶ idle ◀──▶ running ──▶ interrupting
//!                                  │
//!                                  └──▶ closed
//! ```
//!
//! Each language has one file; nothing else here knows any language.

mod actor;
mod bash;
mod channel;
mod context;
mod current;
mod directory;
mod driver_messages;
mod ending;
mod events;
mod interpreter;
mod ladder;
mod language;
mod languages;
mod late;
mod launch;
mod limits;
mod message;
mod node;
mod orders;
mod python;
mod registry;
mod source;
mod watch;

use std::rc::Rc;

use nix::sys::signal::Signal;
use protocol::limits::{ARGUMENTS_BYTES_MAX, CODE_BYTES_MAX};
use protocol::message::Reply;
use protocol::repl::{AnswerInput, Complete, Interrupt, OpenContext, Run};
use protocol::{ContextName, Fault, FaultCode};
use tokio::sync::oneshot;

use crate::flow::{Inlet, Outlet};
use crate::ground::Ground;
use crate::process::environment::check_names;
use crate::task::{self, Work};

use actor::Actor;
pub use context::Announcement;
use context::{Answer, Context, Order, QueuedRun};
use language::Driver;
use registry::Registry;

/// The spool of a run's events.
pub const RUN_SPOOL_BYTES: usize = limits::RUN_SPOOL_BYTES;

/// The contexts of an agent, and all that clients can ask of them.
pub struct Contexts {
    ground: Rc<Ground>,
    registry: Rc<Registry>,
}

/// An answer that a context's actor gives later.
pub type Pending = Work<Result<Reply, Fault>>;

impl Contexts {
    pub fn new(ground: Rc<Ground>) -> Self {
        Self { ground, registry: Rc::default() }
    }

    /// Finds the context or makes it, with a task that starts its interpreter.
    fn find_or_open(&self, ask: &OpenContext) -> Result<Rc<Context>, Fault> {
        if let Ok(context) = self.registry.get(&ask.context) {
            context.check_same(ask)?;
            context.check_open()?;
            return Ok(context);
        }
        check(ask)?;
        let language = languages::find(&ask.language).ok_or_else(|| unknown(&ask.language))?;
        self.registry.check_room()?;
        self.ground.check_running()?;
        let context = Context::new(ask.clone(), language);
        self.registry.insert(context.clone());
        let (ground, registry) = (self.ground.clone(), self.registry.clone());
        task::spawn(Actor::new(ground, registry, context.clone()).run());
        Ok(context)
    }

    pub fn list(&self) -> Reply {
        let contexts = self.registry.all().iter().map(|context| context.info()).collect();
        Reply::Contexts { contexts }
    }

    /// Queues a run whose code has arrived. If this returns no reply, `announce` receives it later.
    pub fn run(
        &self,
        ask: Run,
        code: Vec<u8>,
        outlet: Outlet,
        announce: impl FnOnce(Reply) -> Announcement,
    ) -> Result<Option<Reply>, Fault> {
        if code.len() > CODE_BYTES_MAX {
            return Err(too_long());
        }
        let context = self.find_or_open(&ask.context)?;
        if ask.aside && matches!(context.language.driver, Driver::File(_)) {
            let message = format!("a context of {} cannot run code aside", ask.context.language);
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
        self.registry.get(name)?.watch(outlet)?;
        Ok(Reply::Done {})
    }

    /// Replaces interpreters that have run nothing yet, because the environment or the machine's identity
    /// has changed.
    pub fn renew(&self) {
        for context in self.registry.all() {
            context.order(Order::Renew);
        }
    }

    /// For the stop of an agent that is not PID 1.
    pub fn signal(&self, signal: Signal) {
        for context in self.registry.all() {
            context.order(Order::Signal(signal));
        }
    }

    /// Whether no interpreter lives.
    pub fn are_gone(&self) -> bool {
        self.registry.all().iter().all(|context| context.is_cold())
    }

    /// Whether no run is under way.
    pub fn are_settled(&self) -> bool {
        self.registry.all().iter().all(|context| context.is_settled())
    }

    /// Finds or opens a context, and answers when its interpreter is ready.
    pub fn open(&self, ask: &OpenContext) -> Pending {
        answered(self.find_or_open(ask), Order::Warm)
    }

    pub fn interrupt(&self, ask: Interrupt, by: String) -> Pending {
        let context = self.registry.get(&ask.context);
        answered(context, |answer| Order::Interrupt { ask, by, answer })
    }

    pub fn answer_input(&self, ask: AnswerInput) -> Pending {
        let context = self.registry.get(&ask.context);
        answered(context, |answer| Order::Input(ask, answer))
    }

    pub fn complete(&self, ask: Complete) -> Pending {
        let is_place = |cursor| ask.code.is_char_boundary(cursor);
        let context = if usize::try_from(ask.cursor).is_ok_and(is_place) {
            self.registry.get(&ask.context)
        } else {
            let message = format!("cursor {} is not at a character of the code", ask.cursor);
            Err(Fault::new(FaultCode::Invalid, message))
        };
        answered(context, |answer| Order::Complete(ask, answer))
    }

    pub fn check_code(&self, name: &ContextName, code: String) -> Pending {
        answered(self.registry.get(name), |answer| Order::Check(code, answer))
    }

    pub fn usage(&self, name: &ContextName) -> Pending {
        answered(self.registry.get(name), Order::Usage)
    }

    pub fn restart(&self, name: &ContextName, by: String) -> Pending {
        answered(self.registry.get_open(name), |answer| Order::Restart { by, answer })
    }

    pub fn close(&self, name: &ContextName, by: String) -> Pending {
        answered(self.registry.get_open(name), |answer| Order::Close { by, answer })
    }
}

/// Reads the code of a run from its stream.
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

/// Leaves an order. The returned work waits for its answer.
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
        let gone = || Err(Fault::new(FaultCode::Gone, "the context was closed"));
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
    let known: Vec<_> = languages::ALL.iter().map(|language| language.name).collect();
    let message = format!("unknown language {name:?}; known are {}", known.join(", "));
    Fault::new(FaultCode::Unsupported, message)
}

fn too_long() -> Fault {
    let message = format!("the code exceeds the limit of {CODE_BYTES_MAX} bytes");
    Fault::new(FaultCode::Limit, message)
}
