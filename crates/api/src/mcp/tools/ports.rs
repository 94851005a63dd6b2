//! Ports of this host that lead into sandboxes.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mcp::tool::{Answer, Effect, Entry, Work, tool};
use crate::problem::Problem;
use crate::v1::{ForwardedPort, ForwardedPorts};
use access::keys::Access;

pub fn entries() -> Vec<Entry> {
    vec![
        tool(
            "expose_port",
            "Forward a port",
            "Forwards a loopback port of the server's host to a port inside a sandbox, and returns \
            its URL. A port that is already forwarded keeps its forward unless `host_port` asks \
            for another. The forwarded port does not ask for a key.",
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
    /// The name of the sandbox; this session's own by default.
    #[serde(default)]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClosePort {
    /// The port on the host.
    host_port: NonZeroU16,
    /// The name of the sandbox; this session's own by default.
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
    /// The name of the sandbox; this session's own by default.
    #[serde(default)]
    sandbox: Option<String>,
}

async fn expose_port(work: Work, asked: ExposePort) -> Result<Answer<ForwardedPort>, Problem> {
    let inside = work.look(asked.sandbox.as_deref())?;
    let (forwards, port) = (work.api.forwards(), asked.port.get());
    let wanted = asked.host_port.map(NonZeroU16::get);
    let is_it = |found: u16| wanted.is_none_or(|wanted| wanted == found);
    let mut open = forwards.of(&inside.which).into_iter();
    let known = open.find(|found| found.port == port && is_it(found.address.port()));
    if let Some(known) = known {
        return Ok(Answer::of(known.into()));
    }
    let host = IpAddr::from(Ipv4Addr::LOCALHOST);
    let registry = work.api.registry();
    let opened = forwards
        .open(registry, &registry.get(&inside.which)?, port, host, wanted.unwrap_or(0))
        .await?;
    Ok(Answer::of(opened.into()))
}

async fn close_port(work: Work, asked: ClosePort) -> Result<Answer<PortClosed>, Problem> {
    let which = work.which(asked.sandbox.as_deref())?;
    let host_port = asked.host_port.get();
    if work.api.forwards().close(&which, host_port).await {
        return Ok(Answer::of(PortClosed { sandbox: which.to_string(), host_port }));
    }
    let message = format!("port {host_port} of the host is not forwarded to {which}");
    Err(Problem::not_found(message).hint("`list_ports` lists the forwarded ports"))
}

async fn list_ports(work: Work, asked: ListPorts) -> Result<Answer<ForwardedPorts>, Problem> {
    let which = work.which(asked.sandbox.as_deref())?;
    work.api.registry().get(&which)?;
    let ports = work.api.forwards().of(&which).into_iter().map(ForwardedPort::from).collect();
    Ok(Answer::of(ForwardedPorts { ports }))
}
