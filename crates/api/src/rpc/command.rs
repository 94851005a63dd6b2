//! `sandbox.command.run`: a program and its arguments, which no shell sees.
//!
//! The result has both shapes that clients read: the lines of all output in their order, and the text
//! of each stream. A program that is not there and one that runs out of time are errors; one that
//! fails is a result.

use std::time::Duration;

use protocol::exit::Cause;
use protocol::message::Channel;
use protocol::{Text, requests};

use super::failure::{Failure, TIMED_OUT};
use super::lines::{Collected, Lines, Stream};
use super::params::Params;
use super::written::Written;
use super::{Work, inside, time_limit, which};
use crate::forms::exit::seconds;
use agent_client::program::{Ended, Program, Sink, draw_session};

const SIGKILL: i32 = nix::libc::SIGKILL;

pub async fn run(
    (call, trail): Work<'_>,
    mut params: Params,
    room: usize,
) -> Result<Written, Failure> {
    let which = which(call, &mut params)?;
    let command = params.text("command")?;
    if command.is_empty() {
        return Err(Failure::params("command is empty; it names a program"));
    }
    let args = params.texts("args")?;
    let limit = time_limit(call, &mut params)?;
    let mut env = params.environment("envs")?;
    env.extend(params.environment("env")?);
    let cwd = match params.maybe_text("working_directory")? {
        Some(cwd) => Some(cwd),
        None => params.maybe_text("cwd")?,
    };
    let inside = inside((call, trail), which).await?;
    let _permit = call.api.admission().admit(&call.caller.label())?;

    let cwd = cwd.filter(|cwd| !cwd.is_empty()).or_else(|| inside.workdir.clone());
    let argv = std::iter::once(&command).chain(&args).map(String::as_str);
    let argv = requests::Program::argv(argv);
    let drawn = draw_session().map_err(|error| Failure::inside(&inside.which, error))?;
    // Sessions of this door are known by their names.
    let session = format!("rpc-{drawn}").parse().expect("hex digits behind letters are a name");
    // What it has left in the background was meant to stay, unless its time was over.
    let mut program = Program::new(session, argv);
    program.start.cwd = cwd.map(Text::from);
    program.start.env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    program.start.deadline_ms = Some(limit.time_ms());
    program.reported_deadline_ms = Some(limit.reported_ms());
    let mut lines = Lines::with_wholes(room).counted(call.memory.clone());
    let ran = match program.begin(&inside.guest) {
        Ok(mut running) => running.collect(b"", &mut lines).await,
        Err(error) => Err(error),
    };
    let ended = ran.map_err(|error| Failure::inside(&inside.which, error))?;
    conclude(&command, &args, &ended, lines.finish())
}

impl Sink for Lines {
    fn add(&mut self, channel: Channel, bytes: &[u8]) {
        self.say(stream_of(channel), bytes);
    }

    fn lose(&mut self, channel: Channel, bytes: u64) {
        self.lose(stream_of(channel), bytes);
    }
}

fn stream_of(channel: Channel) -> Stream {
    match channel {
        Channel::Stderr => Stream::Stderr,
        Channel::Stdout | Channel::Terminal => Stream::Stdout,
    }
}

fn conclude(
    command: &str,
    args: &[String],
    ended: &Ended,
    written: Collected,
) -> Result<Written, Failure> {
    let Collected { output, stdout, stderr, is_truncated } = written;
    let exit_code = ended.shell_code();
    let success = ended.is_success();
    let is_overrun = matches!(ended.record.cause, Cause::TimedOut { .. });
    let (cause, signal) = match &ended.record.cause {
        Cause::Exited { .. } => ("exited", None),
        Cause::Signaled { signal, .. } => ("signaled", Some(*signal)),
        Cause::Killed { signal, .. } => ("killed", Some(*signal)),
        Cause::TimedOut { .. } => ("timeout", Some(SIGKILL)),
        Cause::OutOfMemory { .. } => ("out_of_memory", Some(SIGKILL)),
        Cause::AgentStopping => ("sandbox_stopped", Some(SIGKILL)),
        Cause::SpawnFailed { .. } => ("spawn_failed", None),
    };
    let mut written = Written::default()
        .text("{\"command\":")
        .value(&command)
        .text(",\"args\":")
        .value(&args)
        .text(",\"exit_code\":")
        .value(&exit_code)
        .text(",\"success\":")
        .value(&success)
        .text(",\"timeout\":")
        .value(&is_overrun)
        .text(",\"cause\":")
        .value(&cause);
    if let Some(signal) = signal {
        written = written.text(",\"signal\":").value(&signal);
    }
    if let Cause::OutOfMemory { limit_bytes: Some(limit_bytes) } = ended.record.cause {
        written = written.text(",\"limit_bytes\":").value(&limit_bytes);
    }
    let written = written
        .text(",\"output\":")
        .bytes(output)
        .text(",\"stdout\":")
        .bytes(stdout)
        .text(",\"stderr\":")
        .bytes(stderr)
        .text(",\"truncated\":")
        .value(&is_truncated)
        .text("}");
    let Cause::TimedOut { limit_ms } = ended.record.cause else { return Ok(written) };
    let limit = seconds(Duration::from_millis(limit_ms));
    let message = format!(
        "the command {command:?} timed out: it was killed, with all that it had started, at its \
        deadline of {limit}"
    );
    Err(Failure::new(TIMED_OUT, message).data(written))
}
