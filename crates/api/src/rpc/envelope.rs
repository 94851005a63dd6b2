//! Requests and answers as JSON-RPC 2.0 frames them. Pure.

use serde_json::{Map, Value};

use super::failure::{Failure, INVALID_REQUEST, PARSE_ERROR};
use super::limits::BATCH_MAX;
use super::written::Written;

/// A request that is one.
#[derive(Debug)]
pub struct Request {
    /// Absent where none was sent: in a batch, no answer is expected then.
    pub id: Option<Value>,
    pub method: String,
    /// Null when absent.
    pub params: Value,
}

/// What was sent in the place of a request.
#[derive(Debug)]
pub struct NoRequest {
    /// Null when it is unknown.
    pub id: Value,
    pub failure: Failure,
}

/// What one body asks.
#[derive(Debug)]
pub enum Envelope {
    One(Result<Request, Box<NoRequest>>),
    Batch(Vec<Result<Request, Box<NoRequest>>>),
}

/// Reads a body.
pub fn parse(body: &[u8]) -> Result<Envelope, Failure> {
    if body.is_empty() {
        let message = "the body is empty; send a JSON-RPC 2.0 request";
        return Err(Failure::new(PARSE_ERROR, message));
    }
    let value = serde_json::from_slice(body).map_err(|error| {
        Failure::new(PARSE_ERROR, format!("the body is not valid JSON: {error}"))
    })?;
    let Value::Array(requests) = value else { return Ok(Envelope::One(request(value))) };
    if requests.is_empty() {
        return Err(Failure::new(INVALID_REQUEST, "the batch is empty; send at least one request"));
    }
    let count = requests.len();
    if count > BATCH_MAX {
        let message = format!("the batch has {count} requests, and the limit is {BATCH_MAX}");
        return Err(Failure::new(INVALID_REQUEST, message));
    }
    Ok(Envelope::Batch(requests.into_iter().map(request).collect()))
}

fn request(value: Value) -> Result<Request, Box<NoRequest>> {
    let refuse = |id, message: &str| {
        Err(Box::new(NoRequest { id, failure: Failure::new(INVALID_REQUEST, message) }))
    };
    let Value::Object(mut fields) = value else {
        return refuse(Value::Null, "a request must be an object with a method and params");
    };
    let id = fields.remove("id");
    if matches!(id, Some(Value::Array(_) | Value::Object(_))) {
        return refuse(Value::Null, "the id of a request must be a string, a number or null");
    }
    let or_null = |id: Option<Value>| id.unwrap_or(Value::Null);
    // Clients exist that leave it out.
    if fields.get("jsonrpc").is_some_and(|version| version != "2.0") {
        return refuse(or_null(id), "the request must have \"jsonrpc\": \"2.0\"");
    }
    match fields.remove("method") {
        Some(Value::String(method)) => {
            Ok(Request { id, method, params: fields.remove("params").unwrap_or(Value::Null) })
        }
        Some(_) => refuse(or_null(id), "the method of a request must be a string"),
        None => refuse(or_null(id), "the request has no method"),
    }
}

/// The answer to one request.
pub fn answer(id: &Value, outcome: Result<Written, Failure>) -> Written {
    let head = Written::default().text("{\"jsonrpc\":\"2.0\",\"id\":").value(id);
    match outcome {
        Ok(result) => head.text(",\"result\":").then(result).text("}"),
        Err(failure) => head.text(",\"error\":").then(failure.into_written()).text("}"),
    }
}

/// The answer to a batch.
pub fn answers(all: Vec<Written>) -> Written {
    let mut joined = Written::default();
    for (at, one) in all.into_iter().enumerate() {
        joined = joined.text(if at == 0 { "[" } else { "," }).then(one);
    }
    joined.text("]")
}

/// The object that params are; none of them are an empty one.
pub fn fields(params: Value) -> Result<Map<String, Value>, Failure> {
    match params {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        _ => Err(Failure::params("params must be an object with named parameters")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failed(body: &[u8]) -> i64 {
        match parse(body) {
            Err(failure) => failure.code(),
            Ok(Envelope::One(Err(no_request))) => no_request.failure.code(),
            Ok(requests) => panic!("{requests:?}"),
        }
    }

    #[test]
    fn invalid_json_and_invalid_requests_are_distinguished() {
        let deep = "[".repeat(1_000_000);
        for body in ["", "{", "{} {}", "'a'", "\u{feff}{}", deep.as_str()] {
            assert_eq!(failed(body.as_bytes()), PARSE_ERROR, "{body:.10}");
        }
        assert_eq!(failed(b"\"\xff\""), PARSE_ERROR);
        for body in [
            "5",
            "null",
            "{}",
            "[]",
            r#"{"method":5}"#,
            r#"{"jsonrpc":"1.0","method":"a"}"#,
            r#"{"method":"a","id":{}}"#,
        ] {
            assert_eq!(failed(body.as_bytes()), INVALID_REQUEST, "{body}");
        }
        let many = format!("[{}5]", "5,".repeat(BATCH_MAX));
        assert_eq!(failed(many.as_bytes()), INVALID_REQUEST);
    }

    #[test]
    fn ids_are_echoed_whatever_they_are() {
        for id in [json!("uuid"), json!(7), json!(-0.5), json!(null), json!(true), json!("")] {
            let body = json!({ "jsonrpc": "2.0", "method": "a", "id": id }).to_string();
            let Ok(Envelope::One(Ok(request))) = parse(body.as_bytes()) else { panic!("{body}") };
            assert_eq!(request.id, Some(id.clone()));
            let written = answer(&id, Ok(Written::of(&"done"))).into_bytes();
            let read: Value = serde_json::from_slice(&written).unwrap();
            assert_eq!(read, json!({ "jsonrpc": "2.0", "id": id, "result": "done" }));
        }
        let Ok(Envelope::One(Ok(request))) = parse(br#"{"method":"a"}"#) else { panic!() };
        assert_eq!((request.id, request.params), (None, Value::Null));
    }

    #[test]
    fn a_failure_has_no_result_and_a_result_no_error() {
        let failure = Failure::params("so \"not\"").data(Written::of(&[1]));
        let written = answers(vec![
            answer(&json!(1), Err(failure)),
            answer(&json!(2), Ok(Written::default().text("[").value(&1).text(",2]"))),
            answer(&json!(3), Err(Failure::params("no"))),
        ]);
        let read: Value = serde_json::from_slice(&written.into_bytes()).unwrap();
        let error = json!({ "code": -32602, "message": "so \"not\"", "data": [1] });
        assert_eq!(
            read,
            json!([
                { "jsonrpc": "2.0", "id": 1, "error": error },
                { "jsonrpc": "2.0", "id": 2, "result": [1, 2] },
                { "jsonrpc": "2.0", "id": 3, "error": { "code": -32602, "message": "no" } }
            ])
        );
    }
}
