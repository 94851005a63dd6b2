//! The kinds of query, body and answer that operations are made of.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::body::{OCTETS, Outgoing, Response, json_response, respond};
use super::call::Call;
use super::route::{Document, Input, Output, percent_decode};
use crate::problem::status;
use sandbox::refusal::{Code, Refusal};

/// Fields of queries that mean something when they are empty: an argument of a program may be. For
/// all others an empty value would be as good as none, and `namespace=` would name all of them.
const MAY_BE_EMPTY: [&str; 1] = ["argv"];

/// Nothing is taken.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

/// The query string. The type refuses unknown fields, and so does the call.
#[derive(Clone, Debug)]
pub struct Query<T>(pub T);

/// A body of JSON.
#[derive(Clone, Debug)]
pub struct Json<T>(pub T);

/// A body of JSON that may be left out; an empty one is the type's default.
#[derive(Clone, Debug)]
pub struct MaybeJson<T>(pub T);

/// A body of bytes, which the handler reads from the call as they come.
#[derive(Clone, Copy, Debug)]
pub struct Octets;

impl Input for Nothing {
    fn describe(_: &mut Document<'_>) {}

    async fn read(_: &mut Call) -> Result<Self, Refusal> {
        Ok(Self)
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Input for Query<T> {
    fn describe(document: &mut Document<'_>) {
        let schema = T::json_schema(document.schemas);
        let required: Vec<Value> = list(&schema, "required");
        let Some(Value::Object(properties)) = schema.get("properties") else { return };
        let fields = properties.iter().map(|(name, schema)| {
            let mut schema = schema.clone();
            let description = schema.as_object_mut().and_then(|s| s.remove("description"));
            let is_bare = schema.get("type").is_some_and(|kind| kind == "string");
            if is_bare && schema.get("pattern").is_none() {
                schema["minLength"] = json!(1);
            }
            let is_required = required.iter().any(|one| one == name);
            let mut parameter =
                json!({ "name": name, "in": "query", "required": is_required, "schema": schema });
            if let Some(description) = description {
                parameter["description"] = description;
            }
            parameter
        });
        document.parameters().extend(fields);
    }

    async fn read(call: &mut Call) -> Result<Self, Refusal> {
        if percent_decode(&call.query).is_none() {
            // The parser would put U+FFFD for it, and so name another file than is meant.
            let message = "the query string is not percent-encoded UTF-8";
            return Err(Refusal::invalid(message));
        }
        if let Some(name) = without_value(&call.query) {
            let message = format!("the query string: {name:?} has no value");
            return Err(Refusal::invalid(message).hint("leave it out or give it a value"));
        }
        let read = serde_html_form::from_str(&call.query);
        read.map(Self).map_err(|error| Refusal::invalid(format!("the query string: {error}")))
    }
}

/// The first field that is there without a value, and must not be.
fn without_value(query: &str) -> Option<&str> {
    let fields = query.split('&').filter(|field| !field.is_empty());
    let mut fields = fields.map(|field| field.split_once('=').unwrap_or((field, "")));
    let (name, _) =
        fields.find(|(name, value)| value.is_empty() && !MAY_BE_EMPTY.contains(name))?;
    Some(name)
}

impl<T: DeserializeOwned + JsonSchema + Send> Input for Json<T> {
    fn describe(document: &mut Document<'_>) {
        let schema = document.schemas.subschema_for::<T>();
        let content = json!({ "application/json": { "schema": schema } });
        document.insert("requestBody", json!({ "required": true, "content": content }));
        document.refuses(&[Code::TooLarge, Code::UnsupportedMediaType]);
    }

    async fn read(call: &mut Call) -> Result<Self, Refusal> {
        expect_json(call)?;
        let bytes = call.read_body().await?;
        if bytes.is_empty() {
            return Err(Refusal::invalid("the body is empty; this call takes JSON"));
        }
        Ok(Self(parse(&bytes)?))
    }
}

impl<T: DeserializeOwned + JsonSchema + Default + Send> Input for MaybeJson<T> {
    fn describe(document: &mut Document<'_>) {
        Json::<T>::describe(document);
        document.operation["requestBody"]["required"] = Value::Bool(false);
    }

    async fn read(call: &mut Call) -> Result<Self, Refusal> {
        let bytes = call.read_body().await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        expect_json(call)?;
        Ok(Self(parse(&bytes)?))
    }
}

impl Input for Octets {
    fn describe(document: &mut Document<'_>) {
        let content = json!({ "application/octet-stream": { "schema": {} } });
        document.insert("requestBody", json!({ "required": false, "content": content }));
        document.refuses(&[Code::TooLarge]);
    }

    async fn read(_: &mut Call) -> Result<Self, Refusal> {
        Ok(Self)
    }
}

/// A value, or why the text is none.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    // The parser would also take the fields of an object one after the other, as a list.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        let message = "invalid body: it must be an object, not a list";
        return Err(Refusal::invalid(message));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::invalid(format!("invalid body: {error}")))
}

/// Refuses a body that says it is something else than JSON: a form of a web page above all, which a
/// browser sends without asking.
fn expect_json(call: &Call) -> Result<(), Refusal> {
    let kind = call.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = match kind {
        Some(kind) => format!("this call takes application/json, not {kind:?}"),
        None => "this call takes application/json, and the request has no Content-Type".to_owned(),
    };
    Err(Refusal::new(Code::UnsupportedMediaType, message)
        .hint("send the header Content-Type: application/json"))
}

/// An answer with 200 and a value.
#[derive(Clone, Debug)]
pub struct Reply<T>(pub T);

/// The same for something that was made.
#[derive(Clone, Debug)]
pub struct Created<T>(pub T);

/// It is done, and there is nothing to say.
#[derive(Clone, Copy, Debug)]
pub struct Done;

/// Bytes as they are.
pub struct Raw(pub Response);

/// Text of a fixed kind.
#[derive(Clone, Debug)]
pub struct Page {
    pub kind: &'static str,
    pub text: Bytes,
}

impl<T: Serialize + JsonSchema + Send> Output for Reply<T> {
    fn describe(document: &mut Document<'_>) {
        let schema = document.schemas.subschema_for::<T>();
        document.answers("200", "Done.", "application/json", &schema);
    }

    fn into_response(self) -> Response {
        json_response(StatusCode::OK, &self.0)
    }
}

impl<T: Serialize + JsonSchema + Send> Output for Created<T> {
    fn describe(document: &mut Document<'_>) {
        let schema = document.schemas.subschema_for::<T>();
        document.answers("201", "Made.", "application/json", &schema);
    }

    fn into_response(self) -> Response {
        json_response(StatusCode::CREATED, &self.0)
    }
}

impl Output for Done {
    fn describe(document: &mut Document<'_>) {
        document.response("204", json!({ "description": "Done." }));
    }

    fn into_response(self) -> Response {
        let mut response = hyper::Response::new(Outgoing::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    }
}

impl Output for Raw {
    fn describe(document: &mut Document<'_>) {
        let any = Schema::default();
        document.answers("200", "The bytes.", "application/octet-stream", &any);
    }

    fn into_response(self) -> Response {
        self.0
    }
}

impl Output for Page {
    fn describe(document: &mut Document<'_>) {
        document.response("200", json!({ "description": "The page." }));
    }

    fn into_response(self) -> Response {
        let kind = HeaderValue::from_static(self.kind);
        respond(StatusCode::OK, kind, Outgoing::whole(self.text))
    }
}

/// Bytes of a known length, or of one that shows.
pub fn octets(status: StatusCode, body: Outgoing, headers: &[(HeaderName, HeaderValue)]) -> Raw {
    let mut response = respond(status, OCTETS, body);
    for (name, value) in headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    Raw(response)
}

impl Document<'_> {
    pub fn insert(&mut self, key: &str, value: Value) {
        self.operation.insert(key.to_owned(), value);
    }

    pub fn parameters(&mut self) -> &mut Vec<Value> {
        let place = self.operation.entry("parameters").or_insert_with(|| json!([]));
        match place {
            Value::Array(parameters) => parameters,
            _ => unreachable!("parameters are only ever written here, as a list"),
        }
    }

    /// An optional header of the request.
    pub fn header(&mut self, name: &str, description: &str) {
        self.parameters().push(json!({
            "name": name, "in": "header", "required": false, "description": description,
            "schema": { "type": "string" }
        }));
    }

    /// An answer with the bytes of a file or an artifact, or a range of them.
    pub fn download(&mut self, what: &str) {
        let any = Schema::default();
        self.answers("200", &format!("The whole {what}."), "application/octet-stream", &any);
        self.answers("206", "The range.", "application/octet-stream", &any);
        self.header("range", "`bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-COUNT`.");
        let if_range =
            format!("An ETag: if it differs from the {what}'s, the whole {what} is sent.");
        self.header("if-range", &if_range);
    }

    pub fn response(&mut self, status: &str, response: Value) {
        let place = self.operation.entry("responses").or_insert_with(|| json!({}));
        place[status] = response;
    }

    /// Adds one form of an answer.
    pub fn answers(&mut self, status: &str, description: &str, kind: &str, schema: &Schema) {
        let place = self.operation.entry("responses").or_insert_with(|| json!({}));
        if place.get(status).is_none() {
            place[status] = json!({ "description": description, "content": {} });
        }
        place[status]["content"][kind] = json!({ "schema": schema });
    }

    pub fn refuses(&mut self, codes: &[Code]) {
        for code in codes {
            let status = status(*code);
            let content = json!({ "application/json": { "schema": self.refusal } });
            let description = status.canonical_reason().unwrap_or("Refused");
            let response = json!({ "description": description, "content": content });
            self.response(status.as_str(), response);
        }
    }
}

fn list(schema: &Schema, key: &str) -> Vec<Value> {
    schema.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_does_not_parse_as_a_list() {
        #[derive(Debug, serde::Deserialize)]
        struct Two {
            _one: Option<u8>,
            _two: Option<u8>,
        }
        assert!(parse::<Two>(br#" {"_one":1}"#).is_ok());
        assert!(parse::<Two>(b" [1, 2]").is_err());
    }

    #[test]
    fn a_field_of_a_query_has_a_value() {
        for query in ["namespace=", "limit=1&namespace=", "force", "path=/&after=&limit=1", "="] {
            assert!(without_value(query).is_some(), "{query}");
        }
        for query in ["", "&", "namespace=a&", "argv=echo&argv=&argv=x", "label=a=&limit=1"] {
            assert_eq!(without_value(query), None, "{query}");
        }
    }
}
