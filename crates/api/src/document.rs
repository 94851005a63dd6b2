//! The OpenAPI document: made from the table of operations and from the types that they are made of.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::dispatch::DEADLINE;
use super::idempotency::IDEMPOTENCY_KEY;
use super::problem::{Code, ProblemBody};
use super::route::{Document, Operation};

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
const PARAMETERS: [(&str, &str, &str); 12] = [
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
    ("forward", "The forwarded port on the host.", PORT),
];
/// 1 to 65535, without leading zeros.
const PORT: &str =
    "^([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$";
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$";

/// The whole document.
pub fn document(operations: &[Operation]) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    schemas.subschema_for::<ProblemBody>();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_documented) {
        let described = describe(operation, &mut schemas);
        let method = operation.method.as_str().to_ascii_lowercase();
        paths.entry(operation.path).or_default().insert(method, Value::Object(described));
    }
    let components = json!({
        "schemas": schemas.take_definitions(true),
        "securitySchemes": {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "description": "A key from `host-bridge keygen`. `serve --dev` needs none."
            }
        }
    });
    let mut document = json!({
        "openapi": OPENAPI,
        "info": {
            "title": "Burrow",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Sandboxes for untrusted code.",
            "description": include_str!("document/about.md"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
        },
        "paths": paths,
        "components": components,
    });
    complete(&mut document);
    document
}

/// Takes the defaults away that are nothing: a field that is left out is not null. Says of integers
/// how large they may be.
fn complete(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // A default that its own schema refuses would make the document invalid.
            let is_fixed = fields.contains_key("const");
            if fields.get("default").is_some_and(|default| is_fixed || default.is_null()) {
                fields.remove("default");
            }
            let largest = match fields.get("format").and_then(Value::as_str) {
                Some("uint32") => Some(u64::from(u32::MAX)),
                Some("uint64") => Some(u64::MAX),
                _ => None,
            };
            if let Some(largest) = largest {
                fields.entry("maximum").or_insert(largest.into());
            }
            fields.values_mut().for_each(complete);
        }
        Value::Array(items) => items.iter_mut().for_each(complete),
        _ => {}
    }
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
    let mut document = Document { schemas, operation: &mut described, refusal };
    (operation.describe)(&mut document);
    document.refuses(&EVERYWHERE);
    if operation.access.is_some() {
        document.refuses(&KEYED);
    }
    if operation.path.contains('{') {
        document.refuses(&[Code::NotFound]);
    }
    if operation.path.contains("{name}") {
        document.refuses(&[Code::Conflict, Code::GuestUnreachable]);
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
