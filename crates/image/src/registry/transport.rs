//! Connections to registries: HTTP/1.1, with TLS unless the caller says otherwise. It knows nothing
//! about images, redirects and credentials.
//!
//! A connection whose answer was read to its end waits for the next request; one that is dropped in
//! the midst is closed, with the task that drives it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::credentials::CredentialsError;
use super::error::{PullError, PullStep};
use super::limits::{HEAD_BYTES_MAX, HEADERS_MAX, IDLE_CONNECTIONS_MAX, STALL_BYTES};
use super::options::Times;
use super::secret::Authorization;
use super::url::{Origin, Url};
pub use host::dial::Dialler;

const USER_AGENT: &str = concat!("burrow/", env!("CARGO_PKG_VERSION"));

/// Everything that one pull speaks through.
pub struct Transport {
    dialler: Dialler,
    times: Times,
    idle: Arc<Idle>,
}

/// A request; `GET` unless it has a form.
#[derive(Default)]
pub struct RegistryRequest<'a> {
    pub authorization: Option<&'a Authorization>,
    pub accept: Option<&'a str>,
    /// Requests only the bytes from here on.
    pub offset: Option<u64>,
    pub form: Option<String>,
}

/// The head of an answer, and the body that is still to come.
pub struct RegistryResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Body,
}

/// A body that is read piece by piece, each with a deadline.
pub struct Body {
    incoming: Incoming,
    connection: Option<Connection>,
    idle: Arc<Idle>,
    at: Origin,
    stall: Duration,
    /// The time left for the next [`STALL_BYTES`], and how many of them have arrived.
    left: Duration,
    came: u64,
}

/// One connection, and the task that drives it.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: Driver,
}

/// A task that ends with its owner.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Idle connections.
#[derive(Default)]
struct Idle(Mutex<Vec<(Origin, Connection)>>);

impl Idle {
    fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, connection)| !connection.sender.is_closed());
        let at = idle.iter().position(|(known, _)| known == origin)?;
        Some(idle.swap_remove(at).1)
    }

    fn put(&self, origin: Origin, connection: Connection) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS_MAX && !connection.sender.is_closed() {
            idle.push((origin, connection));
        }
    }
}

impl Transport {
    pub fn new(dialler: Dialler, times: Times) -> Self {
        Self { dialler, times, idle: Arc::default() }
    }

    /// Sends a request and waits for the head of its answer.
    pub async fn send(
        &self,
        url: &Url,
        ask: &RegistryRequest<'_>,
    ) -> Result<RegistryResponse, PullError> {
        let request = request(url, ask)?;
        if let Some(connection) = self.idle.take(&url.origin) {
            match self.exchange(connection, url, request.clone()).await {
                // One that was closed meanwhile costs nothing but another connection.
                Err(PullError::Cut { .. }) => {}
                answered => return answered,
            }
        }
        let stream = self.dialler.dial(&url.origin, self.times.connect).await?;
        let opened = http().handshake(stream).await;
        let (sender, driven) = opened.map_err(|error| broken(&url.origin, error))?;
        let driver = tokio::spawn(async move {
            // The reader of the answer learns how it ends.
            let _ = driven.await;
        });
        let connection = Connection { sender, _driver: Driver(driver) };
        self.exchange(connection, url, request).await
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        url: &Url,
        request: Request<Full<Bytes>>,
    ) -> Result<RegistryResponse, PullError> {
        let exchanged = async {
            connection.sender.ready().await?;
            connection.sender.send_request(request).await
        };
        let limit = self.times.head;
        let slow = |_| PullError::Slow { at: url.origin.to_string(), what: PullStep::Head, limit };
        let answered = timeout(limit, exchanged).await.map_err(slow)?;
        let (head, incoming) = answered.map_err(|error| broken(&url.origin, error))?.into_parts();
        let body = Body {
            incoming,
            connection: Some(connection),
            idle: Arc::clone(&self.idle),
            at: url.origin.clone(),
            stall: self.times.stall,
            left: self.times.stall,
            came: 0,
        };
        Ok(RegistryResponse { status: head.status.as_u16(), headers: head.headers, body })
    }
}

/// HTTP as far as it is spoken with strangers.
fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    builder
}

fn request(url: &Url, ask: &RegistryRequest<'_>) -> Result<Request<Full<Bytes>>, PullError> {
    let form = ask.form.clone().map(Bytes::from);
    let mut builder = Request::builder()
        .method(if form.is_some() { Method::POST } else { Method::GET })
        .uri(&url.path)
        .header(header::HOST, url.origin.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT_ENCODING, "identity");
    if let Some(accept) = ask.accept {
        builder = builder.header(header::ACCEPT, accept);
    }
    if let Some(offset) = ask.offset {
        builder = builder.header(header::RANGE, format!("bytes={offset}-"));
    }
    if form.is_some() {
        builder = builder.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    if let Some(authorization) = ask.authorization {
        let characters = |_| CredentialsError::Characters { at: url.origin.to_string() };
        let mut value = HeaderValue::from_str(authorization.reveal()).map_err(characters)?;
        value.set_sensitive(true);
        builder = builder.header(header::AUTHORIZATION, value);
    }
    builder.body(Full::new(form.unwrap_or_default())).map_err(|error| PullError::Malformed {
        at: url.origin.to_string(),
        what: "the address of a request".to_owned(),
        why: error.to_string(),
    })
}

/// An answer that cannot be read will not be better the next time; a cut one may.
fn broken(at: &Origin, error: hyper::Error) -> PullError {
    let at = at.to_string();
    if error.is_parse() || error.is_parse_too_large() {
        return PullError::Malformed { at, what: "its answer".to_owned(), why: error.to_string() };
    }
    PullError::Cut { at, source: error }
}

impl RegistryResponse {
    /// A header's value, if it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Body {
    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PullError> {
        loop {
            let asked_at = Instant::now();
            let at = || self.at.to_string();
            let slow = |_| PullError::Slow { at: at(), what: PullStep::Body, limit: self.stall };
            let frame = timeout(self.left, self.incoming.frame()).await.map_err(slow)?;
            // The caller's own time between two pieces does not count.
            self.left = self.left.saturating_sub(asked_at.elapsed());
            let Some(frame) = frame else {
                if let Some(connection) = self.connection.take() {
                    self.idle.put(self.at.clone(), connection);
                }
                return Ok(None);
            };
            // Trailers contain nothing that is used.
            if let Ok(data) = frame.map_err(|error| broken(&self.at, error))?.into_data() {
                self.came += data.len() as u64;
                if self.came >= STALL_BYTES {
                    (self.came, self.left) = (0, self.stall);
                }
                return Ok(Some(data));
            }
        }
    }

    /// The whole body, if it fits the limit.
    pub async fn whole(mut self, what: &str, bytes_max: u64) -> Result<Vec<u8>, PullError> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await? {
            if (whole.len() + piece.len()) as u64 > bytes_max {
                let (at, what) = (self.at.to_string(), what.to_owned());
                return Err(PullError::TooLarge { at, what, bytes_max });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }
}
