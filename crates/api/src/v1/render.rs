//! Commands that make files: their progress while they run, and the files that they have made.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::Method;
use protocol::requests::Program;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::capture::Capture;
use super::super::render::{Rendered, Rendering, Step};
use super::super::route::{Operation, operation};
use super::super::shape::{Json, Nothing};
use super::super::stream::{Either, Events};
use super::exec::program::{Bounds, Described, TIMEOUT_MS_MAX};
use super::exec::{OnDisconnect, ProgramRequest, begin};
use crate::forms::artifacts::Captured;
use crate::forms::exit::{Cause, Exit};
use crate::forms::problem::Problem;
use sandbox::refusal::{Code, Refusal};
use services::artifact::{ARTIFACTS_DIR_VARIABLE, Scene};

/// Patterns of one call: as many as people write.
const OUTPUTS_MAX: usize = 32;

pub fn operations() -> Vec<Operation> {
    vec![
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/render",
            "render",
            "Run a command and keep the files that it makes.",
            render,
        )
        .about(
            "With `Accept: application/x-ndjson` the answer is a stream of progress events that \
            ends with `result`. Progress is read from the command's own output (`45%`, `9/20`, \
            progress bars). An exit code other than 0 is a result. If the client disconnects \
            before the end, the command is killed with all that it started.",
        )
        .counted()
        .problems(&[Code::SpawnFailed, Code::Unsupported, Code::Io, Code::Gone])
        .tag("artifacts"),
    ]
}

/// A command line for `/bin/sh`, or a program and its arguments.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a command must be a line for the shell or a list of arguments")]
pub enum Command {
    Line(String),
    Argv(#[schemars(length(min = 1, max = 16384))] Vec<String>),
}

/// A command that makes files.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenderCommand {
    pub command: Command,
    /// The working directory; `/` by default.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub cwd: Option<String>,
    /// Added to the sandbox's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Which of the files that it makes or changes are kept: paths below its working directory,
    /// with `*` and `?` for parts of a name and `**` for directories. All of them by default.
    #[serde(default)]
    #[schemars(length(max = OUTPUTS_MAX))]
    pub outputs: Vec<String>,
    /// The time from its start until it is killed with all that it started.
    #[serde(default)]
    #[schemars(range(min = 1, max = TIMEOUT_MS_MAX))]
    pub timeout_ms: Option<u64>,
}

/// A command's result and the files that it made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenderResult {
    /// Whether it ended by itself with code 0.
    pub success: bool,
    /// The exit code as a shell reports it: 128 plus the signal that ended the program, or 124 for
    /// a timeout.
    pub exit_code: i32,
    pub cause: Cause,
    pub duration_us: u64,
    /// The end of its output.
    pub log: String,
    /// Whether there was more output.
    pub truncated: bool,
    pub captured: Captured,
}

/// The events of a command. `result` and `problem` come last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RenderEvent {
    Progress {
        /// The progress from 0 to 1. It may fall, because a command may do several things in turn.
        done: f64,
        /// What the progress is about, if the command names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        label: Option<String>,
    },
    Result {
        result: RenderResult,
    },
    /// The stream cannot continue.
    Problem {
        problem: Problem,
    },
}

impl From<Rendered> for RenderResult {
    fn from(rendered: Rendered) -> Self {
        let Rendered { record, log, is_cut, captured } = rendered;
        let exit = Exit::from(record);
        Self {
            success: exit.success,
            exit_code: exit.exit_code,
            cause: exit.cause,
            duration_us: exit.duration_us,
            log,
            truncated: is_cut,
            captured: captured.into(),
        }
    }
}

impl From<Step> for RenderEvent {
    fn from(step: Step) -> Self {
        match step {
            Step::Progress(reading) => Self::Progress { done: reading.done, label: reading.label },
            Step::Ended(rendered) => Self::Result { result: (*rendered).into() },
        }
    }
}

async fn render(
    mut call: Call,
    _: Nothing,
    Json(request): Json<RenderCommand>,
) -> Result<Either<RenderResult, RenderEvent>, Refusal> {
    if request.outputs.len() > OUTPUTS_MAX {
        return Err(Refusal::invalid(format!("outputs: the limit is {OUTPUTS_MAX} patterns")));
    }
    let RenderCommand { command, cwd, env, outputs, timeout_ms } = request;
    let scene = Scene {
        workdir: cwd.as_deref().map(Into::into),
        artifacts_dir: env.get(ARTIFACTS_DIR_VARIABLE).map(|path| path.as_str().into()),
        outputs,
        user: None,
    };
    let program = match command {
        Command::Line(script) => Program::script(script),
        Command::Argv(argv) => Program::argv(argv),
    };
    let described =
        Described { program, cwd, env, user: None, timeout_ms, bounds: Bounds::default() };
    let request = ProgramRequest {
        described,
        stdin: None,
        output_bytes_max: None,
        on_disconnect: OnDisconnect::Cancel,
        artifacts: true,
        session: None,
    };
    let inside = call.inside().await?;
    let capture = Capture::begin(&call.api, &inside, scene).await?.within(call.ends_at());
    let held = Arc::new((call.permit.clone(), call.memory.clone()));
    let running = begin(&call.api, &inside, request, call.deadline, false, held).await?;
    let mut rendering = Rendering::new(running, capture);
    if !call.prefers("application/x-ndjson") {
        loop {
            if let Step::Ended(rendered) = rendering.next().await? {
                return Ok(Either::Whole((*rendered).into()));
            }
        }
    }
    let events = Events::begin(&mut call, |teller| async move {
        let _inside = inside;
        loop {
            let (event, is_last) = match rendering.next().await {
                Ok(step) => {
                    let is_last = matches!(step, Step::Ended(_));
                    (step.into(), is_last)
                }
                Err(problem) => (RenderEvent::Problem { problem: problem.into() }, true),
            };
            if teller.tell(&event).await.is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(Either::Stream(events))
}
