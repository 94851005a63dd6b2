//! Compares what each door takes for a new sandbox with the table of options. Only tests use this module.

use std::cell::RefCell;

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
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
    let body_of = |method: &str, path: &str| {
        let body = &document["paths"][path][method]["requestBody"]["content"];
        let named = body["application/json"]["schema"]["$ref"].as_str().expect(path);
        fields(&components[named.rsplit('/').next().unwrap()])
    };
    let body = |path: &str| body_of("post", path);
    assert_eq!(body("/v1/sandboxes"), sorted(names_at(Door::Http)));
    assert_eq!(body("/a2a/v1/sandboxes"), sorted(names_at(Door::A2a)));
    assert_eq!(fields(&components["OwnSandbox"]), sorted(names_at(Door::Notebook)));
    let without = |taken: Vec<String>, own: &[&str]| -> Vec<String> {
        taken.into_iter().filter(|name| !own.contains(&name.as_str())).collect()
    };
    let template = body_of("put", "/v1/templates/{namespace}/{name}");
    let commands = ["start", "ready", "ready_timeout_ms", "warm"];
    assert_eq!(without(template, &commands), sorted(names_at(Door::TemplateHttp)));
    let fork = body("/v1/sandboxes/{namespace}/{name}/fork");
    assert_eq!(without(fork, &["count"]), sorted(names_at(Door::Fork)));
}

/// Fails with the fields that a form asks it for, and keeps them.
struct Form<'a>(&'a RefCell<Vec<String>>);

impl<'de> Deserializer<'de> for Form<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("a form is a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        self.0.borrow_mut().extend(fields.iter().map(|field| (*field).to_owned()));
        Err(Error::custom("it has been asked"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Compares a form of another server's protocol with the table. `own` are its fields that are no options.
pub fn assert_form<T: DeserializeOwned>(door: Door, own: &[&str]) {
    let fields = RefCell::new(Vec::new());
    assert!(T::deserialize(Form(&fields)).is_err());
    let taken = fields.into_inner();
    for name in own {
        assert!(taken.iter().any(|field| field == name), "{name} is no field of {door:?}");
    }
    let taken = taken.into_iter().filter(|name| !own.contains(&name.as_str()));
    // One field may be several options.
    let mut named = sorted(names_at(door));
    named.dedup();
    assert_eq!(sorted(taken), named, "{door:?}");
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
