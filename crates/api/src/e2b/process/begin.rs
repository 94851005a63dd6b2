//! From a client's `Start` to a session: its account, its directory, its environment, its shell.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::requests::{GroupLimits, Program, SpoolSpec, Start, Stdio};
use protocol::{FaultCode, SessionId};
use serde::Deserialize;

use super::commands::Started;
use super::{Pty, Seat};
use crate::call::Call;
use crate::e2b::seat::environment;
use crate::limits::TIMEOUT_MS_MAX;
use agent_client::guest::{Guest, GuestError};
use agent_client::program::draw_session;
use sandbox::RECORDED_HOLDER;
use sandbox::refusal::Refusal;

/// The shell that E2B's clients start for a command or a terminal, and the one that most images have.
const BASH: &str = "/bin/bash";
const SH: &str = "/bin/sh";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct StartAsk {
    process: Config,
    stdin: Option<bool>,
    pty: Option<Pty>,
    tag: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    cmd: String,
    args: Vec<String>,
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

/// Starts the program, and returns its session and its number. It is not cancelled half-way.
pub async fn begin(
    call: &Call,
    seat: &Seat,
    ask: StartAsk,
    limit: Option<Duration>,
) -> Result<(SessionId, u32), Refusal> {
    let StartAsk { process, stdin, pty, tag } = ask;
    if process.cmd.is_empty() {
        return Err(Refusal::invalid("process.cmd is empty; it names a program"));
    }
    let cwd = seat.account.path(process.cwd.as_deref().unwrap_or_default())?;
    let mut env = environment(&seat.inside, &seat.account);
    env.extend(process.envs.clone());
    let stdio = match pty {
        Some(pty) => Stdio::Pty { size: pty.size.into() },
        None => Stdio::Pipes { stdin: stdin.unwrap_or(true) },
    };
    let limit = limit.map(|limit| (limit.as_millis() as u64).clamp(1, TIMEOUT_MS_MAX));
    let words = std::iter::once(&process.cmd).chain(&process.args);
    let start = Start {
        session: draw_session()?,
        program: Program::argv(words.map(String::as_str)),
        cwd: Some(cwd.as_str().into()),
        env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        user: seat.account.user.clone(),
        stdio,
        deadline_ms: limit,
        spool: SpoolSpec::default(),
        holders: vec![RECORDED_HOLDER.to_owned()],
        tied: false,
        limits: GroupLimits::default(),
    };
    call.trail.program(&start.program);
    let guest = seat.inside.guest.clone();
    let args = process.args.clone();
    let is_bash = process.cmd == BASH;
    let starting = tokio::spawn(async move {
        match first(&guest, &start).await {
            Err(error) if is_bash && lacks_bash(&guest, &error).await => {
                let words = std::iter::once(SH).chain(args.iter().map(String::as_str));
                let (session, program) = (draw_session()?, Program::argv(words));
                first(&guest, &Start { session, program, ..start }).await
            }
            begun => begun,
        }
    });
    let (session, pid) = starting.await.unwrap_or(Err(GuestError::NoEntropy))?;
    let started =
        Started { cmd: process.cmd, args: process.args, envs: process.envs, cwd: Some(cwd), tag };
    call.api.e2b().commands.note(&seat.inside.id, &session, started);
    Ok((session, pid))
}

async fn first(guest: &Guest, start: &Start) -> Result<(SessionId, u32), GuestError> {
    Ok((start.session.clone(), guest.start(start).await?.pid))
}

/// Whether a shell could not be started because the image has none.
async fn lacks_bash(guest: &Guest, error: &GuestError) -> bool {
    error.fault_code() == Some(FaultCode::SpawnFailed) && guest.stat(BASH, true).await.is_err()
}
