//! Telemetry: what a collector gets of requests, of what they run and of the log; what callers and programs learn
//! of their trace; and what becomes of all of it when the collector is away.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::http::{Answer, Client};
use tests::libraries::python_with;
use tests::mcp::VERSION_WITHOUT_SESSIONS;
use tests::receiver::{Mode, Receiver, Request};
use tests::server::Server;
use tests::{Burrow, eventually};

const ALL: &str = "/v1/sandboxes";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
/// What must be in no request to a collector.
const CANARIES: [&str; 5] =
    ["canary-secret", "canary-output", "canary-environment", "canary-argument", "canary-code"];
const TAKES: Mode = Mode::Answer("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
const BUSY: Mode =
    Mode::Answer("HTTP/1.1 503 Busy\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n");
const REFUSES: Mode = Mode::Answer("HTTP/1.1 400 Bad\r\ncontent-length: 5\r\n\r\nwords");

/// A bridge that sends to a port, with what else its section has.
fn serve(port: u16, more: &str) -> Server {
    let burrow = Burrow::new();
    let (config, secret) = (burrow.scratch().join("burrow.toml"), burrow.scratch().join("secret"));
    fs::write(&secret, "Bearer canary-secret").expect("it can be written");
    let mut text = format!(
        "[secrets.collector]\nfile = {:?}\nnamespaces = []\n[audit]\narguments = true\nreads = true\n",
        secret.display().to_string()
    );
    let _ = write!(
        text,
        "[otel]\nenabled = true\nendpoint = \"http://127.0.0.1:{port}\"\ninterval = \"1s\"\n\
         headers = [\"authorization=secret:collector\", \"x-tenant=team\"]\n{more}\n"
    );
    fs::write(&config, text).expect("it can be written");
    Server::start_in(burrow, &["--dev", "--config", config.to_str().expect("it is there")])
}

/// A POST with headers of its own.
fn post(client: &Client, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let headers = [&[("content-type", "application/json")], headers].concat();
    client.send("POST", path, &headers, body.to_string().as_bytes())
}

fn of_signal(receiver: &Receiver, signal: &str) -> Vec<Request> {
    let target = format!("/v1/{signal}");
    receiver.taken().into_iter().filter(|request| request.target == target).collect()
}

/// All entries of a signal that came.
fn entries(receiver: &Receiver, signal: &str, [of_all, of_scope, own]: [&str; 3]) -> Vec<Value> {
    let all = of_signal(receiver, signal);
    let entries = all.iter().flat_map(|request| {
        request.json()[of_all][0][of_scope][0][own].as_array().cloned().unwrap_or_default()
    });
    entries.collect()
}

fn spans(receiver: &Receiver) -> Vec<Value> {
    entries(receiver, "traces", ["resourceSpans", "scopeSpans", "spans"])
}

fn records(receiver: &Receiver) -> Vec<Value> {
    entries(receiver, "logs", ["resourceLogs", "scopeLogs", "logRecords"])
}

fn metrics(receiver: &Receiver) -> Vec<Value> {
    entries(receiver, "metrics", ["resourceMetrics", "scopeMetrics", "metrics"])
}

/// The value of an attribute; null if it is not there.
fn attribute(of: &Value, key: &str) -> Value {
    let attributes = of["attributes"].as_array().into_iter().flatten();
    let found = attributes.filter(|one| one["key"] == key).map(|one| &one["value"]).next();
    let value = found.and_then(|value| value.as_object()?.values().next());
    value.cloned().unwrap_or_default()
}

/// Waits for the span with this name in a trace.
fn span_of(receiver: &Receiver, trace: &str, name: &str) -> Value {
    let mut found = None;
    eventually(&format!("the span {name:?} comes"), || {
        let is_meant = |span: &Value| span["traceId"] == trace && span["name"] == name;
        found = spans(receiver).into_iter().find(is_meant);
        found.is_some()
    });
    found.expect("it has come")
}

/// The ids of a `traceparent` that a program has printed.
fn printed(stdout: &str) -> (String, String) {
    let parts: Vec<_> = stdout.trim().split('-').collect();
    assert_eq!((parts.len(), parts[0]), (4, "00"), "{stdout:?}");
    (parts[1].to_owned(), parts[2].to_owned())
}

fn parent(trace: &str) -> String {
    format!("00-{trace}-{CALLER}-01")
}

/// Prints both variables, on a line each.
fn exec_body() -> Value {
    json!({ "argv": ["sh", "-c", "echo $TRACEPARENT; echo $TRACESTATE"] })
}

#[test]
fn a_command_finds_the_span_that_its_callers_trace_has_for_it() {
    let receiver = Receiver::start(TAKES);
    let server = serve(receiver.port, "");
    let client = Client::new(server.url());
    let headers = [("traceparent", parent(TRACE)), ("tracestate", "a=b,c=d".to_owned())];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    post(&client, ALL, &headers, &json!({ "name": "box" })).expect(201);
    let ran = post(&client, &format!("{ALL}/default/box/exec"), &headers, &exec_body());
    let ran = ran.expect(200).json();
    let stdout = ran["stdout"].as_str().expect("text").to_owned();
    let (line, state) = stdout.split_once('\n').expect("two lines");
    assert_eq!(state.trim(), "a=b,c=d");
    let (trace, span) = printed(line);
    assert_eq!(trace, TRACE);
    let program = span_of(&receiver, TRACE, "program");
    assert_eq!(program["spanId"], span.as_str());
    let route = "POST /v1/sandboxes/{namespace}/{name}/exec";
    let request = span_of(&receiver, TRACE, route);
    assert_eq!(program["parentSpanId"], request["spanId"]);
    assert_eq!((&request["parentSpanId"], &request["kind"]), (&json!(CALLER), &json!(2)));
    assert_eq!(request["traceState"], "a=b,c=d");
    let length = stdout.len().to_string();
    for (key, value) in [
        ("burrow.namespace", "default"),
        ("burrow.sandbox", "box"),
        ("burrow.machine", "process"),
        ("burrow.cause", "exited"),
        ("process.exit.code", "0"),
        ("process.executable.name", "sh"),
        ("burrow.stdout_bytes", length.as_str()),
    ] {
        assert_eq!(attribute(&program, key), value, "{key}");
    }
    assert_eq!(attribute(&request, "http.response.status_code"), "200");
    assert_eq!(attribute(&request, "burrow.operation"), "exec");
    let id = client.get(&format!("{ALL}/default/box")).expect(200).json()["id"].clone();
    assert_eq!(attribute(&program, "burrow.sandbox.id"), id);
    assert_eq!(attribute(&request, "burrow.sandbox.id"), id);
    let made = span_of(&receiver, TRACE, "create sandbox");
    assert_eq!(made["parentSpanId"], span_of(&receiver, TRACE, "POST /v1/sandboxes")["spanId"]);
    assert_eq!(attribute(&made, "burrow.machine"), "process");
}

#[test]
fn each_door_has_spans_for_what_it_is_asked_and_for_what_it_runs() {
    let receiver = Receiver::start(TAKES);
    let server = serve(receiver.port, "signals = [\"traces\"]");
    let client = Client::new(server.url());
    client.post(ALL, &json!({ "name": "box" })).expect(201);
    let traces: Vec<_> = (1..=5).map(|number| format!("{number:032x}")).collect();
    let header = |number: usize| parent(&traces[number]);
    let is_child = |trace: &str, child: &str, above: &str| {
        let (child, above) = (span_of(&receiver, trace, child), span_of(&receiver, trace, above));
        assert_eq!(child["parentSpanId"], above["spanId"], "{child} within {above}");
    };

    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.command.run", "params": {
        "sandbox": "box", "command": "sh", "args": ["-c", "echo $TRACEPARENT"] } });
    let ran = post(&client, "/api/v1/rpc", &[("traceparent", &header(0))], &rpc).expect(200).json();
    let (trace, span) = printed(ran["result"]["stdout"].as_str().expect("text"));
    assert_eq!(
        (trace.as_str(), &span_of(&receiver, &trace, "program")["spanId"]),
        (traces[0].as_str(), &json!(span))
    );
    is_child(&traces[0], "program", "sandbox.command.run");
    is_child(&traces[0], "sandbox.command.run", "POST /api/v1/rpc");

    let code = json!({ "code": "print(1)\n1/0", "language": "python" });
    let path = format!("{ALL}/default/box/run");
    post(&client, &path, &[("traceparent", &header(1))], &code).expect(200);
    is_child(&traces[1], "run", "POST /v1/sandboxes/{namespace}/{name}/run");
    let run = span_of(&receiver, &traces[1], "run");
    assert_eq!(
        (attribute(&run, "burrow.cause"), attribute(&run, "burrow.stdout_bytes")),
        (json!("error"), json!("2"))
    );
    assert_eq!(run["status"]["code"], 2);

    let start = json!({ "argv": ["sh", "-c", "echo $TRACEPARENT; exec sleep 1000"] });
    let path = format!("{ALL}/default/box/sessions");
    let session = post(&client, &path, &[("traceparent", &header(2))], &start).expect(201).json();
    is_child(&traces[2], "start session", "POST /v1/sandboxes/{namespace}/{name}/sessions");
    let started = span_of(&receiver, &traces[2], "start session");
    assert_eq!(attribute(&started, "burrow.session"), session["session"]);
    // Both starts of one name have the same content, whichever trace they are a part of.
    let named = json!({ "argv": ["sleep", "1000"], "session": "one" });
    post(&client, &path, &[("traceparent", &header(2))], &named).expect(201);
    post(&client, &path, &[("traceparent", &header(3))], &named).expect(200);

    let tool = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "shell_execute",
        "arguments": { "sandbox": "box", "command": "echo $TRACEPARENT" },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": VERSION_WITHOUT_SESSIONS,
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {} } } });
    let parent = header(4);
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", VERSION_WITHOUT_SESSIONS),
        ("mcp-method", "tools/call"),
        ("mcp-name", "shell_execute"),
        ("traceparent", parent.as_str()),
    ];
    let answered = post(&client, "/mcp", &headers, &tool);
    let text = String::from_utf8_lossy(&answered.body).into_owned();
    assert!(text.contains(&format!("00-{}-", traces[4])), "{text}");
    is_child(&traces[4], "program", "shell_execute");
    is_child(&traces[4], "shell_execute", "POST /mcp");
}

#[test]
fn callers_decide_what_is_sampled_and_invalid_parents_are_ignored() {
    let receiver = Receiver::start(TAKES);
    let server = serve(receiver.port, "signals = [\"traces\"]");
    let client = Client::new(server.url());
    client.post(ALL, &json!({ "name": "box" })).expect(201);
    let path = format!("{ALL}/default/box/exec");
    let exec = |headers: &[(&str, &str)]| {
        let ran = post(&client, &path, headers, &exec_body()).expect(200).json();
        ran["stdout"].as_str().expect("text").to_owned()
    };
    let quiet = format!("00-{TRACE}-{CALLER}-00");
    let stdout = exec(&[("traceparent", &quiet)]);
    assert!(stdout.starts_with(&format!("00-{TRACE}-")) && stdout.contains("-00\n"), "{stdout}");
    for wrong in ["nonsense", &parent(&"0".repeat(32)), &parent(TRACE).to_uppercase()] {
        let stdout = exec(&[("traceparent", wrong), ("tracestate", "a=b")]);
        let (line, state) = stdout.split_once('\n').expect("two lines");
        let (trace, span) = printed(line);
        assert_ne!(trace, TRACE);
        assert_eq!(state.trim(), "", "the state of a parent that is none");
        assert_eq!(span_of(&receiver, &trace, "program")["spanId"], span.as_str());
    }
    // What its client gives a program is the program's.
    let own =
        json!({ "argv": ["sh", "-c", "echo $TRACEPARENT"], "env": { "TRACEPARENT": "mine" } });
    assert_eq!(post(&client, &path, &[], &own).expect(200).json()["stdout"], "mine\n");
    // The last one has come, and so would have the first.
    assert!(spans(&receiver).iter().all(|span| span["traceId"] != TRACE));
}

#[test]
fn figures_are_those_of_prometheus_and_records_know_their_trace() {
    let receiver = Receiver::start(TAKES);
    let mut server = serve(receiver.port, "resource = [\"deployment.environment.name=test\"]");
    let client = Client::new(server.url());
    client.post(ALL, &json!({ "name": "box", "env": { "A": "canary-environment" } })).expect(201);
    let path = format!("{ALL}/default/box/exec");
    let body = json!({ "argv": ["echo", "canary-output", "canary-argument"],
        "env": { "B": "canary-environment" } });
    post(&client, &path, &[("traceparent", &parent(TRACE))], &body).expect(200);
    let code = json!({ "code": "print('canary-output'); raise ValueError('canary-code')", "language": "python" });
    client.post(&format!("{ALL}/default/box/run"), &code).expect(200);
    let scraped = String::from_utf8(client.get("/metrics").body).expect("text");
    let families = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        lines.filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect()
    };
    eventually("all figures have come", || {
        let names: Vec<_> = metrics(&receiver).iter().map(|one| one["name"].clone()).collect();
        // Families without points are in no request.
        let has = |name: &String| names.iter().any(|sent| sent == name.as_str());
        let missing: Vec<_> = families(&scraped).into_iter().filter(|name| !has(name)).collect();
        missing.iter().all(|name| !scraped.lines().any(|line| line.starts_with(name)))
    });
    eventually("the record of the audit log has come", || {
        records(&receiver).iter().any(|record| {
            record["eventName"] == "burrow.audit" && record["body"]["stringValue"] == "exec: ok"
        })
    });
    let came = records(&receiver);
    let audited = came.iter().find(|record| record["body"]["stringValue"] == "exec: ok");
    assert_eq!(audited.expect("it has come")["traceId"], TRACE);
    let of_http = |record: &&Value| {
        attribute(record, "burrow.target") == "burrow::http" && record["traceId"] == TRACE
    };
    let line = came.iter().find(of_http).expect("the line of the request");
    assert_eq!(attribute(line, "burrow.operation"), "exec");
    let request = span_of(&receiver, TRACE, "POST /v1/sandboxes/{namespace}/{name}/exec");
    assert_eq!(line["spanId"], request["spanId"]);
    assert!(came.iter().any(|record| record["eventName"] == "burrow.sandbox.ready"), "{came:?}");
    // What happens last is sent too.
    client.delete(&format!("{ALL}/default/box?force=true")).expect(200);
    let end = server.end();
    assert_eq!(end, Some(0));
    let last = records(&receiver);
    assert!(
        last.iter().any(|record| record["body"]["stringValue"] == "bridge.ending: ok"),
        "{last:?}"
    );
    let taken = receiver.taken();
    for request in &taken {
        assert_eq!(request.header("authorization"), "Bearer canary-secret");
        assert_eq!(request.header("x-tenant"), "team");
        for canary in CANARIES {
            assert!(!request.body.contains(canary), "{canary}: {}", request.body);
        }
    }
    let resource = &taken[0].json()["resourceLogs"][0]["resource"];
    let of_all = taken.iter().find_map(|request| {
        request.json()["resourceSpans"][0]["resource"].as_object().map(|it| json!(it))
    });
    let resource = of_all.unwrap_or_else(|| resource.clone());
    assert_eq!(attribute(&resource, "service.name"), "burrow");
    assert_eq!(attribute(&resource, "deployment.environment.name"), "test");
    parses_by_the_definitions(&taken);
}

/// Parses all requests by the definitions of the protocol, as its authors publish them.
fn parses_by_the_definitions(requests: &[Request]) {
    let Some(home) = python_with("opentelemetry-proto", &["opentelemetry-proto"]) else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/otel/check.py");
    let mut python = Command::new(home.join("bin/python"))
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let mut lines = String::new();
    for request in requests {
        let signal = request.target.trim_start_matches("/v1/");
        let _ = writeln!(lines, "{}", json!({ "signal": signal, "body": request.json() }));
    }
    let mut input = python.stdin.take().expect("piped");
    let feeding = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = python.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    feeding.join().expect("no thread panics").expect("it is read");
    let counts: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for signal in ["traces", "metrics", "logs"] {
        assert!(counts[signal].as_u64() >= Some(1), "{counts}");
    }
}

/// What `/metrics` says was lost of a signal, for a reason.
fn lost(client: &Client, signal: &str, reason: &str) -> u64 {
    let text = String::from_utf8(client.get("/metrics").body).expect("text");
    let line = format!("burrow_otel_lost_total{{signal=\"{signal}\",reason=\"{reason}\"}} ");
    let found = text.lines().find_map(|one| one.strip_prefix(&line));
    found.expect("the series is there").parse().expect("a number")
}

#[test]
fn a_collector_that_hangs_or_is_busy_or_refuses_delays_no_request_and_no_end() {
    for (mode, reason) in
        [(Mode::Hang, None), (BUSY, None), (Mode::Close, None), (REFUSES, Some("refused"))]
    {
        let receiver = Receiver::start(mode.clone());
        let mut server = serve(receiver.port, "");
        let client = Client::new(server.url());
        eventually("something was sent", || receiver.came() > 0);
        let begun = Instant::now();
        for _ in 0..200 {
            client.get(ALL).expect(200);
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{mode:?}: {:?}", begun.elapsed());
        if let Some(reason) = reason {
            eventually("it is counted", || lost(&client, "logs", reason) > 0);
            let log = fs::read_to_string(server.log()).expect("it is there");
            let lines = log.lines().filter(|line| line.contains("telemetry is not sent"));
            let lines: Vec<_> = lines.collect();
            // One a minute for each signal.
            assert!((1..=3).contains(&lines.len()), "{lines:?}");
            assert!(
                lines.iter().any(|line| line.contains("status 400") && line.contains("words")),
                "{lines:?}"
            );
        }
        let begun = Instant::now();
        assert_eq!(server.end(), Some(0), "{mode:?}");
        assert!(begun.elapsed() < Duration::from_secs(12), "{mode:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn nothing_is_sent_and_no_program_learns_of_a_trace_where_it_is_off() {
    let receiver = Receiver::start(TAKES);
    let url = format!("http://127.0.0.1:{}", receiver.port);
    let burrow = Burrow::new().variable("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    let server = Server::start_in(burrow, &["--dev"]);
    let client = Client::new(server.url());
    client.post(ALL, &json!({ "name": "box" })).expect(201);
    let headers = [("traceparent", parent(TRACE))];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ran = post(&client, &format!("{ALL}/default/box/exec"), &headers, &exec_body());
    let ran = ran.expect(200).json();
    assert_eq!(ran["stdout"], "\n\n");
    let text = String::from_utf8(client.get("/metrics").body).expect("text");
    assert!(!text.contains("burrow_otel"), "{text}");
    assert_eq!(receiver.came(), 0);
}

#[test]
fn doctor_says_whether_the_collector_takes_telemetry() {
    let receiver = Receiver::start(TAKES);
    let burrow = Burrow::new();
    let url = format!("http://127.0.0.1:{}", receiver.port);
    let doctor = || {
        let mut command = burrow.command(&["doctor", "--json"]);
        command.env("BURROW_OTEL_ENABLED", "true").env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
        let output = command.output().expect("it runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let checks = report["checks"].as_array().cloned().unwrap_or_default();
        checks.into_iter().find(|check| check["name"] == "telemetry").expect("the check is there")
    };
    let check = doctor();
    assert_eq!(check["verdict"], "works", "{check}");
    assert_eq!(receiver.taken().len(), 3);
    receiver.set(REFUSES);
    let check = doctor();
    assert_eq!(check["verdict"], "lacks", "{check}");
    assert!(check["detail"].as_str().is_some_and(|text| text.contains("status 400")), "{check}");
}
