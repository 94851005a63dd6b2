//! Ports of this host that lead into sandboxes.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forms::ports::{ForwardedPort, ForwardedPorts, check_host_port};
use crate::mcp::tool::{Answer, Effect, Entry, Work, tool};
use access::keys::Access;
use sandbox::refusal::{Hint, Refusal};

pub fn entries() -> Vec<Entry> {
    vec![
        tool(
            "expose_port",
            "Forward a port",
            "Forwards a loopback port of the server's host to a port inside a sandbox, and returns \
            its URL. A port that is forwarded already stays so, unless `host_port` asks for \
            another. The forwarded port asks for no key.",
            Access::Run,
            Effect::Ensures,
            expose_port,
        ),
        tool(
            "close_port",
            "End a forwarded port",
            "Stops forwarding a port of the server's host and closes its connections.",
            Access::Run,
            Effect::Ends,
            close_port,
        ),
        tool(
            "list_ports",
            "List forwarded ports",
            "Lists the ports of the server's host that are forwarded into a sandbox.",
            Access::Read,
            Effect::Reads,
            list_ports,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExposePort {
    /// The port at 127.0.0.1 in the sandbox. Nothing needs to listen there yet.
    port: NonZeroU16,
    /// The port on the host; any free one by default.
    #[serde(default)]
    host_port: Option<NonZeroU16>,
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClosePort {
    /// The port on the host.
    host_port: NonZeroU16,
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct PortClosed {
    sandbox: String,
    host_port: u16,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListPorts {
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
}

async fn expose_port(work: Work, request: ExposePort) -> Result<Answer<ForwardedPort>, Refusal> {
    let inside = work.look(request.sandbox.as_deref()).await?;
    let (forwards, port) = (work.api.forwards(), request.port.get());
    let wanted = request.host_port.map(NonZeroU16::get);
    let is_it = |found: u16| wanted.is_none_or(|wanted| wanted == found);
    let mut open = forwards.of(&inside.which).into_iter();
    let known = open.find(|found| found.port == port && is_it(found.address.port()));
    if let Some(known) = known {
        return Ok(Answer::of(known.into()));
    }
    check_host_port(&work.api, &work.caller, wanted.unwrap_or(0))?;
    let host = IpAddr::from(Ipv4Addr::LOCALHOST);
    let registry = work.api.registry();
    let opened = forwards
        .open(registry, &registry.get(&inside.which)?, port, host, wanted.unwrap_or(0))
        .await?;
    Ok(Answer::of(opened.into()))
}

async fn close_port(work: Work, request: ClosePort) -> Result<Answer<PortClosed>, Refusal> {
    let which = work.which(request.sandbox.as_deref())?;
    let host_port = request.host_port.get();
    if work.api.forwards().close(&which, host_port).await {
        return Ok(Answer::of(PortClosed { sandbox: which.to_string(), host_port }));
    }
    let message = format!("port {host_port} of the host is not forwarded to {which}");
    Err(Refusal::not_found(message).hint(Hint::ListForwards))
}

async fn list_ports(work: Work, request: ListPorts) -> Result<Answer<ForwardedPorts>, Refusal> {
    let which = work.which(request.sandbox.as_deref())?;
    work.api.registry().get(&which)?;
    let ports = work.api.forwards().of(&which).into_iter().map(ForwardedPort::from).collect();
    Ok(Answer::of(ForwardedPorts { ports }))
}
