//! A minimal client of MCP for tests: the protocol as it is on the wire, over lines and over HTTP. It knows
//! no tools; the tests do.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::http::{Answer, Client};
use crate::{Burrow, PATIENCE, eventually};

/// The newest version that begins with `initialize`.
pub const VERSION: &str = "2025-11-25";
/// The version without sessions.
pub const VERSION_WITHOUT_SESSIONS: &str = "2026-07-28";

/// A client on the two pipes of `host-bridge mcp`.
pub struct Lines {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    next: u64,
    /// Messages that arrived besides the answers.
    pub notices: Vec<Value>,
}

impl Lines {
    /// One that has begun nothing yet.
    ///
    /// # Panics
    /// When the program does not start.
    pub fn start(burrow: &Burrow, options: &[&str]) -> Self {
        Self::of(burrow.command(&[&["mcp"], options].concat()))
    }

    /// For any command that a client starts.
    ///
    /// # Panics
    /// When the program does not start.
    pub fn of(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the bridge starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "bad": line }));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self { child, input, messages, next: 0, notices: Vec::new() }
    }

    /// A client after the handshake.
    pub fn open(burrow: &Burrow, options: &[&str]) -> Self {
        Self::begin(burrow.command(&[&["mcp"], options].concat()))
    }

    /// The same of whatever a client starts.
    ///
    /// # Panics
    /// When the program does not start.
    pub fn begin(command: Command) -> Self {
        let mut lines = Self::of(command);
        let _ = lines.initialize(VERSION);
        lines
    }

    /// Initializes, and returns the server's description of itself.
    pub fn initialize(&mut self, version: &str) -> Value {
        let answer = self.ask("initialize", &initialize(version));
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer["result"].clone()
    }

    /// Sends a request and returns its id.
    pub fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// # Panics
    /// When the program is gone.
    pub fn say(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{message}").expect("it reads");
        input.flush().expect("it reads");
    }

    /// The answer to a request; earlier messages are kept.
    ///
    /// # Panics
    /// When there is none in time.
    pub fn hear(&mut self, id: u64) -> Value {
        loop {
            let output = self.messages.recv_timeout(PATIENCE).expect("an answer in time");
            assert!(output.get("bad").is_none(), "no message of the protocol: {output}");
            if output["id"] == id {
                return output;
            }
            self.notices.push(output);
        }
    }

    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.hear(id)
    }

    /// Calls a tool, and returns its result.
    ///
    /// # Panics
    /// When there is none.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("result").is_some(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// The structured result of a call that must succeed.
    ///
    /// # Panics
    /// When it does not.
    pub fn ok(&mut self, tool: &str, arguments: &Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{tool}: {result}");
        result["structuredContent"].clone()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// # Panics
    /// When it is gone already.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is ours");
    }

    /// Says that nothing more will come, and waits for the end.
    pub fn close(mut self) -> Option<i32> {
        self.input = None;
        self.wait()
    }

    pub fn wait(&mut self) -> Option<i32> {
        let mut ended = None;
        eventually("the client's program ends", || {
            ended = self.child.try_wait().expect("it is ours");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A client over HTTP, with its session.
pub struct Web {
    client: Client,
    pub session: Option<String>,
    version: String,
    next: u64,
}

impl Web {
    /// One that has begun nothing yet.
    pub fn new(client: Client, version: &str) -> Self {
        Self { client, session: None, version: version.to_owned(), next: 0 }
    }

    /// A client after the handshake.
    ///
    /// # Panics
    /// When the server does not.
    pub fn open(client: Client, version: &str) -> Self {
        let mut web = Self::new(client, version);
        let answer = web.post("initialize", &initialize(version));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let message = messages(&answer);
        assert_eq!(message.last().expect("an answer")["result"]["protocolVersion"], version);
        web.session = answer.headers.get("mcp-session-id").map(str::to_owned);
        assert!(web.session.is_some(), "a session");
        let notice = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(web.send("POST", &notice).status, 202);
        web
    }

    /// Any message.
    pub fn send(&self, method: &str, message: &Value) -> Answer {
        let mut headers = vec![
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", self.version.as_str()),
        ];
        if let Some(session) = &self.session {
            headers.push(("mcp-session-id", session));
        }
        let rpc = message["method"].as_str().unwrap_or_default().to_owned();
        let params = &message["params"];
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default();
        if self.version == VERSION_WITHOUT_SESSIONS {
            headers.push(("mcp-method", &rpc));
            if !name.is_empty() {
                headers.push(("mcp-name", name));
            }
        }
        let body = if message.is_null() { String::new() } else { message.to_string() };
        self.client.send(method, "/mcp", &headers, body.as_bytes())
    }

    /// A request.
    pub fn post(&mut self, method: &str, params: &Value) -> Answer {
        self.next += 1;
        let mut params = params.clone();
        if self.version == VERSION_WITHOUT_SESSIONS {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": self.version,
                "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {}
            });
        }
        let id = self.next;
        self.send(
            "POST",
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }),
        )
    }

    /// A request, and the last message of its answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.post(method, params);
        assert_eq!(answer.status, 200, "{method}: {}", answer.text());
        messages(&answer).pop().expect("an answer")
    }

    /// Calls a tool, and returns its result.
    ///
    /// # Panics
    /// When there is none.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("result").is_some(), "{tool}: {answer}");
        answer["result"].clone()
    }
}

/// The parameters of `initialize`.
pub fn initialize(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" }
    })
}

/// All text of a result.
pub fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().into_iter().flatten();
    let texts: Vec<_> = blocks.filter_map(|block| block["text"].as_str()).collect();
    texts.join("\n")
}

/// The messages of an answer, whichever way they came.
///
/// # Panics
/// When they are none.
pub fn messages(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let is_json = answer.headers.get("content-type").is_some_and(|kind| kind == "application/json");
    if is_json {
        return vec![serde_json::from_str(&text).expect("JSON")];
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    data.filter(|data| !data.is_empty())
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect()
}
