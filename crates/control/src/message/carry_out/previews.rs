//! Carries out the request for a link to a port.

use std::num::NonZeroU16;
use std::time::Duration;

use super::Parts;
use crate::message::{ErrorCode, ErrorReply, PreviewLink, Reply};
use access::preview::LINK_TTL_DEFAULT;
use sandbox::SandboxRef;

pub(super) fn make(
    sandbox: &SandboxRef,
    port: NonZeroU16,
    ttl_ms: Option<u64>,
    parts: Parts<'_>,
) -> Result<Reply, ErrorReply> {
    let Parts { registry, previews, .. } = parts;
    let record = registry.get(sandbox)?;
    let Some(server) = previews.server() else {
        let message = "this daemon has no server that a link could lead to";
        let hint = "start it with `host-bridge serve`";
        return Err(ErrorReply::new(ErrorCode::Unsupported, message, Some(hint)));
    };
    let ttl = ttl_ms.map_or(LINK_TTL_DEFAULT, Duration::from_millis);
    let (link, token) = previews.make_link(registry, sandbox, port.get(), ttl, None)?;
    let url = previews.link_url(&record, port.get(), &token, server);
    let has_host_name = previews.base().is_some();
    Ok(Reply::PreviewLink(Box::new(PreviewLink { link, url, has_host_name })))
}
