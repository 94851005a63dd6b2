//! The request of a webhook: HTTP/1.1 over a connection that is kept as long as the receiver keeps it.

use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, header};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::limits::{ANSWER_BYTES_MAX, ATTEMPT_MAX, CONNECT_MAX, HEAD_BYTES_MAX};
use host::dial::{DialError, Dialler};
use image::registry::Url;

const USER_AGENT: &str = concat!("burrow/", env!("CARGO_PKG_VERSION"));

/// Why an attempt has failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("its answer is status {0}")]
    Status(u16),
    #[error("its answer is status {0}, and redirects are not followed")]
    Redirect(u16),
    #[error("it has not answered within {} s", ATTEMPT_MAX.as_secs())]
    Slow,
    #[error("it does not answer: {0}")]
    Broken(#[from] hyper::Error),
    #[error("its request cannot be made: {0}")]
    Malformed(#[from] hyper::http::Error),
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

/// Sends to one receiver.
pub struct Sender {
    dialler: Dialler,
    url: Url,
    connection: Option<Connection>,
}

impl Sender {
    pub fn new(url: Url, allow_private: bool, ca: Vec<PathBuf>) -> Self {
        let named = if allow_private { vec![url.origin.clone()] } else { Vec::new() };
        Self { dialler: Dialler::new(ca).naming(named), url, connection: None }
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
            .uri(&self.url.path)
            .header(header::HOST, self.url.origin.authority())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signature)
            .body(Full::new(Bytes::copy_from_slice(body)))?;
        let sent = timeout(ATTEMPT_MAX, self.exchange(request)).await;
        let sent = sent.unwrap_or(Err(RequestError::Slow));
        if sent.is_err() {
            self.connection = None;
        }
        sent
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<(), RequestError> {
        if let Some(connection) = self.connection.take() {
            // One that was closed meanwhile costs nothing but another connection.
            match self.ask(connection, request.clone()).await {
                Err(RequestError::Broken(_)) => {}
                answered => return answered,
            }
        }
        let stream = self.dialler.dial(&self.url.origin, CONNECT_MAX).await?;
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
    ) -> Result<(), RequestError> {
        connection.sender.ready().await?;
        let (head, body) = connection.sender.send_request(request).await?.into_parts();
        let status = head.status;
        // What is too long, or is cut, is not looked at either; then the connection goes.
        if Limited::new(body, ANSWER_BYTES_MAX).collect().await.is_ok() {
            self.connection = Some(connection);
        }
        match status {
            _ if status.is_success() => Ok(()),
            _ if status.is_redirection() => Err(RequestError::Redirect(status.as_u16())),
            _ => Err(RequestError::Status(status.as_u16())),
        }
    }
}
