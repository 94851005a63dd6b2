//! What a sandbox is: its directories, what it uses, and the version that the clients believe to speak with.

use hyper::{Method, StatusCode};
use serde_json::json;

use super::answer::TOOLBOX;
use super::replies::DAEMON_VERSION;
use super::seat::{self, Places};
use crate::body::json_response;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use host::instant::format;
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    let get = || Method::GET;
    [
        operation(
            get(),
            "/daytona/toolbox/{sandbox}/user-home-dir",
            "daytona_home",
            "The home of programs.",
            home,
        )
        .run(),
        operation(
            get(),
            "/daytona/toolbox/{sandbox}/work-dir",
            "daytona_work",
            "Where programs begin.",
            work,
        )
        .run(),
        operation(
            get(),
            "/daytona/toolbox/{sandbox}/version",
            "daytona_version",
            "The version of the toolbox.",
            version,
        ),
        operation(
            get(),
            "/daytona/toolbox/{sandbox}/system/metrics",
            "daytona_metrics",
            "What a sandbox uses now.",
            metrics,
        ),
    ]
    .map(|operation| operation.refusing(TOOLBOX))
    .to_vec()
}

async fn home(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let places = Places::of(&call, &inside).await?;
    Ok(Raw(json_response(StatusCode::OK, &json!({ "dir": places.home }))))
}

async fn work(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let places = Places::of(&call, &inside).await?;
    Ok(Raw(json_response(StatusCode::OK, &json!({ "dir": places.work }))))
}

async fn version(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    seat::find(&call)?;
    Ok(Raw(json_response(StatusCode::OK, &json!({ "version": DAEMON_VERSION }))))
}

async fn metrics(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let which = seat::find(&call)?.which();
    let guest = call.api.registry().guest(&which)?;
    let page = guest.newest_metrics(false).await?;
    let Some(sample) = page.newest() else {
        return Err(Refusal::new(Code::Unavailable, "there is no sample of what it uses yet"));
    };
    let memory_bytes_max = sample.memory_bytes_max.or_else(crate::host_memory_bytes);
    let (disk, disk_max) = (sample.disk_bytes.unwrap_or(0), sample.disk_bytes_max.unwrap_or(0));
    Ok(Raw(json_response(
        StatusCode::OK,
        &json!({
            "timestamp": format(sample.time_ms),
            "timestampUnix": sample.time_ms / 1000,
            "cpuCount": page.cpus,
            "cpuUsedPct": f64::from(sample.cpu_hundredths.unwrap_or(0)) / 100.0,
            "memUsed": sample.memory_bytes,
            "memTotal": memory_bytes_max.unwrap_or(0),
            "memCache": 0,
            "diskUsed": disk,
            "diskTotal": disk_max,
            "diskFree": disk_max.saturating_sub(disk),
        }),
    )))
}
