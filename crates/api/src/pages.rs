//! What anybody may ask of the server itself: whether it lives, what it knows, its version.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::limits::BUSY_PAUSE;
use super::problem::{Code, Problem};
use super::route::{Operation, operation};
use super::shape::{Nothing, Page, Reply};

/// The server's health.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// Always `ok`; a server that is not healthy does not answer.
    pub status: String,
    pub version: String,
}

pub fn operations() -> Vec<Operation> {
    [
        operation(Method::GET, "/livez", "livez", "Check whether the server is running.", health),
        operation(
            Method::GET,
            "/readyz",
            "readyz",
            "Check whether the server accepts calls.",
            ready,
        )
        .problems(&[Code::Unavailable]),
        operation(
            Method::GET,
            "/api/v1/health",
            "health",
            "Check whether the server is running.",
            health,
        ),
        operation(Method::GET, "/openapi.json", "openapi", "This document.", openapi),
        operation(Method::GET, "/docs", "docs", "This document as an HTML page.", reference),
    ]
    .map(|operation| operation.access(None).tag("server"))
    .to_vec()
}

async fn health(_: Call, _: Nothing, _: Nothing) -> Result<Reply<Health>, Problem> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Reply(Health { status: "ok".to_owned(), version }))
}

async fn ready(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Health>, Problem> {
    if !call.api.is_ready() {
        return Err(
            Problem::new(Code::Unavailable, "the server is stopping").retry_after(BUSY_PAUSE)
        );
    }
    if let Some(trouble) = call.api.door().trouble() {
        // It goes on with the keys that it knew; whoever runs it shall look.
        tracing::warn!(%trouble, "the keys cannot be reloaded");
    }
    health(call, Nothing, Nothing).await
}

async fn openapi(call: Call, _: Nothing, _: Nothing) -> Result<Page, Problem> {
    Ok(Page { kind: "application/json", text: call.api.pages().document.clone() })
}

async fn reference(call: Call, _: Nothing, _: Nothing) -> Result<Page, Problem> {
    Ok(Page { kind: "text/html; charset=utf-8", text: call.api.pages().reference.clone() })
}
