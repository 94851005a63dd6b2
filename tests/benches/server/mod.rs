//! The figures of the server: what HTTP adds to the agent's own time, floods, crowds, and the cost of
//! doing nothing.
//!
//! The bridge is a process of its own here, as users have it; the client is as small as a client can
//! be, and its share is in the HTTP round trip too that figures are held against.

mod crowd;
mod doors;
mod flood;
pub mod idle;
mod latency;
pub mod portal;

use serde_json::{Value, json};
use tests::http::{Answer, Client};
use tests::server::Server;

use super::Report;

/// Where JSON-RPC is spoken.
const RPC: &str = "/api/v1/rpc";
/// The sandbox of most figures.
const BOX: &str = "/v1/sandboxes/default/box";

pub async fn figures(report: &mut Report) {
    latency::figures(report).await;
    latency::lives(report);
    doors::figures(report);
    flood::figures(report);
    crowd::figures(report);
    idle::figures(report);
}

/// A server with one sandbox in it.
fn serving() -> (Server, Client) {
    let server = Server::dev();
    let client = Client::new(server.url());
    make(&client, "box");
    (server, client)
}

fn make(client: &Client, name: &str) {
    let _ = client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
}

/// A request of JSON-RPC to the sandbox `box`, in the form in which the SDKs send it.
fn request(method: &str, mut params: Value) -> Value {
    params["namespace"] = json!("default");
    params["sandbox"] = json!("box");
    json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": "1" })
}

fn command(command: &str, args: &[&str]) -> Value {
    request("sandbox.command.run", json!({ "command": command, "args": args }))
}

/// The result of a call that must have one.
fn result(answer: &Answer) -> Value {
    let mut value = answer.json();
    assert!(value.get("error").is_none(), "{value}");
    value["result"].take()
}
