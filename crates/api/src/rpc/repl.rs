//! `sandbox.repl.run`: code in the interpreter that a sandbox keeps for its language.
//!
//! The context is named as the language is, so that the native API reaches the same one. What an
//! earlier run's threads write late is in no answer here; the native API sends it.

use std::time::Duration;

use protocol::ContextName;
use protocol::repl::{Display, ErrorReport, Event, Finished, Grace, Happening, RunEnd, Rung};
use tokio::time::Instant;

use super::failure::{Failure, TIMED_OUT};
use super::lines::{Collected, Lines, Stream};
use super::params::{Params, shown};
use super::written::Written;
use super::{Work, inside, time_limit, which};
use crate::call::passed;
use crate::forms::exit::{ended, seconds};
use agent_client::guest::GuestError;
use agent_client::guest::contexts::{RunCode, language, open};
use sandbox::refusal::{Code, Refusal};

pub async fn run(
    (call, trail): Work<'_>,
    mut params: Params,
    room: usize,
) -> Result<Written, Failure> {
    let which = which(call, &mut params)?;
    let language_name = params.text("language")?;
    let language = language(&language_name)?;
    let code = params.text("code")?;
    let limit = time_limit(call, &mut params)?;
    // The guest counts from the run's start, and the client from here: time in the queue is its too.
    let mut give_up_at = Some(Instant::now() + limit.time);
    let inside = inside((call, trail), which).await?;
    let _permit = call.api.admission().admit(&call.caller.label())?;

    let mut context = open(context_of(language), language);
    context.cwd = inside.workdir.as_deref().map(Into::into);
    let failed = |error| Failure::inside(&inside.which, error);
    inside.guest.settle(&mut context).await.map_err(failed)?;
    let mut ask = RunCode::new(context, code);
    (ask.deadline, ask.reported_deadline) = (Some(limit.time), Some(limit.reported));
    let mut run = inside.guest.run_code_now(ask).map_err(failed)?;
    let lines = Lines::new(room).counted(call.memory.clone());
    let limit = limit.reported;
    let mut telling = Telling { lines, language, lost: None, limit, is_given_up: false };
    let finished = loop {
        let event = tokio::select! {
            event = run.next() => event.map_err(failed)?,
            () = passed(give_up_at) => {
                give_up_at = None;
                run.queued().await.map_err(failed)?;
                // When that fails, the run's own events say what has become of it.
                let ended = run.interrupt(Grace::default()).await;
                telling.is_given_up = matches!(ended, Ok(Some(_)));
                continue;
            }
        };
        match event {
            Some(event) => {
                if let Some(finished) = telling.take(event) {
                    break finished;
                }
            }
            // A run sends its end or its failure before it closes.
            None => return Err(failed(GuestError::Malformed { what: "a run without an end" })),
        }
    };
    telling.conclude(&language_name, finished)
}

fn language(name: &str) -> Result<&'static str, Failure> {
    language::called(&name.to_ascii_lowercase()).ok_or_else(|| {
        let names: Vec<_> = language::names().collect();
        let name = shown(name);
        Failure::params(format!("language must be one of {}, not {name:?}", names.join(", ")))
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
    /// As the client has named it.
    limit: Duration,
    /// Its time is over, and it was ended for that.
    is_given_up: bool,
}

impl Telling {
    /// Takes in the next event; the last one is given back.
    fn take(&mut self, event: Event) -> Option<Finished> {
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

    fn conclude(mut self, language_name: &str, finished: Finished) -> Result<Written, Failure> {
        let Finished { end, state_kept, rung, .. } = finished;
        let end = match end {
            RunEnd::Interrupted { .. } if self.is_given_up => {
                RunEnd::TimedOut { limit_ms: self.limit.as_millis() as u64 }
            }
            RunEnd::Cancelled { .. } if self.is_given_up => {
                return Err(self.unheard(language_name, state_kept));
            }
            end => end,
        };
        let is_well = matches!(end, RunEnd::Ok {} | RunEnd::Exited { code: 0 });
        let words = match end {
            RunEnd::Ok {} | RunEnd::Error {} | RunEnd::Exited { code: 0 } => None,
            RunEnd::Exited { code } => {
                Some(match language::Language::of(self.language).exit_error {
                    Some(error) => format!("{error}: {code}"),
                    None => format!("exit status {code}"),
                })
            }
            RunEnd::Interrupted { by } => Some(format!("the run was interrupted by {by}")),
            RunEnd::Died { cause } => Some(format!("the interpreter {}", ended(&cause))),
            RunEnd::TimedOut { limit_ms } => {
                return Err(self.overrun(language_name, limit_ms, state_kept, rung));
            }
            RunEnd::Cancelled { reason } => {
                let message = format!("the code was not run: {reason}");
                return Err(Refusal::new(Code::Conflict, message).into());
            }
        };
        if let Some(words) = words {
            self.lines.tell(Stream::Stderr, &words);
        }
        if !state_kept {
            let words = "the state of the interpreter is lost; the next run starts a new one";
            self.lines.tell(Stream::Stderr, words);
        }
        let status = if is_well { "success" } else { "error" };
        let mut written = self.written(status, language_name, state_kept);
        if let Some(lost) = &self.lost {
            written = written.text(",\"state_lost\":").value(lost);
        }
        Ok(written.text("}"))
    }

    fn overrun(
        self,
        language: &str,
        limit_ms: u64,
        state_kept: bool,
        rung: Option<Rung>,
    ) -> Failure {
        let limit = Duration::from_millis(limit_ms);
        let deadline = seconds(limit);
        let how = match rung {
            Some(Rung::Killed) => "its interpreter was killed",
            _ => "it was interrupted",
        };
        let fate = if state_kept { "the state is kept" } else { "the state is lost" };
        let message =
            format!("the code timed out: {how} at its deadline of {deadline}, and {fate}");
        self.timed_out(language, limit, state_kept, message)
    }

    /// Its turn has not come.
    fn unheard(self, language: &str, state_kept: bool) -> Failure {
        let limit = self.limit;
        let message = format!(
            "the code was not run: it waited for the interpreter for all of its {}",
            seconds(limit)
        );
        self.timed_out(language, limit, state_kept, message)
    }

    fn timed_out(
        mut self,
        language: &str,
        limit: Duration,
        state_kept: bool,
        message: String,
    ) -> Failure {
        let data = self.written("timeout", language, state_kept);
        Failure::new(TIMED_OUT, message)
            .data(data.text(",\"timeout\":").value(&limit.as_secs_f64()).text("}"))
    }

    /// What every answer to a run has, however it ended; the object is still open.
    fn written(&mut self, status: &str, language: &str, state_kept: bool) -> Written {
        let Collected { output, is_truncated, .. } =
            std::mem::replace(&mut self.lines, Lines::new(0)).finish();
        Written::default()
            .text("{\"status\":")
            .value(&status)
            .text(",\"language\":")
            .value(&language)
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
