//! The control socket without a machine: what it refuses, and that it goes on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::*;
use api::{Api, Options};
use control::limits::{CONTROL_CONNECTIONS_MAX, CONTROL_LINE_BYTES_MAX};
use control::message::{Answer, Reply, Request};
use control::{Client, ClientError, ErrorCode, List};
use host::lock::{LockError, Locks};
use host::paths::Paths;
use machine::Machines;
use sandbox::{Registry, Spec, event};

struct TestBridge(Paths);

impl TestBridge {
    fn new(name: &str) -> Self {
        let base = format!("burrow-control-{}-{name}", std::process::id());
        let base = std::env::temp_dir().join(base);
        let _ = fs::remove_dir_all(&base);
        let paths = Paths { runtime: base.join("run"), state: base.join("state") };
        paths.prepare().unwrap();
        Self(paths)
    }

    async fn serve(&self) -> tokio::task::JoinHandle<()> {
        let machines = Machines::default();
        let registry = Registry::open(self.0.clone(), machines, event::nobody()).await.unwrap();
        let server = Server::bind(&self.0.control_socket()).unwrap();
        let api = Api::new(registry, Options::local());
        tokio::spawn(async move {
            server.run(api, Life::default()).await;
        })
    }

    async fn connect(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(self.0.control_socket()).await.unwrap())
    }
}

impl Drop for TestBridge {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.runtime.parent().unwrap());
    }
}

async fn say(stream: &mut BufReader<UnixStream>, line: &str) -> Option<Answer> {
    stream.get_mut().write_all(line.as_bytes()).await.unwrap();
    hear(stream).await
}

async fn hear(stream: &mut BufReader<UnixStream>) -> Option<Answer> {
    let mut line = String::new();
    let read = stream.read_line(&mut line).await.unwrap_or(0);
    (read > 0).then(|| serde_json::from_str(&line).unwrap())
}

fn code(answer: Option<Answer>) -> ErrorCode {
    match answer {
        Some(Answer::Error(refusal)) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn the_socket_is_for_its_owner_alone_and_goes_with_the_server() {
    let place = TestBridge::new("owner");
    let server = place.serve().await;
    let socket = place.0.control_socket();
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    server.abort();
    let _ = server.await;
    assert!(!socket.exists());
    assert!(matches!(Client::connect(&place.0).await, Err(ClientError::NotRunning { .. })));
}

#[tokio::test]
async fn a_line_that_is_no_request_is_refused_and_the_next_one_answered() {
    let place = TestBridge::new("garbage");
    let _server = place.serve().await;
    let mut stream = place.connect().await;
    for line in
        ["nonsense\n", "{}\n", "{\"start\":{}}\n", "{\"kill\":{\"sandbox\":\"../x\"}}\n", "\n"]
    {
        assert_eq!(code(say(&mut stream, line).await), ErrorCode::Invalid, "{line:?}");
    }
    let answer = say(&mut stream, "{\"version\":{}}\n").await;
    assert!(matches!(answer, Some(Answer::Ok(Reply::Version(_)))), "{answer:?}");
}

#[tokio::test]
async fn a_line_without_an_end_costs_its_sender_the_connection() {
    let place = TestBridge::new("endless");
    let _server = place.serve().await;
    let mut stream = place.connect().await;
    let line = "x".repeat(CONTROL_LINE_BYTES_MAX + 1);
    stream.get_mut().write_all(line.as_bytes()).await.unwrap();
    assert_eq!(code(hear(&mut stream).await), ErrorCode::Invalid);
    assert_eq!(hear(&mut stream).await, None);
    Client::connect(&place.0).await.unwrap().version().await.unwrap();
}

#[tokio::test]
async fn one_connection_too_many_is_refused_with_the_reason() {
    let place = TestBridge::new("many");
    let _server = place.serve().await;
    let mut open = Vec::new();
    for _ in 0..CONTROL_CONNECTIONS_MAX {
        let mut stream = place.connect().await;
        assert!(say(&mut stream, "{\"version\":{}}\n").await.is_some());
        open.push(stream);
    }
    let mut client = Client::connect(&place.0).await.unwrap();
    let Err(ClientError::Refused(refusal)) = client.version().await else { panic!() };
    assert_eq!(refusal.code, ErrorCode::Busy);
    open.clear();
    loop {
        let mut client = Client::connect(&place.0).await.unwrap();
        if client.version().await.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn refusals_name_the_sandbox_and_what_to_do() {
    let place = TestBridge::new("refusals");
    let _server = place.serve().await;
    let mut client = Client::connect(&place.0).await.unwrap();
    let Err(ClientError::Refused(refusal)) = client.inspect(&"web".parse().unwrap()).await else {
        panic!()
    };
    assert_eq!(refusal.code, ErrorCode::NotFound);
    assert!(refusal.message.contains("web") && refusal.hint.is_some(), "{refusal:?}");
    let mut spec = Spec::new("web".parse().unwrap());
    spec.image = Some("/nowhere/at/all".to_owned());
    let Err(ClientError::Refused(refusal)) = client.start(spec).await else { panic!() };
    assert_eq!(refusal.code, ErrorCode::Invalid);
    assert!(refusal.message.contains("/nowhere/at/all"), "{refusal:?}");
    let mut spec = Spec::new("web".parse().unwrap());
    spec.secrets = vec!["TOKEN".to_owned()];
    let Err(ClientError::Refused(refusal)) = client.start(spec).await else { panic!() };
    assert_eq!(refusal.code, ErrorCode::UnknownSecret);
    assert!(refusal.message.contains("TOKEN") && refusal.hint.is_some(), "{refusal:?}");
    let mut spec = Spec::new("web".parse().unwrap());
    spec.egress = Some(vec!["127.0.0.1".to_owned()]);
    let Err(ClientError::Refused(refusal)) = client.start(spec).await else { panic!() };
    assert_eq!(refusal.code, ErrorCode::Invalid);
    assert!(refusal.message.contains("egress"), "{refusal:?}");
}

#[test]
fn a_second_bridge_on_the_same_directories_is_refused_by_name() {
    let place = TestBridge::new("second");
    let first = Locks::take(&place.0).unwrap();
    let error = Locks::take(&place.0).unwrap_err();
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    let other = Paths { runtime: place.0.runtime.join("other"), ..place.0.clone() };
    other.prepare().unwrap();
    let error = Locks::take(&other).unwrap_err();
    let LockError::Served { directory, .. } = &error else { panic!("{error}") };
    assert_eq!(*directory, place.0.state, "a shared state directory is as bad");
    drop(first);
    Locks::take(&place.0).unwrap();
}

#[test]
fn requests_are_read_as_they_are_written() {
    let sandbox: sandbox::SandboxRef = "team/web".parse().unwrap();
    let mut spec = Spec::new(sandbox.clone());
    spec.image = Some(PathBuf::from("/images/alpine").display().to_string());
    spec.env = vec![("A".to_owned(), "b=c".to_owned())];
    let requests = [
        Request::Version {},
        Request::Start(Box::new(spec)),
        Request::List(List {
            namespace: Some(sandbox.namespace.clone()),
            all: true,
            labels: vec!["team=a".parse().unwrap(), "ci".parse().unwrap()],
        }),
        Request::Work { sandbox: sandbox.clone() },
        Request::Inspect { sandbox: sandbox.clone() },
        Request::Dial { sandbox: sandbox.clone(), purpose: None },
        Request::Stop { sandbox: sandbox.clone(), grace_ms: Some(5) },
        Request::Restart {
            sandbox: sandbox.clone(),
            grace_ms: Some(5),
            env: vec![("A".to_owned(), "b=c".to_owned())],
        },
        Request::Wait { sandbox: sandbox.clone() },
        Request::Kill { sandbox: sandbox.clone() },
        Request::Remove { sandbox, force: true, moves: false },
        Request::End { stop_sandboxes: true },
    ];
    for request in requests {
        let text = serde_json::to_string(&request).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request, "{text}");
    }
}
