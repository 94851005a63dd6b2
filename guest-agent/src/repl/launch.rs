//! The start of a context's interpreter. A thread carries it out, and the context's actor goes on meanwhile: what
//! the program needs may lie on a file system that does not answer.

use protocol::{Fault, FaultCode};
use tokio::time::Instant;

use super::actor::Actor;
use super::interpreter::{Interpreter, Launch, StartedInterpreter};
use super::limits::STARTUP_MAX;
use crate::task;

impl Actor {
    /// Begins to start an interpreter.
    pub fn launch(&mut self) {
        self.renewing = false;
        let generation = self.context.info().interpreters + 1;
        let work = Interpreter::start(self.ground.clone(), self.context.clone(), generation);
        let until = Instant::now() + STARTUP_MAX;
        self.launch = Some(Launch { work: Box::pin(work), until });
    }

    pub fn on_launched(&mut self, result: Result<Box<StartedInterpreter>, Fault>) {
        self.launch = None;
        // One that is not wanted any more is killed when it is dropped.
        let result = result.and_then(|begun| self.ground.check_not_stopping().map(|()| begun));
        match result {
            Ok(begun) => {
                let is_outdated = self.renewing;
                self.adopt_interpreter(*begun);
                self.context.opened();
                if is_outdated {
                    self.renew();
                }
            }
            Err(fault) if self.context.is_opening() => {
                self.context.close_to_clients();
                self.context.not_opened(&fault);
                self.refuse(&fault);
                self.end();
            }
            Err(fault) => self.refuse(&fault),
        }
    }

    /// Replaces the interpreter, which has run nothing yet.
    pub fn renew(&mut self) {
        self.renewing = true;
        self.kill("because it was to be another");
    }

    /// Gives up a start that takes too long.
    pub fn launch_is_due(&mut self, now: Instant) {
        let Some(launch) = self.launch.as_mut().filter(|launch| launch.until <= now) else {
            return;
        };
        // A frozen program had no time to execute.
        if self.ground.freezer.was_frozen_within(STARTUP_MAX) {
            launch.until = now + STARTUP_MAX;
            return;
        }
        self.leave_launch();
        let language = self.context.language.name;
        let message = format!(
            "the {language} interpreter was not started within {} seconds: its program or its \
             working directory is on a file system that does not answer",
            STARTUP_MAX.as_secs()
        );
        self.on_launched(Err(Fault::new(FaultCode::SpawnFailed, message)));
    }

    /// Leaves a start to itself. What it has started is killed.
    pub fn leave_launch(&mut self) {
        if let Some(launch) = self.launch.take() {
            task::spawn(async move { drop(launch.work.await) });
        }
    }
}
