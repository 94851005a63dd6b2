//! From a request to a running program, and what happens to the program when its client
//! disconnects.
//!
//! A program that may outlive its client is a recorded session like any other. The agent keeps all
//! others for this bridge only, and they end with their client.

use std::time::Duration;

use protocol::requests::Stdio;
use protocol::{FaultCode, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::program::Described;
use crate::Api;
use crate::body::Hold;
use crate::call::{CallDeadline, Inside, RunLimit};
use crate::capture::Capture;
use crate::v1::starts::Known;
use crate::v1::value::Content;
use agent_client::guest::Writer;
use agent_client::program::{OnDrop, Program, Running, draw_session};
use sandbox::RECORDED_HOLDER;
use sandbox::refusal::{Code, Refusal};
use services::artifact::{ARTIFACTS_DIR_VARIABLE, Scene};

/// The holder that we are for a program that ends with its client.
const HOLDER: &str = "exec";

/// What happens to a program when its client disconnects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// It is killed with all that it started.
    #[default]
    Cancel,
    /// It keeps running as a session with recorded output.
    Detach,
}

impl From<OnDisconnect> for OnDrop {
    fn from(on_disconnect: OnDisconnect) -> Self {
        match on_disconnect {
            OnDisconnect::Cancel => Self::Kill,
            OnDisconnect::Detach => Self::Leave,
        }
    }
}

/// A program to run, as `exec` and `shell` ask for it.
#[derive(Clone, Debug)]
pub struct ProgramRequest {
    pub described: Described,
    pub stdin: Option<Content>,
    pub output_bytes_max: Option<u64>,
    pub on_disconnect: OnDisconnect,
    pub artifacts: bool,
    pub session: Option<SessionId>,
}

impl ProgramRequest {
    /// What keeps the artifacts, if they are asked for. To be had before the program begins.
    pub async fn capture(
        &self,
        api: &Api,
        inside: &Inside,
        deadline: Option<Instant>,
    ) -> Result<Option<Capture>, Refusal> {
        if !self.artifacts {
            return Ok(None);
        }
        let Described { cwd, env, user, .. } = &self.described;
        let artifacts_dir = env.get(ARTIFACTS_DIR_VARIABLE).map(|path| path.as_str().into());
        let workdir = cwd.as_deref().or(inside.workdir.as_deref()).map(Into::into);
        let scene = Scene { workdir, artifacts_dir, user: user.clone(), outputs: Vec::new() };
        let capture = Capture::begin(api, inside, scene).await?;
        Ok(Some(capture.within(deadline)))
    }
}

/// Starts a program and waits until it runs. With `interactive`, and unless the client has sent all
/// of its input, more of it may come. `held` is kept until the program has taken what was sent.
pub async fn begin(
    api: &Api,
    inside: &Inside,
    request: ProgramRequest,
    deadline: Option<CallDeadline>,
    interactive: bool,
    held: Hold,
) -> Result<Running, Refusal> {
    let input = request.stdin.map(Content::into_bytes).transpose()?;
    let is_chosen = request.session.is_some();
    let session = match request.session {
        Some(session) => session,
        None => draw_session()?,
    };
    let mut described = request.described.beginning_in(inside.workdir.as_deref());
    // The call's deadline is its client's, and not that of a program which outlives it.
    let is_ours = request.on_disconnect == OnDisconnect::Cancel;
    let own = described.timeout_ms.map(Duration::from_millis);
    let limit = RunLimit::of(own, deadline.filter(|_| is_ours));
    described.timeout_ms = limit.map(RunLimit::time_ms);
    let has_input = interactive || input.is_some();
    let mut start = described.start(session, Stdio::Pipes { stdin: has_input })?;
    match request.on_disconnect {
        OnDisconnect::Cancel => {
            start.holders = vec![HOLDER.to_owned()];
            start.tied = true;
        }
        OnDisconnect::Detach => start.holders = vec![RECORDED_HOLDER.to_owned()],
    }
    let machine = inside.id.clone();
    if is_chosen && api.starts().look(&machine, &start) != Known::No {
        return Err(taken(&start.session));
    }
    // The name may be another session's, so nothing is ended before the start is answered.
    let program = Program {
        reader: Some(HOLDER.to_owned()),
        reported_deadline_ms: limit.map(RunLimit::reported_ms),
        ..Program::from(start)
    };
    let noted = (is_chosen && request.on_disconnect == OnDisconnect::Detach)
        .then(|| (api.starts().clone(), program.start.clone()));
    // Not cancelled half-way, so that whether the session is ours to end is always known.
    let (guest, on_drop) = (inside.guest.clone(), request.on_disconnect.into());
    let starting = tokio::spawn(async move {
        let running = first(program.begin(&guest)?, on_drop).await?;
        if let Some((starts, start)) = noted {
            starts.note(machine, &start);
        }
        Ok::<_, Refusal>(running)
    });
    let joined = starting.await;
    let mut running =
        joined.unwrap_or_else(|error| Err(Refusal::new(Code::Internal, error.to_string())))?;
    if let Some(input) = input
        && let Some(writer) = running.take_input()
    {
        feed(writer, input, held);
    }
    Ok(running)
}

/// Waits for the answer to a start, and ends from then on what is ours.
async fn first(mut running: Running, on_drop: OnDrop) -> Result<Running, Refusal> {
    match running.started().await {
        Ok(started) if started.repeated => Err(taken(running.session())),
        Ok(_) => {
            running.on_drop(on_drop);
            Ok(running)
        }
        Err(error) => {
            // The agent remembers why a program did not start. Nothing asks for it.
            if error.fault_code() == Some(FaultCode::SpawnFailed) {
                running.on_drop(on_drop);
            }
            Err(error.into())
        }
    }
}

/// A name that is another session's.
pub fn taken(session: &SessionId) -> Refusal {
    Refusal::new(Code::Conflict, format!("session {session} already exists"))
        .hint("choose another name, or look at that one: GET …/sessions/{session}")
        .details(json!({ "reason": "session_exists", "session": session }))
}

/// Gives a program all of its input, also when its client is gone: one that was detached needs the
/// rest, and one that was killed takes no more. As long as that lasts the input is in memory, and so
/// the call keeps its place among the runs: programs that never read cannot pile it up.
fn feed(mut writer: Writer, input: Vec<u8>, held: Hold) {
    tokio::spawn(async move {
        let _held = held;
        // A program need not read its input, so a failure to write it is no error.
        if writer.write(&input).await.is_ok() {
            let _ = writer.finish().await;
        }
    });
}
