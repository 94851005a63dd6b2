//! The HTTP of monitors that are told what to do over a Unix socket: one request on one connection,
//! answered with a length and JSON, or with nothing.
//!
//! A monitor is no stranger, but a guest may have taken it over; so every length of an answer is
//! bounded, every wait ends, and its words are shown as they are read and never obeyed.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The head of an answer: a status and a handful of fields.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The body of one: the longest describes a machine with all its devices.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// What is shown of the words with which a monitor refuses.
const WORDS_CHARS_MAX: usize = 1000;
/// How often the socket of a monitor that has just been started is looked for.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// How long a monitor may take to listen, and to answer what costs it milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The same for what writes or reads a whole memory.
pub const MEMORY_ANSWER_MAX: Duration = Duration::from_secs(120);

/// Why a monitor did not do as it was told.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("{monitor} cannot be reached: {source}")]
    Unreachable { monitor: &'static str, source: io::Error },
    #[error("{monitor} did not answer {request} within {} s", deadline.as_secs())]
    Silent { monitor: &'static str, request: String, deadline: Duration },
    #[error("{monitor} refused {request} ({status}): {words}")]
    Refused { monitor: &'static str, request: String, status: u16, words: String },
    #[error("{monitor} broke off its answer to {request}: {source}")]
    Broken { monitor: &'static str, request: String, source: io::Error },
    #[error("{monitor} did not answer {request} in HTTP: {source}")]
    NotHttp { monitor: &'static str, request: String, source: BadAnswer },
}

impl ApiError {
    /// Whether this is how one that has ended would be heard of.
    pub fn means_end(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Broken { .. })
    }
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    #[error("its head is longer than {HEAD_BYTES_MAX} bytes")]
    LongHead,
    #[error("it does not begin with a status")]
    NoStatus,
    #[error("its length is no number, or told otherwise than by a number")]
    NoLength,
    #[error("its {0} bytes are more than the {BODY_BYTES_MAX} that are read")]
    LongBody(usize),
    #[error("it is no JSON")]
    NoJson,
}

/// A monitor's socket, and its name for what is said of it.
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
        self.ask("GET", path, None, ANSWER_MAX).await
    }

    pub async fn put(&self, path: &str, body: Option<Value>) -> Result<(), ApiError> {
        self.ask("PUT", path, body, ANSWER_MAX).await.map(drop)
    }

    /// The same for what takes as long as a memory is large.
    pub async fn put_slowly(&self, path: &str, body: Value) -> Result<(), ApiError> {
        self.ask("PUT", path, Some(body), MEMORY_ANSWER_MAX).await.map(drop)
    }

    pub async fn patch(&self, path: &str, body: Value) -> Result<(), ApiError> {
        self.ask("PATCH", path, Some(body), ANSWER_MAX).await.map(drop)
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
        deadline: Duration,
    ) -> Result<Value, ApiError> {
        let (monitor, request) = (self.monitor, format!("{method} {path}"));
        let bytes = encode_request(method, path, body.as_ref());
        let answered = async {
            let connected = UnixStream::connect(&self.socket).await;
            let mut stream =
                connected.map_err(|source| ApiError::Unreachable { monitor, source })?;
            exchange(&mut stream, &bytes).await.map_err(|error| {
                let request = request.clone();
                match error {
                    ExchangeError::Broken(source) => ApiError::Broken { monitor, request, source },
                    ExchangeError::Bad(source) => ApiError::NotHttp { monitor, request, source },
                }
            })
        };
        let (status, body) = tokio::time::timeout(deadline, answered)
            .await
            .map_err(|_| ApiError::Silent { monitor, request: request.clone(), deadline })??;
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

/// Whether a socket may yet come, or be listened at.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn encode_request(method: &str, path: &str, body: Option<&Value>) -> Vec<u8> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut text =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n");
    if !body.is_empty() {
        text.push_str("Content-Type: application/json\r\n");
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "Content-Length: {}\r\n\r\n{body}", body.len());
    text.into_bytes()
}

enum ExchangeError {
    Broken(io::Error),
    Bad(BadAnswer),
}

async fn exchange(
    stream: &mut UnixStream,
    request: &[u8],
) -> Result<(u16, Vec<u8>), ExchangeError> {
    stream.write_all(request).await.map_err(ExchangeError::Broken)?;
    let mut received = Vec::new();
    let (head_bytes, head) = loop {
        if let Some(end) = find_end(&received) {
            break (end, parse_head(&received[..end]).map_err(ExchangeError::Bad)?);
        }
        if received.len() > HEAD_BYTES_MAX {
            return Err(ExchangeError::Bad(BadAnswer::LongHead));
        }
        read_some(stream, &mut received).await?;
    };
    let whole = head_bytes + head.body_bytes;
    while received.len() < whole {
        read_some(stream, &mut received).await?;
    }
    received.truncate(whole);
    received.drain(..head_bytes);
    Ok((head.status, received))
}

async fn read_some(stream: &mut UnixStream, into: &mut Vec<u8>) -> Result<(), ExchangeError> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer).await {
        Ok(0) => Err(ExchangeError::Broken(io::ErrorKind::UnexpectedEof.into())),
        Ok(count) => {
            into.extend_from_slice(&buffer[..count]);
            Ok(())
        }
        Err(error) => Err(ExchangeError::Broken(error)),
    }
}

/// Where the body begins, once the head is complete.
fn find_end(received: &[u8]) -> Option<usize> {
    received.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

struct Head {
    status: u16,
    body_bytes: usize,
}

fn parse_head(head: &[u8]) -> Result<Head, BadAnswer> {
    let text = std::str::from_utf8(head).map_err(|_| BadAnswer::NoStatus)?;
    let mut lines = text.split("\r\n");
    let first = lines.next().and_then(|line| line.strip_prefix("HTTP/1."));
    let status = first.and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or(BadAnswer::NoStatus)?;
    let mut body_bytes = 0;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(BadAnswer::NoLength);
        }
        if name.eq_ignore_ascii_case("content-length") {
            body_bytes = value.trim().parse().map_err(|_| BadAnswer::NoLength)?;
        }
    }
    // A status that never has a body may come with the length of one that is not there.
    if status == 204 {
        body_bytes = 0;
    }
    if body_bytes > BODY_BYTES_MAX {
        return Err(BadAnswer::LongBody(body_bytes));
    }
    Ok(Head { status, body_bytes })
}

/// The reason in a refusal: Firecracker's is a field, Cloud Hypervisor's a list from the outermost
/// to the innermost cause, or plain text of older releases.
fn words_of(body: &[u8]) -> String {
    let said = match serde_json::from_slice(body) {
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
    let said = said.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let said = said.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let said: String = said.take(WORDS_CHARS_MAX).collect();
    if said.is_empty() { "without a reason".to_owned() } else { said }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<(u16, usize), BadAnswer> {
        parse_head(text.as_bytes()).map(|head| (head.status, head.body_bytes))
    }

    #[test]
    fn an_answer_is_a_status_and_a_length_that_is_bounded() {
        assert_eq!(head("HTTP/1.1 204 \r\nServer: x\r\n\r\n"), Ok((204, 0)));
        assert_eq!(head("HTTP/1.1 400 Bad\r\ncontent-length:  7\r\n\r\n"), Ok((400, 7)));
        assert_eq!(head("HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n"), Ok((204, 0)));
        assert_eq!(head("HTTP/2 200\r\n\r\n"), Err(BadAnswer::NoStatus));
        assert_eq!(head("hello\r\n\r\n"), Err(BadAnswer::NoStatus));
        assert_eq!(head("HTTP/1.1 x\r\n\r\n"), Err(BadAnswer::NoStatus));
        assert_eq!(head("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), Err(BadAnswer::NoLength));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(head(chunked), Err(BadAnswer::NoLength));
        let long = "HTTP/1.1 200 OK\r\nContent-Length: 262145\r\n\r\n";
        assert_eq!(head(long), Err(BadAnswer::LongBody(262_145)));
    }

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

    /// Answers one request with these bytes and closes.
    async fn asked(name: &str, answer: Vec<u8>) -> Result<Value, ApiError> {
        let path = std::env::temp_dir().join(format!("burrow-api-{}-{name}", std::process::id()));
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let api = Api::at(&path, "fake");
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let count = stream.read(&mut request).await.unwrap();
            let _ = stream.write_all(&answer).await;
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let got = api.get("/x").await;
        let request = server.await.unwrap();
        assert!(request.starts_with("GET /x HTTP/1.1\r\nHost: localhost\r\n"), "{request}");
        std::fs::remove_file(path).unwrap();
        got
    }

    #[tokio::test]
    async fn answers_are_taken_whole_and_never_longer_than_they_say() {
        let fine = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}and more".to_vec();
        assert_eq!(asked("fine", fine).await.unwrap()["a"], 1);
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"a\"".to_vec();
        assert!(matches!(asked("cut", cut).await, Err(ApiError::Broken { .. })));
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; 64 * 1024]].concat();
        let source = BadAnswer::LongHead;
        let got = asked("endless", endless).await;
        assert!(matches!(got, Err(ApiError::NotHttp { source: found, .. }) if found == source));
        let refused =
            b"HTTP/1.1 400 \r\nContent-Length: 23\r\n\r\n{\"fault_message\":\"why\"}".to_vec();
        let refused = asked("refused", refused).await.unwrap_err().to_string();
        assert_eq!(refused, "fake refused GET /x (400): why");
    }
}
