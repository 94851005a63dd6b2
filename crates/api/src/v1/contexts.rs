//! Contexts, the interpreters that live on between runs of code: opening, listing, completing and
//! checking code, resetting, closing. `runs` owns the runs in them.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use hyper::Method;
use protocol::ContextName;
use protocol::repl::{self, Complete, ContextInfo, OpenContext};
use protocol::requests::GroupLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::{Call, Inside};
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Done, Json, Nothing, Reply};
use super::super::stream::Events;
use super::runs::{RunEvent, watch};
use crate::forms::contexts::{OpenedContext, byte_at, characters_before, interpreter_of};
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    let all = "/v1/sandboxes/{namespace}/{name}/contexts";
    let one = "/v1/sandboxes/{namespace}/{name}/contexts/{context}";
    [
        operation(Method::POST, all, "open_context", "Open a context.", open)
            .run()
            .idempotent()
            .about(
                "Answers when the interpreter is ready for runs. A context that is already open is \
                returned if it was opened with the same options; an option that is left out \
                matches any value.",
            )
            .problems(&[Code::Unsupported, Code::LimitReached, Code::Gone]),
        operation(Method::GET, all, "list_contexts", "List the open contexts.", list),
        operation(Method::GET, one, "get_context", "One context.", get),
        operation(Method::DELETE, one, "close_context", "Close a context.", close)
            .run()
            .about("Ends its interpreter and all that it started.")
            .problems(&[Code::Gone]),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/contexts/{context}/restart",
            "restart_context",
            "Restart the interpreter of a context.",
            restart,
        )
        .run()
        .about("Kills the current run and discards the variables.")
        .problems(&[Code::Unsupported, Code::Gone]),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/contexts/{context}/complete",
            "complete_code",
            "Complete code at a cursor.",
            complete,
        )
        .run()
        .about("Works only between runs: a busy context answers with a conflict.")
        .problems(&[Code::Gone]),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/contexts/{context}/check",
            "check_code",
            "Check whether code is complete.",
            check,
        )
        .run()
        .about("Works only between runs: a busy context answers with a conflict.")
        .problems(&[Code::Gone]),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/contexts/{context}/events",
            "watch_context",
            "Follow all events of a context.",
            events,
        )
        .about(
            "Includes the runs of all clients. It never slows a run down: a client that is too \
            slow gets a `gap`. It ends when the context is closed.",
        )
        .problems(&[Code::LimitReached, Code::Gone]),
    ]
    .map(|operation| operation.tag("contexts"))
    .to_vec()
}

/// A context to open.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenRequest {
    #[schemars(with = "String", regex(pattern = CONTEXT))]
    pub context: ContextName,
    /// `python`, `node`, `bash`, or another name of one of them.
    #[schemars(length(max = 63))]
    pub language: String,
    /// The path or name of the interpreter, instead of the usual ones.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub program: Option<String>,
    /// The directory of a Python virtual environment, whose interpreter is `program`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4000))]
    pub venv: Option<String>,
    /// The working directory; the sandbox's own by default.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub cwd: Option<String>,
    /// Variables added to the sandbox's environment. A name must not be empty or contain `=`, and
    /// zero bytes are not allowed.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// `name`, `name:group`, `uid` or `uid:gid`.
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub limits: ContextLimits,
}

pub const CONTEXT: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$";

/// Limits on everything that a context starts. Warnings list the limits that the host cannot
/// enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextLimits {
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub memory_bytes: Option<NonZeroU64>,
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub processes: Option<NonZeroU64>,
    /// Thousandths of a CPU.
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub cpu_millis: Option<NonZeroU64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextList {
    pub contexts: Vec<OpenedContext>,
}

/// Code with a cursor.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    /// At most 256 KiB.
    #[schemars(length(max = 262_144))]
    pub code: String,
    /// Characters of the code before the cursor, in Unicode code points, as Python's `len` counts
    /// them; by default the end of the code.
    #[serde(default)]
    #[schemars(range(max = 4_294_967_295_u32))]
    pub cursor: Option<u32>,
}

/// The completions that were found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletionsFound {
    /// The start of the part that a match replaces, counted like the cursor.
    pub start: u32,
    pub end: u32,
    pub matches: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// At most 256 KiB.
    #[schemars(length(max = 262_144))]
    pub code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checked {
    pub state: CodeStateName,
    /// The indentation of the next line.
    pub indent: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CodeStateName {
    Complete,
    /// More lines are needed.
    Incomplete,
    /// The code is invalid, whatever follows.
    Invalid,
}

async fn open(
    call: Call,
    _: Nothing,
    Json(request): Json<OpenRequest>,
) -> Result<Created<OpenedContext>, Refusal> {
    let inside = call.inside().await?;
    let ContextLimits { memory_bytes, processes, cpu_millis } = request.limits;
    let mut ask = OpenContext {
        context: request.context,
        language: request.language,
        program: interpreter_of(request.program, request.venv)?.map(Into::into),
        cwd: request.cwd.map(Into::into),
        env: request.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        user: request.user,
        limits: GroupLimits {
            memory_bytes: memory_bytes.map(NonZeroU64::get),
            processes: processes.map(NonZeroU64::get),
            cpu_millis: cpu_millis.map(NonZeroU64::get),
        },
    };
    if let (None, Some(workdir)) = (&ask.cwd, &inside.workdir)
        && find(&inside, &ask.context).await?.is_none()
    {
        ask.cwd = Some(workdir.clone().into());
    }
    Ok(Created(inside.guest.open_context(&ask).await?.into()))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Reply<ContextList>, Refusal> {
    let contexts = call.look()?.contexts().await?;
    Ok(Reply(ContextList { contexts: contexts.into_iter().map(OpenedContext::from).collect() }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<OpenedContext>, Refusal> {
    let name = call.context()?;
    match find(&call.inside().await?, &name).await? {
        Some(info) => Ok(Reply(info.into())),
        None => Err(unknown(&name)),
    }
}

async fn close(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let name = call.context()?;
    call.inside().await?.guest.close_context(&name).await?;
    Ok(Done)
}

async fn restart(call: Call, _: Nothing, _: Nothing) -> Result<Reply<OpenedContext>, Refusal> {
    let name = call.context()?;
    let inside = call.inside().await?;
    Ok(Reply(inside.guest.restart_context(&name).await?.into()))
}

async fn complete(
    call: Call,
    _: Nothing,
    Json(request): Json<CompleteRequest>,
) -> Result<Reply<CompletionsFound>, Refusal> {
    let context = call.context()?;
    let inside = call.inside().await?;
    let code = request.code;
    let cursor = match request.cursor {
        None => code.len(),
        Some(characters) => byte_at(&code, characters).ok_or_else(|| {
            let message = format!("cursor: the code has fewer than {characters} characters");
            Refusal::invalid(message)
        })?,
    };
    let ask = Complete { context, code: code.clone(), cursor: cursor as u64 };
    let repl::Completions { start, end, matches } = inside.guest.complete(ask).await?;
    // The client of the guest has seen to it that these are places in the code.
    let (start, end) = (characters_before(&code, start), characters_before(&code, end));
    Ok(Reply(CompletionsFound { start, end, matches }))
}

async fn check(
    call: Call,
    _: Nothing,
    Json(request): Json<CheckRequest>,
) -> Result<Reply<Checked>, Refusal> {
    let context = call.context()?;
    let checked = call.inside().await?.guest.check_code(&context, request.code).await?;
    let state = match checked.state {
        repl::CodeState::Complete => CodeStateName::Complete,
        repl::CodeState::Incomplete => CodeStateName::Incomplete,
        repl::CodeState::Invalid => CodeStateName::Invalid,
    };
    Ok(Reply(Checked { state, indent: checked.indent }))
}

/// Who only looks does not keep a sandbox from being idle.
async fn events(mut call: Call, _: Nothing, _: Nothing) -> Result<Events<RunEvent>, Refusal> {
    let context = call.context()?;
    let watched = call.look()?.watch_context(&context).await?;
    let (api, which) = (call.api.clone(), call.which()?);
    Events::begin(&mut call, move |teller| watch(api, which, watched, teller))
}

/// The context of that name, if it is open.
pub async fn find(inside: &Inside, name: &ContextName) -> Result<Option<ContextInfo>, Refusal> {
    let contexts = inside.guest.contexts().await?;
    Ok(contexts.into_iter().find(|info| info.context == *name))
}

/// The refusal of a context that is not open.
pub fn unknown(name: &ContextName) -> Refusal {
    Refusal::not_found(format!("there is no context {name}"))
        .hint("open it first, or name its `language` in the first run")
}
