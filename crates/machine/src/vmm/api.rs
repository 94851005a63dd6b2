//! A client for monitors with an HTTP API on a Unix socket: one request per connection, answered with JSON
//! or with an empty body. The kinds of machine call this; hyper does the HTTP.
//!
//! A guest may have taken over its monitor. So each answer has a length limit, each wait has a deadline,
//! and the monitor's messages are shown but never interpreted.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

/// The limit on the head of an answer: a status and a few fields. hyper allows no lower limit.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The limit on the body of an answer: the longest describes a machine with all its devices.
const BODY_BYTES_MAX: usize = 256 * 1024;
const JSON: &str = "application/json";
/// How much of a monitor's refusal is shown.
const WORDS_CHARS_MAX: usize = 1000;
/// How often to look for the socket of a monitor that was just started.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// How long a monitor may take to listen, and to answer a request that takes it milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// For a request that writes or reads the whole memory.
pub const MEMORY_ANSWER_MAX: Duration = Duration::from_secs(120);

/// Why a monitor did not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("{monitor} cannot be reached: {source}")]
    Unreachable { monitor: &'static str, source: io::Error },
    #[error("{monitor} did not answer {request} within {} s", deadline.as_secs())]
    Silent { monitor: &'static str, request: String, deadline: Duration },
    #[error("{monitor} refused {request} ({status}): {words}")]
    Refused { monitor: &'static str, request: String, status: u16, words: String },
    #[error("{monitor} broke off its answer to {request}: {source}")]
    Broken { monitor: &'static str, request: String, source: hyper::Error },
    #[error("{monitor} did not answer {request} in HTTP: {source}")]
    NotHttp { monitor: &'static str, request: String, source: BadAnswer },
}

impl ApiError {
    /// Whether the end of the monitor would cause this error.
    pub fn means_end(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Broken { .. })
    }
}

/// Why an answer is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    #[error("its head is longer than {HEAD_BYTES_MAX} bytes")]
    LongHead,
    #[error("it is not an answer of HTTP/1")]
    NoAnswer,
    #[error("its body is longer than {BODY_BYTES_MAX} bytes")]
    LongBody,
    #[error("it is no JSON")]
    NoJson,
}

/// A monitor's socket, and the monitor's name for messages.
#[derive(Clone, Debug)]
pub struct Api {
    socket: PathBuf,
    monitor: &'static str,
}

impl Api {
    pub fn at(socket: &Path, monitor: &'static str) -> Self {
        Self { socket: socket.to_owned(), monitor }
    }

    /// Waits until the monitor listens. Only one that has just been started needs this.
    pub async fn listening(&self) -> Result<(), ApiError> {
        let tried = async {
            loop {
                match UnixStream::connect(&self.socket).await {
                    Ok(_) => return Ok(()),
                    Err(error) if is_early(&error) => tokio::time::sleep(CONNECT_PAUSE).await,
                    Err(source) => {
                        return Err(ApiError::Unreachable { monitor: self.monitor, source });
                    }
                }
            }
        };
        let silent = |_| ApiError::Silent {
            monitor: self.monitor,
            request: "the first call".to_owned(),
            deadline: ANSWER_MAX,
        };
        tokio::time::timeout(ANSWER_MAX, tried).await.map_err(silent)?
    }

    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.send(Method::GET, path, None, ANSWER_MAX).await
    }

    pub async fn put(&self, path: &str, body: Option<Value>) -> Result<(), ApiError> {
        self.send(Method::PUT, path, body, ANSWER_MAX).await.map(drop)
    }

    /// A PUT whose time depends on the size of the memory.
    pub async fn put_slowly(&self, path: &str, body: Value) -> Result<(), ApiError> {
        self.send(Method::PUT, path, Some(body), MEMORY_ANSWER_MAX).await.map(drop)
    }

    pub async fn patch(&self, path: &str, body: Value) -> Result<(), ApiError> {
        self.send(Method::PATCH, path, Some(body), ANSWER_MAX).await.map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        deadline: Duration,
    ) -> Result<Value, ApiError> {
        let (monitor, name) = (self.monitor, format!("{method} {path}"));
        let answered = async {
            let connected = UnixStream::connect(&self.socket).await;
            let stream = connected.map_err(|source| ApiError::Unreachable { monitor, source })?;
            exchange(stream, request(method, path, body)).await.map_err(|error| {
                let request = name.clone();
                match error {
                    ExchangeError::Broken(source) => ApiError::Broken { monitor, request, source },
                    ExchangeError::Bad(source) => ApiError::NotHttp { monitor, request, source },
                }
            })
        };
        let answered = tokio::time::timeout(deadline, answered).await;
        let request = name.clone();
        let (status, body) =
            answered.map_err(|_| ApiError::Silent { monitor, request, deadline })??;
        let request = name;
        if !(200..300).contains(&status) {
            return Err(ApiError::Refused { monitor, request, status, words: words_of(&body) });
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        let source = BadAnswer::NoJson;
        serde_json::from_slice(&body).map_err(|_| ApiError::NotHttp { monitor, request, source })
    }
}

/// Whether the monitor may still make the socket or listen on it.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn request(method: Method, path: &str, body: Option<Value>) -> Request<Full<Bytes>> {
    let request =
        Request::builder().method(method).uri(path).header(HOST, "localhost").header(ACCEPT, JSON);
    let request = if body.is_some() { request.header(CONTENT_TYPE, JSON) } else { request };
    let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    request.body(Full::new(body)).expect("the paths of monitors are constants that are valid URIs")
}

enum ExchangeError {
    Broken(hyper::Error),
    Bad(BadAnswer),
}

impl From<hyper::Error> for ExchangeError {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            Self::Bad(BadAnswer::LongHead)
        } else if error.is_parse() {
            Self::Bad(BadAnswer::NoAnswer)
        } else {
            Self::Broken(error)
        }
    }
}

/// Sends a request and reads its answer: the status and the body.
async fn exchange(
    stream: UnixStream,
    request: Request<Full<Bytes>>,
) -> Result<(u16, Bytes), ExchangeError> {
    let mut builder = http1::Builder::new();
    // The form that the monitors' own clients use.
    builder.max_buf_size(HEAD_BYTES_MAX).title_case_headers(true);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let mut connection = pin!(connection);
    let mut answered = pin!(async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        Ok((status, read_body(response).await?))
    });
    tokio::select! {
        biased;
        answered = &mut answered => answered,
        // What was received before the connection ended can still be read.
        _ = &mut connection => answered.await,
    }
}

/// The body, unless it is too long.
async fn read_body(response: Response<Incoming>) -> Result<Bytes, ExchangeError> {
    // A monitor that gives no length sends no body, and may leave the connection open.
    if ![CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| response.headers().contains_key(name))
    {
        return Ok(Bytes::new());
    }
    let body = response.into_body();
    let too_long = ExchangeError::Bad(BadAnswer::LongBody);
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_long);
    }
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_long),
        Err(error) => Err(match error.downcast::<hyper::Error>() {
            Ok(error) => (*error).into(),
            // There is no other error.
            Err(_) => ExchangeError::Bad(BadAnswer::NoAnswer),
        }),
    }
}

/// The reason in a refusal: Firecracker's is a field, Cloud Hypervisor's a list from the outermost
/// to the innermost cause, or plain text of older releases.
fn words_of(body: &[u8]) -> String {
    let message = match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => {
            fields.get("fault_message").and_then(Value::as_str).map(str::to_owned)
        }
        Ok(Value::Array(causes)) => {
            let causes: Vec<_> = causes.iter().filter_map(Value::as_str).collect();
            Some(causes.join(": "))
        }
        Ok(Value::String(text)) => Some(text),
        _ => None,
    };
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let message = message.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let message: String = message.take(WORDS_CHARS_MAX).collect();
    if message.is_empty() { "without a reason".to_owned() } else { message }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    #[test]
    fn the_words_of_a_refusal_are_found_in_every_shape_and_bounded() {
        assert_eq!(words_of(br#"{"fault_message":"no such kernel"}"#), "no such kernel");
        assert_eq!(
            words_of(br#"["Error from API","It is\u001b[2J so"]"#),
            "Error from API: It is [2J so"
        );
        assert_eq!(words_of(b"VmCreate(Busy)\n"), "VmCreate(Busy)");
        assert_eq!(words_of(b""), "without a reason");
        assert_eq!(words_of("x".repeat(5000).as_bytes()).len(), WORDS_CHARS_MAX);
    }

    /// The result of a request to a monitor that sends these bytes and closes.
    async fn answered(name: &str, answer: &[u8]) -> Result<Value, ApiError> {
        let path = std::env::temp_dir().join(format!("burrow-api-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let api = Api::at(&path, "fake");
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            // The client may have stopped reading.
            let _ = stream.write_all(answer).await;
            String::from_utf8(request).unwrap()
        };
        let (got, request) = tokio::join!(api.get("/x"), server);
        assert!(request.starts_with("GET /x HTTP/1.1\r\nHost: localhost\r\nAccept: "), "{request}");
        std::fs::remove_file(path).unwrap();
        got
    }

    #[tokio::test]
    async fn answers_are_read_whole() {
        let fine = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}";
        assert_eq!(answered("fine", fine).await.unwrap()["a"], 1);
        let more = b"HTTP/1.1 200 OK\r\ncontent-length:  7\r\n\r\n{\"a\":1}and more";
        assert_eq!(answered("more", more).await.unwrap()["a"], 1);
        let empty = b"HTTP/1.1 204 \r\nServer: x\r\n\r\n";
        assert_eq!(answered("empty", empty).await.unwrap(), Value::Null);
        let long = b"HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(answered("204", long).await.unwrap(), Value::Null);
        let refused = b"HTTP/1.1 400 \r\nContent-Length: 23\r\n\r\n{\"fault_message\":\"why\"}";
        let refused = answered("refused", refused).await.unwrap_err().to_string();
        assert_eq!(refused, "fake refused GET /x (400): why");
    }

    #[tokio::test]
    async fn a_monitor_that_ends_is_reported_as_one_that_broke_off() {
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"a\"";
        let error = answered("cut", cut).await.unwrap_err();
        assert!(error.means_end(), "{error:?}");
        let error = answered("nothing", b"").await.unwrap_err();
        assert!(error.means_end(), "{error:?}");
    }

    #[tokio::test]
    async fn answers_that_are_too_long_or_no_http_are_refused() {
        let head = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; 64 * 1024]].concat();
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 262145\r\n\r\n";
        let chunks = [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40001\r\n".to_vec(),
            vec![b'x'; 0x40001],
            b"\r\n0\r\n\r\n".to_vec(),
        ];
        let chunks = chunks.concat();
        for (name, answer, expected) in [
            ("head", &head[..], BadAnswer::LongHead),
            ("long", long, BadAnswer::LongBody),
            ("chunks", &chunks, BadAnswer::LongBody),
            ("hello", b"hello\r\n\r\n", BadAnswer::NoAnswer),
            ("status", b"HTTP/1.1 x\r\n\r\n", BadAnswer::NoAnswer),
            ("length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", BadAnswer::NoAnswer),
            ("json", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{x", BadAnswer::NoJson),
        ] {
            let error = answered(name, answer).await.unwrap_err();
            let ApiError::NotHttp { source, .. } = error else { panic!("{name}: {error:?}") };
            assert_eq!(source, expected, "{name}");
        }
    }
}
