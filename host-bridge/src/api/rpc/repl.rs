//! `sandbox.repl.run`: code in the interpreter that a sandbox keeps for its language.
//!
//! The context is named as the language is, so that the native API reaches the same one. What an
//! earlier run's threads say late is in nobody's answer here; the native API tells it.

use std::time::Duration;

use protocol::ContextName;
use protocol::exit::Cause;
use protocol::repl::{Display, ErrorReport, Event, Finished, Happening, RunEnd, Rung};

use super::failure::{Failure, TIMED_OUT};
use super::lines::{Lines, Said, Stream};
use super::params::{Params, seconds, shown};
use super::written::Written;
use super::{inside, which};
use crate::api::call::Call;
use crate::api::problem::{Code, Problem};
use crate::guest::GuestError;
use crate::guest::contexts::{RunCode, language, open};

pub async fn run(call: &Call, mut params: Params, room: usize) -> Result<Written, Failure> {
    let which = which(call, &mut params)?;
    let asked = params.text("language")?;
    let language = language(&asked)?;
    let code = params.text("code")?;
    let limit = params.timeout()?.unwrap_or(call.api.limits().rpc_run_deadline);
    let limit = call.within(Some(limit)).unwrap_or(limit);
    let inside = inside(call, which)?;
    let _permit = call.api.admission().admit(&call.caller.label())?;

    let mut context = open(context_of(language), language);
    context.cwd = inside.record.workdir.as_deref().map(Into::into);
    let mut ask = RunCode::new(context, code);
    ask.deadline = Some(limit);
    let failed = |error| Failure::inside(&inside.which, error);
    let mut run = inside.guest.run_code_now(ask).map_err(failed)?;
    let mut telling = Telling { lines: Lines::new(room), language, lost: None };
    let finished = loop {
        match run.next().await.map_err(failed)? {
            Some(event) => {
                if let Some(finished) = telling.hear(event) {
                    break finished;
                }
            }
            // A run tells its end or its failure before it says that there is no more.
            None => return Err(failed(GuestError::Malformed { what: "a run without an end" })),
        }
    };
    telling.conclude(&asked, finished)
}

fn language(asked: &str) -> Result<&'static str, Failure> {
    language::called(&asked.to_ascii_lowercase()).ok_or_else(|| {
        let names: Vec<_> = language::NAMES.iter().map(|(name, _)| *name).collect();
        let asked = shown(asked);
        Failure::params(format!("language: {asked:?} is none of {}", names.join(", ")))
    })
}

fn context_of(language: &str) -> ContextName {
    language.parse().expect("languages are names")
}

/// What a run says, on its way into an answer.
struct Telling {
    lines: Lines,
    language: &'static str,
    /// The interpreter is another than the last run's, and why.
    lost: Option<String>,
}

impl Telling {
    /// Takes in the next event; the last one is given back.
    fn hear(&mut self, event: Event) -> Option<Finished> {
        match event.what {
            Happening::Stdout { bytes } => self.lines.say(Stream::Stdout, bytes.as_bytes()),
            Happening::Stderr { bytes } => self.lines.say(Stream::Stderr, bytes.as_bytes()),
            Happening::Display(shown) => self.show(&shown),
            Happening::Error(report) => self.lines.tell(Stream::Stderr, &traceback(report)),
            Happening::Started(started) => self.lost = started.lost,
            Happening::Finished(finished) => return Some(finished),
            Happening::Late(_)
            | Happening::Artifact(_)
            | Happening::InputRequest { .. }
            | Happening::Lost { .. }
            | Happening::Gap { .. } => {}
        }
        None
    }

    /// Shows a value as an interactive interpreter does: as text.
    fn show(&mut self, shown: &Display) {
        if let Some(form) = shown.data.iter().find(|form| form.mime == "text/plain") {
            self.lines.tell(Stream::Stdout, &form.data.to_string_lossy());
        }
    }

    fn conclude(mut self, asked: &str, finished: Finished) -> Result<Written, Failure> {
        let Finished { end, state_kept, rung, .. } = finished;
        let is_well = matches!(end, RunEnd::Ok {} | RunEnd::Exited { code: 0 });
        let words = match end {
            RunEnd::Ok {} | RunEnd::Error {} | RunEnd::Exited { code: 0 } => None,
            RunEnd::Exited { code } if self.language == "python" => {
                Some(format!("SystemExit: {code}"))
            }
            RunEnd::Exited { code } => Some(format!("exit status {code}")),
            RunEnd::Interrupted { by } => Some(format!("the run was interrupted by {by}")),
            RunEnd::Died { cause } => Some(format!("the interpreter {}", ended(&cause))),
            RunEnd::TimedOut { limit_ms } => {
                return Err(self.overrun(asked, limit_ms, state_kept, rung));
            }
            RunEnd::Cancelled { reason } => {
                let message = format!("the code was not run: {reason}");
                return Err(Problem::new(Code::Conflict, message).into());
            }
        };
        if let Some(words) = words {
            self.lines.tell(Stream::Stderr, &words);
        }
        if !state_kept {
            let words = "the state of the interpreter is lost; the next run begins with a new one";
            self.lines.tell(Stream::Stderr, words);
        }
        let status = if is_well { "success" } else { "error" };
        let mut written = self.written(status, asked, state_kept);
        if let Some(lost) = &self.lost {
            written = written.text(",\"state_lost\":").value(lost);
        }
        Ok(written.text("}"))
    }

    fn overrun(
        mut self,
        asked: &str,
        limit_ms: u64,
        state_kept: bool,
        rung: Option<Rung>,
    ) -> Failure {
        let limit = Duration::from_millis(limit_ms);
        let how = match rung {
            Some(Rung::Killed) => "its interpreter was killed",
            _ => "it was interrupted",
        };
        let fate = if state_kept { "the state is kept" } else { "the state is lost" };
        let limit_said = seconds(limit);
        let message =
            format!("the code ran out of time: {how} at its deadline of {limit_said}, and {fate}");
        let data = self.written("timeout", asked, state_kept);
        Failure::new(TIMED_OUT, message)
            .data(data.text(",\"timeout\":").value(&limit.as_secs_f64()).text("}"))
    }

    /// What is said of a run however it ended; the object is still open.
    fn written(&mut self, status: &str, asked: &str, state_kept: bool) -> Written {
        let Said { output, is_truncated, .. } = std::mem::take(&mut self.lines).finish();
        Written::default()
            .text("{\"status\":")
            .value(&status)
            .text(",\"language\":")
            .value(&asked)
            .text(",\"output\":")
            .bytes(output)
            .text(",\"truncated\":")
            .value(&is_truncated)
            .text(",\"state_kept\":")
            .value(&state_kept)
    }
}

/// The text of an error, whatever there is of it.
fn traceback(report: ErrorReport) -> String {
    let ErrorReport { kind, message, traceback, .. } = report;
    if !traceback.trim().is_empty() {
        return traceback;
    }
    if message.is_empty() { kind } else { format!("{kind}: {message}") }
}

/// How a process ended, as the end of a sentence.
fn ended(cause: &Cause) -> String {
    match cause {
        Cause::Exited { code } => format!("exited with {code}"),
        Cause::Signaled { signal, .. } => format!("died of signal {signal}"),
        Cause::Killed { signal, by } => format!("was killed with signal {signal} by {by}"),
        Cause::TimedOut { limit_ms } => {
            format!("was killed at its deadline of {}", seconds(Duration::from_millis(*limit_ms)))
        }
        Cause::OutOfMemory { .. } => "was killed because the sandbox ran out of memory".to_owned(),
        Cause::AgentStopping => "was ended because the sandbox was stopped".to_owned(),
        Cause::SpawnFailed { failure } => format!("could not be started: {}", failure.subject),
    }
}
