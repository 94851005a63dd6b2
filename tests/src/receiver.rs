//! A server on loopback that remembers what it is sent, and answers as a test says: for what the bridge sends by
//! itself, such as webhooks and telemetry.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// What a receiver does with requests.
#[derive(Clone, Debug)]
pub enum Mode {
    Answer(&'static str),
    Close,
    /// It takes the request and says nothing.
    Hang,
}

/// It takes what comes.
pub const OK: Mode = Mode::Answer("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
pub const FAILS: Mode = Mode::Answer("HTTP/1.1 500 Failed\r\ncontent-length: 0\r\n\r\n");

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// # Panics
    /// When its body is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

/// A server on loopback that remembers what it is sent.
#[derive(Clone)]
pub struct Receiver {
    pub port: u16,
    mode: Arc<Mutex<Mode>>,
    /// The requests that it has answered with its best.
    taken: Arc<Mutex<Vec<Request>>>,
    /// All requests.
    came: Arc<Mutex<Vec<Request>>>,
    /// Connections that hang.
    hanging: Arc<Mutex<Vec<TcpStream>>>,
}

impl Receiver {
    /// # Panics
    /// When there is no port for it.
    pub fn start(mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let receiver = Self {
            port: listener.local_addr().expect("an address").port(),
            mode: Arc::new(Mutex::new(mode)),
            taken: Arc::default(),
            came: Arc::default(),
            hanging: Arc::default(),
        };
        let serving = receiver.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let receiver = serving.clone();
                thread::spawn(move || receiver.serve(stream));
            }
        });
        receiver
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader) {
            self.came.lock().expect("no thread has panicked").push(request.clone());
            let mode = self.mode.lock().expect("no thread has panicked").clone();
            match mode {
                Mode::Answer(answer) => {
                    if answer.starts_with("HTTP/1.1 200") {
                        self.taken.lock().expect("no thread has panicked").push(request);
                    }
                    if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
                Mode::Close => return,
                Mode::Hang => {
                    self.hanging.lock().expect("no thread has panicked").push(reader.into_inner());
                    return;
                }
            }
        }
    }

    /// Changes what it does from here on; what hangs is closed.
    ///
    /// # Panics
    /// When one of its threads has.
    pub fn set(&self, mode: Mode) {
        *self.mode.lock().expect("no thread has panicked") = mode;
        self.hanging.lock().expect("no thread has panicked").clear();
    }

    /// What it has taken.
    ///
    /// # Panics
    /// When one of its threads has.
    pub fn taken(&self) -> Vec<Request> {
        self.taken.lock().expect("no thread has panicked").clone()
    }

    /// How many requests came.
    ///
    /// # Panics
    /// When one of its threads has.
    pub fn came(&self) -> usize {
        self.came.lock().expect("no thread has panicked").len()
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let target = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut request = Request { target, headers, body: String::new() };
    let mut body = vec![0; request.header("content-length").parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    request.body = String::from_utf8(body).ok()?;
    Some(request)
}
