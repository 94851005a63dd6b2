//! Programs and scripts: run to their end with the whole result, or followed while they run.
//!
//! ```text
//!  asked ─▶ begin (a start, and a leash that ends it when its client is gone)
//!             ├─▶ collect   the whole result
//!             ├─▶ tell      events, one on each line
//!             └─▶ talk      events and input over a WebSocket
//! ```

mod begin;
mod collect;
pub mod limits;
pub mod program;
mod signal;
mod talk;
mod tell;
mod typed;

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::Method;
use protocol::SessionId;
use protocol::requests::Program;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::collect::OUTPUT_BYTES_MAX;
use self::program::{Bounds, Described, SESSION_NAME, TIMEOUT_MS_MAX};
use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Json, Nothing};
use super::super::stream::Either;
use super::super::websocket::WebSocketResponse;
use super::value::Content;
use crate::forms::artifacts::Captured;
use crate::forms::exit::{Cause, Survivor, Usage};
use sandbox::refusal::{Code, Refusal};

pub use self::begin::{OnDisconnect, ProgramRequest, begin, taken};
pub use self::collect::collect;
pub use self::signal::SignalName;
pub use self::talk::{Order, SignalTarget, parse, typed_bytes};
pub use self::tell::{ChannelName, Cuts, ExecEvent};
pub use self::typed::Typed;

pub fn operations() -> Vec<Operation> {
    let exec = "/v1/sandboxes/{namespace}/{name}/exec";
    let shell = "/v1/sandboxes/{namespace}/{name}/shell";
    let refusals = &[Code::SpawnFailed, Code::Unsupported, Code::Io, Code::Gone];
    [
        operation(Method::POST, exec, "exec", "Run a program to its end.", exec_command)
            .about(ABOUT_EXEC)
            .counted()
            .problems(refusals),
        operation(Method::POST, shell, "shell", "Run a script to its end.", shell_script)
            .about(ABOUT_SHELL)
            .counted()
            .problems(refusals),
        operation(Method::GET, exec, "exec_socket", "Run a program over a WebSocket.", exec_socket)
            .about(ABOUT_SOCKET)
            .counted(),
    ]
    .map(|operation| operation.tag("exec"))
    .to_vec()
}

const ABOUT_EXEC: &str = "No shell interprets the arguments. With `Accept: application/x-ndjson` \
the answer is a stream of events that ends with `exited`. An exit code other than 0 and an \
exceeded deadline are results. If the program cannot be started, the call fails with \
`spawn_failed`, and `details` names the step that failed. If the client disconnects before the \
end, the program is killed with all that it started, unless `on_disconnect` is `detach`: then it \
keeps running as the session that `session` names.";

const ABOUT_SHELL: &str = "The same as `exec`, with a shell that runs the script as `sh -c` does.";

const ABOUT_SOCKET: &str = "The client's first message is the body of `exec` or of `shell`. The \
server sends the events of their streams. The client may then send \
`{\"type\":\"stdin\",\"text\":\"…\"}` (or `base64`), `{\"type\":\"eof\"}` and \
`{\"type\":\"signal\",\"signal\":\"INT\"}`; binary messages are raw input. If the first message \
has `stdin`, that is the whole input.";

/// Declares what a client asks for: fields of its own, which say what is run, and those that say how
/// and are the same for all. Not flattened out of a type of theirs: then what a client says would be
/// held once more before it is understood, at many times its size, with the fields that are refused.
macro_rules! program_body {
    ($(#[$about:meta])* $name:ident { $($(#[$own:meta])* $field:ident: $kind:ty,)* } => $what:expr) => {
        $(#[$about])*
        #[derive(Clone, Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$own])* pub $field: $kind,)*
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
            /// Its whole input; empty by default.
            #[serde(default)]
            pub stdin: Option<Content>,
            /// The time from its start until it is killed with all that it started.
            #[serde(default)]
            #[schemars(range(min = 1, max = TIMEOUT_MS_MAX))]
            pub timeout_ms: Option<u64>,
            #[serde(default)]
            pub limits: Bounds,
            /// How many bytes of each output a result keeps, from the beginning; 8 MiB by default.
            #[serde(default)]
            #[schemars(range(max = OUTPUT_BYTES_MAX))]
            pub output_bytes_max: Option<u64>,
            #[serde(default)]
            pub on_disconnect: OnDisconnect,
            /// Keep new and changed files as artifacts: those in its working directory, and those
            /// in `/artifacts` or the directory in its variable `BURROW_ARTIFACTS_DIR`.
            #[serde(default)]
            pub artifacts: bool,
            /// A name for its session; a random name by default.
            #[serde(default)]
            #[schemars(with = "Option<String>", extend("pattern" = SESSION_NAME))]
            pub session: Option<SessionId>,
        }

        impl From<$name> for ProgramRequest {
            fn from(form: $name) -> Self {
                let $name { $($field,)* cwd, env, user, timeout_ms, limits: bounds, .. } = form;
                let program = $what;
                Self {
                    described: Described { program, cwd, env, user, timeout_ms, bounds },
                    stdin: form.stdin,
                    output_bytes_max: form.output_bytes_max,
                    on_disconnect: form.on_disconnect,
                    artifacts: form.artifacts,
                    session: form.session,
                }
            }
        }
    };
}

program_body! {
    /// A program to run.
    ExecCommand {
        /// The program and its arguments.
        #[schemars(length(min = 1, max = 16384))]
        argv: Vec<String>,
    } => Program::argv(argv)
}

program_body! {
    /// A script to run.
    ShellScript {
        script: String,
        /// The interpreter: `/bin/sh` by default.
        #[serde(default)]
        #[schemars(length(max = 4096))]
        shell: Option<String>,
    } => Program::Script { script: script.into(), shell: shell.map(Into::into) }
}

/// The output of a program and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecResult {
    pub session: String,
    /// The output as text; invalid UTF-8 is shown as U+FFFD.
    pub stdout: String,
    pub stderr: String,
    /// The exact bytes, if they are not valid UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub stdout_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub stderr_base64: Option<String>,
    /// Whether output was cut at `output_bytes_max`.
    pub truncated: bool,
    /// Bytes that were lost before they could be read, because the log of an already existing
    /// session is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub missing_bytes: Option<u64>,
    /// The exit code as a shell reports it: 128 plus the signal that ended the program, or 124 for
    /// a timeout.
    pub exit_code: i32,
    /// Whether it ended by itself with code 0.
    pub success: bool,
    pub cause: Cause,
    /// Its duration by the guest's monotonic clock.
    pub duration_us: u64,
    pub usage: Usage,
    /// Its processes that still run; only the first few are named.
    pub left_behind: Vec<Survivor>,
    pub left_behind_count: u32,
    /// Requested options that this host could not provide.
    pub warnings: Vec<String>,
    /// With `artifacts`: the artifacts that were captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Captured")]
    pub captured: Option<Captured>,
}

type Answer = Either<ExecResult, ExecEvent>;

async fn exec_command(
    call: Call,
    _: Nothing,
    Json(request): Json<ExecCommand>,
) -> Result<Answer, Refusal> {
    run(call, request.into()).await
}

async fn shell_script(
    call: Call,
    _: Nothing,
    Json(request): Json<ShellScript>,
) -> Result<Answer, Refusal> {
    run(call, request.into()).await
}

async fn run(mut call: Call, request: ProgramRequest) -> Result<Answer, Refusal> {
    call.trail.program(&request.described.program);
    let inside = call.inside().await?;
    let output_bytes_max = collect::output_bytes_max(request.output_bytes_max)?;
    let held = Arc::new((call.permit.clone(), call.memory.clone()));
    let capture = request.capture(&call.api, &inside, call.ends_at()).await?;
    let running = begin(&call.api, &inside, request, call.deadline, false, held).await?;
    if call.prefers("application/x-ndjson") {
        return Ok(Either::Stream(tell::events(&mut call, inside, running, capture)?));
    }
    let mut result = collect(running, output_bytes_max, &call.memory).await?;
    if let Some(capture) = capture {
        result.captured = Some(capture.end(None).await.into());
    }
    Ok(Either::Whole(result))
}

async fn exec_socket(mut call: Call, _: Nothing, _: Nothing) -> Result<WebSocketResponse, Refusal> {
    let inside = call.inside().await?;
    talk::accept(&mut call, inside)
}
