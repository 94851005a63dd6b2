//! Links to ports of a sandbox. Daytona gives the address and a token apart, and asks for the token in a
//! header; a signed link has it in the address.

use std::num::NonZeroU16;
use std::time::Duration;

use hyper::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::API;
use super::seat::find;
use crate::body::json_response;
use crate::call::Call;
use crate::caller::Caller;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Query, Raw};
use access::preview::{LINK_TTL_DEFAULT, LinkToken};
use sandbox::Record;
use sandbox::refusal::Refusal;

pub fn operations() -> Vec<Operation> {
    [
        operation(
            Method::GET,
            "/daytona/sandbox/{sandbox}/ports/{port}/preview-url",
            "daytona_link",
            "Make a link to a port.",
            link,
        ),
        operation(
            Method::GET,
            "/daytona/sandbox/{sandbox}/ports/{port}/signed-preview-url",
            "daytona_signed_link",
            "Make a link to a port, with what opens it.",
            signed,
        ),
        operation(
            Method::POST,
            "/daytona/sandbox/{sandbox}/ports/{port}/signed-preview-url/{token}/expire",
            "daytona_expire_link",
            "Take a link back.",
            expire,
        ),
    ]
    .map(|operation| operation.run().refusing(API))
    .to_vec()
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct Expiry {
    expires_in_seconds: Option<u64>,
}

/// Makes a link to the port of the path: its address with the token, and the token.
fn make(call: &Call, ttl: Duration) -> Result<(Record, NonZeroU16, String, LinkToken), Refusal> {
    let record = find(call)?;
    let port: NonZeroU16 = call.parameter("port")?;
    let (previews, registry) = (call.api.previews(), call.api.registry());
    let grant = match &call.caller {
        Caller::Holder(grant) => Some(grant.clone()),
        _ => None,
    };
    let (link, token) = previews.make_link(registry, &record.which(), port.get(), ttl, grant)?;
    call.trail.fact("preview", link.id.as_str());
    call.trail.fact("port", port.get());
    let url = previews.link_url(&record, port.get(), &token, &call.origin());
    Ok((record, port, url, token))
}

async fn link(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let (record, _, url, token) = make(&call, LINK_TTL_DEFAULT)?;
    let address = url.split('?').next().unwrap_or_default().trim_end_matches('/');
    let answer = json!({ "sandboxId": record.id, "url": address, "token": token.expose() });
    Ok(Raw(json_response(StatusCode::OK, &answer)))
}

async fn signed(call: Call, Query(expiry): Query<Expiry>, _: Nothing) -> Result<Raw, Refusal> {
    let ttl = expiry.expires_in_seconds.map_or(LINK_TTL_DEFAULT, Duration::from_secs);
    let (record, port, url, token) = make(&call, ttl)?;
    let answer =
        json!({ "sandboxId": record.id, "port": port, "token": token.expose(), "url": url });
    Ok(Raw(json_response(StatusCode::OK, &answer)))
}

async fn expire(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let which = find(&call)?.which();
    let port: NonZeroU16 = call.parameter("port")?;
    let token: String = call.parameter("token")?;
    let (previews, registry) = (call.api.previews(), call.api.registry());
    let link = previews.opened(registry, &which, port.get(), &token);
    let link = link.ok_or_else(|| Refusal::not_found("there is no such link"))?;
    previews.remove_link(registry, &which, &link.id)?;
    call.trail.fact("preview", link.id);
    Ok(Raw(json_response(StatusCode::OK, &Value::Null)))
}
