//! Programs and runs as spans of a trace: what they are, how they ended, and how a program learns of the trace
//! that it is a part of. Arguments, environments, code and output are in no span.

use otel::{PARENT_VARIABLE, STATE_VARIABLE, Span};
use protocol::Text;
use protocol::exit::Cause;
use protocol::message::Started;
use protocol::repl::{Finished, RunEnd};
use protocol::requests::{Program, Start};

use super::{Guest, GuestError, RunCode};
use crate::program::Ended;

impl Guest {
    /// The span of a session that outlives its start: it is of the start alone.
    pub(super) fn start_span(&self, start: &Start) -> Option<Span> {
        self.span_of("start session", start)
    }

    /// The span of a program that is followed to its end.
    pub(crate) fn program_span(&self, start: &Start) -> Option<Span> {
        self.span_of("program", start)
    }

    fn span_of(&self, name: &str, start: &Start) -> Option<Span> {
        let mut span = self.scope.as_ref()?.child(name)?;
        if span.is_seen() {
            let program = match &start.program {
                Program::Argv { argv } => argv.first().map(ToString::to_string),
                Program::Script { shell, .. } => {
                    Some(shell.as_ref().map_or_else(|| "sh".to_owned(), ToString::to_string))
                }
                Program::LoginShell {} => Some("login shell".to_owned()),
            };
            span.set_if("process.executable.name", program);
            span.set("burrow.session", start.session.to_string());
        }
        Some(span)
    }

    /// The span of a run. What the host runs for itself has none.
    pub(super) fn run_span(&self, ask: &RunCode) -> Option<Span> {
        let mut span = self.scope.as_ref().filter(|_| !ask.aside)?.child("run")?;
        span.set("burrow.context", ask.context.context.to_string());
        span.set("burrow.language", ask.context.language.as_str());
        Some(span)
    }
}

/// Gives a program its place in the trace, unless its client has given it one.
pub(crate) fn pass_on(span: &Span, start: &mut Start) {
    let (of_parent, of_state) = (Text::from(PARENT_VARIABLE), Text::from(STATE_VARIABLE));
    if start.env.iter().any(|(name, _)| *name == of_parent) {
        return;
    }
    // A state without its parent would be another's.
    start.env.retain(|(name, _)| *name != of_state);
    start.env.push((of_parent, span.context().parent().into()));
    if let Some(state) = span.context().state() {
        start.env.push((of_state, state.into()));
    }
}

/// Notes the outcome of a start.
pub(crate) fn started(span: &mut Option<Span>, started: &Result<Started, GuestError>) {
    let Some(span) = span else { return };
    match started {
        Ok(started) => span.set("process.pid", u64::from(started.pid)),
        Err(error) => fail(span, error),
    }
}

/// Notes that something else has failed than the program.
pub(crate) fn fail(span: &mut Span, error: &GuestError) {
    let code = error.fault_code().map(|code| format!("{code:?}"));
    span.set_if("error.type", code);
    span.fail(error.to_string());
}

/// Notes how a program ended.
pub(crate) fn ended(span: &mut Span, ended: &Ended) {
    let cause = &ended.record.cause;
    span.set("burrow.cause", cause_name(cause));
    span.set("process.exit.code", ended.shell_code());
    span.set("burrow.stdout_bytes", ended.stdout_bytes);
    span.set("burrow.stderr_bytes", ended.stderr_bytes);
    if ended.missing_bytes > 0 {
        span.set("burrow.missing_bytes", ended.missing_bytes);
    }
    let usage = &ended.record.usage;
    span.set("burrow.cpu_us", usage.user_us.saturating_add(usage.system_us));
    if !ended.is_success() {
        let why = match cause {
            Cause::Exited { code } => format!("exit code {code}"),
            other => cause_name(other).to_owned(),
        };
        span.set("error.type", why.as_str());
        span.fail(why);
    }
}

/// How a program ended, as a word.
pub fn cause_name(cause: &Cause) -> &'static str {
    match cause {
        Cause::Exited { .. } => "exited",
        Cause::Signaled { .. } => "signaled",
        Cause::Killed { .. } => "killed",
        Cause::TimedOut { .. } => "timed_out",
        Cause::OutOfMemory { .. } => "out_of_memory",
        Cause::AgentStopping => "agent_stopping",
        Cause::SpawnFailed { .. } => "spawn_failed",
    }
}

/// Notes how a run ended.
pub(super) fn finished(span: &mut Span, run: u64, end: &Finished) {
    let name = run_end_name(&end.end);
    span.set("burrow.run", run);
    span.set("burrow.cause", name);
    span.set("burrow.stdout_bytes", end.stdout_bytes);
    span.set("burrow.stderr_bytes", end.stderr_bytes);
    if !matches!(end.end, RunEnd::Ok {} | RunEnd::Exited { .. }) {
        span.set("error.type", name);
        span.fail(name);
    }
}

/// How a run ended, as a word.
pub fn run_end_name(end: &RunEnd) -> &'static str {
    match end {
        RunEnd::Ok {} => "ok",
        RunEnd::Error {} => "error",
        RunEnd::Exited { .. } => "exited",
        RunEnd::Interrupted { .. } => "interrupted",
        RunEnd::TimedOut { .. } => "timed_out",
        RunEnd::Cancelled { .. } => "cancelled",
        RunEnd::Died { .. } => "died",
    }
}
