//! One request to the collector, and what its answer means.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, StatusCode};

use super::encode::{PartialSuccess, parse_answer};
use super::limits::{ATTEMPT_MAX, BATCH_TIME_MAX, CONNECT_MAX, EXCERPT_CHARS_MAX};
use super::{Options, Signal};
use host::dial::Dialler;
use host::excerpt::excerpt;
use host::poster::{self, Answer, PostError, PostLimits, Poster};
use host::secret::SecretError;

/// A header of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: HeaderText,
}

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderText {
    Plain(String),
    /// The value of a secret, by its name. It is read for each request, so it may change.
    Secret(String),
}

/// Why a request has not been taken.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Unanswered(#[from] PostError),
    #[error("the header {name}: {source}")]
    Secret { name: String, source: SecretError },
    #[error("the header {name} has characters that no header may have")]
    Header { name: String },
    #[error("it is not ready: status {status}")]
    Busy { status: StatusCode, after: Option<Duration> },
    #[error("it refuses: status {status}: {words}")]
    Refused { status: StatusCode, words: String },
    #[error("the request cannot be made: {0}")]
    Malformed(#[from] hyper::http::Error),
}

impl SendError {
    /// Whether the same request may be taken later, by the table of the protocol.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unanswered(_) | Self::Secret { .. } | Self::Busy { .. } => true,
            Self::Header { .. } | Self::Refused { .. } | Self::Malformed(_) => false,
        }
    }

    /// How long the collector wants to be left alone.
    pub fn after(&self) -> Option<Duration> {
        match self {
            Self::Busy { after, .. } => *after,
            _ => None,
        }
    }
}

/// Sends one signal.
pub struct Sender {
    poster: Poster,
    path: String,
}

impl Sender {
    pub fn new(options: &Options, signal: Signal) -> Self {
        let limits = PostLimits { attempt_max: ATTEMPT_MAX, connect_max: CONNECT_MAX };
        let dialler = Dialler::new(options.ca.clone());
        let poster = Poster::new(dialler, options.origin.clone(), limits);
        let path = format!("{}/v1/{}", options.path.trim_end_matches('/'), signal.name());
        Self { poster, path }
    }

    /// Makes one attempt.
    pub async fn send(
        &mut self,
        options: &Options,
        body: Bytes,
    ) -> Result<PartialSuccess, SendError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(HOST, self.poster.origin().authority())
            .header(USER_AGENT, poster::USER_AGENT)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        for header in &options.headers {
            let (name, value) = read_header(options, header).await?;
            request.headers_mut().insert(name, value);
        }
        judge(&self.poster.post(request).await?)
    }
}

async fn read_header(
    options: &Options,
    header: &Header,
) -> Result<(HeaderName, HeaderValue), SendError> {
    let wrong = || SendError::Header { name: header.name.clone() };
    let name = HeaderName::try_from(&header.name).map_err(|_| wrong())?;
    let mut value = match &header.value {
        HeaderText::Plain(text) => HeaderValue::from_str(text).map_err(|_| wrong())?,
        HeaderText::Secret(secret) => {
            let failed = |source| SendError::Secret { name: header.name.clone(), source };
            let secret = options.secrets.own(secret).await.map_err(failed)?;
            HeaderValue::from_str(secret.expose()).map_err(|_| wrong())?
        }
    };
    value.set_sensitive(true);
    Ok((name, value))
}

fn judge(answer: &Answer) -> Result<PartialSuccess, SendError> {
    let (status, body) = (answer.status, answer.body.as_deref().unwrap_or_default());
    if status.is_success() {
        return Ok(parse_answer(body));
    }
    let is_busy = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    if is_busy {
        let after = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        // One that wants more has lost what waits for it.
        return Err(SendError::Busy { status, after: after.map(|time| time.min(BATCH_TIME_MAX)) });
    }
    let words = excerpt(&String::from_utf8_lossy(body), EXCERPT_CHARS_MAX);
    Err(SendError::Refused { status, words })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;

    fn answer(status: u16, retry_after: Option<&str>, body: &'static str) -> Answer {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers, body: Some(Bytes::from_static(body.as_bytes())) }
    }

    #[test]
    fn a_refusal_is_final_and_a_busy_collector_says_for_how_long() {
        for status in [429, 502, 503, 504] {
            let busy = judge(&answer(status, Some("7"), "")).unwrap_err();
            assert!(busy.may_pass() && busy.after() == Some(Duration::from_secs(7)), "{status}");
        }
        let bounded = judge(&answer(503, Some("99999999"), "")).unwrap_err();
        assert_eq!(bounded.after(), Some(BATCH_TIME_MAX));
        let of_a_date = judge(&answer(503, Some("Fri, 31 Dec 1999 23:59:59 GMT"), "")).unwrap_err();
        assert_eq!((of_a_date.may_pass(), of_a_date.after()), (true, None));
        for status in [301, 400, 401, 404, 413, 500] {
            let refused = judge(&answer(status, None, "no\u{1b}[31m")).unwrap_err();
            assert!(!refused.may_pass(), "{status}");
            assert!(refused.to_string().ends_with("no[31m"), "{refused}");
        }
    }

    #[test]
    fn what_was_taken_in_part_is_counted() {
        let body = r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
        let partial = judge(&answer(200, None, body)).unwrap();
        assert_eq!((partial.rejected, partial.message.as_str()), (3, "too old"));
        for body in ["", "{}", "[]", r#"{"partialSuccess":{}}"#, "\u{0}"] {
            assert_eq!(judge(&answer(202, None, body)).unwrap(), PartialSuccess::default());
        }
        let number = r#"{"partialSuccess":{"rejectedLogRecords":2}}"#;
        assert_eq!(judge(&answer(200, None, number)).unwrap().rejected, 2);
    }
}
