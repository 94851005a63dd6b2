//! The open contexts, by name. [`Contexts`](super::Contexts) adds them, and each context's actor
//! removes its own.

use std::cell::RefCell;
use std::rc::Rc;

use protocol::limits::CONTEXTS_MAX;
use protocol::{ContextName, Fault, FaultCode};

use super::context::Context;

/// See the module's description.
#[derive(Default)]
pub struct Registry {
    all: RefCell<Vec<Rc<Context>>>,
}

impl Registry {
    pub fn get(&self, name: &ContextName) -> Result<Rc<Context>, Fault> {
        let all = self.all.borrow();
        let found = all.iter().find(|context| context.ask.context == *name).cloned();
        found.ok_or_else(|| Fault::new(FaultCode::NotFound, format!("there is no context {name}")))
    }

    /// The context with this name, unless it is being closed.
    pub fn get_open(&self, name: &ContextName) -> Result<Rc<Context>, Fault> {
        let context = self.get(name)?;
        context.check_open()?;
        Ok(context)
    }

    /// Whether one more may be added.
    pub fn check_room(&self) -> Result<(), Fault> {
        if self.all.borrow().len() < CONTEXTS_MAX {
            return Ok(());
        }
        let message = format!("{CONTEXTS_MAX} contexts are open, which is the limit");
        Err(Fault::new(FaultCode::Limit, message))
    }

    pub fn insert(&self, context: Rc<Context>) {
        self.all.borrow_mut().push(context);
    }

    pub fn remove(&self, context: &Context) {
        self.all.borrow_mut().retain(|other| other.ask.context != context.ask.context);
    }

    /// All of them, in the order in which they were opened.
    pub fn all(&self) -> Vec<Rc<Context>> {
        self.all.borrow().clone()
    }
}
