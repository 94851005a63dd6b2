//! Requests to a bucket's server, signed, and retried where that may help. It understands an answer's status,
//! but not the content of objects.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Request};
use ring::digest::{SHA256, digest};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::bucket::Bucket;
use super::error::S3Error;
use super::limits::{
    ATTEMPTS_MAX, CONNECT_DEADLINE, DOCUMENT_BYTES_MAX, HEAD_BYTES_MAX, HEAD_DEADLINE, HEADERS_MAX,
    IDLE_CONNECTIONS_MAX, PIECE_BYTES, PIECES_WAITING_MAX, RETRY_AFTER_MAX, RETRY_PAUSE_FIRST,
    STALL_DEADLINE, UPLOAD_BYTES_PER_SECOND_MIN,
};
use super::refusal::{Refusal, refusal};
use super::sign::{Keys, SigningInput, authorization, encode};
use host::dial::Dialler;
use host::hex::digits;
use host::instant;

const USER_AGENT: &str = concat!("burrow/", env!("CARGO_PKG_VERSION"));

type Outgoing = UnsyncBoxBody<Bytes, std::io::Error>;

/// One request.
#[derive(Clone, Debug)]
pub struct S3Request {
    /// The purpose, for errors.
    pub what: &'static str,
    pub method: Method,
    pub key: String,
    pub query: Vec<(&'static str, String)>,
    /// Names in lower case.
    pub headers: Vec<(&'static str, String)>,
    pub content: Content,
}

/// The body of the request.
#[derive(Clone, Debug)]
pub enum Content {
    Whole(Bytes),
    Part(Part),
}

/// Some bytes of a file, whose digest is known.
#[derive(Clone, Debug)]
pub struct Part {
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
    pub digest: [u8; 32],
}

impl S3Request {
    pub fn new(what: &'static str, method: Method, key: &str) -> Self {
        let content = Content::Whole(Bytes::new());
        let key = key.to_owned();
        Self { what, method, key, query: Vec::new(), headers: Vec::new(), content }
    }

    pub fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// The head of an answer, and the body that is still to come.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    body: Incoming,
    connection: Connection,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        loop {
            let slow = |_| S3Error::Slow { limit: STALL_DEADLINE };
            let frame = timeout(STALL_DEADLINE, self.body.frame()).await.map_err(slow)?;
            let Some(frame) = frame else { return Ok(None) };
            if let Ok(data) = frame.map_err(S3Error::Cut)?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// Reads the rest of the body.
    async fn read(&mut self, what: &'static str, bytes_max: usize) -> Result<Vec<u8>, S3Error> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await? {
            if whole.len() + piece.len() > bytes_max {
                return Err(S3Error::TooLarge { what, bytes_max: bytes_max as u64 });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }
}

/// One connection, and the task that drives it.
struct Connection {
    sender: SendRequest<Outgoing>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Speaks with the server of one bucket.
pub struct Wire {
    pub bucket: Bucket,
    keys: Option<Keys>,
    dialler: Dialler,
    idle: Mutex<Vec<Connection>>,
}

impl Wire {
    pub fn new(bucket: Bucket, keys: Option<Keys>) -> Self {
        let dialler = Dialler::new(bucket.ca.clone().into_iter().collect());
        Self { bucket, keys, dialler, idle: Mutex::default() }
    }

    /// The answer, if it is a good one. What may pass is tried again, a few times.
    pub async fn send(&self, ask: &S3Request) -> Result<Answer, S3Error> {
        let (mut attempts, mut pause) = (1, RETRY_PAUSE_FIRST);
        loop {
            let error = match self.attempt(ask).await {
                Err(error) if error.is_passing() && attempts < ATTEMPTS_MAX => error,
                answered => return answered,
            };
            let requested_pause = match &error {
                S3Error::Busy { retry_after, .. } => retry_after.unwrap_or_default(),
                _ => Duration::ZERO,
            };
            if requested_pause > RETRY_AFTER_MAX {
                return Err(error);
            }
            sleep(pause.max(requested_pause)).await;
            (attempts, pause) = (attempts + 1, pause * 2);
        }
    }

    /// All of an answer's body.
    pub async fn whole(
        &self,
        what: &'static str,
        mut answer: Answer,
        bytes_max: usize,
    ) -> Result<Vec<u8>, S3Error> {
        let whole = answer.read(what, bytes_max).await?;
        self.keep(answer);
        Ok(whole)
    }

    /// Keeps the connection of an answer that was read to its end.
    pub fn keep(&self, answer: Answer) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS_MAX && !answer.connection.sender.is_closed() {
            idle.push(answer.connection);
        }
    }

    async fn attempt(&self, ask: &S3Request) -> Result<Answer, S3Error> {
        loop {
            let idle = self.take_idle();
            let was_idle = idle.is_some();
            let connection = match idle {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match self.exchange(connection, ask).await {
                // One that was closed meanwhile costs nothing but another connection.
                Err(S3Error::Cut(_)) if was_idle => {}
                Err(error) => return Err(error),
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(answer),
                Ok(answer) => return Err(self.refused(ask, answer).await),
            }
        }
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| !connection.sender.is_closed());
        idle.pop()
    }

    async fn connect(&self) -> Result<Connection, S3Error> {
        let dialled = self.dialler.dial(&self.bucket.origin(), CONNECT_DEADLINE).await;
        if let Err(error) = &dialled {
            // For the operator: the sandbox's user may know neither the server's name nor its
            // address.
            tracing::warn!("a bucket's server: {error}");
        }
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
        let opened = builder.handshake(dialled.map_err(S3Error::Unreachable)?).await;
        let (sender, driven) = opened.map_err(S3Error::Cut)?;
        let driver = tokio::spawn(async move {
            // The reader of the answer learns how it ends.
            let _ = driven.await;
        });
        Ok(Connection { sender, driver })
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        ask: &S3Request,
    ) -> Result<Answer, S3Error> {
        let (request, bytes) = self.request(ask)?;
        let limit = HEAD_DEADLINE + Duration::from_secs(bytes / UPLOAD_BYTES_PER_SECOND_MIN);
        let exchanged = async {
            connection.sender.ready().await?;
            connection.sender.send_request(request).await
        };
        let answered = timeout(limit, exchanged).await.map_err(|_| S3Error::Slow { limit })?;
        let (head, body) = answered.map_err(S3Error::Cut)?.into_parts();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, connection })
    }

    fn request(&self, ask: &S3Request) -> Result<(Request<Outgoing>, u64), S3Error> {
        let (content, bytes, body) = match &ask.content {
            Content::Whole(whole) => {
                let body = Full::new(whole.clone()).map_err(|never| match never {});
                (digits(digest(&SHA256, whole).as_ref()), whole.len() as u64, body.boxed_unsync())
            }
            Content::Part(part) => (digits(&part.digest), part.bytes, stream_of(part)),
        };
        let time = time_of(&instant::format(instant::now_ms()));
        let mut headers = vec![
            ("host".to_owned(), self.bucket.origin().authority()),
            ("x-amz-content-sha256".to_owned(), content.clone()),
            ("x-amz-date".to_owned(), time.clone()),
        ];
        let more = ask.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        headers.extend(more);
        if let Some(session) = self.keys.as_ref().and_then(|keys| keys.session.as_ref()) {
            headers.push(("x-amz-security-token".to_owned(), session.expose().to_owned()));
        }
        headers.sort_unstable();
        let path = self.bucket.path(&ask.key);
        let mut query: Vec<_> = ask
            .query
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name, false), encode(value, false)))
            .collect();
        query.sort_unstable();
        let query = query.join("&");
        let uri = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        let mut builder = Request::builder().method(ask.method.clone()).uri(uri);
        for (name, value) in &headers {
            let mut value = HeaderValue::from_str(value).map_err(|_| S3Error::Key)?;
            value.set_sensitive(name == "x-amz-security-token");
            builder = builder.header(name, value);
        }
        if let Some(keys) = &self.keys {
            let (method, headers) = (ask.method.as_str(), headers.as_slice());
            let signed =
                SigningInput { method, path: &path, query: &query, headers, content: &content };
            let value = authorization(keys, &self.bucket.region, &time, &signed);
            let mut value = HeaderValue::from_str(&value).map_err(|_| S3Error::AccessKey)?;
            value.set_sensitive(true);
            builder = builder.header("authorization", value);
        }
        builder = builder.header("user-agent", USER_AGENT).header("accept-encoding", "identity");
        if bytes > 0 || ask.method == Method::PUT || ask.method == Method::POST {
            builder = builder.header("content-length", bytes);
        }
        Ok((builder.body(body).map_err(|_| S3Error::Key)?, bytes))
    }

    async fn refused(&self, ask: &S3Request, mut answer: Answer) -> S3Error {
        let headers = answer.headers.clone();
        let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        let context = Refusal {
            what: ask.what,
            is_read: ask.method == Method::GET || ask.method == Method::HEAD,
            status: answer.status,
            date: text("date"),
            region: text("x-amz-bucket-region"),
            retry_after: text("retry-after"),
        };
        // If the body cannot be read, the status still counts.
        let body = answer.read(ask.what, DOCUMENT_BYTES_MAX).await;
        // A request that was refused before it was sent completely leaves a connection that cannot
        // be reused.
        if body.is_ok() && matches!(&ask.content, Content::Whole(_)) {
            self.keep(answer);
        }
        refusal(context, &body.unwrap_or_default())
    }
}

/// `20130524T000000Z` of `2013-05-24T00:00:00.000Z`.
fn time_of(instant: &str) -> String {
    let whole = instant.split('.').next().unwrap_or_default();
    let digits: String = whole.chars().filter(|c| !matches!(c, '-' | ':' | 'Z')).collect();
    digits + "Z"
}

/// Reads on a thread that may wait for the disk, as fast as the connection takes it.
fn stream_of(part: &Part) -> Outgoing {
    let (pieces, waiting) = mpsc::channel(PIECES_WAITING_MAX);
    let Part { path, offset, bytes, .. } = part.clone();
    tokio::task::spawn_blocking(move || {
        let read = || -> std::io::Result<()> {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut rest = file.take(bytes);
            loop {
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                (&mut rest).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
                if piece.is_empty() || pieces.blocking_send(Ok(Bytes::from(piece))).is_err() {
                    return Ok(());
                }
            }
        };
        if let Err(error) = read() {
            // A reader that is gone has its own reason.
            let _ = pieces.blocking_send(Err(error));
        }
    });
    let frames = stream::unfold(waiting, |mut waiting| async move {
        let piece: std::io::Result<Bytes> = waiting.recv().await?;
        Some((piece.map(Frame::data), waiting))
    });
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_signed_without_its_punctuation() {
        assert_eq!(time_of("2013-05-24T00:00:00.000Z"), "20130524T000000Z");
    }
}
