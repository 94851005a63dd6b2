//! The routes that the `HttpSandboxClient` of the published package `a2a-pack` speaks, as it is: the same
//! sandboxes as everywhere, under a root of their own, because its paths are those of the native API
//! with other bodies.
//!
//! ```text
//!  /a2a/v1/sandboxes                 made, listed
//!  /a2a/v1/sandboxes/{sandbox}       DELETE: ended and removed
//!  /a2a/v1/sandboxes/{sandbox}/exec  a program or a script
//!  /a2a/v1/run_python, run_shell     the same in a sandbox of its own
//! ```
//!
//! Names are of the key's own namespace, or of `default`. It does nothing by itself: what is asked for
//! becomes a specification as at every door. What it cannot have is refused here as there.

mod ask;
mod fleeting;
mod hints;

use std::time::Duration;

use hyper::Method;
use protocol::requests::Program;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::call::{Call, Inside, RunLimit};
use super::forward::Carried;
use super::gather::{self, Order, Part};
use super::limits::OUTPUT_BYTES_DEFAULT;
use super::placing;
use super::problem::respond_with;
use super::route::{Operation, Output, Refusals, operation};
use super::shape::{Created, Done, Json, Nothing, Reply};
use crate::creation::{namespace_of, permitted};
use crate::forms::exit::add_met_limit;
use crate::forms::problem::Problem;
use crate::forms::sandboxes::Sandbox;
use agent_client::program::{self, Head, Outputs, draw_session};
use ask::{Execute, Make, RunPython, RunShell};
use fleeting::Fleeting;
use node::{Placed, Placement};
use sandbox::refusal::{Code, Refusal};
use sandbox::{Filter, Name, SandboxError, SandboxRef, Selector};

/// Python under the name that the client means, and under the one that Debian gives it.
const PYTHONS: [&str; 2] = ["python", "python3"];

/// Refusals in the words of these calls.
const REFUSALS: Refusals = Refusals {
    respond: |refusal| respond_with(refusal, hints::words),
    schema: |schemas| schemas.subschema_for::<Problem>(),
};

pub fn operations() -> Vec<Operation> {
    let all = "/a2a/v1/sandboxes";
    let one = "/a2a/v1/sandboxes/{sandbox}";
    let starts = &[Code::Conflict, Code::Unsupported, Code::StartFailed, Code::LimitReached];
    let runs = &[Code::SpawnFailed, Code::Unsupported, Code::Io, Code::Gone];
    let one_shots = &[
        Code::Conflict,
        Code::Unsupported,
        Code::StartFailed,
        Code::LimitReached,
        Code::SpawnFailed,
        Code::Io,
        Code::Gone,
    ];
    let (python, shell) = ("/a2a/v1/run_python", "/a2a/v1/run_shell");
    [
        operation(Method::POST, all, "a2a_create", "Make a sandbox and start it.", create)
            .run()
            .about(ABOUT_BUCKETS)
            .problems(starts),
        operation(Method::GET, all, "a2a_list", "List the names of all sandboxes.", list),
        operation(Method::DELETE, one, "a2a_remove", "End and remove a sandbox.", remove)
            .run()
            .about(
                "A sandbox that does not exist counts as removed, because this client asks twice.",
            )
            .problems(&[Code::Conflict]),
        operation(
            Method::POST,
            "/a2a/v1/sandboxes/{sandbox}/exec",
            "a2a_exec",
            "Run a program or a script to its end.",
            exec,
        )
        .counted()
        .about("If the client disconnects first, the program is killed with all that it started.")
        .problems(runs),
        operation(
            Method::POST,
            python,
            "a2a_run_python",
            "Run Python in a new sandbox.",
            run_python,
        )
        .counted()
        .about("The sandbox is removed before the answer, and when the client disconnects.")
        .problems(one_shots),
        operation(
            Method::POST,
            shell,
            "a2a_run_shell",
            "Run a script in a new sandbox.",
            run_shell,
        )
        .counted()
        .about("The sandbox is removed before the answer, and when the client disconnects.")
        .problems(one_shots),
    ]
    .map(|operation| operation.tag("a2a").refusing(REFUSALS))
    .to_vec()
}

const ABOUT_BUCKETS: &str = "`bucket` is the workspace. The client sends a name even when its \
caller gave none: `agent-` and the name of the sandbox, or `agent-workspace`. These names mean no \
workspace.";

/// The output of a program and how it ended, in the form that this client reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Executed {
    stdout: String,
    /// If a timeout or a lack of memory has ended the program, the last line says so in brackets.
    stderr: String,
    /// The exit code as a shell reports it: 128 plus the signal that ended the program, or 124 for
    /// a timeout.
    exit_code: i32,
    /// Whether output was cut off.
    truncated: bool,
}

async fn create(
    call: Call,
    _: Nothing,
    Json(request): Json<Make>,
) -> Result<Carried<Created<Sandbox>>, Refusal> {
    let which = SandboxRef { namespace: namespace(&call), name: request.name.clone() };
    call.reaches(&which.namespace)?;
    let spec = permitted(&call.api, &call.caller, request.spec(which)?)?;
    let placed = match placing::place(&call, &spec).await? {
        Placed::Here(placed) => placed,
        Placed::There(to) => return there(call, &to).await,
    };
    let making = call.api.registry().create_placed(spec, placed);
    Ok(Carried::Here(Created(call.trail.making(making).await?.into())))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Carried<Reply<Vec<String>>>, Refusal> {
    let namespace = namespace(&call);
    call.reaches(&namespace)?;
    let mut filter = Filter {
        namespace: Some(namespace),
        labels: Vec::<Selector>::new(),
        phases: Vec::new(),
        after: None,
        limit: None,
    };
    let mut names = Vec::new();
    loop {
        let page = call.api.registry().page(&filter);
        names.extend(page.records.into_iter().map(|record| (record.name.to_string(), ())));
        filter.after = page.next;
        if filter.after.is_none() {
            break;
        }
    }
    let here = Part { entries: names, is_cut: false };
    let answer = |all: Part<()>| {
        let names: Vec<_> = all.entries.into_iter().map(|(name, ())| name).collect();
        Reply(names).into_response()
    };
    let listed = gather::listed(&call, here, Order::Ascending, usize::MAX, answer).await?;
    Ok(Carried::There(Box::new(listed)))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    match call.api.registry().remove(&which(&call)?, true).await {
        Ok(_) | Err(SandboxError::NotFound { .. }) => Ok(Done),
        Err(error) => Err(error.into()),
    }
}

async fn exec(
    call: Call,
    _: Nothing,
    Json(request): Json<Execute>,
) -> Result<Reply<Executed>, Refusal> {
    let timeout_ms = request.timeout_ms()?;
    let what = request.what()?;
    let inside = call.enter(which(&call)?).await?;
    Ok(Reply(carry_out(&call, &inside, what, timeout_ms).await?))
}

async fn run_python(
    call: Call,
    _: Nothing,
    Json(request): Json<RunPython>,
) -> Result<Carried<Reply<Executed>>, Refusal> {
    let (code, timeout_ms) = (request.code.clone(), request.timeout_ms()?);
    let spec = fleeting::spec(&call, |which| request.spec(which))?;
    let placed = match placing::place(&call, &spec).await? {
        Placed::Here(placed) => placed,
        Placed::There(to) => return there(call, &to).await,
    };
    let fleeting = Fleeting::make(&call, spec, placed).await?;
    let ran = python(&call, &fleeting, code, timeout_ms).await;
    fleeting.remove().await;
    Ok(Carried::Here(Reply(ran?)))
}

async fn run_shell(
    call: Call,
    _: Nothing,
    Json(request): Json<RunShell>,
) -> Result<Carried<Reply<Executed>>, Refusal> {
    let (script, timeout_ms) = (request.script.clone(), request.timeout_ms()?);
    let spec = fleeting::spec(&call, |which| request.spec(which))?;
    let placed = match placing::place(&call, &spec).await? {
        Placed::Here(placed) => placed,
        Placed::There(to) => return there(call, &to).await,
    };
    let fleeting = Fleeting::make(&call, spec, placed).await?;
    let what = Program::script(script);
    let ran = match call.enter(fleeting.which().clone()).await {
        Ok(inside) => carry_out(&call, &inside, what, timeout_ms).await,
        Err(problem) => Err(problem),
    };
    fleeting.remove().await;
    Ok(Carried::Here(Reply(ran?)))
}

async fn python(
    call: &Call,
    fleeting: &Fleeting,
    code: String,
    timeout_ms: Option<u64>,
) -> Result<Executed, Refusal> {
    let inside = call.enter(fleeting.which().clone()).await?;
    let [usual, other] = PYTHONS.map(|python| {
        carry_out(call, &inside, Program::argv([python, "-c", code.as_str()]), timeout_ms)
    });
    match usual.await {
        Err(problem) if is_missing(&problem) => other.await,
        ran => ran,
    }
}

/// Whether there is no program of that name.
fn is_missing(problem: &Refusal) -> bool {
    let errno = problem.details.as_deref().and_then(|details| details.get("errno"));
    problem.code == Code::SpawnFailed && errno == Some(&json!(nix::libc::ENOENT))
}

async fn carry_out(
    call: &Call,
    inside: &Inside,
    command: Program,
    timeout_ms: Option<u64>,
) -> Result<Executed, Refusal> {
    let mut program = program::Program::new(draw_session()?, command);
    program.start.cwd = inside.workdir.as_deref().map(Into::into);
    let limit = RunLimit::of(timeout_ms.map(Duration::from_millis), call.deadline);
    program.start.deadline_ms = limit.map(RunLimit::time_ms);
    program.reported_deadline_ms = limit.map(RunLimit::reported_ms);
    let mut outputs = Outputs::new(OUTPUT_BYTES_DEFAULT as usize, call.memory.clone());
    let ended = program.begin(&inside.guest)?.collect(b"", &mut outputs).await?;
    let truncated = outputs.is_cut();
    let [stdout, mut stderr] = [outputs.stdout, outputs.stderr].map(Head::into_text);
    add_met_limit(&mut stderr, &ended.record.cause);
    Ok(Executed { stdout, stderr, exit_code: ended.shell_code(), truncated })
}

/// The answer of the node that makes the sandbox.
async fn there<T>(call: Call, to: &Placement) -> Result<Carried<T>, Refusal> {
    Ok(Carried::There(Box::new(placing::sent_on(call, to).await?)))
}

/// The sandbox that the path names, if the key reaches it.
fn which(call: &Call) -> Result<SandboxRef, Refusal> {
    let (namespace, name) = (namespace(call), call.parameter("sandbox")?);
    call.reaches(&namespace)?;
    Ok(SandboxRef { namespace, name })
}

/// The namespace of those who can name none.
fn namespace(call: &Call) -> Name {
    namespace_of(&call.caller, None)
}
