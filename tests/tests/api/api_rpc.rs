//! JSON-RPC against a real server. What the published SDKs make of it is `sdk`'s to test; here is what
//! they do not show.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::eventually;
use tests::http::{Answer, Client};
use tests::server::Server;
use tests::workspaces::Scene;

const PATH: &str = "/api/v1/rpc";

/// A server and a client of its JSON-RPC.
struct Rpc {
    server: Server,
    client: Client,
}

impl Rpc {
    fn new() -> Self {
        let server = Server::dev();
        let client = Client::new(server.url());
        Self { server, client }
    }

    /// With a running sandbox that is called `box`.
    fn with_sandbox() -> Self {
        let rpc = Self::new();
        rpc.result("sandbox.start", json!({ "config": { "image": "microsandbox/python" } }));
        rpc
    }

    fn call(&self, method: &str, params: Value) -> Value {
        call(&self.client, method, params)
    }

    fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    fn error(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params);
        assert!(answer.get("result").is_none(), "{answer}");
        answer["error"].clone()
    }

    fn python(&self, code: &str) -> Value {
        self.result("sandbox.repl.run", json!({ "language": "python", "code": code }))
    }

    fn shell(&self, script: &str) -> Value {
        self.result("sandbox.command.run", json!({ "command": "sh", "args": ["-c", script] }))
    }

    fn post(&self, body: &str) -> Answer {
        self.client.send("POST", PATH, &[("content-type", "application/json")], body.as_bytes())
    }
}

/// Calls a method for the sandbox `box`, unless the parameters name another.
fn call(client: &Client, method: &str, mut params: Value) -> Value {
    let fields = params.as_object_mut().expect("parameters");
    fields.entry("sandbox").or_insert(json!("box"));
    let request = json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": "1" });
    let answer = client.post(PATH, &request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let value = answer.json();
    assert_eq!((&value["jsonrpc"], &value["id"]), (&json!("2.0"), &json!("1")));
    value
}

/// The lines of one stream.
fn lines<'a>(result: &'a Value, stream: &str) -> Vec<&'a str> {
    let entries = result["output"].as_array().expect("a list");
    let of_stream = entries.iter().filter(|entry| entry["stream"] == stream);
    of_stream.map(|entry| entry["text"].as_str().expect("a text")).collect()
}

#[test]
fn code_keeps_its_state_and_shows_its_last_value() {
    let rpc = Rpc::with_sandbox();
    assert_eq!(
        rpc.python("x = 41\nprint('a')\n\nx + 1")["output"],
        json!([
            { "stream": "stdout", "text": "a" }, { "stream": "stdout", "text": "42" }
        ])
    );
    let result = rpc.python("x / 0");
    assert_eq!(result["status"], "error");
    assert!(lines(&result, "stderr").last().unwrap().starts_with("ZeroDivisionError"), "{result}");
    let result = rpc.python("print('Hello'); import sys; sys.exit(1)");
    assert_eq!((&result["status"], lines(&result, "stdout")), (&json!("error"), vec!["Hello"]));
    assert_eq!(lines(&rpc.python("x"), "stdout"), ["41"]);
}

#[test]
fn an_overrun_is_an_error_with_the_output_until_then() {
    let rpc = Rpc::with_sandbox();
    rpc.python("kept = 7");
    let code = "print('partial')\nwhile True: pass";
    let error = rpc
        .error("sandbox.repl.run", json!({ "language": "python", "code": code, "timeout": 0.5 }));
    assert_eq!(error["code"], -32004);
    assert!(error["message"].as_str().unwrap().contains("0.5 s"), "{error}");
    let data = &error["data"];
    assert_eq!((&data["status"], &data["state_kept"]), (&json!("timeout"), &json!(true)));
    assert_eq!(lines(data, "stdout"), ["partial"]);
    assert_eq!(lines(&rpc.python("kept"), "stdout"), ["7"]);
    let error = rpc.error(
        "sandbox.command.run",
        json!({ "command": "sh", "args": ["-c", "echo partial; sleep 60"], "timeout": 0.5 }),
    );
    assert_eq!((&error["code"], &error["data"]["stdout"]), (&json!(-32004), &json!("partial\n")));
}

#[test]
fn a_timeout_counts_from_the_question_and_not_from_the_turn() {
    let rpc = Rpc::with_sandbox();
    rpc.python("kept = 7");
    let ask = |code: &str, timeout: u64| {
        let client = Client::new(rpc.server.url());
        let params = json!({ "language": "python", "code": code, "timeout": timeout });
        call(&client, "sandbox.repl.run", params)["error"].clone()
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| ask("open('/tmp/on', 'w')\nwhile True: pass", 4));
        eventually("the first runs", || rpc.shell("ls /tmp")["stdout"].as_str() == Some("on\n"));
        let third = scope.spawn(|| {
            let begun = Instant::now();
            (ask("print('partial')\nwhile True: pass", 5), begun.elapsed())
        });
        let begun = Instant::now();
        let second = ask("print(1)", 1);
        assert!(begun.elapsed() < Duration::from_millis(1900), "{:?}", begun.elapsed());
        assert_eq!(second["code"], -32004);
        let message = second["message"].as_str().unwrap();
        assert!(message.contains("waited") && message.contains("1 s"), "{second}");
        assert_eq!(second["data"]["status"], "timeout");
        assert_eq!(first.join().unwrap()["code"], -32004);
        let (third, took) = third.join().unwrap();
        assert_eq!(
            (&third["code"], lines(&third["data"], "stdout")),
            (&json!(-32004), vec!["partial"])
        );
        assert!(third["message"].as_str().unwrap().contains("deadline of 5 s"), "{third}");
        assert!(took < Duration::from_millis(6500), "what was left of it: {took:?}");
    });
    assert_eq!(lines(&rpc.python("kept"), "stdout"), ["7"]);
}

#[test]
fn a_deadline_of_the_call_leaves_time_to_answer_with_the_output_until_then() {
    let rpc = Rpc::with_sandbox();
    rpc.python("1");
    let run = json!({ "language": "python", "code": "print('partial')\nwhile True: pass" });
    let command = json!({ "command": "sh", "args": ["-c", "echo partial; sleep 60"] });
    for (method, mut params) in [("sandbox.repl.run", run), ("sandbox.command.run", command)] {
        params["sandbox"] = json!("box");
        let request = json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": "1" });
        let headers = [("burrow-deadline-ms", "2000")];
        let answer = rpc.client.send("POST", PATH, &headers, request.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(
            (&error["code"], lines(&error["data"], "stdout")),
            (&json!(-32004), vec!["partial"])
        );
        let message = error["message"].as_str().expect("text");
        assert!(message.contains("at its deadline of 2 s"), "{message}");
    }
}

#[test]
fn a_command_has_both_shapes_and_no_shell() {
    let rpc = Rpc::with_sandbox();
    let result = rpc.shell("echo out; echo err >&2; printf end; exit 3");
    assert_eq!(
        (lines(&result, "stdout"), lines(&result, "stderr")),
        (vec!["out", "end"], vec!["err"])
    );
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("out\nend"), &json!("err\n")));
    assert_eq!((&result["exit_code"], &result["success"]), (&json!(3), &json!(false)));
    let args = json!(["$HOME", "*", "a  b", ""]);
    let params = json!({ "command": "printf", "args": ["%s|", args[0], args[1], args[2]] });
    assert_eq!(rpc.result("sandbox.command.run", params)["stdout"], "$HOME|*|a  b|");
    for (params, code) in [
        (json!({ "command": "no-such-program" }), -32005),
        (json!({ "command": "true", "working_directory": "/no/such" }), -32005),
        (json!({ "command": "true", "args": "x" }), -32602),
        (json!({ "command": "true", "sandbox": "other" }), -32001),
    ] {
        let error = rpc.error("sandbox.command.run", params);
        assert_eq!(error["code"], code, "{error}");
    }
}

#[test]
fn more_output_than_an_answer_holds_is_cut_and_marked_so() {
    let rpc = Rpc::with_sandbox();
    let result = rpc.shell("yes 0123456789 | head -c 150000000");
    assert_eq!((&result["truncated"], &result["exit_code"]), (&json!(true), &json!(0)));
    assert!(lines(&result, "stderr").last().unwrap().contains("cut short"));
    assert!(result["stdout"].as_str().unwrap().len() > 10_000_000);
    let peak = tests::resident_bytes_peak(rpc.server.daemon_pid()).unwrap();
    assert!(peak < 400 << 20, "{peak}");
    assert_eq!(rpc.shell("echo on")["stdout"], "on\n");
}

#[test]
fn starts_of_one_name_make_one_sandbox_and_stops_are_repeated() {
    let rpc = Rpc::new();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| rpc.result("sandbox.start", json!({})));
        }
    });
    assert_eq!(lines(&rpc.python("1"), "stdout"), ["1"]);
    // One that somebody has stopped gives way to a new one.
    rpc.server.ok(&["stop", "box"]);
    let error = rpc.error("sandbox.repl.run", json!({ "language": "python", "code": "1" }));
    assert!(error["message"].as_str().unwrap().contains("sandbox.start"), "{error}");
    rpc.result("sandbox.start", json!({}));
    assert_eq!(lines(&rpc.python("2"), "stdout"), ["2"]);
    for _ in 0..2 {
        rpc.result("sandbox.stop", json!({}));
    }
    assert_eq!(rpc.result("sandbox.metrics.get", json!({}))["sandboxes"], json!([]));
}

#[test]
fn a_start_refuses_unsupported_options_and_applies_the_others() {
    let scene = Scene::usual();
    let client = Client::new(scene.server.url());
    let start = |config: Value| call(&client, "sandbox.start", json!({ "config": config }));
    for config in [
        json!({ "machine": "qemu" }),
        json!({ "ttl_ms": 1000 }),
        json!({ "workspace": "no-such" }),
        json!({ "workspace": "/" }),
        json!({ "labels": ["no pair"] }),
        json!({ "ports": { "80": "80" } }),
        json!({ "ttl": 60 }),
        json!({ "scripts": { "start": "true" } }),
    ] {
        let answer = start(config.clone());
        // Everybody is an administrator on a server without keys, and may name a directory.
        let may = config["workspace"] == "/" && answer["error"]["message"].is_string();
        assert!(answer.get("result").is_none() || may, "{config}: {answer}");
    }
    let given = start(json!({ "workspace": "p", "labels": { "team": "a" }, "volumes": [] }));
    assert!(given.get("error").is_none(), "{given}");
    let read = json!({ "command": "cat", "args": ["/workspace/readme"] });
    assert_eq!(call(&client, "sandbox.command.run", read)["result"]["stdout"], "hello");
    let record = client.get("/v1/sandboxes/default/box").expect(200).json();
    assert_eq!(record["labels"], json!({ "team": "a" }));
}

#[test]
fn a_client_that_is_gone_takes_its_run_and_its_command_with_it() {
    let rpc = Rpc::with_sandbox();
    rpc.python("kept = 1");
    let leave = |method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let body = request.to_string();
        let host = rpc.server.url().trim_start_matches("http://").to_owned();
        let mut raw = rpc.client.raw();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        raw.write_all(format!("{head}{body}").as_bytes()).expect("a server that reads");
        raw
    };
    let loop_on = json!({ "sandbox": "box", "language": "python", "code": "while True: pass" });
    let run = leave("sandbox.repl.run", loop_on);
    let script = "touch /tmp/on; sleep 4001 & sleep 4002";
    let sleep = json!({ "sandbox": "box", "command": "sh", "args": ["-c", script] });
    let command = leave("sandbox.command.run", sleep);
    let count = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]00' || true";
    eventually("the command is on", || rpc.shell(count)["stdout"] != "0\n");
    drop((run, command));
    let begun = Instant::now();
    assert_eq!(lines(&rpc.python("kept"), "stdout"), ["1"], "it was interrupted, not lost");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    eventually("the command is gone", || rpc.shell(count)["stdout"] == "0\n");
}

#[test]
fn a_batch_is_answered_in_its_order_without_its_notifications() {
    let rpc = Rpc::with_sandbox();
    let run = |code: &str, id: Value| {
        let params = json!({ "sandbox": "box", "language": "python", "code": code });
        let mut request =
            json!({ "jsonrpc": "2.0", "method": "sandbox.repl.run", "params": params });
        if !id.is_null() {
            request["id"] = id;
        }
        request
    };
    let batch =
        json!([run("1", json!("a")), run("noticed = 5", Value::Null), 7, run("2", json!(2))]);
    let answers = rpc.client.post(PATH, &batch).json();
    assert_eq!(answers.as_array().unwrap().len(), 3, "{answers}");
    assert_eq!(
        (&answers[0]["id"], lines(&answers[0]["result"], "stdout")),
        (&json!("a"), vec!["1"])
    );
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&Value::Null, &json!(-32600)));
    assert_eq!((&answers[2]["id"], lines(&answers[2]["result"], "stdout")), (&json!(2), vec!["2"]));
    assert_eq!(lines(&rpc.python("noticed"), "stdout"), ["5"]);
    let answer = rpc.post(&json!([run("3", Value::Null)]).to_string());
    assert_eq!((answer.status, answer.body.len()), (204, 0));
}

#[test]
fn early_refusals_are_json_rpc_answers_too() {
    let rpc = Rpc::new();
    let form = rpc.client.send("POST", PATH, &[("content-type", "text/plain")], b"{}");
    let late = rpc.client.send("POST", PATH, &[("burrow-deadline-ms", "0")], b"{}");
    let server = Server::with_keys();
    let stranger = Client::new(server.url()).send("POST", PATH, &[], b"{}");
    for (answer, status) in [(form, 415), (late, 400), (stranger, 401)] {
        assert_eq!(answer.status, status, "{}", answer.text());
        let value = answer.json();
        assert_eq!((&value["jsonrpc"], &value["id"]), (&json!("2.0"), &Value::Null));
        assert!(value["error"]["message"].as_str().unwrap().split(' ').count() > 3, "{value}");
    }
    assert_eq!(rpc.client.get(PATH).status, 405);
}

#[test]
fn a_key_that_may_only_read_gets_403_in_words() {
    let server = Server::with_keys();
    let reader = server.ok(&["keygen", "--scope", "read"]);
    let client = Client::new(server.url()).key(reader.trim());
    let ask = |method: &str| {
        let request =
            json!({ "jsonrpc": "2.0", "method": method, "params": { "sandbox": "box" }, "id": 1 });
        client.post(PATH, &request)
    };
    eventually("the server knows the key", || ask("sandbox.metrics.get").status == 200);
    for method in ["sandbox.start", "sandbox.stop", "sandbox.repl.run", "sandbox.command.run"] {
        let answer = ask(method);
        assert_eq!(answer.status, 403, "{method}");
        assert_eq!(answer.json()["id"], 1);
        assert!(answer.text().contains("scope"), "{}", answer.text());
    }
}

#[test]
fn each_request_of_a_batch_counts_for_the_rate_of_its_key() {
    let rate = ["server.requests_per_second=1", "server.requests_burst=10"];
    let server = Server::start(&["--set", rate[0], "--set", rate[1]]);
    let client = Client::new(server.url()).key(server.ok(&["keygen"]).trim());
    let figures =
        |id: usize| json!({ "jsonrpc": "2.0", "method": "sandbox.metrics.get", "id": id });
    eventually("the server knows the key", || client.post(PATH, &figures(0)).status == 200);
    let batch: Vec<Value> = (0..100).map(figures).collect();
    let answers = client.post(PATH, &json!(batch)).json();
    let answers = answers.as_array().unwrap();
    let refused = answers.iter().filter(|answer| answer["error"]["code"] == -32003);
    let refused: Vec<&Value> = refused.collect();
    assert_eq!(answers.len(), 100);
    assert!((80..100).contains(&refused.len()), "{} were refused", refused.len());
    let error = &refused[0]["error"];
    assert!(error["data"]["retry_after"].as_u64().unwrap() >= 1, "{error}");
    assert!(error["message"].as_str().unwrap().contains("again in"), "{error}");
    assert_eq!(answers[0]["error"], Value::Null);
}
