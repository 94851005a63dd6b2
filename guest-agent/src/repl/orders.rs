//! Orders to a context other than runs, and their answers.

use protocol::message::Reply;
use protocol::repl::{self, AnswerInput, Complete, Completeness, Completions, Interrupt, RunEnd};
use protocol::{Fault, FaultCode};
use tokio::time::Instant;

use super::actor::{Actor, Closing, PendingQuery, Phase};
use super::context::{Answer, Order};
use super::interpreter::Interpreter;
use super::limits::{ASK_MAX, ASKS_MAX, CLOSE_GRACE};
use super::message::{Binary, ToDriver};
use crate::{metrics, task};

impl Actor {
    pub fn handle_order(&mut self, order: Order) {
        match order {
            Order::Warm(answer) => self.warming.push(answer),
            Order::Interrupt { ask, by, answer } => {
                let _ = answer.send(Ok(Reply::Interrupting { run: self.interrupt(&ask, by) }));
            }
            Order::Input(ask, answer) => {
                let _ = answer.send(self.answer_input(&ask));
            }
            Order::Complete(ask, answer) => self.complete(&ask, answer),
            Order::Check(code, answer) => self.check(&code, answer),
            Order::Usage(answer) => {
                let snapshot = self.interpreter.as_ref().map(Interpreter::usage_snapshot);
                task::spawn(async move {
                    let _ = answer.send(metrics::usage(snapshot.unwrap_or_default()).await);
                });
            }
            Order::Restart { by, answer } => {
                self.set_end_if_killed(RunEnd::Interrupted { by: by.clone() });
                self.lost = self.interpreter.is_some().then(|| format!("restarted by {by}"));
                self.warming.push(answer);
                // One that is not ready yet leaves its waiting clients to the next.
                let is_unready = self.interpreter.is_some() && !self.was_ready;
                self.renewing |= is_unready || self.launch.is_some();
                self.kill("because it was to be another");
            }
            // Everything in an interpreter follows from its start, including its seeds and its search paths,
            // so it is restarted instead of changed. Nothing is lost, and nothing is reported.
            Order::Renew if self.is_unused() && self.closing.is_none() => self.renew(),
            Order::Renew => self.renewing |= self.launch.is_some(),
            Order::Close { by, answer } => self.close(by, answer),
            Order::Signal(signal) => {
                self.set_end_if_killed(RunEnd::Died { cause: protocol::Cause::AgentStopping });
                self.context.cancel_all("the sandbox is stopping");
                if let Some(interpreter) = &self.interpreter {
                    interpreter.signal_tree(signal);
                }
            }
        }
    }

    /// How the current run ends if its interpreter dies now.
    pub fn set_end_if_killed(&mut self, end: RunEnd) {
        if let Some(current) = &mut self.current {
            current.end_if_killed.get_or_insert(end);
        }
    }

    /// Kills the interpreter and all that it has started. `because` ends the sentence that says so.
    pub fn kill(&mut self, because: &str) {
        if let Some(interpreter) = &self.interpreter {
            because.clone_into(&mut self.killed_because);
            interpreter.signal_tree(nix::sys::signal::Signal::SIGKILL);
            self.phase = Phase::Killed;
        }
    }

    pub fn close(&mut self, by: String, answer: Answer) {
        if self.closing.is_some() {
            let message = "the context is being closed";
            let _ = answer.send(Err(Fault::new(FaultCode::Gone, message)));
            return;
        }
        self.context.close_to_clients();
        self.context.cancel_all(&format!("the context was closed by {by}"));
        let mut kill_at = None;
        if self.current.is_some() || self.phase != Phase::Ready {
            self.set_end_if_killed(RunEnd::Interrupted { by });
            self.kill("because its context was closed");
        } else if let Some(interpreter) = &mut self.interpreter {
            interpreter.close();
            kill_at = Some(Instant::now() + CLOSE_GRACE);
        }
        self.closing = Some(Closing { answer, kill_at });
    }

    /// The context has ended. Unread output of its runs is still sent to watches.
    pub fn end(&mut self) {
        self.over = true;
        self.drain(|_| true);
        self.registry.remove(&self.context);
        self.refuse(&Fault::new(FaultCode::Gone, "the context was closed"));
        self.context.end_watches();
        if let Some(closing) = self.closing.take() {
            let _ = closing.answer.send(Ok(Reply::Done {}));
        }
    }

    /// The run that is being ended, if there is one to end.
    fn interrupt(&mut self, ask: &Interrupt, by: String) -> Option<u64> {
        let running = self.current.as_ref().map(|current| current.number);
        let is_aside = self.current.as_ref().is_some_and(|current| current.aside);
        let reason = format!("interrupted by {by}");
        match ask.run {
            Some(wanted) if self.context.cancel(wanted, &reason) => return Some(wanted),
            Some(wanted) if running != Some(wanted) => return None,
            // A client that sees no current run means the one that would run if the interpreter were ready,
            // or free of the host's own run.
            None if running.is_none() || is_aside => return self.context.cancel_next(&reason),
            _ => {}
        }
        self.climb(RunEnd::Interrupted { by }, ask.grace);
        running
    }

    fn answer_input(&mut self, ask: &AnswerInput) -> Result<Reply, Fault> {
        let run = self.current.as_mut().filter(|current| current.number == ask.run);
        let waits = run.and_then(|current| {
            let at = current.inputs.iter().position(|input| *input == ask.request)?;
            Some(current.inputs.remove(at))
        });
        if waits.is_none() {
            let message = format!("run {} does not wait for input {}", ask.run, ask.request);
            return Err(Fault::new(FaultCode::Gone, message));
        }
        if let Some(interpreter) = &mut self.interpreter {
            let line = ask.line.as_ref().map(|line| Binary(line.as_bytes()));
            interpreter.channel.send(&ToDriver::Input { request: ask.request, line });
        }
        Ok(Reply::Done {})
    }

    pub fn complete(&mut self, ask: &Complete, answer: Answer) {
        let none = Completions { start: ask.cursor, end: ask.cursor, matches: Vec::new() };
        let message =
            |number| ToDriver::Complete { ask: number, code: &ask.code, cursor: ask.cursor };
        self.ask(answer, Reply::Completions(none), message);
    }

    pub fn check(&mut self, code: &str, answer: Answer) {
        let state = repl::CodeState::Complete;
        let whole = Reply::Completeness(Completeness { state, indent: String::new() });
        self.ask(answer, whole, |ask| ToDriver::Check { ask, code });
    }

    /// Asks the driver something that it can answer between runs. `otherwise` is the answer for
    /// languages that cannot say.
    pub fn ask<'a>(
        &mut self,
        answer: Answer,
        otherwise: Reply,
        message: impl FnOnce(u64) -> ToDriver<'a>,
    ) {
        let refused = match &mut self.interpreter {
            Some(interpreter) if !interpreter.can_be_asked() => {
                let _ = answer.send(Ok(otherwise));
                return;
            }
            Some(interpreter)
                if self.phase == Phase::Ready
                    && self.current.is_none()
                    && self.asks.len() < ASKS_MAX =>
            {
                self.last_query += 1;
                interpreter.channel.send(&message(self.last_query));
                let until = Instant::now() + ASK_MAX;
                self.asks.push(PendingQuery { id: self.last_query, answer, until });
                return;
            }
            Some(_) => "the interpreter is busy",
            None => "there is no interpreter at the moment",
        };
        let _ = answer.send(Err(Fault::new(FaultCode::Conflict, refused)));
    }

    /// The driver has answered a request.
    pub fn answered(&mut self, id: u64, reply: Reply) {
        if let Some(at) = self.asks.iter().position(|ask| ask.id == id) {
            let _ = self.asks.remove(at).answer.send(Ok(reply));
        }
    }

    pub fn forget_asks(&mut self) {
        for ask in self.asks.drain(..) {
            let message = "the interpreter has ended";
            let _ = ask.answer.send(Err(Fault::new(FaultCode::Gone, message)));
        }
    }
}
