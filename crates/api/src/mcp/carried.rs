//! Calls of tools, and reads of resources, that another node of the fleet carries out because it has the sandbox.
//!
//! They go there as requests of a client without a session, as the caller, and their answers are the answers. The
//! outputs that were cut there stay there, under handles that say so: see [`handle`].

use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use rmcp::model::{CallToolResult, JsonObject, ReadResourceResult};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::resources::uri::sandbox_of;
use super::work::Work;
use crate::Api;
use crate::call::Target;
use crate::forward::{self, Sender};
use crate::whereabouts::{self, Subject};
use node::Placement;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Name, SandboxRef};

/// Of a request that is carried, so that it is not carried further. Only nodes are believed.
pub const CARRIED: HeaderName = HeaderName::from_static("burrow-carried");
/// The protocol without sessions.
const VERSION: &str = "2026-07-28";
/// What comes between the number of an output and the node that keeps it.
const AT: char = '@';

/// The handle of a cut output that this bridge keeps, by its number: with the node, in a fleet.
pub fn handle(api: &Api) -> impl Fn(u64) -> String + use<> {
    let node = api.node().map(|node| node.id().to_string());
    move |number| match &node {
        Some(node) => format!("r{number}{AT}{node}"),
        None => format!("r{number}"),
    }
}

/// The node that carries out a call of a tool, if it is not this one.
pub async fn node_of_call(
    work: &Work,
    arguments: &JsonObject,
) -> Result<Option<Placement>, Refusal> {
    if !work.carries || work.api.node().is_none() {
        return Ok(None);
    }
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let sandbox = match text("sandbox").or_else(|| text("fork_of")) {
        // What is no name, or another's, is refused by the tool.
        Some(name) => match work.named(name) {
            Ok(which) => Some(which),
            Err(_) => return Ok(None),
        },
        None => None,
    };
    if let Some(run) = text("run") {
        return node_of_handle(work, run).await;
    }
    if let Some(id) = text("session_id") {
        return node_of_notebook(work, id, sandbox).await;
    }
    match sandbox {
        Some(which) => whereabouts::find(&work.api, &Subject::Sandbox(which)).await,
        None => Ok(None),
    }
}

/// The same of a read of a resource.
pub async fn node_of_uri(work: &Work, uri: &str) -> Result<Option<Placement>, Refusal> {
    if !work.carries || work.api.node().is_none() {
        return Ok(None);
    }
    match sandbox_of(uri).and_then(|name| work.named(&name).ok()) {
        Some(which) => whereabouts::find(&work.api, &Subject::Sandbox(which)).await,
        None => Ok(None),
    }
}

/// Where an output is kept. One whose node is gone is kept nowhere, and the tool says so.
async fn node_of_handle(work: &Work, run: &str) -> Result<Option<Placement>, Refusal> {
    let (Some(node), Some((_, at))) = (work.api.node(), run.split_once(AT)) else {
        return Ok(None);
    };
    let others = node.others().await;
    Ok(others.unwrap_or_default().into_iter().find(|other| other.node.as_str() == at))
}

async fn node_of_notebook(
    work: &Work,
    id: &str,
    sandbox: Option<SandboxRef>,
) -> Result<Option<Placement>, Refusal> {
    let namespace = match &sandbox {
        Some(which) => which.namespace.clone(),
        None => work.session.namespace(&work.caller),
    };
    let Ok(name) = id.parse::<Name>() else { return Ok(None) };
    if !work.caller.covers(&namespace) {
        return Ok(None);
    }
    let notebook = whereabouts::notebook(&SandboxRef { namespace, name });
    let Some(which) = sandbox else {
        return whereabouts::find(&work.api, &Subject::Made(notebook)).await;
    };
    match whereabouts::find(&work.api, &Subject::Thing(notebook.clone())).await? {
        None if !work.api.has(&notebook).await => {
            whereabouts::find(&work.api, &Subject::Sandbox(which)).await
        }
        found => Ok(found),
    }
}

/// Has another node carry out a call of a tool.
pub async fn call(
    work: &Work,
    tool: &str,
    mut arguments: JsonObject,
    to: &Placement,
) -> Result<CallToolResult, Refusal> {
    if let Some(which) = arguments.get("sandbox").and_then(Value::as_str) {
        // The namespace of this session may be another than the other node's.
        let which = work.named(which)?.to_string();
        arguments.insert("sandbox".to_owned(), which.into());
    }
    let params = json!({ "name": tool, "arguments": arguments });
    ask(work, "tools/call", tool, params, to).await
}

pub async fn read(work: &Work, uri: &str, to: &Placement) -> Result<ReadResourceResult, Refusal> {
    ask(work, "resources/read", uri, json!({ "uri": uri }), to).await
}

async fn ask<T: DeserializeOwned>(
    work: &Work,
    method: &str,
    name: &str,
    mut params: Value,
    to: &Placement,
) -> Result<T, Refusal> {
    work.trail.fact("node", to.node.as_str());
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "burrow", "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut headers = HeaderMap::new();
    for (header, value) in [
        (ACCEPT, "application/json, text/event-stream"),
        (CONTENT_TYPE, "application/json"),
        (HeaderName::from_static("mcp-protocol-version"), VERSION),
        (HeaderName::from_static("mcp-method"), method),
        (HeaderName::from_static("mcp-name"), name),
        (CARRIED, "1"),
    ] {
        let value = HeaderValue::try_from(value);
        headers.insert(header, value.map_err(|_| Refusal::invalid("a name is no header"))?);
    }
    work.trail.pass_on(&mut headers);
    let target = Target { method: Method::POST, place: PathAndQuery::from_static("/mcp") };
    let sender =
        Sender { api: &work.api, caller: work.caller.clone(), is_operator: work.is_operator };
    let body = Bytes::from(message.to_string());
    let answer = forward::post(sender, to, target, headers, body).await?;
    let answer = message_of(&answer).ok_or_else(|| {
        Refusal::new(Code::Internal, format!("the node {} did not answer in MCP", to.node))
    })?;
    if let Some(error) = answer["error"]["message"].as_str() {
        return Err(Refusal::new(Code::Unavailable, error.to_owned()));
    }
    serde_json::from_value(answer["result"].clone())
        .map_err(|error| Refusal::new(Code::Internal, format!("the node {}: {error}", to.node)))
}

/// The last message of an answer, which comes alone or at the end of a stream of events.
fn message_of(body: &[u8]) -> Option<Value> {
    if let Ok(message) = serde_json::from_slice(body) {
        return Some(message);
    }
    let text = std::str::from_utf8(body).ok()?;
    let data = text.lines().rev().filter_map(|line| line.strip_prefix("data:"));
    data.into_iter().find_map(|line| serde_json::from_str(line.trim()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_alone_or_at_the_end_of_a_stream() {
        let answer = json!({ "id": 1, "result": {} });
        assert_eq!(message_of(answer.to_string().as_bytes()), Some(answer.clone()));
        let stream = format!("data: {{\"method\":\"progress\"}}\n\nid: 2\ndata: {answer}\n\n");
        assert_eq!(message_of(stream.as_bytes()), Some(answer));
        assert_eq!(message_of(b"<html>"), None);
    }
}
