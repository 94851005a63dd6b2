//! The request of a webhook.

use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, header};

use super::limits::{ATTEMPT_MAX, CONNECT_MAX};
use host::dial::Dialler;
use host::poster::{PostError, PostLimits, Poster, USER_AGENT};
use image::registry::Url;

/// Why an attempt has failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Unanswered(#[from] PostError),
    #[error("its answer is status {0}")]
    Status(u16),
    #[error("its answer is status {0}, and redirects are not followed")]
    Redirect(u16),
    #[error("its request cannot be made: {0}")]
    Malformed(#[from] hyper::http::Error),
}

/// Sends to one receiver.
pub struct Sender {
    poster: Poster,
    path: String,
}

impl Sender {
    pub fn new(url: Url, allow_private: bool, ca: Vec<PathBuf>) -> Self {
        let named = if allow_private { vec![url.origin.clone()] } else { Vec::new() };
        let limits = PostLimits { attempt_max: ATTEMPT_MAX, connect_max: CONNECT_MAX };
        let poster = Poster::new(Dialler::new(ca).naming(named), url.origin, limits);
        Self { poster, path: url.path }
    }

    /// Makes one attempt.
    pub async fn post(
        &mut self,
        id: &str,
        seconds: u64,
        signature: &str,
        body: &[u8],
    ) -> Result<(), RequestError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(header::HOST, self.poster.origin().authority())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signature)
            .body(Full::new(Bytes::copy_from_slice(body)))?;
        let status = self.poster.post(request).await?.status;
        match status {
            _ if status.is_success() => Ok(()),
            _ if status.is_redirection() => Err(RequestError::Redirect(status.as_u16())),
            _ => Err(RequestError::Status(status.as_u16())),
        }
    }
}
