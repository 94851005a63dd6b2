//! Starting a session: a program whose output is recorded, and which does not end with its client.

use std::collections::BTreeMap;

use hyper::StatusCode;
use protocol::SessionId;
use protocol::limits::{SPOOL_BYTES_MAX, SPOOL_BYTES_MIN};
use protocol::message::Started;
use protocol::requests::{self, Program, SpoolSpec, Stdio};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{SessionInfo, Size};
use crate::body::{Response, json_response};
use crate::call::{Call, Inside};
use crate::forms::ranges::check_range;
use crate::route::{Document, Output};
use crate::sessions::find;
use crate::shape::{Created, Json, Nothing, Reply};
use crate::trail::Trail;
use crate::v1::exec::program::{Bounds, Described, SESSION_NAME, TIMEOUT_MS_MAX};
use crate::v1::exec::taken;
use crate::v1::starts::Known;
use agent_client::program::draw_session;
use sandbox::RECORDED_HOLDER;
use sandbox::refusal::Refusal;

pub const ABOUT: &str = "The program runs on after the call. Its output is recorded in the \
sandbox's log without loss, and no reader slows it down. Repeating a start with the same `session` \
and the same content returns the same session, even if it has ended (200 instead of 201); other \
content is a `conflict`. Give exactly one of `argv`, `script` and `login_shell`.";

/// A session to start.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    { "required": ["argv"] }, { "required": ["script"] }, { "required": ["login_shell"] }
]))]
pub struct StartSession {
    /// The program and its arguments.
    #[serde(default)]
    #[schemars(with = "Vec<String>", length(min = 1, max = 16384))]
    pub argv: Option<Vec<String>>,
    /// For `-c` of a shell.
    #[serde(default)]
    #[schemars(with = "String")]
    pub script: Option<String>,
    /// The interpreter of the script: `/bin/sh` by default.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub shell: Option<String>,
    /// The login shell of the user.
    #[serde(default)]
    #[schemars(extend("const" = true))]
    pub login_shell: bool,
    /// A terminal of this size instead of pipes.
    #[serde(default)]
    pub terminal: Option<Size>,
    /// Its name; one is drawn by default.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = SESSION_NAME))]
    pub session: Option<SessionId>,
    /// Whether it takes input. One on a terminal does; the others read an empty file by default.
    #[serde(default)]
    pub stdin: bool,
    /// The working directory; the sandbox's own by default.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub cwd: Option<String>,
    /// Added to the sandbox's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// `name`, `name:group`, `uid` or `uid:gid`.
    #[serde(default)]
    pub user: Option<String>,
    /// The time from its start until it is killed with all that it started.
    #[serde(default)]
    #[schemars(range(min = 1, max = TIMEOUT_MS_MAX))]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub limits: Bounds,
    #[serde(default)]
    pub spool: Spool,
}

/// What the agent keeps of each output until it is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spool {
    #[serde(default)]
    #[schemars(range(min = SPOOL_BYTES_MIN, max = SPOOL_BYTES_MAX))]
    pub bytes: Option<u64>,
    #[serde(default)]
    pub policy: SpoolPolicy,
}

/// What happens when that is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpoolPolicy {
    /// The program waits.
    #[default]
    Block,
    /// The oldest bytes are given up.
    DropOldest,
}

/// A session that was made, or that was there.
pub enum StartedSession {
    New(SessionInfo),
    Known(SessionInfo),
}

impl Output for StartedSession {
    fn describe(document: &mut Document<'_>) {
        Created::<SessionInfo>::describe(document);
        Reply::<SessionInfo>::describe(document);
    }

    fn into_response(self) -> Response {
        match self {
            Self::New(info) => json_response(StatusCode::CREATED, &info),
            Self::Known(info) => json_response(StatusCode::OK, &info),
        }
    }
}

pub async fn start(
    call: Call,
    _: Nothing,
    Json(request): Json<StartSession>,
) -> Result<StartedSession, Refusal> {
    let mut inside = call.inside().await?;
    let is_chosen = request.session.is_some();
    let start = request.start(inside.workdir.as_deref(), &call.trail)?;
    let machine = inside.id.clone();
    let known = if is_chosen { call.api.starts().look(&machine, &start) } else { Known::No };
    match known {
        Known::Other => return Err(taken(&start.session)),
        // One of which nothing is left any more is started again.
        Known::Same => {
            if let Ok(found) = find(&call, &inside.which, &start.session).await {
                return Ok(StartedSession::Known(found.session.into()));
            }
        }
        Known::No => {}
    }
    if is_chosen {
        // A client that repeats this start is a part of another trace, and the content must be the same.
        inside.guest = inside.guest.within(None);
    }
    let started = start_recorded(&inside, &start).await?;
    if is_chosen {
        call.api.starts().note(machine, &start);
    }
    let found = find(&call, &inside.which, &start.session).await;
    let mut info: SessionInfo = found?.session.into();
    info.warnings = started.warnings;
    Ok(if started.repeated { StartedSession::Known(info) } else { StartedSession::New(info) })
}

/// Starts a session that is recorded. It is not cancelled half-way.
pub async fn start_recorded(inside: &Inside, start: &requests::Start) -> Result<Started, Refusal> {
    Ok(inside.guest.start(start).await?)
}

impl StartSession {
    fn start(self, workdir: Option<&str>, trail: &Trail) -> Result<requests::Start, Refusal> {
        let program = match (self.argv, self.script, self.login_shell) {
            (Some(argv), None, false) => Program::argv(argv),
            (None, Some(script), false) => {
                let shell = self.shell.map(Into::into);
                Program::Script { script: script.into(), shell }
            }
            (None, None, true) => Program::LoginShell {},
            _ => {
                let message = "give exactly one of `argv`, `script` and `login_shell`";
                return Err(Refusal::invalid(message));
            }
        };
        let (min, max) = (SPOOL_BYTES_MIN as u64, SPOOL_BYTES_MAX as u64);
        check_range("spool.bytes", self.spool.bytes, min, max)?;
        let session = match self.session {
            Some(session) => session,
            None => draw_session()?,
        };
        let stdio = match self.terminal {
            Some(size) => Stdio::Pty { size: size.checked()? },
            None => Stdio::Pipes { stdin: self.stdin },
        };
        let described = Described {
            program,
            cwd: self.cwd,
            env: self.env,
            user: self.user,
            timeout_ms: self.timeout_ms,
            bounds: self.limits,
        };
        trail.program(&described.program);
        let mut start = described.beginning_in(workdir).start(session, stdio)?;
        start.holders = vec![RECORDED_HOLDER.to_owned()];
        start.spool = SpoolSpec { bytes: self.spool.bytes, policy: self.spool.policy.into() };
        Ok(start)
    }
}

impl From<SpoolPolicy> for requests::SpoolPolicy {
    fn from(policy: SpoolPolicy) -> Self {
        match policy {
            SpoolPolicy::Block => Self::Block,
            SpoolPolicy::DropOldest => Self::DropOldest,
        }
    }
}
