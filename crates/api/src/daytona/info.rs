//! What a sandbox is: its directories, what it uses, and the version that the clients believe to speak with.

use hyper::{Method, StatusCode};
use serde_json::json;

use super::answer::TOOLBOX;
use super::replies::DAEMON_VERSION;
use super::seat::{self, Places};
use crate::body::json_response;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::samples;
use crate::shape::{Nothing, Raw};
use sandbox::refusal::Refusal;

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
    let record = seat::find(&call)?;
    let used = samples::newest(&call.api, &record).await?;
    Ok(Raw(json_response(StatusCode::OK, &used.shown())))
}
