//! The pages of the server itself, without a key: whether it lives, its metrics, its version.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::route::{Operation, operation};
use super::shape::{Nothing, Page, Reply};
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};

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

async fn health(_: Call, _: Nothing, _: Nothing) -> Result<Reply<Health>, Refusal> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Reply(Health { status: "ok".to_owned(), version }))
}

async fn ready(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Health>, Refusal> {
    if !call.api.is_ready() {
        return Err(
            Refusal::new(Code::Unavailable, "the server is stopping").retry_after(BUSY_PAUSE)
        );
    }
    if let Err(error) = call.api.audit().admit() {
        return Err(Refusal::new(Code::Unavailable, error.to_string()).retry_after(BUSY_PAUSE));
    }
    if let Some(trouble) = call.api.door().trouble() {
        // It goes on with the keys that it knew; the operator has to look.
        tracing::warn!(%trouble, "the keys cannot be reloaded");
    }
    health(call, Nothing, Nothing).await
}

async fn openapi(call: Call, _: Nothing, _: Nothing) -> Result<Page, Refusal> {
    Ok(Page { kind: "application/json", text: call.api.pages().document.clone() })
}

async fn reference(call: Call, _: Nothing, _: Nothing) -> Result<Page, Refusal> {
    Ok(Page { kind: "text/html; charset=utf-8", text: call.api.pages().reference.clone() })
}
