//! The OpenAPI document, made from the table of operations and from their types.

mod examples;

use std::collections::BTreeSet;

use hyper::Method;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use super::dispatch::DEADLINE;
use super::idempotency::IDEMPOTENCY_KEY;
use super::route::{Document, Operation};
use crate::forms::problem::Problem;
use sandbox::refusal::Code;

/// The version of OpenAPI.
const OPENAPI: &str = "3.1.0";

/// Refusals that every operation may give.
const EVERYWHERE: [Code; 5] = [
    Code::Invalid,
    Code::Misdirected,
    Code::DeadlineExceeded,
    Code::Unavailable,
    Code::RequestTimeout,
];
/// Refusals of those that want a key.
const KEYED: [Code; 3] = [Code::Unauthenticated, Code::Forbidden, Code::RateLimited];

/// What the parts of paths are.
const PARAMETERS: [(&str, &str, &str); 15] = [
    ("namespace", "The namespace of the sandbox.", NAME),
    ("name", "The name of the sandbox.", NAME),
    ("sandbox", "The name of the sandbox.", NAME),
    ("session", "The name of the session.", "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"),
    ("context", "The context.", "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"),
    ("notebook", "The notebook.", "^[A-Za-z0-9][A-Za-z0-9_-]{0,53}$"),
    ("digest", "The image's digest.", "^sha256:[0-9a-f]{64}$"),
    ("app", "The app.", "^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$"),
    ("run", "The number of the run.", "^[0-9]{1,18}$"),
    ("port", "A TCP port inside the sandbox.", PORT),
    ("id", "The artifact.", "^[0-9a-f]{16}$"),
    ("node", "The name of the node.", "^[A-Za-z0-9_-]{1,63}$"),
    ("forward", "The forwarded port on the host.", PORT),
    ("key", "The id of the key.", "^[0-9a-f]{12}$"),
    ("preview", "The link.", "^[0-9a-f]{12}$"),
];
/// The subjects of operations, in the order in which a newcomer meets them.
const TAGS: &[(&str, &str)] = &[
    ("sandboxes", "Isolated environments: made, listed, stopped, removed."),
    ("exec", "Programs that run to their end within one call."),
    ("runs", "Code in a context, and its events."),
    ("contexts", "Interpreters that keep their variables between runs."),
    ("files", "Files and directories of a sandbox."),
    ("sessions", "Programs that outlive the call that started them."),
    ("logs", "What sessions have written."),
    ("events", "What happens to sandboxes."),
    ("ports", "Ports of sandboxes, from this host and behind this server."),
    ("apps", "Programs that answer HTTP."),
    ("notebooks", "Contexts whose variables and history are kept."),
    ("artifacts", "What runs have produced."),
    ("images", "Root file systems of sandboxes."),
    ("snapshots", "Machines as they were at one moment."),
    ("templates", "Sandboxes that are ready when they are handed out."),
    ("workspace", "Directories that sandboxes work on."),
    ("volumes", "Directories that outlive sandboxes, and that these share."),
    ("metrics", "What sandboxes use."),
    ("keys", "Who may do what."),
    ("audit", "Who did what."),
    ("nodes", "The hosts of a fleet."),
    ("server", "The server itself."),
    ("json-rpc", "The calls of older clients, as JSON-RPC."),
    ("a2a", "The calls of older clients, as agents make them."),
    ("mcp", "Tools for models."),
];
/// 1 to 65535, without leading zeros.
const PORT: &str =
    "^([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$";
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$";

/// The document. Its paths are in the order of the tags: generators and readers begin with what comes
/// first.
pub struct OpenApi {
    /// What it says of itself: `info`, `servers`, `tags`.
    pub about: Map<String, Value>,
    pub paths: Vec<(&'static str, Map<String, Value>)>,
    pub schemas: Map<String, Value>,
}

impl Serialize for OpenApi {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut document = serializer.serialize_map(None)?;
        document.serialize_entry("openapi", OPENAPI)?;
        for (name, value) in &self.about {
            document.serialize_entry(name, value)?;
        }
        document.serialize_entry("paths", &Paths(&self.paths))?;
        let key = json!({
            "type": "http",
            "scheme": "bearer",
            "description": "A key from `host-bridge keygen`. `serve --dev` needs none."
        });
        let components = json!({ "schemas": self.schemas, "securitySchemes": { "key": key } });
        document.serialize_entry("components", &components)?;
        document.end()
    }
}

struct Paths<'a>(&'a [(&'static str, Map<String, Value>)]);

impl Serialize for Paths<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(path, methods)| (path, methods)))
    }
}

/// The whole document.
pub fn document(operations: &[Operation]) -> OpenApi {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    schemas.subschema_for::<Problem>();
    let mut documented: Vec<_> = operations.iter().filter(|one| one.is_documented).collect();
    documented.sort_by_key(|one| TAGS.iter().position(|(tag, _)| *tag == one.tag));
    let mut paths: Vec<(&'static str, Map<String, Value>)> = Vec::new();
    for operation in &documented {
        let mut described = Value::Object(describe(operation, &mut schemas));
        complete(&mut described);
        let method = operation.method.as_str().to_ascii_lowercase();
        match paths.iter_mut().find(|(path, _)| *path == operation.path) {
            Some((_, methods)) => drop(methods.insert(method, described)),
            None => paths.push((operation.path, Map::from_iter([(method, described)]))),
        }
    }
    let tags = TAGS.iter().filter(|(tag, _)| documented.iter().any(|one| one.tag == *tag));
    let tags: Vec<_> =
        tags.map(|(name, about)| json!({ "name": name, "description": about })).collect();
    let mut about = Map::new();
    let info = json!({
        "title": "Burrow",
        "version": env!("CARGO_PKG_VERSION"),
        "summary": "Sandboxes for untrusted code.",
        "description": include_str!("document/about.md"),
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
    });
    let server = json!({ "url": "/", "description": "The server that this document comes from." });
    about.insert("info".to_owned(), info);
    about.insert("servers".to_owned(), json!([server]));
    about.insert("tags".to_owned(), Value::Array(tags));
    let mut schemas = schemas.take_definitions(true);
    schemas.values_mut().for_each(complete);
    OpenApi { about, paths, schemas }
}

/// Keywords whose fields are names, and not keywords themselves.
const NAMES_WITHIN: [&str; 2] = ["properties", "patternProperties"];
/// Keywords with any JSON in them.
const PLAIN: [&str; 4] = ["example", "const", "enum", "default"];

/// Says defaults in words: generators take a field with one for a field that is always there. Says of
/// integers how large they may be, and of a union which field distinguishes its members. Generators skip what is
/// beside a reference, so a reference with fields beside it is in `allOf`.
fn complete(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(default) = fields.remove("default") {
                tell_default(fields, &default);
            }
            if fields.contains_key("properties")
                && let Some(reference) = fields.remove("$ref")
            {
                fields.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
            }
            if let Some(name) = fields.get("oneOf").and_then(discriminator) {
                fields.insert("discriminator".to_owned(), json!({ "propertyName": name }));
            }
            let largest = match fields.get("format").and_then(Value::as_str) {
                Some("uint32") => Some(u64::from(u32::MAX)),
                Some("uint64") => Some(u64::MAX),
                _ => None,
            };
            if let Some(largest) = largest {
                fields.entry("maximum").or_insert(largest.into());
            }
            for (name, value) in fields {
                match value {
                    Value::Object(named) if NAMES_WITHIN.contains(&name.as_str()) => {
                        named.values_mut().for_each(complete);
                    }
                    _ if PLAIN.contains(&name.as_str()) => {}
                    _ => complete(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(complete),
        _ => {}
    }
}

/// A default that says more than that there is nothing.
fn tell_default(fields: &mut Map<String, Value>, default: &Value) {
    let word = match default {
        Value::Bool(true) | Value::Number(_) => default.to_string(),
        Value::String(text) if !text.is_empty() => text.clone(),
        _ => return,
    };
    let known = fields.get("description").and_then(Value::as_str).unwrap_or_default();
    if !known.contains("default") {
        let sentence = format!("{known} The default is `{word}`.");
        fields.insert("description".to_owned(), json!(sentence.trim_start()));
    }
}

/// The field that distinguishes the members of a union: each has it, with another constant.
fn discriminator(members: &Value) -> Option<String> {
    let members = members.as_array()?;
    let word = |member: &Value, name: &str| {
        let required = member.get("required")?.as_array()?.iter().any(|one| one == name);
        let word = member.get("properties")?.get(name)?.get("const")?.as_str()?;
        required.then(|| word.to_owned())
    };
    let names = members.first()?.get("properties")?.as_object()?.keys();
    let mut names = names.filter(|name| {
        let words: Option<BTreeSet<_>> = members.iter().map(|one| word(one, name)).collect();
        words.is_some_and(|words| words.len() == members.len())
    });
    names.next().cloned()
}

fn describe(operation: &Operation, schemas: &mut SchemaGenerator) -> Map<String, Value> {
    let mut described = Map::new();
    described.insert("operationId".to_owned(), json!(operation.id));
    described.insert("summary".to_owned(), json!(operation.summary));
    described.insert("tags".to_owned(), json!([operation.tag]));
    let mut description = operation.description.to_owned();
    if let Some(access) = operation.access {
        described.insert("security".to_owned(), json!([{ "key": [] }]));
        if !description.is_empty() {
            description.push_str("\n\n");
        }
        description.extend(["Needs a key with the scope `", access.as_str(), "`."]);
    }
    described.insert("description".to_owned(), json!(description));
    described.insert("parameters".to_owned(), Value::Array(fixed_parameters(operation)));
    let refusal = (operation.refusals.schema)(schemas);
    let method = &operation.method;
    let mut document = Document { method, schemas, operation: &mut described, refusal };
    (operation.describe)(&mut document);
    if let Some(example) = examples::of(operation.id) {
        let content = document
            .operation
            .get_mut("requestBody")
            .and_then(|body| body.get_mut("content")?.get_mut("application/json")?.as_object_mut());
        if let Some(content) = content {
            content.insert("example".to_owned(), example);
        }
    }
    document.refuses(&EVERYWHERE);
    if operation.access.is_some() {
        document.refuses(&KEYED);
    }
    if operation.method != Method::GET {
        document.refuses(&[Code::InsufficientStorage]);
    }
    if operation.path.contains('{') {
        document.refuses(&[Code::NotFound]);
    }
    if operation.path.contains("{name}") {
        document.refuses(&[Code::Conflict, Code::GuestUnreachable]);
        // It was lost with its node.
        document.refuses(&[Code::Gone]);
    }
    if operation.idempotent {
        document.refuses(&[Code::IdempotencyMismatch]);
    }
    if operation.is_run {
        document.refuses(&[Code::LimitReached]);
    }
    document.refuses(operation.problems);
    described
}

/// The parts of the path, and the headers that calls may carry.
fn fixed_parameters(operation: &Operation) -> Vec<Value> {
    let parts = operation.path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        let known = PARAMETERS.iter().find(|(known, _, _)| *known == name);
        let (_, description, pattern) = known.expect("each part of a path is described here");
        let schema = json!({ "type": "string", "pattern": pattern });
        Some(json!({
            "name": name, "in": "path", "required": true, "description": description,
            "schema": schema
        }))
    });
    let mut parameters: Vec<Value> = parts.collect();
    if operation.access.is_some() {
        parameters.push(json!({
            "name": DEADLINE.as_str(), "in": "header", "required": false,
            "description": "The deadline of the whole call, in milliseconds. What the call runs is ended with it.",
            "schema": { "type": "integer", "minimum": 1, "maximum": 86_400_000 }
        }));
    }
    if operation.idempotent {
        parameters.push(json!({
            "name": IDEMPOTENCY_KEY.as_str(), "in": "header", "required": false,
            "description": "Calls with the same key are carried out once, and all get the same answer.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$" }
        }));
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_a_tag_and_its_path_has_parts_that_are_described() {
        for operation in crate::operations().iter().filter(|one| one.is_documented) {
            let (id, tag) = (operation.id, operation.tag);
            assert!(TAGS.iter().any(|(known, _)| *known == tag), "{id}: TAGS has no row {tag:?}");
            let parts = operation.path.split('/').filter_map(|part| part.strip_prefix('{'));
            for name in parts.filter_map(|part| part.strip_suffix('}')) {
                let is_described = PARAMETERS.iter().any(|(known, _, _)| *known == name);
                assert!(is_described, "{id}: PARAMETERS has no row {name:?}");
            }
        }
    }
}
