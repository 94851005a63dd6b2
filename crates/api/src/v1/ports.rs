//! Ports inside a sandbox: forwarded from ports of this host, or reached over a WebSocket.

mod tunnel;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::str::FromStr;

use hyper::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Done, Json, Nothing, Reply};
use crate::forms::ports::{ForwardedPort, ForwardedPorts, check_host_port};
use sandbox::refusal::{Code, Hint, Refusal};

pub fn operations() -> Vec<Operation> {
    let all = "/v1/sandboxes/{namespace}/{name}/ports";
    let one = "/v1/sandboxes/{namespace}/{name}/ports/{forward}";
    [
        operation(Method::POST, all, "forward_port", "Forward a port of this host.", open)
            .run()
            .idempotent()
            .about(
                "Connections to the port of this host are carried to the port inside, and each \
                direction ends on its own. Nothing needs to listen there yet. A forward ends with \
                its sandbox, with this server, or when it is removed. A forwarded port does not \
                ask for a key, so it is reachable from this host only.",
            )
            .problems(&[Code::Io, Code::LimitReached]),
        operation(Method::GET, all, "list_ports", "List the forwarded ports of a sandbox.", list),
        operation(Method::DELETE, one, "close_port", "End a forward and its connections.", close)
            .run(),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/ports/{port}/connect",
            "connect_port",
            "Connect to a port inside over a WebSocket.",
            tunnel::connect,
        )
        .run()
        .about(
            "Binary messages carry the bytes both ways; their boundaries have no meaning. The text \
            message `{\"type\":\"end\"}` ends the client's side, and the program inside reads the \
            end of its input. When the program has sent everything, the socket is closed with \
            1000; when the connection breaks, with 1011.",
        )
        .problems(&[Code::Io, Code::Gone, Code::LimitReached]),
    ]
    .map(|operation| operation.tag("ports"))
    .to_vec()
}

/// A port to forward.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForwardPort {
    /// The port in the sandbox, at 127.0.0.1.
    port: NonZeroU16,
    /// The port on this host; 0 takes any free port. Without the scope `admin`, one of the server's
    /// range, `[forwards]` of its configuration.
    #[serde(default)]
    host_port: u16,
    /// A loopback address of this host. Access from elsewhere needs a proxy that authenticates its
    /// clients.
    #[serde(default)]
    host_address: HostAddress,
}

/// Where a forwarded port listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum HostAddress {
    #[default]
    #[serde(rename = "127.0.0.1")]
    V4,
    #[serde(rename = "::1")]
    V6,
}

async fn open(
    call: Call,
    _: Nothing,
    Json(request): Json<ForwardPort>,
) -> Result<Created<ForwardedPort>, Refusal> {
    let inside = call.inside().await?;
    check_host_port(&call.api, &call.caller, request.host_port)?;
    let (forwards, registry) = (call.api.forwards(), call.api.registry());
    let (port, host) = (request.port.get(), request.host_address.into());
    let opened =
        forwards.open(registry, &registry.get(&inside.which)?, port, host, request.host_port).await;
    Ok(Created(opened?.into()))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Reply<ForwardedPorts>, Refusal> {
    let which = call.which()?;
    call.api.registry().get(&which)?;
    let ports = call.api.forwards().of(&which).into_iter().map(ForwardedPort::from).collect();
    Ok(Reply(ForwardedPorts { ports }))
}

async fn close(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let which = call.which()?;
    let Port(host_port) = call.parameter("forward")?;
    call.api.registry().get(&which)?;
    if call.api.forwards().close(&which, host_port).await {
        return Ok(Done);
    }
    let message = format!("port {host_port} of this host is not forwarded to {which}");
    Err(Refusal::not_found(message).hint(Hint::ListForwards))
}

/// A port in a path: its digits, and nothing before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(pub u16);

/// Why a text is no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a port must be a number from 1 to 65535")]
pub struct NoPort;

impl FromStr for Port {
    type Err = NoPort;

    fn from_str(text: &str) -> Result<Self, NoPort> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let port = text.parse().ok().filter(|_| is_plain);
        port.map(Self).ok_or(NoPort)
    }
}

impl From<HostAddress> for IpAddr {
    fn from(address: HostAddress) -> Self {
        match address {
            HostAddress::V4 => Self::V4(Ipv4Addr::LOCALHOST),
            HostAddress::V6 => Self::V6(Ipv6Addr::LOCALHOST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_a_path_is_its_digits() {
        assert_eq!("1".parse(), Ok(Port(1)));
        assert_eq!("65535".parse(), Ok(Port(65535)));
        for wrong in ["", "0", "080", "+80", "-1", "65536", "http"] {
            assert_eq!(wrong.parse::<Port>(), Err(NoPort), "{wrong}");
        }
    }
}
