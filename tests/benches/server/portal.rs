//! The floor of a command over HTTP: a server that spawns what JSON-RPC asks for, by hyper and
//! `tokio::process`, and does nothing else. No sandbox, no keys, no audit, no bounds.
//!
//! It is a process of its own, the bench's own program once more, and in namespaces of its own where
//! `unshare` can make them: a program's start in there is what a sandbox's programs pay as well.

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tests::http::Client;
use tokio::net::TcpListener;

/// What the bench's program is called with to be the server.
pub const ARGUMENT: &str = "--portal";
/// New mounts, processes, names and queues; the network is the client's too.
const BOXED: [&str; 6] = ["-m", "-p", "-u", "-i", "--fork", "--kill-child"];

/// A running server. Dropping it ends the server.
pub struct Portal {
    child: Child,
    pub url: String,
    pub client: Client,
    pub is_boxed: bool,
}

impl Portal {
    pub fn start() -> Self {
        let program = std::env::current_exe().expect("the bench is a file");
        let can_box = Command::new("unshare").args(BOXED).arg("true").output();
        let is_boxed = can_box.is_ok_and(|tried| tried.status.success());
        let mut command = if is_boxed {
            let mut command = Command::new("unshare");
            command.args(BOXED).arg(program);
            command
        } else {
            Command::new(program)
        };
        let child = command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the reference server starts");
        let mut url = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut url).expect("it says where it listens");
        let url = url.trim().to_owned();
        Self { child, client: Client::new(&url), url, is_boxed }
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Serves until it is killed.
pub fn serve() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("http://{}", listener.local_addr().expect("it is bound"));
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            stream.set_nodelay(true).ok();
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection);
        }
    });
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == hyper::Method::GET {
        return Ok(Response::new(Full::default()));
    }
    let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let call: Value = serde_json::from_slice(&body).unwrap_or_default();
    let params = &call["params"];
    let args = params["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let command = params["command"].as_str().unwrap_or_default();
    let ran = tokio::process::Command::new(command).args(args).stdin(Stdio::null()).output().await;
    let result = match ran {
        Ok(output) => json!({ "exit_code": output.status.code(),
            "stdout": String::from_utf8_lossy(&output.stdout),
            "stderr": String::from_utf8_lossy(&output.stderr) }),
        Err(error) => json!({ "exit_code": 127, "stderr": error.to_string() }),
    };
    let answer = json!({ "jsonrpc": "2.0", "id": call["id"], "result": result });
    Ok(Response::new(Full::from(answer.to_string())))
}
