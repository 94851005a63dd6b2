//! `shell_execute`: runs a command line to its end.

use std::time::Duration;

use nix::errno::Errno;
use protocol::ExitRecord;
use protocol::exit::{Cause, SpawnFailure};
use protocol::message::Channel;
use protocol::requests;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::output::{notes, shown_outputs};
use super::trial::{Ending, Trial, TrialResult};
use crate::budget::Share;
use crate::forms::artifacts::{KeptArtifact, LeftOut};
use crate::mcp::captured::{self, CapturedResult};
use crate::mcp::carried::handle;
use crate::mcp::cut::{Rest, clip};
use crate::mcp::limits::REASON_BYTES_MAX;
use crate::mcp::progress::Progress;
use crate::mcp::results::Outputs;
use crate::mcp::tool::{Answer, Effect, Entered, Entry, Work, tool};
use access::keys::Access;
use agent_client::guest::GuestError;
use agent_client::program::{Head, Program, Sink, draw_session, ran_out_of_memory};
use sandbox::changes::FileChange;
use sandbox::refusal::{Code, Refusal};
use services::artifact::Scene;

pub fn entries() -> Vec<Entry> {
    vec![tool(
        "shell_execute",
        "Run a shell command",
        "Runs a command line with /bin/sh and returns its output and exit code. An exit code \
        other than 0 and a timeout are errors with all output. Processes left in the background \
        keep running, unless the call timed out.",
        Access::Run,
        Effect::Runs,
        shell_execute,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShellExecute {
    /// The command line.
    command: String,
    /// The working directory; the sandbox's own by default.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    working_directory: Option<String>,
    /// Seconds until it is killed with all that it started; usually 240 by default.
    #[serde(default)]
    #[schemars(range(max = 86_400))]
    timeout: Option<f64>,
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
    /// Runs it in a fork, lists the files that it changes, and drops or keeps the fork.
    #[serde(default, rename = "try")]
    trial: Option<Ending>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Exited,
    /// It could not be started.
    NeverRan,
    /// A signal ended it.
    Signaled,
    Killed,
    TimedOut,
    OutOfMemory,
    SandboxStopping,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Ran {
    sandbox: String,
    status: Status,
    /// The exit code as a shell reports it: 128 plus the signal that ended the program, or 124 for
    /// a timeout.
    exit_code: i32,
    /// The beginning only, if it was long.
    stdout: String,
    stderr: String,
    duration_seconds: f64,
    /// How many of its processes still run.
    left_behind_count: u32,
    /// Whether part of the output is not shown.
    truncated: bool,
    /// The run to pass to `read_output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    rest: Vec<Rest>,
    /// The kept artifacts: new and changed files in its directory and in `/artifacts`.
    artifacts: Vec<KeptArtifact>,
    artifacts_left_out: Vec<LeftOut>,
    /// The fork in which it was tried, if it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fork: Option<String>,
    /// What it has changed there: `A` added, `M` modified, `D` deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<FileChange>,
}

async fn shell_execute(work: Work, request: ShellExecute) -> Result<Answer<Ran>, Refusal> {
    // What the line says is code.
    work.trail.command(std::iter::once("sh".to_owned()));
    let limit = work.time_limit(request.timeout)?;
    let Entered { mut inside, note } = work.enter(request.sandbox.as_deref()).await?;
    let mut trial = None;
    if let Some(ending) = request.trial {
        let (begun, fork) = Trial::begin(&work, &inside.which, ending).await?;
        (trial, inside) = (Some(begun), fork);
    }
    let _permit = work.api.admission().admit(&work.caller.label())?;
    let cwd = request.working_directory.filter(|path| !path.is_empty());
    let cwd = cwd.or_else(|| inside.workdir.clone());
    let scene = Scene { workdir: cwd.as_deref().map(Into::into), ..Scene::default() };
    let mut program = Program::new(draw_session()?, requests::Program::script(request.command));
    program.start.cwd = cwd.map(Into::into);
    program.start.deadline_ms = Some(limit.as_millis() as u64);
    let capture = captured::begin(&work.api, &inside, scene).await;
    let progress = Progress::begin(&work.context, limit);
    let (mut outputs, memory) = (Outputs::default(), work.memory.clone());
    let mut running = program.begin(&inside.guest)?;
    let mut sink = OutputSink { outputs: &mut outputs, memory, progress: &progress };
    let ended = tokio::select! {
        ended = running.collect(b"", &mut sink) => ended.map_err(unstarted)?,
        // Whatever ends this call before the command has ended, ends the command.
        () = work.context.ct.cancelled() => {
            return Err(Refusal::new(Code::Gone, "the call was cancelled, and the command killed"));
        }
    };
    progress.end().await;
    // What it has left in the background was meant to stay, unless its time was over.
    drop(running);
    let captured = captured::end(&work.api, capture, None).await;
    let tried = match trial {
        Some(trial) => Some(trial.end().await?),
        None => None,
    };
    let sandbox = inside.which.to_string();
    Ok(conclude(&work, &sandbox, note, &ended.record, outputs, captured, tried))
}

/// Collects the output of a command for an answer.
struct OutputSink<'a> {
    outputs: &'a mut Outputs,
    memory: Share,
    progress: &'a Progress,
}

impl OutputSink<'_> {
    fn of(&mut self, channel: Channel) -> &mut Head {
        match channel {
            Channel::Stderr => &mut self.outputs.stderr,
            Channel::Stdout | Channel::Terminal => &mut self.outputs.stdout,
        }
    }
}

impl Sink for OutputSink<'_> {
    fn add(&mut self, channel: Channel, bytes: &[u8]) {
        self.progress.count(bytes.len());
        let memory = self.memory.clone();
        self.of(channel).add(bytes, &memory);
    }

    fn lose(&mut self, channel: Channel, bytes: u64) {
        self.of(channel).lose(bytes);
    }
}

fn conclude(
    work: &Work,
    sandbox: &str,
    note: Option<String>,
    record: &ExitRecord,
    outputs: Outputs,
    captured: CapturedResult,
    tried: Option<TrialResult>,
) -> Answer<Ran> {
    let (status, words) = end(&record.cause);
    let exit_code = record.cause.shell_code();
    let left = record.left_behind_count;
    let left =
        (left > 0).then(|| format!("{left} of its processes keep running in the background"));
    let shown = work
        .session
        .results()
        .show(outputs, handle(&work.api), || work.api.budget().share(&work.caller));
    let mut content = shown_outputs(&shown);
    content.extend(captured.pictures);
    let place = format!("exit code {exit_code}, sandbox {sandbox}");
    let trial = tried.as_ref().map(TrialResult::words);
    let remarks = [note, words, left, captured.words, trial].into_iter().flatten().chain([place]);
    content.push(notes(remarks, &shown));
    let TrialResult { fork, changes, .. } = tried.unwrap_or_default();
    let structured = Ran {
        sandbox: sandbox.to_owned(),
        status,
        exit_code,
        stdout: shown.stdout,
        stderr: shown.stderr,
        duration_seconds: Duration::from_micros(record.duration_us).as_secs_f64(),
        left_behind_count: record.left_behind_count,
        truncated: !shown.rest.is_empty(),
        run: shown.run,
        rest: shown.rest,
        artifacts: captured.captured.artifacts,
        artifacts_left_out: captured.captured.left_out,
        fork,
        changes,
    };
    Answer { content, structured, is_error: exit_code != 0 }
}

fn end(cause: &Cause) -> (Status, Option<String>) {
    match cause {
        Cause::Exited { .. } => (Status::Exited, None),
        Cause::SpawnFailed { failure } => (Status::NeverRan, Some(never_ran(failure))),
        Cause::Signaled { signal, .. } => {
            (Status::Signaled, Some(format!("signal {signal} ended it")))
        }
        Cause::Killed { signal, by } => {
            (Status::Killed, Some(format!("it was ended with signal {signal} by {by}")))
        }
        Cause::TimedOut { limit_ms } => {
            let seconds = Duration::from_millis(*limit_ms).as_secs_f64();
            let words = format!(
                "timeout: it was killed after {seconds} s, with all that it had started. Set a \
                longer `timeout`, or run it in the background with its output in a file"
            );
            (Status::TimedOut, Some(words))
        }
        Cause::OutOfMemory { limit_bytes } => {
            let words = format!(
                "it {}; do less in one call, or make a sandbox with more `memory_mib`",
                ran_out_of_memory(*limit_bytes)
            );
            (Status::OutOfMemory, Some(words))
        }
        Cause::AgentStopping => {
            (Status::SandboxStopping, Some("it ended because the sandbox was stopped".to_owned()))
        }
    }
}

/// A refusal to start a command, with what helps here.
fn unstarted(error: GuestError) -> Refusal {
    let problem = Refusal::from(error);
    if problem.code == Code::SpawnFailed {
        return problem.hint(
            "check that `working_directory` exists and that the sandbox's image has a shell",
        );
    }
    problem
}

/// Why a command never ran. What it was about is the guest's word, and so of any length.
fn never_ran(failure: &SpawnFailure) -> String {
    let (stage, subject) = (failure.stage, clip(&failure.subject, REASON_BYTES_MAX));
    let reason = Errno::from_raw(failure.errno).desc();
    format!("it could not be started: {stage:?} of {subject:?} failed ({reason})")
}
