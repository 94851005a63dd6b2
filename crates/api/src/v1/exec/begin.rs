//! From what a client asks for to a program that runs, and the leash that ends it when its client
//! is gone.
//!
//! A program whose client may leave is a recorded session like any other. The others are nobody's
//! but their client's: the agent keeps them for this bridge alone, and they end with it.

use std::time::Duration;

use protocol::message::Started;
use protocol::requests::{Release, Signal, Stdio, Target};
use protocol::{FaultCode, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::limits::DEADLINE_MARGIN;
use super::program::Described;
use crate::Api;
use crate::body::Hold;
use crate::call::Inside;
use crate::capture::Capture;
use crate::problem::{Code, Problem};
use crate::v1::starts::Known;
use crate::v1::value::Content;
use agent_client::guest::exec::{Event, Execution};
use agent_client::guest::{Guest, GuestError, Writer};
use host::id::RandomId;
use sandbox::RECORDED_HOLDER;
use services::artifact::{ARTIFACTS_DIR_VARIABLE, Scene};

/// The holder that we are for a program that ends with its client.
const HOLDER: &str = "exec";
/// The signal that nothing survives.
const KILL: i32 = nix::sys::signal::Signal::SIGKILL as i32;

/// What happens to a program when the client that waits for it is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// It is killed with all that it has started.
    #[default]
    Cancel,
    /// It goes on as a session whose output is recorded.
    Detach,
}

/// What `exec` and `shell` ask for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub described: Described,
    pub stdin: Option<Content>,
    pub output_bytes_max: Option<u64>,
    pub on_disconnect: OnDisconnect,
    pub artifacts: bool,
    pub session: Option<SessionId>,
}

impl Asked {
    /// What keeps the artifacts, if they are asked for. To be had before the program begins.
    pub async fn capture(
        &self,
        api: &Api,
        inside: &Inside,
        deadline: Option<Instant>,
    ) -> Result<Option<Capture>, Problem> {
        if !self.artifacts {
            return Ok(None);
        }
        let Described { cwd, env, user, .. } = &self.described;
        let artifacts_dir = env.get(ARTIFACTS_DIR_VARIABLE).map(|path| path.as_str().into());
        let workdir = cwd.as_deref().or(inside.record.workdir.as_deref()).map(Into::into);
        let scene = Scene { workdir, artifacts_dir, user: user.clone(), outputs: Vec::new() };
        let capture = Capture::begin(api, inside, scene).await?;
        Ok(Some(capture.within(deadline)))
    }
}

/// A program that runs, and has been heard of.
pub struct Begun {
    pub execution: Execution,
    pub started: Started,
    pub leash: Leash,
    /// Its input, where it comes in later.
    pub writer: Option<Writer>,
}

/// What ends a program: dropping it does, as it was asked, unless it was told that the program has
/// ended.
#[derive(Debug)]
pub struct Leash {
    guest: Guest,
    session: SessionId,
    on_disconnect: OnDisconnect,
    /// The recorder lets go of it when it has ended.
    is_recorded: bool,
    ended: bool,
}

impl Leash {
    pub fn new(guest: Guest, session: SessionId, on_disconnect: OnDisconnect) -> Self {
        Self { guest, session, on_disconnect, is_recorded: false, ended: false }
    }

    /// Of a session that is recorded.
    pub fn recorded(guest: Guest, session: SessionId, on_disconnect: OnDisconnect) -> Self {
        Self { guest, session, on_disconnect, is_recorded: true, ended: false }
    }

    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The program has ended. What it has left behind lives on.
    pub fn ended(&mut self) {
        self.ended = true;
    }
}

impl Drop for Leash {
    /// Nothing is waited for: what is asked here goes out in order, also when the client is gone.
    fn drop(&mut self) {
        if self.on_disconnect == OnDisconnect::Detach {
            return;
        }
        let session = &self.session;
        if !self.ended {
            let kill = Signal { session: session.clone(), signal: KILL, target: Target::Tree };
            drop(self.guest.signal_now(kill));
        }
        if self.is_recorded {
            return;
        }
        let release =
            Release { session: session.clone(), holder: None, kill_survivors: !self.ended };
        drop(self.guest.release_now(release));
    }
}

/// Starts a program and waits until it runs. With `interactive`, and unless the client has said all
/// of its input, more of it may come. `held` is kept until the program has taken what was said.
pub async fn begin(
    api: &Api,
    inside: &Inside,
    asked: Asked,
    time_left: Option<Duration>,
    interactive: bool,
    held: Hold,
) -> Result<Begun, Problem> {
    let input = asked.stdin.map(Content::into_bytes).transpose()?;
    let is_chosen = asked.session.is_some();
    let session = match asked.session {
        Some(session) => session,
        None => draw_session()?,
    };
    let mut described = asked.described.beginning_in(inside.record.workdir.as_deref());
    // The call's deadline is its client's, and not that of a program which outlives it.
    if asked.on_disconnect == OnDisconnect::Cancel {
        described.timeout_ms = within(described.timeout_ms, time_left);
    }
    let has_input = interactive || input.is_some();
    let mut start = described.start(session, Stdio::Pipes { stdin: has_input })?;
    match asked.on_disconnect {
        OnDisconnect::Cancel => {
            start.holders = vec![HOLDER.to_owned()];
            start.tied = true;
        }
        OnDisconnect::Detach => start.holders = vec![RECORDED_HOLDER.to_owned()],
    }
    let machine = inside.record.id.clone();
    if is_chosen && api.starts().look(&machine, &start) != Known::No {
        return Err(taken(&start.session));
    }
    // Not cancelled half-way, so that whether the session is ours to end is always known.
    let (guest, starts) = (inside.guest.clone(), api.starts().clone());
    let on_disconnect = asked.on_disconnect;
    let starting = tokio::spawn(async move {
        let execution = Execution::begin_as(&guest, &start, HOLDER)?;
        let mut leash = Leash::new(guest, start.session.clone(), OnDisconnect::Detach);
        let begun = first(execution, &mut leash, on_disconnect).await?;
        if is_chosen && on_disconnect == OnDisconnect::Detach {
            starts.note(machine, &start);
        }
        Ok::<_, Problem>((begun, leash))
    });
    let joined = starting.await;
    let ((mut execution, started), leash) =
        joined.unwrap_or_else(|error| Err(Problem::new(Code::Internal, error.to_string())))?;
    let writer = match (input, execution.take_input()) {
        (Some(input), Some(writer)) => {
            feed(writer, input, held);
            None
        }
        (_, writer) => writer,
    };
    Ok(Begun { execution, started, leash, writer })
}

/// Waits for the answer to a start, and puts what is ours on the leash.
async fn first(
    mut execution: Execution,
    leash: &mut Leash,
    on_disconnect: OnDisconnect,
) -> Result<(Execution, Started), Problem> {
    match execution.next().await {
        Ok(Some(Event::Started(started))) if started.repeated => Err(taken(leash.session())),
        Ok(Some(Event::Started(started))) => {
            leash.on_disconnect = on_disconnect;
            Ok((execution, started))
        }
        Ok(_) => Err(GuestError::Malformed { what: "no start" }.into()),
        Err(error) => {
            // The agent remembers why a program did not start, which nobody will ask it.
            if error.fault_code() == Some(FaultCode::SpawnFailed) {
                leash.on_disconnect = on_disconnect;
            }
            Err(error.into())
        }
    }
}

/// A name that is another session's.
pub fn taken(session: &SessionId) -> Problem {
    Problem::new(Code::Conflict, format!("session {session} exists"))
        .hint("choose another name, or look at that one: GET …/sessions/{session}")
        .details(json!({ "reason": "session_exists", "session": session }))
}

/// Gives a program all of its input, also when its client is gone: one that was detached needs the
/// rest, and one that was killed takes no more. As long as that lasts the input is in memory, and so
/// the call keeps its place among the runs: programs that never read cannot pile it up.
fn feed(mut writer: Writer, input: Vec<u8>, held: Hold) {
    tokio::spawn(async move {
        let _held = held;
        // A program need not read its input, so a failure to write it is nobody's.
        if writer.write(&input).await.is_ok() {
            let _ = writer.finish().await;
        }
    });
}

/// The deadline of a program: its own, or a little before its call's.
fn within(timeout_ms: Option<u64>, time_left: Option<Duration>) -> Option<u64> {
    let left = time_left.map(|left| {
        let left = left.saturating_sub(DEADLINE_MARGIN.min(left / 4));
        left.max(Duration::from_millis(1)).as_millis() as u64
    });
    match (timeout_ms, left) {
        (Some(asked), Some(left)) => Some(asked.min(left)),
        (asked, left) => asked.or(left),
    }
}

/// A fresh session's name.
pub fn draw_session() -> Result<SessionId, Problem> {
    let failed = |why: String| Problem::new(Code::Internal, format!("no name was drawn: {why}"));
    let drawn = RandomId::draw().map_err(|error| failed(error.to_string()))?;
    drawn.as_str().parse().map_err(|error: protocol::ids::InvalidName| failed(error.to_string()))
}
