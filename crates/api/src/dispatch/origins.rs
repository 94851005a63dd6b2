//! What answers carry for browsers: what pages of other origins may send and read.

use hyper::StatusCode;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, HeaderMap, HeaderValue, ORIGIN, VARY,
    X_CONTENT_TYPE_OPTIONS,
};

use crate::Api;
use crate::body::{Outgoing, Response};
use crate::call::RequestId;
use crate::forward::REQUEST_ID;

/// What a web page may read of an answer, beside the few headers that every page may.
const SHOWN_TO_PAGES: &str = "x-request-id, retry-after, idempotency-replayed, allow, etag, \
    accept-ranges, content-range, burrow-file-bytes, burrow-woke-ms, burrow-unanswered-nodes, \
    mcp-session-id";

/// The origin of the page that asks, if it is one of those that may.
pub fn allowed_origin(api: &Api, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    let text = origin.to_str().ok()?;
    api.origins().is_listed(text).then(|| origin.clone())
}

/// The answer to a browser that asks before the request of a page.
pub fn preflight() -> Response {
    let mut response = hyper::Response::new(Outgoing::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    let names = "authorization, content-type, content-digest, idempotency-key, \
        burrow-deadline-ms, burrow-sandbox-id, traceparent, tracestate, x-request-id, range, if-range, mcp-session-id, mcp-protocol-version, \
        mcp-method, mcp-name, last-event-id";
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names));
    response
}

/// What every answer carries.
pub fn dress(response: &mut Response, request_id: &RequestId, origin: Option<HeaderValue>) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&request_id.0) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(SHOWN_TO_PAGES));
        headers.insert(VARY, HeaderValue::from_static("origin"));
    }
    // What ran in a sandbox must be kept by no cache, and taken for a page by no browser.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
