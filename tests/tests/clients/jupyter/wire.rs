//! A client of a kernel that shows what is on the wire.

use serde_json::{Value, json};
use tests::http::{Client, Socket, SocketMessage};

pub const V1: &str = "v1.kernel.websocket.jupyter.org";

/// A kernel's socket.
pub struct Cells {
    pub socket: Socket,
    is_binary: bool,
    sent: u32,
}

/// Starts a kernel, and returns its id.
pub fn start(client: &Client, body: &Value) -> String {
    let made = client.post("/api/kernels", body).expect(201).json();
    made["id"].as_str().expect("an id").to_owned()
}

impl Cells {
    pub fn open(client: &Client, kernel: &str, is_binary: bool) -> Self {
        let path = format!("/api/kernels/{kernel}/channels?session_id=test");
        let protocols: &[&str] = if is_binary { &[V1] } else { &[] };
        let socket = client.websocket(&path, protocols);
        assert_eq!(socket.headers.get("sec-websocket-protocol"), is_binary.then_some(V1));
        Self { socket, is_binary, sent: 0 }
    }

    /// Sends a message, and returns its id.
    pub fn send(&mut self, channel: &str, kind: &str, content: &Value) -> String {
        self.sent += 1;
        let id = format!("m{}", self.sent);
        let header = json!({
            "msg_id": id, "msg_type": kind, "session": "test", "username": "u",
            "date": "2026-01-01T00:00:00Z", "version": "5.3",
        });
        if self.is_binary {
            let parts = [
                channel.to_owned(),
                header.to_string(),
                "{}".to_owned(),
                "{}".to_owned(),
                content.to_string(),
            ];
            self.socket.binary(&framed(&parts));
        } else {
            self.socket.tell(&json!({
                "channel": channel, "header": header, "parent_header": {}, "metadata": {},
                "content": content, "buffers": [],
            }));
        }
        id
    }

    pub fn hear(&mut self) -> Value {
        match self.socket.hear() {
            SocketMessage::Value(value) => value,
            SocketMessage::Binary(bytes) => unframed(&bytes),
            SocketMessage::Closed(code) => panic!("closed: {code:?} {}", self.socket.reason),
        }
    }

    /// Everything for one request until it is answered and the kernel is idle again.
    pub fn answers(&mut self, id: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let (mut is_idle, mut is_answered) = (false, false);
        while !(is_idle && is_answered) {
            let message = self.hear();
            if message["parent_header"]["msg_id"] == id {
                is_idle |= message["content"]["execution_state"] == "idle";
                is_answered |= kind(&message).ends_with("_reply");
                all.push(message);
            }
        }
        all
    }

    pub fn ask(&mut self, kind: &str, content: &Value) -> Value {
        let id = self.send("shell", kind, content);
        reply(&self.answers(&id))
    }

    pub fn run(&mut self, code: &str) -> Vec<Value> {
        let id = self.send("shell", "execute_request", &json!({ "code": code }));
        self.answers(&id)
    }

    /// Reads until the server closes the socket; its code and reason.
    pub fn closed(mut self) -> (Option<u16>, String) {
        loop {
            if let SocketMessage::Closed(code) = self.socket.hear() {
                return (code, self.socket.reason);
            }
        }
    }
}

pub fn kind(message: &Value) -> &str {
    message["header"]["msg_type"].as_str().expect("a type")
}

pub fn reply(messages: &[Value]) -> Value {
    let found = messages.iter().find(|message| kind(message).ends_with("_reply"));
    found.expect("a reply")["content"].clone()
}

/// The content of all messages of a kind.
pub fn contents(messages: &[Value], of: &str) -> Vec<Value> {
    let found = messages.iter().filter(|message| kind(message) == of);
    found.map(|message| message["content"].clone()).collect()
}

pub fn text(messages: &[Value], name: &str) -> String {
    let streams = contents(messages, "stream");
    let pieces = streams.iter().filter(|content| content["name"] == name);
    pieces.map(|content| content["text"].as_str().expect("text")).collect()
}

fn framed(parts: &[String]) -> Vec<u8> {
    let mut offsets = vec![8 * (parts.len() as u64 + 2)];
    for part in parts {
        offsets.push(offsets.last().expect("the first") + part.len() as u64);
    }
    let mut bytes = (offsets.len() as u64).to_le_bytes().to_vec();
    bytes.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
    bytes.extend(parts.iter().flat_map(|part| part.bytes()));
    bytes
}

fn unframed(bytes: &[u8]) -> Value {
    let number = |at: usize| {
        let field = bytes[8 * at..8 * at + 8].try_into().expect("eight bytes");
        usize::try_from(u64::from_le_bytes(field)).expect("a place")
    };
    let part = |at: usize| &bytes[number(1 + at)..number(2 + at)];
    let value = |at: usize| serde_json::from_slice::<Value>(part(at)).expect("JSON");
    assert_eq!(number(0), 6, "offsets");
    json!({
        "channel": String::from_utf8_lossy(part(0)), "header": value(1), "parent_header": value(2),
        "metadata": value(3), "content": value(4),
    })
}
