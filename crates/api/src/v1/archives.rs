//! Bodies that are tar archives: of trees of files, and of snapshots.

use hyper::StatusCode;
use hyper::header::HeaderValue;
use schemars::Schema;
use serde_json::json;

use crate::body::{Outgoing, Response, respond};
use crate::call::Call;
use crate::route::{Document, Input, Output};
use sandbox::refusal::Refusal;

const TAR: &str = "application/x-tar";

/// An archive on its way out.
pub struct ArchiveResponse(Response);

impl ArchiveResponse {
    pub fn new(body: Outgoing) -> Self {
        Self(respond(StatusCode::OK, HeaderValue::from_static(TAR), body))
    }
}

impl Output for ArchiveResponse {
    fn describe(document: &mut Document<'_>) {
        document.answers("200", "The archive.", TAR, &Schema::default());
    }

    fn into_response(self) -> Response {
        self.0
    }
}

/// An archive on its way in, which the handler reads as it comes.
#[derive(Clone, Copy, Debug)]
pub struct Archive;

impl Input for Archive {
    fn describe(document: &mut Document<'_>) {
        let content = json!({ TAR: { "schema": {} } });
        document.insert("requestBody", json!({ "required": true, "content": content }));
    }

    async fn read(_: &mut Call) -> Result<Self, Refusal> {
        Ok(Self)
    }
}
