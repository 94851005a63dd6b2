//! How runs and interpreters end.

use protocol::exit::Cause;
use protocol::repl::{Finished, Happening, RunEnd, Rung};
use protocol::{Fault, FaultCode};

use super::actor::{Actor, NEXT_RUN, Pace, Phase, is_run_number};
use super::interpreter::Interpreter;
use super::limits::POLL_BRIEFLY;
use super::message::DriverMessage;
use crate::pid1::reaper::{Exit, Status};
use crate::sys::clock;

/// How many packets are still read from an ended interpreter: more than its socket can hold.
const LAST_PACKETS_MAX: usize = 4096;

impl Actor {
    /// Ends the current run. Everything that it has written so far is sent before its last event.
    pub fn finish(&mut self, end: RunEnd, state_kept: bool, done: Option<&DriverMessage>) {
        self.drain_current();
        let Some(current) = &self.current else { return };
        let number = current.number;
        let duration_us = clock::monotonic_us() - current.started_us;
        let now_us = self.interpreter.as_ref().and_then(Interpreter::cpu_us);
        let own = now_us.zip(current.cpu_began_us).map(|(now, began)| now.saturating_sub(began));
        let reported = done.and_then(|done| done.cpu_us);
        let finished = Finished {
            end,
            duration_us,
            // The driver also counts children that were waited for, so the larger number is right.
            cpu_us: own.max(reported),
            memory_bytes_peak: done.and_then(|done| done.memory_bytes_peak),
            state_kept,
            rung: current.ladder.as_ref().map(|ladder| ladder.rung),
            stdout_bytes: current.stdout_bytes,
            stderr_bytes: current.stderr_bytes,
            cached: done.and_then(|done| done.cached),
        };
        let is_quick = duration_us < POLL_BRIEFLY.as_micros() as u64 && self.ground.cpus() > 1;
        self.pace = if is_quick { Pace::Quick } else { Pace::Slow };
        if done.is_some_and(|done| done.alone) {
            self.keep_outputs(number);
        }
        self.end_run(number, finished);
        // Before any client sees the end and asks for more.
        self.publish();
    }

    fn end_run(&mut self, number: u64, finished: Finished) {
        self.emit(number, Happening::Finished(finished));
        if let Some(interpreter) = &self.interpreter {
            interpreter.forget_outputs();
        }
        if let Some(current) = self.current.take() {
            current.end(&mut self.tails);
        }
        self.rest_late_output(number);
    }

    /// The interpreter has ended. Its last messages and output still count.
    pub fn on_exit(&mut self, exit: Exit) {
        self.exit = None;
        if let Some(interpreter) = &mut self.interpreter {
            interpreter.reaped = true;
        }
        // As far as the run's reader has room: later it is too late.
        for _ in 0..LAST_PACKETS_MAX {
            if !self.receive_one() {
                break;
            }
        }
        self.drain_current();
        let was_ready = self.was_ready;
        let cause = self.cause(exit.status);
        let words = reason(&cause);
        if let Some(current) = &self.current {
            let number = current.number;
            let usage = exit.usage;
            let (end, rung) = match (&current.end_if_killed, &current.ladder) {
                (Some(end), _) => (end.clone(), Some(Rung::Killed)),
                (None, Some(ladder)) => (ladder.end.clone(), Some(ladder.rung)),
                (None, None) => (RunEnd::Died { cause }, None),
            };
            let used_us = usage.user_us + usage.system_us;
            let finished = Finished {
                end,
                duration_us: clock::monotonic_us() - current.started_us,
                cpu_us: current.cpu_began_us.map(|began| used_us.saturating_sub(began)),
                memory_bytes_peak: Some(usage.resident_bytes_max),
                state_kept: false,
                rung,
                stdout_bytes: current.stdout_bytes,
                stderr_bytes: current.stderr_bytes,
                cached: None,
            };
            let is_aside = current.aside;
            let reason = self.lost.get_or_insert_with(|| {
                if is_aside {
                    format!("the interpreter {words} between runs")
                } else {
                    format!("the interpreter of run {number} {words}")
                }
            });
            let reason = reason.clone();
            self.end_run(number, finished);
            if is_aside {
                self.emit(0, Happening::Lost { reason });
            }
        } else if was_ready && self.closing.is_none() && !self.renewing {
            let reason = self
                .lost
                .get_or_insert_with(|| format!("the interpreter {words} between runs"))
                .clone();
            self.emit(0, Happening::Lost { reason });
        }
        // Dropping it kills the processes that it has left. Their output is late output.
        self.interpreter = None;
        let last = self.begun.max(1);
        // The pipes of a run that did not begin have no writer.
        self.drain(|source| !is_run_number(source.run));
        self.sources.retain(|source| source.run != NEXT_RUN);
        for source in self.sources.iter_mut().filter(|source| !is_run_number(source.run)) {
            source.run = last;
        }
        self.forget_asks();
        if !was_ready && !self.renewing {
            let output = String::from_utf8_lossy(&self.startup_words);
            let output = output.trim();
            let language = self.context.language.name;
            let mut message = format!("the {language} interpreter {words} before it was ready");
            if !output.is_empty() {
                message = format!("{message}: {output}");
            }
            self.refuse(&Fault::new(FaultCode::SpawnFailed, message));
        }
    }

    fn cause(&self, status: Status) -> Cause {
        let Status::Signaled { signal, .. } = status else { return status.into() };
        let out_of_memory = self.interpreter.as_ref().is_some_and(Interpreter::ran_out_of_memory);
        if signal == libc::SIGKILL && out_of_memory {
            let limit_bytes = self.ground.memory_limit(self.context.ask.limits.memory_bytes);
            return Cause::OutOfMemory { limit_bytes };
        }
        if self.ground.is_stopping() && matches!(signal, libc::SIGTERM | libc::SIGKILL) {
            return Cause::AgentStopping;
        }
        if signal == libc::SIGKILL && self.phase == Phase::Killed {
            let by = format!("the agent, {}", self.killed_because);
            return Cause::Killed { signal, by };
        }
        status.into()
    }
}

/// How an interpreter ended, for the sentence "the interpreter …".
fn reason(cause: &Cause) -> String {
    match cause {
        Cause::Exited { code } => format!("exited with code {code}"),
        Cause::Signaled { signal, .. } => {
            let name = nix::sys::signal::Signal::try_from(*signal)
                .map_or_else(|_| format!("signal {signal}"), |signal| signal.to_string());
            format!("was ended by {name}")
        }
        Cause::OutOfMemory { limit_bytes: Some(bytes) } => {
            format!("ran out of its {bytes} bytes of memory")
        }
        Cause::OutOfMemory { .. } => "ran out of memory".to_owned(),
        Cause::Killed { by, .. } => format!("was killed by {by}"),
        Cause::AgentStopping => "was ended because the sandbox is stopping".to_owned(),
        Cause::TimedOut { .. } | Cause::SpawnFailed { .. } => "ended".to_owned(),
    }
}
