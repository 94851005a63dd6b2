//! A server with a sandbox, and a directory in it that runs leave something in.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tests::door::BOX;
use tests::http::Client;
use tests::server::Server;

/// Where the scripts begin.
pub const WORK: &str = "/tmp/work";

pub fn open() -> (Server, Client) {
    let (server, client) = tests::door::open();
    let made = json!({ "script": format!("mkdir -p {WORK} /artifacts") });
    let _ = client.post(&format!("{BOX}/shell"), &made).expect(200);
    (server, client)
}

/// Runs a script whose artifacts are kept, and returns them.
pub fn captured(client: &Client, script: &str) -> Value {
    let body = json!({ "script": script, "cwd": WORK, "artifacts": true });
    let answer = client.post(&format!("{BOX}/shell"), &body).expect(200).json();
    assert_eq!(answer["success"], true, "{answer}");
    answer["captured"].clone()
}

/// From the names of artifacts to their descriptions.
pub fn by_name(captured: &Value) -> BTreeMap<String, Value> {
    let all = captured["artifacts"].as_array().expect("artifacts");
    let named = all.iter().map(|one| (one["name"].as_str().expect("text").to_owned(), one.clone()));
    named.collect()
}

pub fn names(captured: &Value) -> Vec<String> {
    by_name(captured).into_keys().collect()
}

/// From the paths of what was left out to why. Nothing is named twice.
pub fn left_out(captured: &Value) -> BTreeMap<String, String> {
    let all = captured["left_out"].as_array().expect("what was left out");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let named = all.iter().map(|one| (text(&one["path"]), text(&one["reason"])));
    let (named, count): (BTreeSet<_>, _) = (named.collect(), all.len());
    assert_eq!(named.len(), count, "something is named twice: {captured}");
    named.into_iter().collect()
}

pub fn content(client: &Client, artifact: &Value) -> Vec<u8> {
    let id = artifact["id"].as_str().expect("an id");
    client.get(&format!("/v1/artifacts/{id}/content")).expect(200).body
}

pub fn listed(client: &Client, query: &str) -> Vec<String> {
    let page = client.get(&format!("/v1/artifacts{query}")).expect(200).json();
    let all = page["artifacts"].as_array().expect("artifacts").clone();
    all.iter().map(|one| one["name"].as_str().expect("text").to_owned()).collect()
}
