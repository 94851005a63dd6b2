//! `execute`: code in an interpreter that keeps its variables from one call to the next.

use std::time::Duration;

use protocol::ContextName;
use protocol::repl::{ErrorReport, Event, Finished, Grace, Happening, RunEnd, Rung};
use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::notebooks::{enter, in_session};
use super::output::{notes, shown_outputs};
use crate::budget::Share;
use crate::call::{Inside, passed};
use crate::capture::{Capture, directory_of};
use crate::forms::artifacts::{KeptArtifact, LeftOut};
use crate::forms::contexts::interpreter_of;
use crate::forms::exit::ended;
use crate::forms::notebooks::InNotebook;
use crate::mcp::captured::{self, CapturedResult};
use crate::mcp::carried::handle;
use crate::mcp::cut::{Rest, clip, page};
use crate::mcp::display::Displays;
use crate::mcp::limits::{LATE_BYTES_MAX, REASON_BYTES_MAX, SHOWN_BYTES_MAX};
use crate::mcp::progress::Progress;
use crate::mcp::resources::of_sandbox;
use crate::mcp::results::{Outputs, output};
use crate::mcp::tool::{Answer, Effect, Entered, Entry, Work, tool};
use access::keys::Access;
use agent_client::guest::contexts::{RunCode, language, open};
use agent_client::guest::{GuestError, Run};
use agent_client::program::Head;
use sandbox::refusal::{Code, Refusal};
use services::artifact::Scene;
use services::notebook::Turn;

pub fn entries() -> Vec<Entry> {
    vec![tool("execute", "Run code", ABOUT, Access::Run, Effect::Runs, execute)]
}

const ABOUT: &str = "Runs code in an interpreter that keeps its variables between calls. Returns \
its output, the value of the last expression, and what it displays; matplotlib figures and PIL \
images come as images. An exception or a timeout is an error with all output from before it, and \
says whether the variables are kept.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Execute {
    /// The code to run.
    code: String,
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
    /// `python`, `node` or `bash`; `python` by default.
    #[serde(default)]
    #[schemars(length(max = 63))]
    language: Option<String>,
    /// A name for the interpreter; each language has one by default. Interpreters share files, not
    /// variables.
    #[serde(default)]
    context: Option<String>,
    /// The directory of a Python virtual environment to run in, for a new `context`.
    #[serde(default)]
    #[schemars(length(max = 4000))]
    venv: Option<String>,
    /// A name for a session whose variables outlive the interpreter, the sandbox and the server.
    /// Without `sandbox`, it has its own sandbox. For Python and Node; not with `context`.
    #[serde(default)]
    session_id: Option<String>,
    /// Seconds until it is interrupted; usually 240 by default.
    #[serde(default)]
    #[schemars(range(max = 86_400))]
    timeout: Option<f64>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// An uncaught exception.
    Error,
    /// The code asked to exit.
    Exited,
    Interrupted,
    TimedOut,
    /// The interpreter died.
    Died,
    /// It never started.
    Cancelled,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Executed {
    sandbox: String,
    context: String,
    language: String,
    status: Status,
    /// The beginning only, if it was long.
    stdout: String,
    stderr: String,
    /// The value of the last expression, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Raised>,
    /// The exit code, if the code asked to exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// Whether the next call finds the variables of this one.
    state_kept: bool,
    /// Why the variables of earlier calls were lost before this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state_lost: Option<String>,
    /// Output since then from threads and programs of earlier calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    late: Option<String>,
    duration_seconds: f64,
    /// Whether compiled code was reused, if the language reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cache_hit: Option<bool>,
    /// For a call with `session_id`: the number of the run, and what was restored for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<InNotebook>,
    /// Whether part of the output is not shown.
    truncated: bool,
    /// The run to pass to `read_output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    rest: Vec<Rest>,
    /// The kept artifacts: displayed pictures and documents, files that the code offers, and new
    /// and changed files in its directory and in `/artifacts`.
    artifacts: Vec<KeptArtifact>,
    artifacts_left_out: Vec<LeftOut>,
}

/// An exception.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Raised {
    #[serde(rename = "type")]
    kind: String,
    message: String,
    traceback: String,
}

async fn execute(work: Work, request: Execute) -> Result<Answer<Executed>, Refusal> {
    let limit = work.time_limit(request.timeout)?;
    // The guest counts from the run's start, and the client from here.
    let give_up_at = Instant::now() + limit;
    let wanted = request.language.as_deref().map(known).transpose()?;
    let context: Option<ContextName> = request.context.map(|name| named(&name)).transpose()?;
    if request.venv.is_some() && (request.session_id.is_some() || context.is_none()) {
        let message = "`venv` is of a new interpreter: name a `context` for it";
        return Err(Refusal::invalid(message));
    }
    let program = interpreter_of(None, request.venv)?;
    let _permit = work.api.admission().admit(&work.caller.label())?;
    let (inside, note, mut ask, mut turn) = if let Some(id) = &request.session_id {
        if context.is_some() {
            return Err(Refusal::invalid("a session has its own interpreter; leave `context` out"));
        }
        let turn =
            enter(&work, id, request.sandbox.as_deref(), wanted, &request.code, give_up_at).await?;
        let inside = work.inside(turn.which.clone()).await?;
        let ask = RunCode::new(turn.context.clone(), request.code);
        (inside, None, ask, Some(turn))
    } else {
        let Entered { inside, note } = work.enter(request.sandbox.as_deref()).await?;
        let mut ask = ask(&inside, context, wanted, request.code).await?;
        ask.context.program = program.map(Into::into);
        (inside, note, ask, None)
    };
    ask.deadline = Some(limit);
    let (context, language) = (ask.context.context.clone(), ask.context.language.clone());
    let workdir = directory_of(&inside, &context, ask.context.cwd.as_ref()).await?;
    let scene = Scene { workdir, ..Scene::default() };
    let capture = captured::begin(&work.api, &inside, scene).await;
    let progress = Progress::begin(&work.context, limit);
    let run = inside.guest.run_code_now(ask)?;
    if let Some(turn) = &mut turn {
        turn.begin();
    }
    let capture = match (capture, &turn, &request.session_id) {
        (Some(capture), Some(turn), Some(id)) => Some(capture.of_notebook(id, turn.number)),
        (capture, ..) => capture,
    };
    let mut transcript = Transcript::new(work.memory.clone(), capture);
    transcript.session =
        turn.as_mut().zip(request.session_id.as_deref()).map(|(turn, id)| in_session(turn, id));
    let (finished, is_given_up) =
        follow(&work, run, give_up_at, &progress, &mut transcript, turn.as_mut()).await?;
    progress.end().await;
    let captured = captured::end(&work.api, transcript.capture.take(), transcript.run).await;
    if let Some(mut turn) = turn {
        turn.count_artifacts(captured.captured.artifacts.len() as u64);
        turn.end().await;
    }
    let over = Ended { finished, given_up: is_given_up.then_some(limit), captured };
    Ok(transcript.conclude(&work, &inside, note, &context, language, over))
}

/// What a context is called.
fn named(name: &str) -> Result<ContextName, Refusal> {
    name.parse().map_err(|error| Refusal::invalid(format!("context: {error}")))
}

fn known(name: &str) -> Result<&'static str, Refusal> {
    language::called(&name.to_ascii_lowercase()).ok_or_else(|| {
        let names: Vec<_> = language::names().collect();
        let name: String = name.chars().take(63).collect();
        Refusal::invalid(format!("language must be one of {}, not {name:?}", names.join(", ")))
    })
}

/// A context that is there is asked for as it is; another is made in the sandbox's own directory.
async fn ask(
    inside: &Inside,
    context: Option<ContextName>,
    wanted: Option<&'static str>,
    code: String,
) -> Result<RunCode, Refusal> {
    let workdir = || inside.workdir.as_deref().map(Into::into);
    let Some(name) = context else {
        let language = wanted.unwrap_or(language::DEFAULT);
        let name =
            language.parse().map_err(|_| Refusal::new(Code::Internal, "a language's name"))?;
        let mut context = open(name, language);
        context.cwd = workdir();
        inside.guest.settle(&mut context).await?;
        return Ok(RunCode::new(context, code));
    };
    let contexts = inside.guest.contexts().await?;
    let found = contexts.into_iter().find(|info| info.context == name);
    let context = match (found, wanted) {
        (Some(found), None) => open(name, found.language),
        (Some(_), Some(wanted)) => open(name, wanted),
        (None, wanted) => {
            let mut context = open(name, wanted.unwrap_or(language::DEFAULT));
            context.cwd = workdir();
            inside.guest.settle(&mut context).await?;
            context
        }
    };
    Ok(RunCode::new(context, code))
}

/// Reads a run to its end, and says whether it was ended because its time was over.
async fn follow(
    work: &Work,
    mut run: Run,
    give_up_at: Instant,
    progress: &Progress,
    transcript: &mut Transcript,
    mut turn: Option<&mut Turn>,
) -> Result<(Finished, bool), Refusal> {
    let (mut give_up_at, mut is_given_up, mut is_cancelled) = (Some(give_up_at), false, false);
    loop {
        let event = tokio::select! {
            event = run.next() => event?,
            () = passed(give_up_at) => {
                give_up_at = None;
                run.queued().await?;
                // When that fails, the run's own events say what has become of it.
                let ended = run.interrupt(Grace::default()).await;
                is_given_up = matches!(ended, Ok(Some(_)));
                continue;
            }
            () = work.context.ct.cancelled(), if !is_cancelled => {
                is_cancelled = true;
                run.queued().await?;
                let _ = run.interrupt(Grace::default()).await;
                continue;
            }
        };
        // A run sends its end or its failure before it closes.
        let ended = GuestError::Malformed { what: "a run without an end" };
        let event = event.ok_or(ended)?;
        if let Some(turn) = &mut turn {
            turn.record(&event);
        }
        let Event { what, run: number, .. } = event;
        transcript.run = Some(number);
        if let Some(finished) = transcript.take(what, progress) {
            return Ok((finished, is_given_up));
        }
    }
}

/// What a run says, on its way into an answer.
struct Transcript {
    /// Of all calls.
    memory: Share,
    outputs: Outputs,
    displays: Displays,
    error: Option<ErrorReport>,
    lost: Option<String>,
    late: Head,
    session: Option<(InNotebook, Option<ContentBlock>)>,
    capture: Option<Capture>,
    /// Its number.
    run: Option<u64>,
}

impl Transcript {
    fn new(memory: Share, capture: Option<Capture>) -> Self {
        Self {
            capture,
            run: None,
            memory,
            outputs: Outputs::default(),
            displays: Displays::default(),
            error: None,
            lost: None,
            late: output(),
            session: None,
        }
    }

    fn take(&mut self, what: Happening, progress: &Progress) -> Option<Finished> {
        if let Some(capture) = &mut self.capture {
            capture.see(&what, &self.memory);
        }
        match what {
            Happening::Stdout { bytes } => {
                progress.count(bytes.as_bytes().len());
                self.outputs.stdout.add(bytes.as_bytes(), &self.memory);
            }
            Happening::Stderr { bytes } => {
                progress.count(bytes.as_bytes().len());
                self.outputs.stderr.add(bytes.as_bytes(), &self.memory);
            }
            Happening::Display(display) => self.displays.take(display, &self.memory),
            Happening::Error(report) => self.error = Some(report),
            Happening::Started(started) => self.lost = started.lost.or(self.lost.take()),
            Happening::Lost { reason } => self.lost = Some(reason),
            Happening::Late(late) => self.late.add(late.bytes.as_bytes(), &self.memory),
            Happening::Finished(finished) => return Some(finished),
            Happening::Artifact(_) | Happening::InputRequest { .. } | Happening::Gap { .. } => {}
        }
        None
    }

    fn conclude(
        self,
        work: &Work,
        inside: &Inside,
        note: Option<String>,
        context: &ContextName,
        language: String,
        over: Ended,
    ) -> Answer<Executed> {
        let finished = &over.finished;
        let (status, exit_code, words) = end(&over);
        let captured = over.captured;
        let shown = work
            .session
            .results()
            .show(self.outputs, handle(&work.api), || work.api.budget().share(&work.caller));
        let value = self.displays.value().map(|text| clip(&text, SHOWN_BYTES_MAX));
        let sandbox = inside.which.to_string();
        let place = of_sandbox(&inside.which, "displays", context.as_str());
        let mut content = shown_outputs(&shown);
        let (session, brought_back) = self.session.unzip();
        content.extend(brought_back.flatten());
        content.extend(self.displays.into_content(&place));
        content.extend(captured.pictures);
        let error = self.error.map(raised);
        content.extend(error.as_ref().map(|raised| ContentBlock::text(raised.traceback.clone())));
        let late = said_late(&self.late);
        let lost = self.lost.map(|why| clip(&why, REASON_BYTES_MAX));
        content.extend(late.as_ref().map(|late| {
            ContentBlock::text(format!(
                "[output since then from programs and threads of earlier calls]\n{late}"
            ))
        }));
        let lost_words = lost
            .as_ref()
            .map(|why| format!("the variables of earlier calls were lost before this call: {why}"));
        let fate = (!finished.state_kept)
            .then(|| "the variables are lost; the next call starts a new interpreter".to_owned());
        let place = format!("sandbox {sandbox}, context {context}");
        let remarks =
            [note, lost_words, words, fate, captured.words].into_iter().flatten().chain([place]);
        content.push(notes(remarks, &shown));
        let structured = Executed {
            sandbox,
            context: context.to_string(),
            language,
            status,
            stdout: shown.stdout,
            stderr: shown.stderr,
            value,
            error,
            exit_code,
            state_kept: finished.state_kept,
            state_lost: lost,
            late,
            duration_seconds: Duration::from_micros(finished.duration_us).as_secs_f64(),
            cache_hit: finished.cached,
            session,
            truncated: !shown.rest.is_empty(),
            run: shown.run,
            rest: shown.rest,
            artifacts: captured.captured.artifacts,
            artifacts_left_out: captured.captured.left_out,
        };
        let is_error = !matches!((status, exit_code), (Status::Ok, _) | (Status::Exited, Some(0)));
        Answer { content, structured, is_error }
    }
}

/// The late output of earlier calls, if there is any.
fn said_late(late: &Head) -> Option<String> {
    let page = page(late.bytes(), 0, LATE_BYTES_MAX);
    let total = late.total_bytes();
    let shown = page.next.unwrap_or(late.bytes().len()) as u64;
    match total {
        0 => None,
        _ if shown == total => Some(page.text),
        _ => Some(format!("{}\n[cut: the first {shown} of {total} bytes]", page.text)),
    }
}

fn raised(report: ErrorReport) -> Raised {
    let ErrorReport { kind, message, traceback, .. } = report;
    let traceback = match (traceback.trim().is_empty(), message.is_empty()) {
        (false, _) => clip(&traceback, SHOWN_BYTES_MAX),
        (true, true) => clip(&kind, SHOWN_BYTES_MAX),
        (true, false) => clip(&format!("{kind}: {message}"), SHOWN_BYTES_MAX),
    };
    let (kind, message) = (clip(&kind, REASON_BYTES_MAX), clip(&message, SHOWN_BYTES_MAX));
    Raised { kind, message, traceback }
}

/// A run that is over.
struct Ended {
    finished: Finished,
    /// After how long it was ended from here, if it was.
    given_up: Option<Duration>,
    /// What it has left.
    captured: CapturedResult,
}

/// How a run has ended, its exit code, and the text about it.
fn end(Ended { finished, given_up, .. }: &Ended) -> (Status, Option<i32>, Option<String>) {
    let overrun = |seconds: f64| {
        let how = match finished.rung {
            Some(Rung::Killed) => "its interpreter was killed",
            _ => "it was interrupted",
        };
        let fate = if finished.state_kept { "; the variables are kept" } else { "" };
        let words = format!(
            "timeout: the code ran for longer than {seconds} s, and {how}{fate}. Set a longer \
            `timeout`, or do less in one call"
        );
        (Status::TimedOut, None, Some(words))
    };
    match (&finished.end, given_up) {
        (RunEnd::Ok {}, _) => (Status::Ok, None, None),
        (RunEnd::Error {}, _) => (Status::Error, None, None),
        (RunEnd::Exited { code }, _) => {
            (Status::Exited, Some(*code), Some(format!("the code exited with {code}")))
        }
        (RunEnd::TimedOut { limit_ms }, _) => {
            overrun(Duration::from_millis(*limit_ms).as_secs_f64())
        }
        (RunEnd::Interrupted { .. }, Some(limit)) => overrun(limit.as_secs_f64()),
        (RunEnd::Interrupted { by }, None) => {
            (Status::Interrupted, None, Some(format!("the code was interrupted by {by}")))
        }
        (RunEnd::Died { cause }, _) => {
            let words = format!("the interpreter {}", ended(cause));
            (Status::Died, None, Some(words))
        }
        (RunEnd::Cancelled { .. }, Some(limit)) => {
            let seconds = limit.as_secs_f64();
            let words = format!(
                "timeout: the code was not run, because other calls used the interpreter for \
                {seconds} s. Use another `context`, or try again"
            );
            (Status::TimedOut, None, Some(words))
        }
        (RunEnd::Cancelled { reason }, None) => {
            (Status::Cancelled, None, Some(format!("the code was not run: {reason}")))
        }
    }
}
