//! Web apps through the server: how they become reachable, how they fail, and that nothing of them
//! is left.

mod ends;
mod frameworks;
mod verbs;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::door::{BOX, open};
use tests::eventually;
use tests::http::{Answer, Client};
use tests::server::Server;

/// A command that serves the directory that it begins in.
const SERVE: &str = "exec python3 -m http.server $PORT --bind 127.0.0.1";

/// Lists the sandbox's processes with `MARK` in their command line.
const LIVING: &str = "
import os, sys
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        line = open(f'/proc/{pid}/cmdline').read()
    except OSError:
        continue
    if 'MARK-' + 'HERE' in line or 'burrow-apps' + '/' in line:
        print(pid)
";

/// A comment of the shell by which a process is found again.
const MARK: &str = "MARK-HERE";

fn start(client: &Client, body: &Value) -> Answer {
    client.post(&format!("{BOX}/apps"), body)
}

fn command(line: &str) -> Value {
    json!({ "type": "command", "command": line })
}

fn apps(client: &Client) -> Vec<Value> {
    let listed = client.get(&format!("{BOX}/apps")).expect(200).json();
    listed["apps"].as_array().expect("a list").clone()
}

/// The app's answer at a path.
fn fetch(app: &Value, path: &str) -> Answer {
    Client::new(app["url"].as_str().expect("a URL")).get(path)
}

fn host_port(app: &Value) -> u16 {
    app["host_port"].as_u64().expect("a port") as u16
}

fn is_reached(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Holds that nothing of any app is left: neither in the sandbox nor on this host.
fn nothing_is_left(server: &Server, client: &Client) {
    assert_eq!(apps(client), Vec::<Value>::new());
    assert_eq!(client.get(&format!("{BOX}/ports")).expect(200).json(), json!({ "ports": [] }));
    let files = server.ok(&["exec", "box", "--", "sh", "-c", "ls /tmp/burrow-apps 2>&1 || :"]);
    assert!(files.is_empty() || files.contains("No such file"), "{files}");
    assert_eq!(server.ok(&["exec", "box", "--", "python3", "-c", LIVING]), "");
    eventually("its sessions are released", || {
        let listed = client.get(&format!("{BOX}/sessions")).expect(200).json();
        let sessions = listed["sessions"].as_array().expect("a list").clone();
        sessions.iter().all(|one| !one["session"].as_str().expect("a name").starts_with("app."))
    });
}

#[test]
fn a_command_is_reached_at_its_url_until_it_is_stopped() {
    let (server, client) = open();
    let body = json!({
        "type": "command", "command": format!("{SERVE} # {MARK}"), "workdir": "/etc", "name": "web"
    });
    let app = start(&client, &body).expect(201).json();
    assert_eq!((&app["app"], &app["type"]), (&json!("web"), &json!("command")));
    assert_eq!((&app["state"], &app["sandbox"]), (&json!("running"), &json!("box")));
    assert_eq!(app["url"], format!("http://127.0.0.1:{}/", app["host_port"]));
    assert_eq!(app["guest_port"], 8000);
    let hosts = fetch(&app, "/hostname").expect(200);
    assert_eq!(hosts.text(), "box\n");
    assert_eq!(fetch(&app, "/none").status, 404);
    assert_eq!(apps(&client), std::slice::from_ref(&app));
    assert_eq!(client.get(&format!("{BOX}/apps/web")).expect(200).json(), app);
    assert_eq!(client.get("/v1/apps").expect(200).json(), json!({ "apps": [app] }));
    // It is a session like any other.
    let session = app["session"].as_str().expect("a name");
    assert!(session.starts_with("app.web."), "{session}");
    let info = client.get(&format!("{BOX}/sessions/{session}")).expect(200).json();
    assert_eq!((&info["running"], &info["recorded"]), (&json!(true), &json!(true)));
    let log = |query: &str| client.get(&format!("{BOX}/apps/web/log{query}"));
    eventually("its log has the request", || {
        log("").json()["log"].as_str().is_some_and(|text| text.contains("GET /hostname"))
    });
    assert_eq!(log("?tail=5").expect(200).json()["log"].as_str().map(str::len), Some(5));
    assert_eq!(log("?tail=999999999").expect(400).code(), "invalid");
    let port = host_port(&app);
    client.delete(&format!("{BOX}/apps/web")).expect(204);
    assert!(!is_reached(port));
    nothing_is_left(&server, &client);
    for path in ["apps/web", "apps/web/log"] {
        client.get(&format!("{BOX}/{path}")).expect(404);
    }
    assert_eq!(client.delete(&format!("{BOX}/apps/web")).expect(404).code(), "not_found");
    // Its output can still be read.
    let output = client.get(&format!("{BOX}/sessions/{session}/output")).expect(200).text();
    assert!(output.contains("GET /hostname"), "{output}");
}

#[test]
fn an_app_has_the_environment_that_was_asked_for_and_its_own_port() {
    let (_server, client) = open();
    let program = "
import http.server, os
class Tell(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(418)
        self.end_headers()
        self.wfile.write(f'{os.environ[\"WORD\"]} {os.environ[\"PORT\"]} {os.getcwd()}'.encode())
print('begun')
http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Tell).serve_forever()
";
    let env = json!({ "WORD": "hello", "PORT": "1" });
    let body = json!({
        "type": "command", "command": ["python3", "-c", program], "env": env, "port": 7171,
        "workdir": "/usr", "ready_path": "/ready?now=1"
    });
    // Any status is an answer.
    let app = start(&client, &body).expect(201).json();
    assert_eq!((&app["app"], &app["guest_port"]), (&json!("command"), &json!(7171)));
    assert_eq!(fetch(&app, "/").expect(418).text(), "hello 7171 /usr");
    let body = json!({ "type": "command", "code": program, "env": env, "name": "script" });
    let script = start(&client, &body).expect(201).json();
    assert!(fetch(&script, "/").expect(418).text().starts_with("hello 8000 /"));
    // Nothing waits in a buffer for more.
    let log = client.get(&format!("{BOX}/apps/script/log")).expect(200).json();
    assert!(log["log"].as_str().expect("text").starts_with("begun\n"), "{log}");
}

#[test]
fn an_app_that_listens_late_is_waited_for() {
    let (_server, client) = open();
    let begun = Instant::now();
    let app = start(&client, &command(&format!("sleep 1.5; {SERVE}"))).expect(201).json();
    assert!(begun.elapsed() >= Duration::from_millis(1500));
    fetch(&app, "/").expect(200);
}

#[test]
fn several_apps_go_on_beside_each_other() {
    let (_server, client) = open();
    let one = command(SERVE);
    let both: Vec<Value> = std::thread::scope(|scope| {
        let starts = [0; 2].map(|_| scope.spawn(|| start(&client, &one).expect(201).json()));
        starts.into_iter().map(|start| start.join().expect("no panic")).collect()
    });
    let mut names: Vec<&str> = both.iter().filter_map(|app| app["app"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["command", "command-2"]);
    assert_ne!(both[0]["guest_port"], both[1]["guest_port"]);
    client.delete(&format!("{BOX}/apps/{}", both[0]["app"].as_str().expect("a name"))).expect(204);
    assert!(!is_reached(host_port(&both[0])));
    fetch(&both[1], "/").expect(200);
}

#[test]
fn ports_that_are_taken_are_refused_and_nothing_is_left() {
    let (server, client) = open();
    let app = start(&client, &command(SERVE)).expect(201).json();
    let inside = &app["guest_port"];
    let mut again = command(SERVE);
    again["port"] = inside.clone();
    let taken = start(&client, &again).expect(409).json();
    assert_eq!(taken["details"], json!({ "reason": "port_taken", "port": inside }));
    let outside = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = outside.local_addr().expect("an address").port();
    let mut again = command(SERVE);
    again["host_port"] = json!(port);
    let taken = start(&client, &again).expect(409).json();
    assert_eq!(taken["details"], json!({ "reason": "port_taken", "port": port }));
    let mut again = command(SERVE);
    again["name"] = json!("command");
    let taken = start(&client, &again).expect(409).json();
    assert_eq!(taken["details"], json!({ "reason": "name_taken", "app": "command" }));
    fetch(&app, "/").expect(200);
    drop(outside);
    client.delete(&format!("{BOX}/apps/command")).expect(204);
    nothing_is_left(&server, &client);
    again["host_port"] = json!(port);
    assert_eq!(start(&client, &again).expect(201).json()["host_port"], port);
}

#[test]
fn there_are_so_many_apps_in_a_sandbox_and_no_more() {
    let (_server, client) = open();
    for _ in 0..16 {
        start(&client, &command(SERVE)).expect(201);
    }
    let full = start(&client, &command(SERVE)).expect(429);
    assert_eq!(full.code(), "limit_reached");
    client.delete(&format!("{BOX}/apps/command-7")).expect(204);
    assert_eq!(start(&client, &command(SERVE)).expect(201).json()["app"], "command-7");
}

#[test]
fn unstartable_apps_are_refused() {
    let (server, client) = open();
    let code = "app = 1";
    for wrong in [
        json!({ "type": "command" }),
        json!({ "type": "command", "command": "true", "code": "" }),
        json!({ "type": "command", "command": [] }),
        json!({ "type": "command", "command": { "line": "true" } }),
        json!({ "type": "flask", "command": "flask run" }),
        json!({ "type": "django", "code": code }),
        json!({ "code": code }),
        json!({ "type": "flask", "code": code, "port": 0 }),
        json!({ "type": "flask", "code": code, "port": 65536 }),
        json!({ "type": "flask", "code": code, "name": "a b" }),
        json!({ "type": "flask", "code": code, "name": "x".repeat(41) }),
        json!({ "type": "flask", "code": code, "ready_path": "health" }),
        json!({ "type": "flask", "code": code, "ready_path": "/a\r\nb" }),
        json!({ "type": "flask", "code": code, "ready_timeout_ms": 0 }),
        json!({ "type": "flask", "code": code, "ready_timeout_ms": 600_001 }),
        json!({ "type": "flask", "code": code, "nonsense": 1 }),
    ] {
        assert_eq!(start(&client, &wrong).expect(400).code(), "invalid", "{wrong}");
    }
    let long = json!({ "type": "flask", "code": "#".repeat(1024 * 1024 + 1) });
    assert_eq!(start(&client, &long).expect(413).code(), "too_large");
    client.post("/v1/sandboxes/default/other/apps", &command(SERVE)).expect(404);
    client.get("/v1/sandboxes/default/other/apps").expect(404);
    client.delete(&format!("{BOX}/apps/a%20b")).expect(400);
    nothing_is_left(&server, &client);
}

/// Asks for an app, and does not wait for the answer.
fn send(server: &Server, app: &Value) -> TcpStream {
    let body = app.to_string();
    let address = server.url().strip_prefix("http://").expect("http");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let head = format!(
        "POST {BOX}/apps HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("taken");
    stream
}

#[test]
fn a_request_that_is_dropped_takes_its_app_with_it() {
    let (server, client) = open();
    let stream = send(&server, &command(&format!("sleep 600 # {MARK}\ntrue")));
    eventually("it is being started", || {
        apps(&client).first().is_some_and(|app| app["pid"].is_number())
    });
    assert_eq!(apps(&client)[0]["state"], "starting");
    let port = host_port(&apps(&client)[0]);
    drop(stream);
    eventually("nobody has it any more", || apps(&client).is_empty());
    assert!(!is_reached(port));
    nothing_is_left(&server, &client);
}

#[test]
fn a_request_may_be_dropped_at_any_moment() {
    let (server, client) = open();
    let code = format!("import time\n# {MARK}\ntime.sleep(600)\n");
    let body = json!({ "type": "command", "code": code });
    for wait_ms in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        let mut stream = send(&server, &body);
        // No answer comes, so that is how long it is read for.
        stream.set_read_timeout(Some(Duration::from_millis(wait_ms))).expect("not zero");
        stream.read(&mut [0]).expect_err("no answer");
        drop(stream);
        eventually("nobody has it any more", || apps(&client).is_empty());
        nothing_is_left(&server, &client);
    }
}

#[test]
fn a_key_sees_the_apps_of_its_namespace_alone_and_starts_none_without_the_right() {
    let server = Server::with_keys();
    let key = |options: &[&str]| {
        let key = server.ok(&[&["keygen"], options].concat());
        Client::new(server.url()).key(key.trim())
    };
    let (ours, theirs) = (key(&["--namespace", "ours"]), key(&["--namespace", "theirs"]));
    let all = "/v1/sandboxes/ours/box/apps";
    ours.post("/v1/sandboxes", &json!({ "name": "box", "namespace": "ours" })).expect(201);
    let app = ours.post(all, &command(SERVE)).expect(201).json();
    assert_eq!(app["sandbox"], "ours/box");
    assert_eq!(ours.get("/v1/apps").expect(200).json(), json!({ "apps": [app] }));
    assert_eq!(theirs.get("/v1/apps").expect(200).json(), json!({ "apps": [] }));
    for refused in [theirs.get(all), theirs.delete(&format!("{all}/command"))] {
        assert_eq!(refused.expect(403).code(), "forbidden");
    }
    let reads = key(&["--namespace", "ours", "--scope", "read"]);
    assert_eq!(reads.get(all).expect(200).json(), json!({ "apps": [app] }));
    reads.post(all, &command(SERVE)).expect(403);
    reads.delete(&format!("{all}/command")).expect(403);
    fetch(&app, "/").expect(200);
}
