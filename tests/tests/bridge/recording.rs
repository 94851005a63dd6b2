//! What is recorded of a sandbox's sessions by its policy: nothing but their ends, their output, or also what is typed.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tests::door::{BOX, open, open_with};
use tests::eventually;
use tests::http::Client;
use tests::server::Server;

fn entries(client: &Client, query: &str) -> Vec<Value> {
    let page = client.get(&format!("{BOX}/timeline?{query}")).expect(200).json();
    page["entries"].as_array().expect("a list").clone()
}

/// What was typed into a session: the text, and where its output was then.
fn typed(client: &Client, session: &str) -> Vec<(String, u64)> {
    let all = entries(client, "kind=input");
    let own = all.iter().filter(|entry| entry["session"] == session);
    let text = |entry: &Value| entry["text"].as_str().expect("text").to_owned();
    own.map(|entry| (text(entry), entry["output_offset"].as_u64().expect("an offset"))).collect()
}

fn settle(client: &Client, session: &str) {
    let is_end = |one: &Value| one["session"] == session;
    eventually("the end is recorded", || entries(client, "kind=exited").iter().any(is_end));
}

/// Types into a terminal and into pipes, by several doors.
fn type_into(server: &Server, client: &Client) {
    let cat = ["exec", "-i", "--session", "fed", "box", "--", "cat"];
    let fed = server.feed(&cat, b"from a \xff file\n");
    assert!(fed.status.success() && fed.stdout == b"from a \xff file\n", "{fed:?}");
    let script = "read first; read second; echo \"$first and $second\"";
    let start = ["exec", "-d", "-t", "--session", "asks", "box", "--", "sh", "-c", script];
    server.ok(&start);
    let path = format!("{BOX}/sessions/asks");
    let bytes = [("content-type", "application/octet-stream")];
    let _ = client.send("POST", &format!("{path}/input"), &bytes, b"one\r").expect(200);
    let echoed = || entries(client, "session=asks&kind=output");
    let text = |all: &[Value]| -> String {
        all.iter().filter_map(|entry| entry["text"].as_str()).collect()
    };
    eventually("the echo is recorded", || text(&echoed()).contains("one\r\n"));
    let mut socket = client.websocket(&format!("{path}/attach?from=0&take=true"), &[]);
    socket.binary(b"two\r");
    settle(client, "asks");
    settle(client, "fed");
}

#[test]
fn what_is_typed_is_recorded_where_the_policy_says_so() {
    let (server, client) = open_with(&json!({ "record": "input" }));
    assert_eq!(client.get(BOX).expect(200).json()["record"], "input");
    type_into(&server, &client);
    assert_eq!(typed(&client, "asks"), [("one\r".to_owned(), 0), ("two\r".to_owned(), 5)]);
    let all = entries(&client, "kind=input&session=fed");
    assert_eq!(all[0]["base64"], "ZnJvbSBhIP8gZmlsZQo=");
    assert_eq!(all[0]["summary"], "typed into session fed: \"from a \u{fffd} file\\n\"");
    // An echo comes after what it is of.
    let session = entries(&client, "session=asks&kind=input&kind=output");
    let kinds: Vec<_> = session.iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds[..2], ["input", "output"], "{session:?}");

    // Nobody else can read the files, and a replay shows it only if it is asked to.
    let files = std::fs::read_dir(server.state().join("boxes")).expect("sandboxes");
    let log = files.map(|entry| entry.expect("an entry").path().join("log/input"));
    let log = log.filter(|log| log.is_dir()).last().expect("the input");
    for place in [&log, &log.join("0000000001.seg")] {
        let mode = std::fs::metadata(place).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{place:?}");
    }
    let replay = |options: &[&str]| {
        let played = server.run(&[&["replay", "--speed", "0", "box"], options].concat());
        assert!(played.status.success(), "{played:?}");
        String::from_utf8_lossy(&played.stderr).into_owned()
    };
    assert!(!replay(&[]).contains("typed into"));
    let notes = replay(&["--input"]);
    assert!(notes.contains("typed into session asks: \"one\\r\""), "{notes}");
    let export = |format: &str, more: &[&str]| {
        server.ok(&[&["replay", "box", "asks", "--export", format, "-"], more].concat())
    };
    let keys = |cast: &str| -> Vec<String> {
        let events = cast.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
        let typed = events.filter(|event| event[1] == "i");
        typed.map(|event| event[2].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(keys(&export("asciicast", &["--input"])), ["one\r", "two\r"]);
    assert_eq!(keys(&export("asciicast", &[])), Vec::<String>::new());
    assert!(export("html", &["--input"]).contains("typed into session asks"));
    assert!(!export("html", &[]).contains("typed into session asks"));

    // It is there after the sandbox, too, and goes with it.
    server.ok(&["stop", "box"]);
    assert_eq!(typed(&client, "asks").len(), 2);
    server.ok(&["rm", "box"]);
    assert!(!log.exists());
}

#[test]
fn what_is_typed_is_recorded_nowhere_unless_somebody_says_so() {
    let (server, client) = open();
    type_into(&server, &client);
    assert_eq!(entries(&client, "kind=input"), Vec::<Value>::new());
    assert_eq!(client.get(BOX).expect(200).json()["record"], Value::Null);
}

#[test]
fn input_is_recorded_over_the_kill_of_a_bridge() {
    let mut server = Server::dev();
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "name": "box", "record": "input" })).expect(201);
    let type_it = |client: &Client, text: &str| {
        let bytes = [("content-type", "application/octet-stream")];
        let path = format!("{BOX}/sessions/cat/input");
        client.send("POST", &path, &bytes, text.as_bytes()).expect(200);
    };
    let start = json!({ "argv": ["cat"], "session": "cat", "stdin": true });
    client.post(&format!("{BOX}/sessions"), &start).expect(201);
    type_it(&client, "before");
    server.kill_and_serve_again();
    let client = Client::new(server.url());
    type_it(&client, "after");
    let both: Vec<_> = typed(&client, "cat").into_iter().map(|(text, _)| text).collect();
    assert_eq!(both, ["before", "after"]);
}

#[test]
fn without_recording_the_log_has_that_a_session_was_and_how_it_ended() {
    let (server, client) = open_with(&json!({ "record": "off" }));
    let script = "printf 'sec%s\\n' ret; printf 'oo%s\\n' ps >&2; exit 3";
    let ran = server.run(&["exec", "--session", "quiet", "box", "--", "sh", "-c", script]);
    assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(3), &b"secret\n"[..]));
    settle(&client, "quiet");
    let all = entries(&client, "session=quiet");
    let own: Vec<_> = all.iter().filter(|entry| entry["session"] == "quiet").collect();
    let kinds: Vec<_> = own.iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["started", "gap", "gap", "exited"], "{own:?}");
    assert_eq!((&own[1]["to"], &own[3]["exit_code"]), (&json!(7), &json!(3)));
    let logs = client.get(&format!("{BOX}/logs")).expect(200).text();
    assert!(!logs.contains("secret") && !logs.contains("oops"), "{logs}");
    let refused = json!({ "name": "other", "record": "sometimes" });
    assert_eq!(client.post("/v1/sandboxes", &refused).expect(400).code(), "invalid");
}

#[test]
fn the_configuration_decides_for_sandboxes_that_do_not() {
    let burrow = tests::Burrow::new().variable("BURROW_DEFAULTS_RECORD", "input");
    let server = Server::start_in(burrow, &["--dev"]);
    let client = Client::new(server.url());
    let record = |more: Value| {
        let made = client.post("/v1/sandboxes", &more).expect(201).json();
        made["record"].clone()
    };
    assert_eq!(record(json!({ "name": "a" })), "input");
    assert_eq!(record(json!({ "name": "b", "record": "on" })), Value::Null);
    server.ok(&["start", "--name", "c"]);
    assert_eq!(client.get("/v1/sandboxes/default/c").expect(200).json()["record"], "input");
    server.ok(&["start", "--name", "d", "--record", "off"]);
    assert!(server.ok(&["inspect", "d"]).contains("off"));
}
