//! Compares what each door takes for a new sandbox with the table of options. Only tests use this module.

use serde_json::{Map, Value};

use super::document::document;
use super::mcp::tools;
use super::operations;
use sandbox::options::{Door, names_at};

/// The source of the call that takes its parameters one by one.
const RPC_START: &str = include_str!("rpc/start.rs");

fn sorted(names: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut names: Vec<_> = names.into_iter().map(Into::into).collect();
    names.sort();
    names
}

fn fields(schema: &Value) -> Vec<String> {
    sorted(schema["properties"].as_object().unwrap_or(&Map::new()).keys())
}

#[test]
fn each_body_has_the_options_that_the_table_says() {
    let document = document(&operations());
    let document = serde_json::to_value(&document).unwrap();
    let components = &document["components"]["schemas"];
    let body = |path: &str| {
        let body = &document["paths"][path]["post"]["requestBody"]["content"];
        let named = body["application/json"]["schema"]["$ref"].as_str().expect(path);
        fields(&components[named.rsplit('/').next().unwrap()])
    };
    assert_eq!(body("/v1/sandboxes"), sorted(names_at(Door::Http)));
    assert_eq!(body("/a2a/v1/sandboxes"), sorted(names_at(Door::A2a)));
    assert_eq!(fields(&components["OwnSandbox"]), sorted(names_at(Door::Notebook)));
}

#[test]
fn the_tool_has_the_options_that_the_table_says() {
    let tool = &tools::find("sandbox_create").unwrap().tool;
    let schema = Value::Object((*tool.input_schema).clone());
    // A fork has the options of its original.
    let taken: Vec<_> = fields(&schema).into_iter().filter(|name| name != "fork_of").collect();
    assert_eq!(taken, sorted(names_at(Door::Tool)));
}

#[test]
fn the_rpc_call_takes_what_the_table_says() {
    // `config.maybe_text("image")` takes one, and nothing else does.
    let taken = RPC_START.split("config.").skip(1);
    let taken = taken.filter_map(|rest| {
        let (method, rest) = rest.split_once("(\"")?;
        let is_method = method.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        rest.split('"').next().filter(|_| is_method)
    });
    let named = names_at(Door::Rpc).filter(|name| !["sandbox", "namespace"].contains(name));
    assert_eq!(sorted(taken), sorted(named));
}
