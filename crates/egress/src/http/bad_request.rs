//! Why a request is refused. The reader of requests says it, and so do the secrets that are put into them.

use super::super::host::Host;
use super::super::limits::HEAD_BYTES_MAX;

/// Why a request does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("it is no plain HTTP/1 request: {0}")]
    Malformed(&'static str),
    #[error("its head has more than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("it is for the host {asked:?}, and the connection for {host}")]
    AnotherHost { asked: String, host: Host },
    #[error("it asks for a tunnel through the server")]
    Tunnel,
    #[error("it asks for what it says itself, where secrets are put into it")]
    Shown,
    #[error("it asks to go on with {protocol:?}")]
    Upgrade { protocol: String },
}
