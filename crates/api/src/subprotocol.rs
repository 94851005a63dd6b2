//! The subprotocols of a WebSocket that a client offers; a browser sends its key among them.

use hyper::header::{HeaderMap, SEC_WEBSOCKET_PROTOCOL};

/// What comes before a key that a browser sends as a subprotocol, for want of any other header.
pub const KEY_PROTOCOL: &str = "bearer.";

/// The subprotocols that a client offers.
pub fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}
