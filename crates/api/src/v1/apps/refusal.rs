//! From the errors of apps to what is said of them.

use serde_json::json;

use crate::limits::BUSY_PAUSE;
use crate::problem::{Code, Problem};
use crate::v1::exit::Exit;
use services::app::AppError;

impl From<AppError> for Problem {
    fn from(error: AppError) -> Self {
        let message = error.to_string();
        let with = |code| Self::new(code, message.clone());
        match error {
            AppError::Sandbox(error) => error.into(),
            AppError::Guest(error) => error.into(),
            AppError::Forward(error) => error.into(),
            AppError::NotFound { .. } => with(Code::NotFound).hint("GET …/apps lists the apps"),
            AppError::NameTaken { name, .. } => with(Code::Conflict)
                .hint("choose another name, or DELETE that app first")
                .details(json!({ "reason": "name_taken", "app": name })),
            AppError::TooManyOfSandbox { limit, .. } | AppError::TooMany { limit } => {
                with(Code::LimitReached)
                    .hint("DELETE an app that has ended or is not needed")
                    .details(json!({ "limit": limit }))
                    .retry_after(BUSY_PAUSE)
            }
            AppError::CodeTooLong { limit, .. } => with(Code::TooLarge)
                .hint("upload the files and start a `command`")
                .details(json!({ "limit": limit })),
            AppError::ReadyPath { .. } => {
                with(Code::Invalid).details(json!({ "field": "ready_path" }))
            }
            AppError::ReadyTimeout { .. } => {
                with(Code::Invalid).details(json!({ "field": "ready_timeout_ms" }))
            }
            AppError::PortTaken { port, .. } => with(Code::Conflict)
                .hint("choose another port, or leave it out to get a free one in $PORT")
                .details(json!({ "reason": "port_taken", "port": port })),
            AppError::NoPort { .. } => with(Code::LimitReached).retry_after(BUSY_PAUSE),
            AppError::Missing { ref python, ref modules, .. } => {
                let modules_named = modules.join(" ");
                with(Code::ModuleMissing)
                    .hint(format!(
                        "use an image that has it, or, if the sandbox has egress, first run \
                        `{python} -m pip install {modules_named}` in it"
                    ))
                    .details(json!({ "python": python, "modules": modules }))
            }
            AppError::NoInterpreter { ref python, .. } => with(Code::SpawnFailed)
                .hint("use an image that has it, or name another interpreter with `python`")
                .details(json!({ "subject": python })),
            AppError::Interpreter { ref python, .. } => with(Code::SpawnFailed)
                .hint("name another interpreter with `python`")
                .details(json!({ "subject": python })),
            AppError::Failed { record, log } => with(Code::AppFailed)
                .hint("its log says why; the app must stay in the foreground")
                .details(json!({ "exit": Exit::from(*record), "log": log })),
            AppError::NotReady { port, elsewhere, log, .. } => with(Code::AppNotReady)
                .hint(
                    "the app was ended: let it listen on 127.0.0.1 and $PORT, or give it more time",
                )
                .details(json!({ "port": port, "listens_on": elsewhere, "log": log })),
            AppError::Stopped => with(Code::Conflict).details(json!({ "reason": "stopped" })),
            AppError::Abandoned | AppError::SandboxGone => with(Code::Gone),
            AppError::Ending => with(Code::Unavailable).retry_after(BUSY_PAUSE),
            AppError::Draw(_) | AppError::Note { .. } => with(Code::Internal),
        }
    }
}
