//! Resources: what is there to read, and what a key may read of it.

use serde_json::{Value, json};
use tests::Burrow;
use tests::http::Client;
use tests::mcp::{Lines, VERSION, VERSION_WITHOUT_SESSIONS, Web};
use tests::server::Server;

/// A picture of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// More than is read as one resource.
const TOO_LARGE_BYTES: usize = 4 * 1024 * 1024 + 1;

fn read(lines: &mut Lines, uri: &str) -> Value {
    lines.ask("resources/read", &json!({ "uri": uri }))
}

#[test]
fn files_of_a_sandbox_are_read_as_what_they_are() {
    let burrow = Burrow::new();
    let mut lines = Lines::start(&burrow, &[]);
    let message = lines.initialize(VERSION);
    assert!(message["capabilities"]["resources"].is_object(), "{message}");
    assert!(message["capabilities"]["prompts"].is_null(), "{message}");
    let templates = lines.ask("resources/templates/list", &json!({}));
    let templates = templates["result"]["resourceTemplates"].as_array().expect("templates");
    let uris: Vec<_> = templates.iter().map(|template| &template["uriTemplate"]).collect();
    let wanted =
        ["burrow://artifacts/{namespace}/{id}", "burrow://sandboxes/{sandbox}/files/{+path}"];
    assert_eq!(uris, wanted);
    let listed = lines.ask("resources/list", &json!({}));
    assert_eq!(listed["result"]["resources"], json!([]));

    lines.ok("sandbox_create", &json!({ "name": "work" }));
    let files = [
        ("/tmp/a b.csv", json!({ "content": "a,€\n" }), "text/csv", "text", "a,€\n"),
        ("/tmp/pixel", json!({ "content_base64": PIXEL }), "image/png", "blob", PIXEL),
        (
            "/tmp/x.bin",
            json!({ "content_base64": "/wAB" }),
            "application/octet-stream",
            "blob",
            "/wAB",
        ),
        ("/tmp/x.svg", json!({ "content": "<svg/>" }), "image/svg+xml", "text", "<svg/>"),
    ];
    for (path, mut body, mime, form, content) in files {
        (body["path"], body["sandbox"]) = (json!(path), json!("work"));
        lines.ok("write_file", &body);
        let path = path.replace(' ', "%20");
        // A path is put into the template with its first slash or without.
        for uri in [&path, path.trim_start_matches('/')] {
            let uri = format!("burrow://sandboxes/work/files/{uri}");
            let answer = read(&mut lines, &uri);
            let found = &answer["result"]["contents"][0];
            assert_eq!(
                (&found["uri"], &found["mimeType"]),
                (&json!(uri), &json!(mime)),
                "{answer}"
            );
            assert_eq!(found[form], content, "{answer}");
        }
    }
    // What a tool brings as a resource is found again by its name.
    let brought = lines.call("read_file", &json!({ "path": "/tmp/x.bin", "sandbox": "work" }));
    let uri = brought["content"][0]["resource"]["uri"].as_str().expect("a resource");
    assert_eq!(read(&mut lines, uri)["result"]["contents"][0]["blob"], "/wAB");
}

#[test]
fn unreadable_resources_are_refused_with_a_helpful_reason() {
    let burrow = Burrow::new();
    let mut lines = Lines::open(&burrow, &[]);
    lines.ok("sandbox_create", &json!({ "name": "work" }));
    let code = format!("open('/tmp/large', 'wb').truncate({TOO_LARGE_BYTES})");
    lines.ok("execute", &json!({ "code": code, "sandbox": "work" }));
    let long = format!("burrow://sandboxes/work/files/{}", "x".repeat(20_000));
    let wrong = [
        ("file:///etc/passwd", -32002, "templates"),
        ("burrow://sandboxes/work", -32002, "burrow://sandboxes/"),
        ("burrow://sandboxes/work/files/tmp/none", -32002, "/tmp/none"),
        ("burrow://sandboxes/nobody/files/tmp/none", -32002, "sandbox_list"),
        ("burrow://sandboxes/work/files/tmp", -32602, "list_files"),
        ("burrow://sandboxes/work/files/tmp/large", -32602, "read_file"),
        (&long, -32002, "templates"),
    ];
    for (uri, code, word) in wrong {
        let error = read(&mut lines, uri)["error"].clone();
        assert_eq!(error["code"], code, "{uri:.80}: {error}");
        assert!(error["message"].as_str().expect("words").contains(word), "{uri:.80}: {error}");
        assert!(error["data"]["burrow/problem"]["code"].is_string(), "{error}");
    }
    let paged = lines.ask("resources/list", &json!({ "cursor": "nonsense" }));
    assert_eq!(paged["error"]["code"], -32602, "{paged}");
}

#[test]
fn a_key_reads_what_is_in_its_namespace() {
    let server = Server::with_keys();
    let key = |options: &[&str]| server.ok(&[&["keygen"], options].concat()).trim().to_owned();
    let client = |key: &str| Client::new(server.url()).key(key);
    let mut owner = Web::open(client(&key(&["--namespace", "team"])), VERSION);
    assert_eq!(owner.call("sandbox_create", &json!({ "name": "work" }))["isError"], false);
    let wrote = json!({ "sandbox": "work", "path": "/tmp/x", "content": "words" });
    assert_eq!(owner.call("write_file", &wrote)["isError"], false);
    let body = json!({ "uri": "burrow://sandboxes/team%2Fwork/files/tmp/x" });
    assert_eq!(owner.ask("resources/read", &body)["result"]["contents"][0]["text"], "words");
    let look = key(&["--namespace", "team", "--scope", "read"]);
    let mut reader = Web::open(client(&look), VERSION);
    assert_eq!(reader.ask("resources/read", &body)["result"]["contents"][0]["text"], "words");
    for version in [VERSION, VERSION_WITHOUT_SESSIONS] {
        let other = client(&key(&["--namespace", "other"]));
        let mut other =
            if version == VERSION { Web::open(other, version) } else { Web::new(other, version) };
        let refused = messages_of(&mut other, &body);
        let problem = &refused["error"]["data"]["burrow/problem"]["code"];
        assert_eq!(problem, "forbidden", "{refused}");
    }
}

/// A refusal comes with a status of its own where the protocol has no sessions.
fn messages_of(web: &mut Web, body: &Value) -> Value {
    let answer = web.post("resources/read", body);
    tests::mcp::messages(&answer).pop().expect("an answer")
}

#[test]
fn artifacts_are_listed_and_read_by_those_who_may() {
    let server = Server::with_keys();
    let key = |namespace: &str| server.ok(&["keygen", "--namespace", namespace]).trim().to_owned();
    let (ours, theirs) = (key("ours"), key("theirs"));
    let client = |key: &str| Client::new(server.url()).key(key);
    let mut web = Web::open(client(&ours), VERSION);
    let made = web.call(
        "shell_execute",
        &json!({ "command": "mkdir /artifacts && echo 'a,b' > /artifacts/t.csv" }),
    );
    let made = &made["structuredContent"];
    let id = made["artifacts"][0]["id"].as_str().unwrap_or_else(|| panic!("an artifact: {made}"));
    let uri = format!("burrow://artifacts/ours/{id}");
    let listed = web.ask("resources/list", &json!({}));
    let all = listed["result"]["resources"].as_array().expect("resources");
    let found = all.iter().find(|one| one["uri"] == uri).expect("it is listed");
    assert_eq!((&found["name"], &found["mimeType"]), (&json!("t.csv"), &json!("text/csv")));
    let read = web.ask("resources/read", &json!({ "uri": uri }));
    assert_eq!(read["result"]["contents"][0]["text"], "a,b\n", "{read}");
    let mut other = Web::open(client(&theirs), VERSION);
    let refused = other.ask("resources/read", &json!({ "uri": uri }));
    assert!(refused["error"]["message"].as_str().expect("words").contains("no such artifact"));
    let elsewhere = format!("burrow://artifacts/theirs/{id}");
    assert!(other.ask("resources/read", &json!({ "uri": elsewhere }))["error"].is_object());
}
