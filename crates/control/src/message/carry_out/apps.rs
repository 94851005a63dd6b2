//! Carries out the requests about apps.

use std::num::NonZeroU16;
use std::time::Duration;

use super::Parts;
use crate::apps::{AppOrder, AppProgram, AppRow, StartApp};
use crate::message::{ErrorCode, ErrorReply, Reply};
use services::app::limits::LOG_KEPT_BYTES;
use services::app::{AppName, AppSpec, Kind, Program};

pub(super) async fn carry_out(order: AppOrder, parts: Parts<'_>) -> Result<Reply, ErrorReply> {
    let Parts { apps, registry, .. } = parts;
    match order {
        AppOrder::Start(start) => {
            let spec = spec(*start)?;
            // From its first answer on its session is at work there.
            let _activity = registry.activity(&spec.which);
            Ok(Reply::App(Box::new(apps.start(registry, spec).await?.into())))
        }
        AppOrder::List { sandbox: None } => {
            Ok(Reply::Apps(apps.matching(|_| true).into_iter().map(AppRow::from).collect()))
        }
        AppOrder::List { sandbox: Some(which) } => {
            registry.get(&which)?;
            Ok(Reply::Apps(apps.of(&which).into_iter().map(AppRow::from).collect()))
        }
        AppOrder::Get { sandbox, app } => {
            registry.get(&sandbox)?;
            Ok(Reply::App(Box::new(apps.get(&sandbox, &named(&app)?)?.into())))
        }
        AppOrder::Stop { sandbox, app } => {
            registry.get(&sandbox)?;
            let app = named(&app)?;
            let row = AppRow::from(apps.get(&sandbox, &app)?);
            apps.stop(registry, &sandbox, &app).await?;
            Ok(Reply::App(Box::new(row)))
        }
        AppOrder::Log { sandbox, app, bytes_max } => {
            registry.get(&sandbox)?;
            let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(LOG_KEPT_BYTES);
            Ok(Reply::AppLog { log: apps.log(&sandbox, &named(&app)?, bytes_max)?.text })
        }
    }
}

fn named(app: &str) -> Result<AppName, ErrorReply> {
    app.parse().map_err(|error: services::app::InvalidAppName| invalid(&error))
}

fn invalid(error: &impl ToString) -> ErrorReply {
    ErrorReply::new(ErrorCode::Invalid, error.to_string(), None)
}

fn spec(app: StartApp) -> Result<AppSpec, ErrorReply> {
    let program = match app.what {
        AppProgram::Argv(argv) if argv.is_empty() => {
            return Err(invalid(&"the command names no program"));
        }
        AppProgram::Argv(argv) => Program::Argv(argv),
        AppProgram::Code { kind, code } => {
            let known = [Kind::Flask, Kind::Fastapi, Kind::Streamlit, Kind::Command];
            let found = known.into_iter().find(|known| known.name() == kind);
            let unknown = || invalid(&format!("{kind:?} is not a type of app"));
            Program::Code { kind: found.ok_or_else(unknown)?, code }
        }
    };
    let mut spec = AppSpec::new(app.sandbox, program);
    spec.name = app.name.as_deref().map(named).transpose()?;
    spec.port = app.port.map(NonZeroU16::get);
    spec.host_port = app.host_port;
    spec.env = app.env;
    spec.workdir = app.workdir;
    spec.ready_path = app.ready_path.unwrap_or(spec.ready_path);
    spec.ready_timeout = app.ready_timeout_ms.map_or(spec.ready_timeout, Duration::from_millis);
    spec.python = app.python.unwrap_or(spec.python);
    Ok(spec)
}
