//! Orders about apps, as the control socket has them, carried out.

use std::num::NonZeroU16;
use std::time::Duration;

use api::Api;
use control::message::{Code, Refusal, Reply};
use control::{AppOrder, AppRow, StartApp, What};
use services::app::limits::LOG_KEPT_BYTES;
use services::app::{AppName, AppSpec, Kind, Program};

pub(super) async fn carry_out(order: AppOrder, api: &Api) -> Result<Reply, Refusal> {
    let (apps, registry) = (api.apps(), api.registry());
    match order {
        AppOrder::Start(asked) => {
            let spec = spec(*asked)?;
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

fn named(app: &str) -> Result<AppName, Refusal> {
    app.parse().map_err(|error: services::app::InvalidAppName| invalid(&error))
}

fn invalid(error: &impl ToString) -> Refusal {
    Refusal::new(Code::Invalid, error.to_string(), None)
}

fn spec(asked: StartApp) -> Result<AppSpec, Refusal> {
    let program = match asked.what {
        What::Argv(argv) if argv.is_empty() => {
            return Err(invalid(&"the command names no program"));
        }
        What::Argv(argv) => Program::Argv(argv),
        What::Code { kind, code } => {
            let known = [Kind::Flask, Kind::Fastapi, Kind::Streamlit, Kind::Command];
            let found = known.into_iter().find(|known| known.name() == kind);
            let unknown = || invalid(&format!("{kind:?} is no type of apps"));
            Program::Code { kind: found.ok_or_else(unknown)?, code }
        }
    };
    let mut spec = AppSpec::new(asked.sandbox, program);
    spec.name = asked.name.as_deref().map(named).transpose()?;
    spec.port = asked.port.map(NonZeroU16::get);
    spec.host_port = asked.host_port;
    spec.env = asked.env;
    spec.workdir = asked.workdir;
    spec.ready_path = asked.ready_path.unwrap_or(spec.ready_path);
    spec.ready_timeout = asked.ready_timeout_ms.map_or(spec.ready_timeout, Duration::from_millis);
    spec.python = asked.python.unwrap_or(spec.python);
    Ok(spec)
}
