//! Links to ports of a sandbox: who has one reaches the port without a key.

use std::num::NonZeroU16;
use std::time::Duration;

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Done, Json, Nothing, Reply};
use crate::caller::Caller;
use access::preview::{LINK_TTL_DEFAULT, LINK_TTL_MAX, LINK_TTL_MIN, Link};
use host::instant::format;
use sandbox::refusal::{Code, Refusal};

/// What [`LINK_TTL_MAX`] is for the document.
const TTL_MS_MAX: u64 = LINK_TTL_MAX.as_millis() as u64;
const TTL_MS_MIN: u64 = LINK_TTL_MIN.as_millis() as u64;

pub fn operations() -> Vec<Operation> {
    let all = "/v1/sandboxes/{namespace}/{name}/previews";
    let one = "/v1/sandboxes/{namespace}/{name}/previews/{preview}";
    [
        operation(Method::POST, all, "create_preview", "Make a link to a port.", make)
            .run()
            .about(
                "Who has the link reaches the port without a key, until it expires, is removed, or \
                its sandbox or the key that made it is gone. A browser that opens it gets a cookie for \
                this port alone and goes on without the link in its address; a program may send it as it \
                is. The answer is the only one with the link: it cannot be shown again.",
            )
            .problems(&[Code::LimitReached]),
        operation(Method::GET, all, "list_previews", "List the links to ports of a sandbox.", list),
        operation(Method::DELETE, one, "remove_preview", "Take a link back.", remove).run(),
    ]
    .map(|operation| operation.tag("ports"))
    .to_vec()
}

/// A port to make a link to.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePreview {
    /// The port in the sandbox. Nothing needs to listen there yet.
    port: NonZeroU16,
    /// How long the link is good for; by default an hour, at most 30 days.
    #[serde(default)]
    #[schemars(range(min = TTL_MS_MIN, max = TTL_MS_MAX))]
    ttl_ms: Option<u64>,
}

/// A link, with what opens it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatedPreview {
    pub id: String,
    pub port: u16,
    /// The link. Without a host name for the port it is for programs alone.
    pub url: String,
    /// Whether the port has a host name of its own, which browsers need.
    pub has_host_name: bool,
    pub created_at: String,
    pub expires_at: String,
}

/// A link, without what opens it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewInfo {
    /// By which it can be removed.
    pub id: String,
    pub port: u16,
    pub created_at: String,
    pub expires_at: String,
    /// The id of the key that made it; absent for the operator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub key: Option<String>,
}

/// The links to ports of a sandbox that have not expired, the oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewList {
    pub previews: Vec<PreviewInfo>,
}

async fn make(
    call: Call,
    _: Nothing,
    Json(request): Json<CreatePreview>,
) -> Result<Created<CreatedPreview>, Refusal> {
    let which = call.which()?;
    let (previews, registry) = (call.api.previews(), call.api.registry());
    let record = registry.get(&which)?;
    let port = request.port.get();
    let ttl = request.ttl_ms.map_or(LINK_TTL_DEFAULT, Duration::from_millis);
    let grant = match &call.caller {
        Caller::Holder(grant) => Some(grant.clone()),
        _ => None,
    };
    let (link, token) = previews.make_link(registry, &which, port, ttl, grant)?;
    call.trail.fact("preview", link.id.as_str());
    call.trail.fact("port", port);
    let has_host_name = previews.base().is_some();
    let url = previews.link_url(&record, port, &token, &call.origin());
    let (created_at, expires_at) = (format(link.made_at_ms), format(link.expires_at_ms));
    Ok(Created(CreatedPreview { id: link.id, port, url, has_host_name, created_at, expires_at }))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Reply<PreviewList>, Refusal> {
    let which = call.which()?;
    let links = call.api.previews().links(call.api.registry(), &which)?;
    Ok(Reply(PreviewList { previews: links.into_iter().map(PreviewInfo::from).collect() }))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let which = call.which()?;
    let id: String = call.parameter("preview")?;
    let link = call.api.previews().remove_link(call.api.registry(), &which, &id)?;
    call.trail.fact("preview", link.id);
    Ok(Done)
}

impl From<Link> for PreviewInfo {
    fn from(link: Link) -> Self {
        let key = link.grant.and_then(|grant| grant.id).map(|id| id.to_string());
        let (created_at, expires_at) = (format(link.made_at_ms), format(link.expires_at_ms));
        Self { id: link.id, port: link.port, created_at, expires_at, key }
    }
}
