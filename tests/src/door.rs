//! A server's door with one sandbox behind it: what most tests of the API begin with.

use serde_json::{Value, json};

use crate::http::{Answer, Client};
use crate::server::Server;

/// The sandbox's path.
pub const BOX: &str = "/v1/sandboxes/default/box";
/// Where the code interpreter listens in a sandbox of E2B.
const E2B_CODE_PORT: &str = "49999";

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

/// A run of code as E2B's clients ask for one that names neither a context nor a language.
pub fn run_code_as_e2b(client: &Client, sandbox: &str, code: &str) -> Answer {
    let headers = [
        ("e2b-sandbox-id", sandbox),
        ("e2b-sandbox-port", E2B_CODE_PORT),
        ("content-type", "application/json"),
    ];
    let body = json!({ "code": code, "context_id": null, "language": null, "env_vars": null });
    client.send("POST", "/execute", &headers, body.to_string().as_bytes())
}
