//! A server's door with one sandbox behind it: what most tests of the API begin with.

use serde_json::{Value, json};

use crate::http::Client;
use crate::server::Server;

/// The sandbox's path.
pub const BOX: &str = "/v1/sandboxes/default/box";

/// A server with one sandbox, and a client of it.
pub fn open() -> (Server, Client) {
    open_with(&json!({}))
}

/// With more fields for the sandbox.
///
/// # Panics
/// When that is no object, or there can be no such sandbox.
pub fn open_with(more: &Value) -> (Server, Client) {
    let server = Server::dev();
    let client = Client::new(server.url());
    let mut spec = more.clone();
    spec["name"] = json!("box");
    client.post("/v1/sandboxes", &spec).expect(201);
    (server, client)
}
