//! `sandbox.command.run`: a program and its arguments, which no shell sees.
//!
//! The result has both shapes that clients read: the lines of all output in their order, and the text
//! of each stream. A program that is not there and one that runs out of time are errors; one that
//! fails is a result.

use std::time::Duration;

use protocol::exit::{Cause, ExitRecord};
use protocol::message::Channel;
use protocol::requests::{GroupLimits, Program, Release, Signal, SpoolSpec, Start, Stdio, Target};
use protocol::{SessionId, Text};

use super::failure::{Failure, TIMED_OUT};
use super::lines::{Lines, Said, Stream};
use super::params::{Params, seconds};
use super::written::Written;
use super::{inside, time_limit, which};
use crate::call::Call;
use agent_client::guest::exec::{Event, Execution};
use agent_client::guest::{Guest, GuestError};
use host::id::RandomId;
use sandbox::SandboxError;

const SIGKILL: i32 = nix::libc::SIGKILL;

pub async fn run(call: &Call, mut params: Params, room: usize) -> Result<Written, Failure> {
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
    let inside = inside(call, which)?;
    let _permit = call.api.admission().admit(&call.caller.label())?;

    let argv = std::iter::once(&command).chain(&args).map(|text| text.as_str().into()).collect();
    let cwd = cwd.filter(|cwd| !cwd.is_empty()).or_else(|| inside.record.workdir.clone());
    let start = Start {
        session: session()?,
        program: Program::Argv { argv },
        cwd: cwd.map(Text::from),
        env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        user: None,
        stdio: Stdio::Pipes { stdin: false },
        deadline_ms: Some(limit.as_millis() as u64),
        spool: SpoolSpec::default(),
        holders: Vec::new(),
        tied: true,
        limits: GroupLimits::default(),
    };
    let mut lines = Lines::with_wholes(room).counted(call.memory.clone());
    let ran = carry_out(&inside.guest, &start, &mut lines).await;
    let record = ran.map_err(|error| Failure::inside(&inside.which, error))?;
    conclude(&command, &args, &record, lines.finish())
}

/// A name that no other session has: another bridge may have been here before.
fn session() -> Result<SessionId, Failure> {
    let drawn = RandomId::draw().map_err(SandboxError::Draw)?;
    Ok(format!("rpc-{drawn}").parse().expect("hex digits behind letters are a name"))
}

async fn carry_out(
    guest: &Guest,
    start: &Start,
    lines: &mut Lines,
) -> Result<ExitRecord, GuestError> {
    let mut execution = Execution::begin(guest, start)?;
    let mut leaving = Leaving { guest, session: &start.session, kill: true };
    while let Some(event) = execution.next().await? {
        match event {
            Event::Started(_) => {}
            Event::Output { channel: Channel::Stderr, bytes, .. } => {
                lines.say(Stream::Stderr, &bytes);
            }
            Event::Output { bytes, .. } => lines.say(Stream::Stdout, &bytes),
            Event::Gap { channel: Channel::Stderr, from, to } => {
                lines.lose(Stream::Stderr, to.saturating_sub(from));
            }
            Event::Gap { from, to, .. } => lines.lose(Stream::Stdout, to.saturating_sub(from)),
            Event::Exited(record) => {
                // What it has left in the background was meant to stay, unless its time was over.
                leaving.kill = matches!(record.cause, Cause::TimedOut { .. });
                return Ok(record);
            }
        }
    }
    // An execution tells its end or its failure before it says that there is no more.
    Err(GuestError::Malformed { what: "no exit record" })
}

/// Gives the session up, and ends what is left of it if nobody has waited for its end: the client is
/// gone, or the link is cut. The answers are not waited for, because nothing follows from them.
struct Leaving<'a> {
    guest: &'a Guest,
    session: &'a SessionId,
    kill: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.kill {
            let (session, target) = (self.session.clone(), Target::Tree);
            drop(self.guest.signal_now(Signal { session, signal: SIGKILL, target }));
        }
        let session = self.session.clone();
        let release = Release { session, holder: None, kill_survivors: self.kill };
        drop(self.guest.release_now(release));
    }
}

fn conclude(
    command: &str,
    args: &[String],
    record: &ExitRecord,
    said: Said,
) -> Result<Written, Failure> {
    let Said { output, stdout, stderr, is_truncated } = said;
    let exit_code = record.cause.shell_code();
    let success = matches!(record.cause, Cause::Exited { code: 0 });
    let is_overrun = matches!(record.cause, Cause::TimedOut { .. });
    let (cause, signal) = match &record.cause {
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
    let Cause::TimedOut { limit_ms } = record.cause else { return Ok(written) };
    let limit = seconds(Duration::from_millis(limit_ms));
    let message = format!(
        "the command {command:?} ran out of time: it was killed, with all that it had started, at \
         its deadline of {limit}"
    );
    Err(Failure::new(TIMED_OUT, message).data(written))
}
