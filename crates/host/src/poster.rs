//! Posts to one server over HTTP/1.1, on a connection that is kept as long as the server keeps it. Webhooks
//! and telemetry are sent by it. It follows no redirect, and looks at no answer beyond its bounds.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request, StatusCode};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::dial::{DialError, Dialler, Origin};

/// The head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The body of an answer that is read, so that the connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// How a server is sent what it gets.
pub const USER_AGENT: &str = concat!("burrow/", env!("CARGO_PKG_VERSION"));

/// How long parts of a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostLimits {
    /// From the name of the host to the end of the answer.
    pub attempt_max: Duration,
    /// How long connecting may take of that.
    pub connect_max: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("it has not answered within {} s", limit.as_secs())]
    Slow { limit: Duration },
    #[error("it does not answer: {0}")]
    Broken(#[from] hyper::Error),
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Absent if it was too long, or was cut.
    pub body: Option<Bytes>,
}

/// A connection, and the task that drives it.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// See the module's description.
pub struct Poster {
    dialler: Dialler,
    origin: Origin,
    limits: PostLimits,
    connection: Option<Connection>,
}

impl Poster {
    pub fn new(dialler: Dialler, origin: Origin, limits: PostLimits) -> Self {
        Self { dialler, origin, limits, connection: None }
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Makes one attempt. The request names the host itself.
    pub async fn post(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, PostError> {
        let limit = self.limits.attempt_max;
        let posted = timeout(limit, self.exchange(request)).await;
        let posted = posted.unwrap_or(Err(PostError::Slow { limit }));
        if posted.is_err() {
            self.connection = None;
        }
        posted
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, PostError> {
        if let Some(connection) = self.connection.take() {
            // One that was closed meanwhile costs nothing but another connection.
            match self.ask(connection, request.clone()).await {
                Err(PostError::Broken(_)) => {}
                answered => return answered,
            }
        }
        let stream = self.dialler.dial(&self.origin, self.limits.connect_max).await?;
        let mut http = http1::Builder::new();
        let (sender, driven) = http.max_buf_size(HEAD_BYTES_MAX).handshake(stream).await?;
        let driver = tokio::spawn(async move {
            // The reader of the answer learns how it ends.
            let _ = driven.await;
        });
        self.ask(Connection { sender, driver }, request).await
    }

    async fn ask(
        &mut self,
        mut connection: Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, PostError> {
        connection.sender.ready().await?;
        let (head, body) = connection.sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.ok().map(http_body_util::Collected::to_bytes);
        if body.is_some() {
            self.connection = Some(connection);
        }
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}
