//! A minimal HTTP/1.1 client for tests of the server, so that a test sees what is on the wire.
//!
//! Connections are kept and used again, as real clients do. Everything gives up after [`PATIENCE`]
//! and fails the test then. It knows nothing of paths and shapes; tests say those.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use crate::PATIENCE;

/// The longest line of a head that is read: longer ones are a fault of the server.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// A client of one server. It may be shared between threads.
pub struct Client {
    /// Host and port.
    address: String,
    /// The name that it asks for; the address if absent.
    host: Option<String>,
    key: Option<String>,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    stream: BufReader<TcpStream>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Headers,
    pub body: Vec<u8>,
}

/// Headers as received.
#[derive(Clone, Debug, Default)]
pub struct Headers(Vec<(String, String)>);

/// An answer whose body is still unread.
pub struct Incoming<'a> {
    pub status: u16,
    pub headers: Headers,
    client: &'a Client,
    connection: Option<Connection>,
    left: Left,
}

/// The unread part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Bytes(u64),
    /// Chunks, of the present one so many bytes.
    Chunks(u64),
    /// Until the connection is closed.
    All,
    Nothing,
}

/// The values of a stream, as they arrive.
pub struct Lines<'a> {
    pub status: u16,
    pub headers: Headers,
    body: BufReader<Incoming<'a>>,
}

/// A WebSocket that is open.
pub struct Socket {
    pub headers: Headers,
    /// Why the server has closed it, in words.
    pub reason: String,
    inner: WebSocket<TcpStream>,
}

/// A server's message on a WebSocket.
#[derive(Clone, Debug, PartialEq)]
pub enum SocketMessage {
    Value(Value),
    Binary(Vec<u8>),
    /// It has closed the socket, with this code if it sent one.
    Closed(Option<u16>),
}

impl Client {
    /// `url` is `http://HOST:PORT`.
    ///
    /// # Panics
    /// When it is anything else.
    pub fn new(url: &str) -> Self {
        let address = url.strip_prefix("http://").expect("http://").trim_end_matches('/');
        Self { address: address.to_owned(), host: None, key: None, idle: Mutex::default() }
    }

    /// With a key that is sent with every request.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// That asks for another host name, with the same port.
    #[must_use]
    pub fn host(mut self, name: &str) -> Self {
        let port = self.address.rsplit_once(':').map_or("", |(_, port)| port);
        self.host = Some(format!("{name}:{port}"));
        self
    }

    /// The key that is sent, for another client.
    pub fn sent_key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], &[])
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], &[])
    }

    pub fn post(&self, path: &str, value: &Value) -> Answer {
        self.send_json("POST", path, value)
    }

    pub fn send_json(&self, method: &str, path: &str, value: &Value) -> Answer {
        let headers = [("content-type", "application/json")];
        self.send(method, path, &headers, value.to_string().as_bytes())
    }

    /// Any request, and its whole answer.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.open(method, path, headers, body).whole()
    }

    /// Any request over a connection of its own, and its whole answer; `None` if there is none within `patience`, so
    /// that nobody knows what has become of it.
    pub fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        patience: Duration,
    ) -> Option<Answer> {
        let address = self.address.parse().ok()?;
        let stream = TcpStream::connect_timeout(&address, patience).ok()?;
        stream.set_read_timeout(Some(patience)).ok()?;
        stream.set_write_timeout(Some(patience)).ok()?;
        let length = body.len().to_string();
        let own = [("connection", "close"), ("content-length", length.as_str())];
        let mut message =
            (self.head(method, path, &[headers, &own].concat()) + "\r\n").into_bytes();
        message.extend_from_slice(body);
        let mut connection = Connection { stream: BufReader::new(stream) };
        let head = connection.ask(&message)?;
        let mut incoming = self.incoming(method, connection, head);
        let mut body = Vec::new();
        incoming.read_to_end(&mut body).ok()?;
        let headers = std::mem::take(&mut incoming.headers);
        Some(Answer { status: incoming.status, headers, body })
    }

    /// Any request, and the head of its answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Incoming<'_> {
        let mut request = self.head(method, path, headers);
        if !body.is_empty() || !matches!(method, "GET" | "HEAD" | "DELETE") {
            request.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
        }
        request.push_str("\r\n");
        let mut message = request.into_bytes();
        message.extend_from_slice(body);
        let machine = self.idle().pop();
        if let Some(mut connection) = machine {
            // The server may have closed it meanwhile, and then has not seen the request.
            if let Some(head) = connection.ask(&message) {
                return self.incoming(method, connection, head);
            }
        }
        let mut connection = self.connect();
        let head = connection.ask(&message).unwrap_or_else(|| panic!("{method} {path}: no answer"));
        self.incoming(method, connection, head)
    }

    /// A stream of values: `GET` without a body, `POST` with one.
    pub fn lines(&self, path: &str, value: Option<&Value>) -> Lines<'_> {
        let headers = [("accept", "application/x-ndjson"), ("content-type", "application/json")];
        let incoming = match value {
            None => self.open("GET", path, &headers[..1], &[]),
            Some(value) => self.open("POST", path, &headers, value.to_string().as_bytes()),
        };
        let (status, headers) = (incoming.status, incoming.headers.clone());
        Lines { status, headers, body: BufReader::new(incoming) }
    }

    /// Opens a WebSocket.
    ///
    /// # Panics
    /// When the server does not.
    pub fn websocket(&self, path: &str, protocols: &[&str]) -> Socket {
        match self.try_websocket(path, protocols) {
            Ok(socket) => socket,
            Err(answer) => panic!("{path}: {} {}", answer.status, answer.text()),
        }
    }

    /// Opens a WebSocket, or returns the server's answer instead.
    ///
    /// # Errors
    /// The answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn try_websocket(&self, path: &str, protocols: &[&str]) -> Result<Socket, Box<Answer>> {
        let offered = protocols.join(", ");
        let mut headers = vec![
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            // Any 16 bytes would do; the server's answer to them is checked below.
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        if !offered.is_empty() {
            headers.push(("sec-websocket-protocol", &offered));
        }
        let request = self.head("GET", path, &headers) + "\r\n";
        let mut connection = self.connect();
        let (status, headers) = connection.ask(request.as_bytes()).expect("an answer");
        if status != 101 {
            return Err(Box::new(self.incoming("GET", connection, (status, headers)).whole()));
        }
        assert_eq!(headers.get("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        let part = connection.stream.buffer().to_vec();
        let stream = connection.stream.into_inner();
        let inner = WebSocket::from_partially_read(stream, part, Role::Client, None);
        Ok(Socket { headers, reason: String::new(), inner })
    }

    /// A separate connection to the server, for tests that break rules.
    ///
    /// # Panics
    /// When there is none to be had.
    pub fn raw(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("the server takes connections");
        stream.set_nodelay(true).expect("TCP");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
        stream
    }

    fn connect(&self) -> Connection {
        Connection { stream: BufReader::new(self.raw()) }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let host = self.host.as_deref().unwrap_or(&self.address);
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
        if let Some(key) = &self.key {
            head.extend(["authorization: Bearer ", key.as_str(), "\r\n"]);
        }
        for (name, value) in headers {
            head.extend([*name, ": ", *value, "\r\n"]);
        }
        head
    }

    fn incoming(
        &self,
        method: &str,
        connection: Connection,
        (status, headers): (u16, Headers),
    ) -> Incoming<'_> {
        let length = headers.get("content-length").and_then(|text| text.parse().ok());
        let is_chunked = headers.get("transfer-encoding").is_some_and(|kind| kind == "chunked");
        let left = match length {
            _ if method == "HEAD" || status == 204 || status == 304 => Left::Nothing,
            _ if is_chunked => Left::Chunks(0),
            Some(0) => Left::Nothing,
            Some(bytes) => Left::Bytes(bytes),
            None => Left::All,
        };
        let connection = Some(connection);
        let mut incoming = Incoming { status, headers, client: self, connection, left };
        if left == Left::Nothing {
            incoming.keep();
        }
        incoming
    }
}

impl Connection {
    /// Sends a request and reads the head of its answer; `None` when the connection is of no use.
    fn ask(&mut self, message: &[u8]) -> Option<(u16, Headers)> {
        // A server that refuses a body does not read all of it, but still answers.
        let _ = self.stream.get_mut().write_all(message);
        loop {
            let (status, headers) = self.read_head()?;
            if status == 101 || status >= 200 {
                return Some((status, headers));
            }
        }
    }

    fn read_head(&mut self) -> Option<(u16, Headers)> {
        let first = self.read_line()?;
        let status = first.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Headers::default();
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                return Some((status, headers));
            }
            let (name, value) = line.split_once(':')?;
            headers.0.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// A line without its ending; `None` when the connection ends first.
    fn read_line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut line).ok()?;
        let line = line.strip_suffix(b"\n")?;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        String::from_utf8(line.to_vec()).ok()
    }
}

impl Incoming<'_> {
    /// Reads the rest.
    ///
    /// # Panics
    /// When it breaks off.
    pub fn whole(mut self) -> Answer {
        let mut body = Vec::new();
        let read = self.read_to_end(&mut body);
        assert!(read.is_ok(), "the body broke off after {} bytes: {read:?}", body.len());
        let Self { status, headers, .. } = &mut self;
        Answer { status: *status, headers: std::mem::take(headers), body }
    }

    /// The connection may be used again.
    fn keep(&mut self) {
        self.left = Left::Nothing;
        let is_kept = self.headers.get("connection").is_none_or(|word| word != "close");
        if let Some(connection) = self.connection.take().filter(|_| is_kept) {
            self.client.idle().push(connection);
        }
    }

    /// Enters the next chunk when the present one is read.
    fn enter_chunk(&mut self) -> std::io::Result<()> {
        let torn = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let connection = self.connection.as_mut().ok_or_else(torn)?;
        let line = connection.read_line().ok_or_else(torn)?;
        let bytes = u64::from_str_radix(line.trim(), 16).map_err(|_| torn())?;
        if bytes == 0 {
            connection.read_line().ok_or_else(torn)?;
            self.keep();
        } else {
            self.left = Left::Chunks(bytes);
        }
        Ok(())
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == Left::Chunks(0) {
            self.enter_chunk()?;
        }
        let bytes_max = match self.left {
            Left::Nothing => 0,
            Left::Bytes(left) | Left::Chunks(left) => buffer.len().min(left as usize),
            Left::All => buffer.len(),
        };
        let Some(connection) = self.connection.as_mut().filter(|_| bytes_max > 0) else {
            return Ok(0);
        };
        let count = connection.stream.read(&mut buffer[..bytes_max])?;
        match self.left {
            Left::Bytes(left) if left == count as u64 => self.keep(),
            Left::Bytes(_) | Left::Chunks(_) if count == 0 => {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            Left::Bytes(left) => self.left = Left::Bytes(left - count as u64),
            Left::Chunks(left) => {
                self.left = Left::Chunks(left - count as u64);
                if left == count as u64 {
                    // The line that ends the chunk.
                    connection.read_line();
                }
            }
            Left::All if count == 0 => self.left = Left::Nothing,
            Left::All | Left::Nothing => {}
        }
        Ok(count)
    }
}

impl Iterator for Lines<'_> {
    type Item = Value;

    /// The next value; `None` at the end of the stream.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.body.read_line(&mut line);
        let count = read.expect("the stream goes on within patience");
        (count > 0).then(|| serde_json::from_str(&line).expect("a line of JSON"))
    }
}

impl Socket {
    /// # Panics
    /// When the socket is closed.
    pub fn tell(&mut self, value: &Value) {
        self.inner.send(Message::text(value.to_string())).expect("the socket is open");
    }

    /// Any message.
    ///
    /// # Panics
    /// When the socket is closed.
    pub fn send(&mut self, message: Message) {
        self.inner.send(message).expect("the socket is open");
    }

    /// # Panics
    /// When the socket is closed.
    pub fn binary(&mut self, bytes: &[u8]) {
        self.inner.send(Message::binary(bytes.to_vec())).expect("the socket is open");
    }

    /// The next thing that the server says.
    ///
    /// # Panics
    /// When it says nothing for too long, or something that is not JSON as text.
    pub fn hear(&mut self) -> SocketMessage {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A server that only asks whether we are there says nothing either.
            assert!(Instant::now() < deadline, "the server says nothing");
            return match self.inner.read() {
                Ok(Message::Text(text)) => {
                    SocketMessage::Value(serde_json::from_str(text.as_str()).expect("JSON"))
                }
                Ok(Message::Binary(bytes)) => SocketMessage::Binary(bytes.to_vec()),
                Ok(Message::Close(frame)) => {
                    if let Some(frame) = &frame {
                        self.reason = frame.reason.to_string();
                    }
                    SocketMessage::Closed(frame.map(|frame| frame.code.into()))
                }
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => continue,
                Err(tungstenite::Error::Io(error))
                    if error.kind() == std::io::ErrorKind::WouldBlock =>
                {
                    panic!("the server says nothing")
                }
                Err(_) => SocketMessage::Closed(None),
            };
        }
    }

    /// The next value, with bytes passed over.
    ///
    /// # Panics
    /// When the socket closes before it.
    pub fn hear_value(&mut self) -> Value {
        loop {
            match self.hear() {
                SocketMessage::Value(value) => return value,
                SocketMessage::Binary(_) => {}
                SocketMessage::Closed(code) => panic!("the socket was closed: {code:?}"),
            }
        }
    }

    /// Leaves in order.
    pub fn close(mut self) {
        self.inner.close(None).ok();
        while self.inner.read().is_ok() {}
    }

    /// The connection below, for tests that cut it or let it stand.
    pub fn stream(&self) -> &TcpStream {
        self.inner.get_ref()
    }
}

impl Answer {
    /// # Panics
    /// When the body is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}: {}", self.status, self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    /// The same, which must have this status.
    ///
    /// # Panics
    /// When it has another.
    #[allow(
        clippy::return_self_not_must_use,
        reason = "to have asserted it is often all that is wanted"
    )]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// The code of a refusal.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Headers {
    /// `name` in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
