//! The same refusal at every door: one code and one reason below HTTP, JSON-RPC, MCP and the control
//! socket, and at each door only hints that name its own calls.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use tests::http::Client;
use tests::mcp::{VERSION, Web, text};
use tests::server::Server;

const RPC: &str = "/api/v1/rpc";

/// One thing that cannot be done, and how each door is asked for it.
#[derive(Default)]
struct Case {
    code: &'static str,
    reason: Option<&'static str>,
    /// Method, path and body.
    http: Option<(&'static str, &'static str, Value)>,
    /// Method and parameters.
    rpc: Option<(&'static str, Value)>,
    /// Tool and arguments.
    tool: Option<(&'static str, Value)>,
    /// The request on the control socket, and its word for the refusal.
    control: Option<(Value, &'static str)>,
}

/// A new sandbox with one option, asked for at each door that has it.
fn creation(code: &'static str, word: &'static str, option: &str, value: &Value) -> Case {
    let mut body = json!({ "name": "other", "memory_mib": 256 });
    body[option] = value.clone();
    Case {
        code,
        http: Some(("POST", "/v1/sandboxes", body.clone())),
        rpc: Some(("sandbox.start", json!({ "sandbox": "other", "config": { option: value } }))),
        tool: Some(("sandbox_create", body.clone())),
        control: Some((json!({ "start": body }), word)),
        ..Case::default()
    }
}

/// Something in a sandbox, asked for at each door that can.
fn program(sandbox: &'static str, path: &'static str, word: &'static str) -> Case {
    Case {
        http: Some(("POST", path, json!({ "argv": ["true"] }))),
        rpc: Some(("sandbox.command.run", json!({ "sandbox": sandbox, "command": "true" }))),
        tool: Some(("shell_execute", json!({ "sandbox": sandbox, "command": "true" }))),
        control: Some((json!({ "dial": { "sandbox": sandbox } }), word)),
        ..Case::default()
    }
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            code: "not_found",
            ..program("none", "/v1/sandboxes/default/none/exec", "not_found")
        },
        Case {
            code: "conflict",
            reason: Some("not_running"),
            ..program("stopped", "/v1/sandboxes/default/stopped/exec", "not_running")
        },
        Case {
            code: "not_found",
            http: Some(("POST", "/v1/sandboxes/default/none/stop", json!({}))),
            tool: Some(("sandbox_stop", json!({ "sandbox": "none" }))),
            control: Some((json!({ "stop": { "sandbox": "none" } }), "not_found")),
            ..Case::default()
        },
        Case {
            code: "conflict",
            reason: Some("name_taken"),
            http: Some(("POST", "/v1/sandboxes", json!({ "name": "box" }))),
            tool: Some(("sandbox_create", json!({ "name": "box" }))),
            control: Some((json!({ "start": { "name": "box", "memory_mib": 256 } }), "name_taken")),
            ..Case::default()
        },
        Case {
            code: "conflict",
            reason: Some("still_running"),
            http: Some(("DELETE", "/v1/sandboxes/default/box", Value::Null)),
            control: Some((json!({ "remove": { "sandbox": "box" } }), "still_running")),
            ..Case::default()
        },
        creation("unknown_secret", "unknown_secret", "secrets", &json!(["none"])),
        creation("unknown_workspace", "unknown_workspace", "workspace", &json!("none")),
        creation("invalid", "invalid", "egress", &json!(["not a rule"])),
        creation("invalid", "invalid", "user", &json!("a\nb")),
        creation("invalid", "invalid", "workdir", &json!("relative")),
        creation("invalid", "invalid", "labels", &json!({ "!": "x" })),
        Case {
            // The verbs bring their images themselves.
            control: None,
            ..creation("unsupported", "", "image", &json!("no-such-image"))
        },
        Case {
            code: "cap_exceeded",
            http: Some(("POST", "/v1/sandboxes", json!({ "name": "other", "memory_mib": 4096 }))),
            rpc: Some((
                "sandbox.start",
                json!({ "sandbox": "other", "config": { "memory": 4096 } }),
            )),
            tool: Some(("sandbox_create", json!({ "name": "other", "memory_mib": 4096 }))),
            control: Some((
                json!({ "start": { "name": "other", "memory_mib": 4096 } }),
                "cap_exceeded",
            )),
            ..Case::default()
        },
        Case {
            code: "spawn_failed",
            http: Some(("POST", "/v1/sandboxes/default/box/exec", json!({ "argv": ["/none"] }))),
            rpc: Some(("sandbox.command.run", json!({ "sandbox": "box", "command": "/none" }))),
            ..Case::default()
        },
        Case {
            code: "not_found",
            http: Some(("DELETE", "/v1/sandboxes/default/box/apps/none", Value::Null)),
            tool: Some(("stop_web_app", json!({ "sandbox": "box", "app": "none" }))),
            control: Some((
                json!({ "app": { "stop": { "sandbox": "box", "app": "none" } } }),
                "not_found",
            )),
            ..Case::default()
        },
        Case {
            code: "not_found",
            http: Some(("GET", "/v1/notebooks/default/none", Value::Null)),
            tool: Some(("session_info", json!({ "session_id": "none" }))),
            ..Case::default()
        },
        Case {
            code: "not_found",
            http: Some(("DELETE", "/v1/sandboxes/default/box/ports/1", Value::Null)),
            tool: Some(("close_port", json!({ "sandbox": "box", "host_port": 1 }))),
            ..Case::default()
        },
    ]
}

/// The code and the reason of a refusal.
type CodeAndReason = (String, Option<String>);

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn over_http(
    client: &Client,
    (method, path, body): &(&str, &str, Value),
) -> (CodeAndReason, String) {
    let answer = match *method {
        "POST" => client.post(path, body),
        "DELETE" => client.delete(path),
        _ => client.get(path),
    };
    assert!(answer.status >= 400, "{method} {path}: {}", answer.text());
    let json = answer.json();
    ((answer.code(), text_of(&json["details"]["reason"])), answer.text())
}

fn over_rpc(client: &Client, (method, params): &(&str, Value)) -> (CodeAndReason, String) {
    let request = json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": 1 });
    let answer = client.post(RPC, &request).json();
    let data = &answer["error"]["data"];
    let code = text_of(&data["reason"]).unwrap_or_else(|| panic!("{method}: {answer}"));
    ((code, text_of(&data["details"]["reason"])), answer.to_string())
}

fn over_mcp(web: &mut Web, (tool, arguments): &(&str, Value)) -> (CodeAndReason, String) {
    let result = web.call(tool, arguments);
    let problem = &result["_meta"]["burrow/problem"];
    let code = text_of(&problem["code"]).unwrap_or_else(|| panic!("{tool}: {result}"));
    assert!(text(&result).starts_with(&format!("{code}: ")), "{result}");
    ((code, text_of(&problem["details"]["reason"])), result.to_string())
}

fn over_control(server: &Server, request: &Value) -> Value {
    let mut socket = UnixStream::connect(server.runtime().join("control.sock")).unwrap();
    writeln!(socket, "{request}").unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    serde_json::from_str::<Value>(&line).unwrap()["error"].clone()
}

fn server() -> Server {
    let burrow = tests::Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    std::fs::write(&config, "[caps.namespace.default]\nmemory_mib = 2048\n").unwrap();
    let server = Server::start_in(burrow, &["--dev", "--config", config.to_str().unwrap()]);
    let client = Client::new(server.url());
    for name in ["box", "stopped"] {
        client.post("/v1/sandboxes", &json!({ "name": name, "memory_mib": 256 })).expect(201);
    }
    client.post("/v1/sandboxes/default/stopped/stop", &json!({})).expect(200);
    server
}

#[test]
fn a_refusal_has_the_same_code_and_reason_at_every_door() {
    let server = server();
    let client = Client::new(server.url());
    let mut web = Web::open(Client::new(server.url()), VERSION);
    for case in cases() {
        let expected = (case.code.to_owned(), case.reason.map(str::to_owned));
        if let Some(call) = &case.http {
            assert_eq!(over_http(&client, call).0, expected, "HTTP {call:?}");
        }
        if let Some(call) = &case.rpc {
            let (answer, words) = over_rpc(&client, call);
            assert_eq!(answer, expected, "JSON-RPC {call:?}");
            assert!(!words.contains("/v1"), "JSON-RPC speaks of HTTP: {words}");
        }
        if let Some(call) = &case.tool {
            let (answer, words) = over_mcp(&mut web, call);
            assert_eq!(answer, expected, "MCP {call:?}");
            assert!(!words.contains("/v1"), "MCP speaks of HTTP: {words}");
        }
        if let Some((request, word)) = &case.control {
            let error = over_control(&server, request);
            assert_eq!(error["code"], *word, "control socket {request}: {error}");
            let hint = error["hint"].as_str().unwrap_or_default();
            assert!(!hint.contains("/v1"), "the control socket speaks of HTTP: {error}");
        }
    }
    assert!(client.get("/v1/sandboxes/default/other").status == 404, "nothing was made meanwhile");
}

#[test]
fn each_door_says_what_helps_in_its_own_words() {
    let server = server();
    let client = Client::new(server.url());
    let mut web = Web::open(Client::new(server.url()), VERSION);
    let stopped = program("stopped", "/v1/sandboxes/default/stopped/exec", "not_running");
    let none = program("none", "/v1/sandboxes/default/none/exec", "not_found");
    let words = |case: &Case, web: &mut Web| {
        let http = over_http(&client, case.http.as_ref().unwrap()).1;
        let rpc = over_rpc(&client, case.rpc.as_ref().unwrap()).1;
        let tool = over_mcp(web, case.tool.as_ref().unwrap()).1;
        let control = over_control(&server, &case.control.as_ref().unwrap().0).to_string();
        [http, rpc, tool, control]
    };
    let own = [
        ("GET /v1/sandboxes lists", "its logs can still be read"),
        ("sandbox.start", "sandbox.start"),
        ("`sandbox_list`", "`sandbox_create`"),
        ("`host-bridge ps --all`", "`host-bridge logs"),
    ];
    for (at, words) in words(&none, &mut web).iter().enumerate() {
        assert!(words.contains(own[at].0), "{words}");
    }
    for (at, words) in words(&stopped, &mut web).iter().enumerate() {
        assert!(words.contains(own[at].1), "{words}");
    }
    let path = "/a2a/v1/sandboxes/none/exec";
    let a2a = client.post(path, &json!({ "cmd": "true" })).expect(404).text();
    assert!(a2a.contains("GET /a2a/v1/sandboxes lists"), "{a2a}");
}

#[test]
fn no_tool_and_no_resource_speaks_of_the_native_api() {
    let server = Server::dev();
    let mut web = Web::open(Client::new(server.url()), VERSION);
    for method in ["tools/list", "resources/list", "resources/templates/list"] {
        let listed = web.ask(method, &json!({})).to_string();
        assert!(!listed.contains("/v1"), "{method}: {listed}");
    }
    let gone = web.ask("resources/read", &json!({ "uri": "burrow://artifacts/default/none" }));
    assert!(gone.get("error").is_some() && !gone.to_string().contains("/v1"), "{gone}");
}

/// Every call that names something in its path, and needs nothing else. Names that nothing has are
/// refused, and an empty answer never stands for one.
#[test]
fn a_name_that_nothing_has_is_refused_by_every_operation() {
    let (_server, client) = tests::door::open();
    let document = client.get("/openapi.json").expect(200).json();
    let mut refused = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        // The protocol of a2a answers a removal of what is gone as done.
        let operations = methods.as_object().unwrap().iter();
        for (method, operation) in
            operations.filter(|_| path.starts_with("/v1/") && path.contains('{'))
        {
            let is_needed = |thing: &Value| thing["required"] == true && thing["in"] != "path";
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            // What is a WebSocket and nothing else.
            let responses = &operation["responses"];
            let is_socket = responses.get("101").is_some() && responses.get("200").is_none();
            if parameters.iter().any(is_needed) || is_needed(&operation["requestBody"]) || is_socket
            {
                continue;
            }
            let has_own = path.matches('{').count() > 2 || !path.contains("{name}");
            let sandbox = if has_own { "box" } else { "nope" };
            let call = [
                ("{namespace}", "default"),
                ("{name}", sandbox),
                ("{artifact}", "0123456789abcdef"),
            ]
            .iter()
            .fold(path.clone(), |path, (name, value)| path.replace(name, value));
            let parts =
                call.split('/').map(|part| if part.starts_with('{') { "nope" } else { part });
            let call = parts.collect::<Vec<_>>().join("/");
            let answer = client.send(&method.to_uppercase(), &call, &[], &[]);
            assert!([400, 404].contains(&answer.status), "{method} {call}: {}", answer.status);
            refused += usize::from(answer.status == 404);
        }
    }
    assert!(refused > 30, "{refused}");
    let read =
        |query: &str| client.get(&format!("/v1/sandboxes/default/box/logs?session=nope{query}"));
    assert_eq!(read("").code(), "not_found");
    assert_eq!(read("&follow=true").code(), "not_found");
}
