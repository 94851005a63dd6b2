//! The reasons why a request is refused. The request parser and the injection of secrets return them.

use super::super::host::Host;
use super::super::limits::HEAD_BYTES_MAX;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("it is not a valid HTTP/1 request: {0}")]
    Malformed(&'static str),
    #[error("its head has more than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("it is for the host {requested:?}, but the connection is for {host}")]
    AnotherHost { requested: String, host: Host },
    #[error("it asks the server for a tunnel (CONNECT)")]
    Tunnel,
    #[error("it asks the server to echo it (TRACE), which would reveal injected secrets")]
    Shown,
    #[error("it asks to upgrade to {protocol:?}")]
    Upgrade { protocol: String },
}
