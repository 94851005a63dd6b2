//! Whether anything runs in the sandbox for a client: a program that a client has started, or a run of code.
//!
//! `session` and `repl` say so for as long as it lasts, and `metrics` looks more often meanwhile.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// See the module's description.
#[derive(Default)]
pub struct Activities {
    count: Cell<usize>,
    /// Somebody waits for the next activity.
    is_awaited: Cell<bool>,
    begun: Notify,
}

/// One thing that runs, until it is dropped.
pub struct Activity(Rc<Activities>);

impl Activities {
    pub fn begin(self: &Rc<Self>) -> Activity {
        self.count.set(self.count.get() + 1);
        self.stir();
        Activity(self.clone())
    }

    /// Wakes the tasks that wait for an activity, as if one had begun.
    pub fn stir(&self) {
        // Hardly ever: then nothing is woken for a command.
        if self.is_awaited.take() {
            self.begun.notify_waiters();
        }
    }

    pub fn is_any(&self) -> bool {
        self.count.get() > 0
    }

    /// Resolves when the next activity begins.
    pub async fn begun(&self) {
        self.is_awaited.set(true);
        self.begun.notified().await;
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
    }
}
