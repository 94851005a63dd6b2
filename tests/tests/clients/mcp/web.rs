//! Sessions over HTTP, behind the keys of every other path.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use tests::eventually;
use tests::http::Client;
use tests::mcp::{VERSION, VERSION_WITHOUT_SESSIONS, Web, initialize, messages, text};
use tests::server::Server;

const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn key(server: &Server, options: &[&str]) -> String {
    server.ok(&[&["keygen"], options].concat()).trim().to_owned()
}

fn client(server: &Server, key: &str) -> Client {
    Client::new(server.url()).key(key)
}

fn boxes(server: &Server) -> Vec<String> {
    let listed = server.ok(&["ps", "--all", "--quiet"]);
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn every_version_has_its_session_with_a_sandbox_of_its_own() {
    let server = Server::with_keys();
    let key = key(&server, &[]);
    let mut sandboxes = Vec::new();
    for version in VERSIONS {
        let mut web = Web::open(client(&server, &key), version);
        assert!(!web.ask("tools/list", &json!({}))["result"]["tools"].is_null());
        let ran = web.call("execute", &json!({ "code": "x = 6 * 7" }));
        assert_eq!(ran["isError"], false, "{version}: {ran}");
        let again = web.call("execute", &json!({ "code": "x" }));
        assert_eq!(again["structuredContent"]["value"], "42", "{version}");
        sandboxes.push(again["structuredContent"]["sandbox"].clone());
    }
    sandboxes.dedup();
    assert_eq!(sandboxes.len(), VERSIONS.len());
    assert_eq!(boxes(&server).len(), VERSIONS.len());
}

#[test]
fn the_version_without_sessions_finds_its_keys_sandbox_again() {
    let server = Server::with_keys();
    let (one, two) = (key(&server, &[]), key(&server, &[]));
    let mut web = Web::new(client(&server, &one), VERSION_WITHOUT_SESSIONS);
    let ran = web.call("execute", &json!({ "code": "x = 6 * 7" }));
    assert_eq!(ran["isError"], false, "{ran}");
    let again = web.call("execute", &json!({ "code": "x" }));
    assert_eq!(again["structuredContent"]["value"], "42", "{again}");
    let mut other = Web::new(client(&server, &two), VERSION_WITHOUT_SESSIONS);
    let apart = other.call("execute", &json!({ "code": "x" }));
    assert_eq!(apart["structuredContent"]["error"]["type"], "NameError", "{apart}");
    let cut = web.call("execute", &json!({ "code": "print('x' * 100000)" }));
    let body = json!({ "run": cut["structuredContent"]["run"], "offset": 99_990 });
    assert_eq!(web.call("read_output", &body)["structuredContent"]["text"], "xxxxxxxxxx\n");
}

#[test]
fn keys_hosts_and_origins_are_looked_at_as_everywhere() {
    let server = Server::with_keys();
    let key = key(&server, &[]);
    let begin =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize(VERSION) });
    for wrong in [Client::new(server.url()), client(&server, "msb_wrong")] {
        let answer = Web::new(wrong, VERSION).send("POST", &begin);
        assert_eq!(answer.status, 401, "{}", answer.text());
        let problem: Value = serde_json::from_str(&answer.text()).expect("a problem");
        assert_eq!(problem["code"], "unauthenticated");
        assert_eq!(answer.headers.get("www-authenticate"), Some("Bearer"));
    }
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("origin", "https://evil.example"),
    ];
    let answer = client(&server, &key).send("POST", "/mcp", &headers, begin.to_string().as_bytes());
    assert_eq!(answer.status, 421, "{}", answer.text());
}

#[test]
fn a_listener_without_a_session_is_refused_in_the_shape_of_every_refusal() {
    let server = Server::with_keys();
    let key = key(&server, &[]);
    for accepted in ["text/event-stream", "text/plain"] {
        let answer = client(&server, &key).send("GET", "/mcp", &[("accept", accepted)], b"");
        assert!((400..500).contains(&answer.status), "{}", answer.status);
        let problem: Value = serde_json::from_str(&answer.text()).expect("a problem");
        assert!(problem["code"].is_string(), "{problem}");
    }
}

#[test]
fn a_post_that_the_sdk_refuses_is_refused_in_the_same_shape() {
    let server = Server::with_keys();
    let key = key(&server, &[]);
    let begin =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize(VERSION) });
    let both = "application/json, text/event-stream";
    for (accept, content, status) in
        [("text/html", "application/json", 406), (both, "text/plain", 415)]
    {
        let headers = [("accept", accept), ("content-type", content)];
        let answer =
            client(&server, &key).send("POST", "/mcp", &headers, begin.to_string().as_bytes());
        assert_eq!(answer.status, status, "{}", answer.text());
        let problem: Value = serde_json::from_str(&answer.text()).expect("a problem");
        assert!(problem["code"].is_string(), "{problem}");
    }
}

#[test]
fn a_key_does_what_its_scopes_and_namespace_allow() {
    let server = Server::with_keys();
    let read = key(&server, &["--scope", "read"]);
    let mut web = Web::open(client(&server, &read), VERSION);
    assert_eq!(web.call("sandbox_list", &json!({}))["isError"], false);
    let refused = web.call("execute", &json!({ "code": "1" }));
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).starts_with("forbidden: "), "{refused}");
    let team = key(&server, &["--namespace", "team"]);
    let mut web = Web::open(client(&server, &team), VERSION);
    let ran = web.call("execute", &json!({ "code": "1" }));
    assert!(ran["structuredContent"]["sandbox"].as_str().unwrap().starts_with("team/"), "{ran}");
    let refused = web.call("execute", &json!({ "code": "1", "sandbox": "default/x" }));
    assert!(text(&refused).starts_with("forbidden: "), "{refused}");
    let listed = web.call("sandbox_list", &json!({}));
    assert_eq!(listed["structuredContent"]["sandboxes"].as_array().unwrap().len(), 1);
}

#[test]
fn a_session_is_its_keys_alone_and_ends_with_its_sandbox() {
    let server = Server::with_keys();
    let (one, two) = (key(&server, &[]), key(&server, &[]));
    let mut web = Web::open(client(&server, &one), VERSION);
    assert_eq!(web.call("execute", &json!({ "code": "1" }))["isError"], false);
    let mut stranger = Web::new(client(&server, &two), VERSION);
    stranger.session.clone_from(&web.session);
    for method in ["POST", "DELETE"] {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
        assert_eq!(stranger.send(method, &body).status, 404);
    }
    assert_eq!(boxes(&server).len(), 1);
    let ended = web.send("DELETE", &Value::Null);
    // The official clients take 202 for a session that did not end.
    assert_eq!(ended.status, 200);
    eventually("its sandbox is gone", || boxes(&server).is_empty());
    assert_eq!(web.post("tools/list", &json!({})).status, 404);
}

#[test]
fn a_request_without_initialize_gets_no_session() {
    let server = Server::with_keys();
    let client = client(&server, &key(&server, &[]));
    let params = initialize(VERSION);
    let headers =
        [("accept", "application/json, text/event-stream"), ("content-type", "application/json")];
    // Two methods, of which readers take either.
    let two = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"initialize","params":{params}}}"#
    );
    let answer = client.send("POST", "/mcp", &headers, two.as_bytes());
    assert_ne!(answer.status, 200, "{}", answer.text());
    assert!(answer.headers.get("mcp-session-id").is_none());
}

/// Sessions of one key.
const MAX: usize = 32;

#[test]
fn a_session_whose_calls_are_over_gives_way_to_a_new_one() {
    let server = Server::with_keys();
    let key = key(&server, &[]);
    let mut first = Web::open(client(&server, &key), VERSION);
    assert_eq!(first.call("sandbox_list", &json!({}))["isError"], false);
    for _ in 0..MAX {
        let mut web = Web::open(client(&server, &key), VERSION);
        assert_eq!(web.call("sandbox_list", &json!({}))["isError"], false);
    }
    assert_eq!(first.post("ping", &json!({})).status, 404, "it was idle longest");
}

#[test]
fn sessions_that_begin_at_once_are_no_more_than_a_key_may_have() {
    const OPENED: usize = 48;
    let server = Server::with_keys();
    let key = key(&server, &[]);
    let opened = std::thread::scope(|scope| {
        let opening = (0..OPENED).map(|_| {
            scope.spawn(|| {
                let mut web = Web::new(client(&server, &key), VERSION);
                let answer = web.post("initialize", &initialize(VERSION));
                web.session = answer.headers.get("mcp-session-id").map(str::to_owned);
                web
            })
        });
        let opening: Vec<_> = opening.collect();
        opening.into_iter().map(|one| one.join().expect("it asks")).collect::<Vec<_>>()
    });
    let lives = |mut web: Web| web.session.is_some() && web.post("ping", &json!({})).status == 200;
    let living = opened.into_iter().map(lives).filter(|lives| *lives).count();
    assert!((1..=MAX).contains(&living), "{living}");
}

#[test]
fn progress_comes_in_the_stream_of_the_answer() {
    let server = Server::with_keys();
    let mut web = Web::open(client(&server, &key(&server, &[])), VERSION);
    let body = json!({
        "name": "shell_execute", "arguments": { "command": "echo x; sleep 2.5" },
        "_meta": { "progressToken": 7 }
    });
    let answer = web.post("tools/call", &body);
    let message = messages(&answer);
    let result: Vec<_> =
        message.iter().filter(|message| message["method"] == "notifications/progress").collect();
    assert!(!result.is_empty(), "{message:?}");
    assert_eq!(result[0]["params"]["progressToken"], 7);
    assert_eq!(message.last().unwrap()["result"]["structuredContent"]["stdout"], "x\n");
}

#[test]
fn two_sessions_at_once_do_not_wait_for_each_other() {
    let server = Server::with_keys();
    let key = key(&server, &[]);
    let mut webs: Vec<_> = (0..2).map(|_| Web::open(client(&server, &key), VERSION)).collect();
    std::thread::scope(|scope| {
        for web in &mut webs {
            scope.spawn(|| {
                let ran = web.call("shell_execute", &json!({ "command": "sleep 1; hostname" }));
                assert_eq!(ran["isError"], false, "{ran}");
            });
        }
    });
    assert_eq!(boxes(&server).len(), 2);
}

#[test]
fn a_stream_that_is_listened_to_does_not_hold_up_the_end_of_the_server() {
    let server = Server::with_keys();
    let key = key(&server, &[]);
    let web = Web::open(client(&server, &key), VERSION);
    let session = web.session.clone().expect("a session");
    let listener = client(&server, &key);
    let headers = [
        ("accept", "text/event-stream"),
        ("mcp-protocol-version", VERSION),
        ("mcp-session-id", session.as_str()),
    ];
    let stream = listener.open("GET", "/mcp", &headers, &[]);
    assert_eq!(stream.status, 200);
    assert_eq!(stream.headers.get("content-type"), Some("text/event-stream"));
    let begun = Instant::now();
    kill(server.daemon_pid(), Signal::SIGTERM).expect("it is ours");
    let _ = stream.whole();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_sandbox_is_made_for_a_user_and_pulls_no_more_than_its_key_may() {
    let server = Server::start(&["--set", "image_policy.pull=missing"]);
    let key = server.ok(&["keygen", "--namespace", "default"]);
    let client = Client::new(server.url()).key(key.trim());
    let mut agent = Web::open(client, VERSION);
    if nix::unistd::geteuid().is_root() {
        let request = json!({ "name": "nobodys", "user": "65534:65534", "pull": "never" });
        assert_eq!(agent.call("sandbox_create", &request)["isError"], false);
        let request = json!({ "command": "id -u; id -u > /artifacts/who", "sandbox": "nobodys" });
        let ran = agent.call("shell_execute", &request);
        assert_eq!(ran["structuredContent"]["stdout"], "65534\n", "{ran}");
        assert_eq!(ran["structuredContent"]["artifacts"][0]["name"], "who", "{ran}");
    }
    let refused = agent.call("sandbox_create", &json!({ "name": "b", "pull": "always" }));
    let message = text(&refused);
    assert!(message.contains("only an admin key may ask for always"), "{refused}");
    let refused = agent.call("sandbox_create", &json!({ "name": "b", "user": "" }));
    assert_eq!(refused["isError"], true, "{refused}");

    let start = |config: Value| {
        let params = json!({ "namespace": "default", "sandbox": "rpc", "config": config });
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.start", "params": params });
        Client::new(server.url()).key(key.trim()).post("/api/v1/rpc", &body)
    };
    let refused = start(json!({ "pull": "always" })).text();
    assert!(refused.contains("only an admin key may ask for always"), "{refused}");
    assert!(start(json!({ "pull": "often" })).text().contains("\\\"often\\\" is not one of"));
    if nix::unistd::geteuid().is_root() {
        start(json!({ "pull": "missing", "user": "65534" })).expect(200);
        let found = Client::new(server.url()).key(key.trim());
        let found = found.get("/v1/sandboxes/default/rpc").expect(200).json();
        assert_eq!(found["user"], "65534", "{found}");
    }
}
