//! Programs that a call runs to their end.

use std::time::Duration;

use protocol::Text;
use protocol::exit::Cause;
use protocol::requests::{self, Stdio};

use super::answer::coded;
use crate::budget::Share;
use crate::call::{Call, Inside};
use crate::limits::TIMEOUT_MS_MAX;
use agent_client::program::{Ended, Outputs, Program, Sink, draw_session};
use sandbox::refusal::{Code, Refusal};

/// What a call runs. It is killed with all that it started when its client is gone.
pub struct Asked {
    pub program: requests::Program,
    pub cwd: Option<String>,
    pub env: Vec<(Text, Text)>,
    pub input: Vec<u8>,
    pub limit: Option<Duration>,
}

impl Asked {
    /// A program of which nothing else is asked.
    pub fn of(program: requests::Program) -> Self {
        Self { program, cwd: None, env: Vec::new(), input: Vec::new(), limit: None }
    }
}

/// What a program has written, and how it ended.
pub struct Run {
    pub outputs: Outputs<Share>,
    pub ended: Ended,
}

/// Runs a program, and keeps at most `bytes_max` of each of its outputs.
pub async fn run_to_end(
    call: &Call,
    inside: &Inside,
    asked: Asked,
    bytes_max: usize,
) -> Result<Run, Refusal> {
    let mut outputs = Outputs::new(bytes_max, call.memory.clone());
    let ended = run_into(call, inside, asked, &mut outputs).await?;
    Ok(Run { outputs, ended })
}

/// Runs a program into a sink. One that takes too long is ended, and refused.
pub async fn run_into(
    call: &Call,
    inside: &Inside,
    asked: Asked,
    sink: &mut impl Sink,
) -> Result<Ended, Refusal> {
    let Asked { program, cwd, env, input, limit } = asked;
    call.trail.program(&program);
    let mut program = Program::new(draw_session()?, program);
    program.start.cwd = cwd.or_else(|| inside.workdir.clone()).map(Into::into);
    program.start.env = env;
    program.start.stdio = Stdio::Pipes { stdin: !input.is_empty() };
    program.start.deadline_ms =
        limit.map(|limit| (limit.as_millis() as u64).clamp(1, TIMEOUT_MS_MAX));
    let ended = program.begin(&inside.guest)?.collect(&input, sink).await?;
    if let Cause::TimedOut { limit_ms } = ended.record.cause {
        let message = format!("the command was killed after {limit_ms} ms, its whole time");
        let refusal = Refusal::new(Code::DeadlineExceeded, message);
        return Err(coded(refusal, "PROCESS_EXECUTION_TIMEOUT"));
    }
    Ok(ended)
}
