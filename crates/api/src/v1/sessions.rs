//! Sessions: programs that run without a client. Their output can be read from any offset, they
//! take input, and they can be waited for and ended. The sandbox's log has sessions that the agent
//! has forgotten.

mod info;
mod input;
mod lost;
mod output;
mod start;

use std::time::Duration;

use hyper::Method;
use protocol::requests::{Release, Resize, Signal, Target, TerminalSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Done, Json, Nothing, Octets, Query, Reply};
use super::exec::{SignalName, SignalTarget};
use crate::forms::exit::Exit;
use crate::forms::ranges::check_range;
use crate::sessions::{Session, SessionEnd, feed, find, look_at};
use sandbox::RECORDED_HOLDER;
use sandbox::refusal::{Code, Refusal};

use self::output::{OutputAnswer, OutputQuery};
pub use self::output::{OutputEvent, output_events};
pub use self::start::start_recorded;

/// How long a `DELETE` waits for a program that it has killed.
const KILL_WAIT_MAX: Duration = Duration::from_secs(5);
/// The signal that nothing survives.
const KILL: i32 = nix::sys::signal::Signal::SIGKILL as i32;

pub fn operations() -> Vec<Operation> {
    let all = "/v1/sandboxes/{namespace}/{name}/sessions";
    let one = "/v1/sandboxes/{namespace}/{name}/sessions/{session}";
    [
        operation(
            Method::POST,
            all,
            "start_session",
            "Start a session.",
            start::start,
        )
        .about(start::ABOUT)
        .run()
        .idempotent()
        .problems(&[Code::SpawnFailed, Code::Unsupported, Code::Io, Code::LimitReached]),
        operation(Method::GET, all, "list_sessions", "List the sessions of a sandbox.", list).about(
            "Lists the sessions that the agent has. With `recorded=true`, or if the sandbox does \
            not run, it also lists sessions that only the log still has; of a sandbox that is gone with its \
            node, those that the fleet's log has.",
        )
        .of_the_lost(),
        operation(Method::GET, one, "get_session", "One session.", get).of_the_lost(),
        operation(
            Method::DELETE,
            one,
            "release_session",
            "Release a session that has ended.",
            release,
        )
        .about(
            "With `kill=true` a running session is first ended with all that it started. Its \
            recorded output is kept.",
        )
        .run(),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/sessions/{session}/wait",
            "wait_for_session",
            "Wait until a session ends.",
            wait,
        )
        .about("Answers when it has ended or the time is up."),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/sessions/{session}/output",
            "read_session",
            "Read the output of a session from any offset.",
            read_output,
        )
        .about(output::ABOUT)
        .problems(&[Code::RangeNotSatisfiable, Code::Gone])
        .of_the_lost(),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/sessions/{session}/input",
            "write_session",
            "Send input to a session.",
            |call, query, _: Octets| input::write(call, query),
        )
        .about(input::ABOUT)
        .run()
        .problems(&[Code::Gone]),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/sessions/{session}/resize",
            "resize_session",
            "Resize a session's terminal.",
            resize,
        )
        .run(),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/sessions/{session}/signal",
            "signal_session",
            "Send a signal to a session.",
            signal,
        )
        .run()
        .problems(&[Code::Gone]),
    ]
    .map(|operation| operation.tag("sessions"))
    .to_vec()
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct SessionInfo {
    pub session: String,
    /// The argument vector as one shortened line.
    pub command: String,
    pub pid: u32,
    pub terminal: bool,
    pub started_at_ms: u64,
    pub running: bool,
    /// Whether its program has not executed yet; until then, `pid` may be 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starting: bool,
    /// How it ended; absent while it runs, or if it ended with its sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Exit")]
    pub exit: Option<Exit>,
    /// Whether its output is recorded.
    pub recorded: bool,
    /// Whether the agent still has it; otherwise it is read from the log.
    pub live: bool,
    /// The client that holds its keyboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub keyboard: Option<String>,
    /// Requested options that this host could not provide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionList {
    pub sessions: Vec<SessionInfo>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// Also list sessions that only the log has.
    #[serde(default)]
    pub recorded: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseQuery {
    /// End it first if it runs, with the processes that it left behind.
    #[serde(default)]
    pub kill: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    #[serde(default)]
    #[schemars(with = "u64", range(max = 86_400_000))]
    pub timeout_ms: Option<u64>,
}

/// Whether a program has ended, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waited {
    pub running: bool,
    /// How it ended; absent while it runs, or if it ended with its sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Exit")]
    pub exit: Option<Exit>,
    /// What became of the sandbox that it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub sandbox: Option<String>,
}

/// The size of a terminal. If there are several viewers, the last size that one of them sent
/// applies.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Size {
    #[schemars(range(min = 1, max = 65535))]
    pub rows: u16,
    #[schemars(range(min = 1, max = 65535))]
    pub columns: u16,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    pub signal: SignalName,
    #[serde(default)]
    pub target: SignalTarget,
}

impl Size {
    pub fn checked(self) -> Result<TerminalSize, Refusal> {
        check_range("rows", Some(self.rows.into()), 1, u16::MAX.into())?;
        check_range("columns", Some(self.columns.into()), 1, u16::MAX.into())?;
        Ok(TerminalSize { rows: self.rows, columns: self.columns })
    }
}

async fn list(
    mut call: Call,
    Query(query): Query<ListQuery>,
    _: Nothing,
) -> Result<Reply<SessionList>, Refusal> {
    if let Some(life) = call.lost.take() {
        return lost::list(&call, *life).await.map(Reply);
    }
    let sessions = find::list(&call.api, &call.which()?, query.recorded).await?;
    Ok(Reply(SessionList { sessions: sessions.into_iter().map(SessionInfo::from).collect() }))
}

async fn get(mut call: Call, _: Nothing, _: Nothing) -> Result<Reply<SessionInfo>, Refusal> {
    if let Some(life) = call.lost.take() {
        return lost::get(&call, *life).await.map(Reply);
    }
    let found = look_at(&call.api, &call.which()?, &call.session()?).await?;
    Ok(Reply(found.session.into()))
}

async fn read_output(
    mut call: Call,
    query: Query<OutputQuery>,
    nothing: Nothing,
) -> Result<OutputAnswer, Refusal> {
    match call.lost.take() {
        Some(life) => Box::pin(lost::read(call, *life, query.0)).await,
        None => output::read(call, query, nothing).await,
    }
}

async fn wait(
    call: Call,
    Query(query): Query<WaitQuery>,
    _: Nothing,
) -> Result<Reply<Waited>, Refusal> {
    check_range("timeout_ms", query.timeout_ms, 0, 86_400_000)?;
    let found = find(&call, &call.which()?, &call.session()?).await?;
    let ending = feed::ending(&call.api, found);
    let ended = match query.timeout_ms.map(Duration::from_millis) {
        None => Some(ending.await),
        Some(limit) => tokio::time::timeout(limit, ending).await.ok(),
    };
    Ok(Reply(match ended {
        None => Waited { running: true, exit: None, sandbox: None },
        Some(SessionEnd::Known(record)) => {
            Waited { running: false, exit: Some((*record).into()), sandbox: None }
        }
        Some(SessionEnd::Unknown { sandbox }) => Waited { running: false, exit: None, sandbox },
    }))
}

async fn resize(call: Call, _: Nothing, Json(size): Json<Size>) -> Result<Done, Refusal> {
    let (inside, session) = (call.inside().await?, call.session()?);
    let size = size.checked()?;
    inside.guest.resize(Resize { session, size, redraw: false }).await?;
    Ok(Done)
}

async fn signal(call: Call, _: Nothing, Json(request): Json<SendSignal>) -> Result<Done, Refusal> {
    let (inside, session) = (call.inside().await?, call.session()?);
    let (signal, target) = (request.signal.number()?, request.target.into());
    inside.guest.signal(Signal { session, signal, target }).await?;
    Ok(Done)
}

async fn release(
    call: Call,
    Query(query): Query<ReleaseQuery>,
    _: Nothing,
) -> Result<Done, Refusal> {
    let found = find(&call, &call.which()?, &call.session()?).await?;
    let Session::Live(info) = &found.session else { return Ok(Done) };
    let Some(inside) = &found.inside else { return Ok(Done) };
    let (guest, session) = (&inside.guest, &info.session);
    if info.exit.is_none() && !query.kill {
        let message = format!("session {session} is running");
        return Err(Refusal::new(Code::Conflict, message)
            .hint("end it first, or release it with kill=true")
            .details(json!({ "reason": "still_running" })));
    }
    if query.kill {
        let kill = Signal { session: session.clone(), signal: KILL, target: Target::Tree };
        // If no process is left to kill, that is success too.
        let _ = guest.signal(kill).await;
        let _ = tokio::time::timeout(KILL_WAIT_MAX, guest.wait(session)).await;
    }
    // What the log has not taken yet is still its own.
    for holder in info.holders.iter().filter(|holder| *holder != RECORDED_HOLDER) {
        let (session, holder) = (session.clone(), Some(holder.clone()));
        let _ = guest.release(Release { session, holder, kill_survivors: false }).await;
    }
    if info.holders.is_empty() {
        let session = session.clone();
        let _ = guest.release(Release { session, holder: None, kill_survivors: false }).await;
    }
    Ok(Done)
}
