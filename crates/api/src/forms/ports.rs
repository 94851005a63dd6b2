//! The forms of forwarded ports, which ports a client may choose, and refusals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Api;
use crate::caller::Caller;
use access::keys::Access;
use sandbox::refusal::Refusal;
use services::forwards::Forward;

/// A forwarded port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForwardedPort {
    /// The port in the sandbox.
    pub port: u16,
    /// The port on this host.
    pub host_port: u16,
    pub host_address: String,
    /// The URL for a browser, if the port speaks HTTP.
    pub url: String,
    /// How many connections are open.
    pub connections: u64,
}

/// The forwarded ports of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForwardedPorts {
    /// Ordered by their ports on this host.
    pub ports: Vec<ForwardedPort>,
}

/// Ports of the host that are not for every client are for callers who may do everything.
pub fn check_host_port(api: &Api, caller: &Caller, host_port: u16) -> Result<(), Refusal> {
    if caller.may(Access::Admin) {
        return Ok(());
    }
    Ok(api.forwards().check(host_port)?)
}

impl From<Forward> for ForwardedPort {
    fn from(forward: Forward) -> Self {
        let Forward { address, port, connections } = forward;
        Self {
            port,
            host_port: address.port(),
            host_address: address.ip().to_string(),
            url: format!("http://{address}/"),
            connections: connections as u64,
        }
    }
}
