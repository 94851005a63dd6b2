//! Each tool, called as a model calls it.

use serde_json::{Value, json};
use tests::Burrow;
use tests::contexts::notebook;
use tests::mcp::{Lines, VERSION, text};

/// All that there are.
const TOOLS: [&str; 25] = [
    "cleanup_artifacts",
    "close_port",
    "create_manim_animation",
    "execute",
    "expose_port",
    "get_execution_info",
    "list_artifacts",
    "list_files",
    "list_ports",
    "list_web_apps",
    "metrics",
    "read_file",
    "read_output",
    "sandbox_create",
    "sandbox_list",
    "sandbox_remove",
    "sandbox_stop",
    "session_history",
    "session_info",
    "session_list",
    "session_remove",
    "shell_execute",
    "start_web_app",
    "stop_web_app",
    "write_file",
];

/// A picture of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn client() -> (Burrow, Lines) {
    let burrow = Burrow::new();
    let lines = Lines::open(&burrow, &[]);
    (burrow, lines)
}

#[test]
fn the_tools_are_listed_with_their_schemas_and_what_they_do() {
    let (_burrow, mut lines) = client();
    let listed = lines.ask("tools/list", &json!({}))["result"]["tools"].clone();
    let tools = listed.as_array().expect("tools");
    let mut names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, TOOLS);
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
    }
}

/// What a model reads before it does anything: some six thousand tokens.
const LISTED_BYTES_MAX: usize = 25_000;

#[test]
fn the_list_of_tools_is_short_and_says_nothing_twice() {
    let (_burrow, mut lines) = client();
    let listed = lines.ask("tools/list", &json!({}))["result"]["tools"].clone();
    let bytes = listed.to_string().len();
    assert!(bytes <= LISTED_BYTES_MAX, "{bytes} bytes");
    for tool in listed.as_array().expect("tools") {
        assert!(tool["annotations"].get("title").is_none(), "{tool}");
        let fields = tool["outputSchema"]["properties"].as_object().expect("fields");
        assert!(fields.values().all(|field| field.get("properties").is_none()), "{tool}");
    }
}

#[test]
fn a_result_is_lines_for_the_model_and_json_for_its_program() {
    let (_burrow, mut lines) = client();
    let made = lines.call("sandbox_create", &json!({ "name": "work" }));
    assert_eq!(made["structuredContent"]["sandbox"], "work");
    let message = text(&made);
    assert!(message.contains("sandbox: work") && message.contains("state: running"), "{message}");
    assert!(!message.contains(['{', '"']), "{message}");
}

#[test]
fn the_instructions_say_what_the_sandbox_has_reaches_and_lacks() {
    let burrow = Burrow::new();
    let mut lines = Lines::start(&burrow, &[]);
    let about = lines.initialize(VERSION)["instructions"].as_str().expect("words").to_owned();
    assert!(about.contains("no network") && about.contains("@pypi"), "{about}");
    assert_eq!(about.matches(". ").count() + 1, 3, "three sentences: {about}");
    let mut lines = Lines::start(&burrow, &["--egress", "@npm", "--egress", "example.org"]);
    let about = lines.initialize(VERSION)["instructions"].as_str().expect("words").to_owned();
    assert!(about.contains("@npm, example.org") && !about.contains("no network"), "{about}");
    assert!(!about.contains("/workspace"), "{about}");
    let directory = burrow.scratch().to_str().expect("UTF-8");
    let mut lines = Lines::start(&burrow, &["--workspace", directory]);
    let about = lines.initialize(VERSION)["instructions"].as_str().expect("words").to_owned();
    assert!(about.contains("at `/workspace`"), "{about}");
    assert_eq!(about.matches(". ").count() + 1, 3, "three sentences: {about}");
}

#[test]
fn the_sandbox_of_a_session_has_what_its_client_was_set_up_with() {
    let burrow = Burrow::new();
    let project = burrow.scratch().join("project");
    std::fs::create_dir(&project).expect("a directory");
    std::fs::write(project.join("data.txt"), "of the host\n").expect("a file");
    let workspace = project.to_str().expect("UTF-8");
    let mut lines = Lines::open(&burrow, &["--egress", "@pypi", "--workspace", workspace]);
    let read = lines.ok("shell_execute", &json!({ "command": "cat /workspace/data.txt" }));
    assert_eq!(read["stdout"], "of the host\n");
    let info = lines.ok("get_execution_info", &json!({}));
    assert_eq!(info["sandbox"]["egress"], json!(["@pypi"]));
}

#[test]
fn code_runs_in_a_virtual_environment() {
    let (_burrow, mut lines) = client();
    let made = json!({ "command": "python3 -m venv --without-pip /tmp/own" });
    lines.ok("shell_execute", &made);
    let code = "import os, sys\n(sys.prefix, os.environ['PATH'].split(':')[0])";
    let body = json!({ "code": code, "venv": "/tmp/own", "context": "own" });
    assert_eq!(lines.ok("execute", &body)["value"], "('/tmp/own', '/tmp/own/bin')");
    let refused = lines.call("execute", &json!({ "code": "1", "venv": "/tmp/own" }));
    assert!(text(&refused).contains("context"), "{refused}");
}

#[test]
fn a_whole_notebook_runs_cell_by_cell() {
    let (_burrow, mut lines) = client();
    let ran = lines.ok("execute", &json!({ "code": notebook() }));
    assert_eq!((ran["stdout"].as_str(), ran["value"].as_str()), (Some("first\n"), Some("42")));
}

#[test]
fn variables_live_on_and_the_last_value_is_returned() {
    let (_burrow, mut lines) = client();
    let first = lines.ok("execute", &json!({ "code": "x = 41\nprint('set')" }));
    assert_eq!((first["stdout"].as_str(), first["status"].as_str()), (Some("set\n"), Some("ok")));
    assert!(first["sandbox"].as_str().unwrap().starts_with("mcp-"));
    let result = lines.call("execute", &json!({ "code": "x + 1" }));
    assert_eq!(result["structuredContent"]["value"], "42");
    assert!(text(&result).contains("42") && text(&result).contains("[sandbox mcp-"), "{result}");
    let other = lines.ok("execute", &json!({ "code": "'x' in globals()", "context": "other" }));
    assert_eq!(other["value"], "False");
    let bash = lines.ok("execute", &json!({ "code": "echo $((6 * 7))", "language": "bash" }));
    assert_eq!(bash["stdout"], "42\n");
    let node = lines.call("execute", &json!({ "code": "6 * 7", "language": "js" }));
    if node["isError"] == false {
        assert_eq!(node["structuredContent"]["value"], "42");
    }
}

#[test]
fn a_failure_is_an_error_with_all_earlier_output() {
    let (_burrow, mut lines) = client();
    let failing = "import sys\nprint('before')\nprint('aside', file=sys.stderr)\n1 / 0";
    let result = lines.call("execute", &json!({ "code": failing }));
    assert_eq!(result["isError"], true);
    let answer = &result["structuredContent"];
    assert_eq!(
        (answer["stdout"].as_str(), answer["stderr"].as_str()),
        (Some("before\n"), Some("aside\n"))
    );
    assert_eq!(answer["error"]["type"], "ZeroDivisionError");
    assert_eq!(answer["error"]["message"], "division by zero");
    assert_eq!(answer["state_kept"], true);
    let message = text(&result);
    assert!(message.contains("before") && message.contains("Traceback"), "{message}");

    let result =
        lines.call("shell_execute", &json!({ "command": "echo out; echo err >&2; exit 3" }));
    assert_eq!(result["isError"], true);
    let answer = &result["structuredContent"];
    assert_eq!(answer["exit_code"], 3);
    assert_eq!(
        (answer["stdout"].as_str(), answer["stderr"].as_str()),
        (Some("out\n"), Some("err\n"))
    );
}

#[test]
fn a_timeout_is_typed_and_says_what_is_left() {
    let (_burrow, mut lines) = client();
    lines.ok("execute", &json!({ "code": "kept = 1" }));
    let slow = json!({ "code": "print('begun', flush=True)\nwhile True: pass", "timeout": 0.5 });
    let result = lines.call("execute", &slow);
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["status"], "timed_out", "{result}");
    assert_eq!(result["structuredContent"]["stdout"], "begun\n");
    assert!(text(&result).contains("timeout: "), "{result}");
    assert_eq!(lines.ok("execute", &json!({ "code": "kept" }))["value"], "1");
    let result =
        lines.call("shell_execute", &json!({ "command": "echo a; sleep 60", "timeout": 0.5 }));
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["status"], "timed_out", "{result}");
    assert_eq!(result["structuredContent"]["stdout"], "a\n");
}

#[test]
fn lost_variables_are_reported_as_lost() {
    let (_burrow, mut lines) = client();
    lines.ok("execute", &json!({ "code": "x = 1" }));
    let died = lines.call("execute", &json!({ "code": "import os; os.kill(os.getpid(), 9)" }));
    assert_eq!(died["isError"], true);
    assert_eq!(died["structuredContent"]["status"], "died", "{died}");
    assert_eq!(died["structuredContent"]["state_kept"], false);
    assert!(text(&died).contains("variables are lost"), "{died}");
}

#[test]
fn pictures_are_images_and_other_displays_say_what_they_are() {
    let (_burrow, mut lines) = client();
    let code = format!(
        "import base64\nclass P:\n  def _repr_png_(self): return base64.b64decode('{PIXEL}')\n\
         class S:\n  def _repr_svg_(self): return '<svg xmlns=\"http://www.w3.org/2000/svg\"/>'\n\
         display(S())\nP()"
    );
    let result = lines.call("execute", &json!({ "code": code }));
    assert_eq!(result["isError"], false, "{result}");
    let blocks = result["content"].as_array().unwrap();
    let image = blocks.iter().find(|block| block["type"] == "image").expect("an image");
    assert_eq!(image["mimeType"], "image/png");
    assert_eq!(image["data"], PIXEL);
    let drawing = blocks.iter().find(|block| block["type"] == "resource").expect("a resource");
    assert_eq!(drawing["resource"]["mimeType"], "image/svg+xml");
    assert!(drawing["resource"]["text"].as_str().unwrap().starts_with("<svg"));
}

#[test]
fn cut_output_is_read_on_to_its_last_byte() {
    let (_burrow, mut lines) = client();
    let code = "for n in range(20000): print('line', n, 'é')";
    let first = lines.ok("execute", &json!({ "code": code }));
    assert_eq!(first["truncated"], true);
    let whole = tests::lines("line ", 0..20000).replace('\n', " é\n");
    let (run, rest) = (&first["run"], &first["rest"][0]);
    assert_eq!(rest["total_bytes"], whole.len());
    let mut joined = first["stdout"].as_str().unwrap().to_owned();
    assert_eq!(rest["next_offset"], joined.len());
    let mut offset = rest["next_offset"].clone();
    while !offset.is_null() {
        let more = lines.ok("read_output", &json!({ "run": run, "offset": offset }));
        joined.push_str(more["text"].as_str().unwrap());
        offset = more["next_offset"].clone();
    }
    assert!(joined == whole, "{} of {} bytes", joined.len(), whole.len());
    let unknown = lines.call("read_output", &json!({ "run": "r99", "offset": 0 }));
    assert_eq!(unknown["isError"], true);
    assert!(text(&unknown).contains("r1"), "{unknown}");
}

#[test]
fn files_are_written_listed_and_read_as_what_they_are() {
    let (_burrow, mut lines) = client();
    let early = lines.call("read_file", &json!({ "path": "/etc/hostname" }));
    assert_eq!(early["isError"], true, "what only reads makes no sandbox");
    let path = "/tmp/made/some file.csv";
    let written = lines.ok("write_file", &json!({ "path": path, "content": "a,b\n" }));
    assert_eq!(written["bytes"], 4);
    lines.ok("write_file", &json!({ "path": path, "content": "1,€\n", "append": true }));
    let read = lines.ok("read_file", &json!({ "path": path }));
    assert_eq!(
        (read["text"].as_str(), read["mime_type"].as_str()),
        (Some("a,b\n1,€\n"), Some("text/csv"))
    );
    // In parts, none of which ends within a character.
    let first = lines.ok("read_file", &json!({ "path": path, "limit": 7 }));
    assert_eq!(first["text"], "a,b\n1,");
    let rest = json!({ "path": path, "offset": first["next_offset"] });
    assert_eq!(lines.ok("read_file", &rest)["text"], "€\n");

    let picture = "/tmp/made/pixel";
    lines.ok("write_file", &json!({ "path": picture, "content_base64": PIXEL }));
    let read = lines.call("read_file", &json!({ "path": picture }));
    assert_eq!(read["content"][0]["type"], "image", "{read}");
    assert_eq!(read["content"][0]["data"], PIXEL);
    lines.ok("write_file", &json!({ "path": "/tmp/made/x.bin", "content_base64": "/wAB" }));
    let read = lines.call("read_file", &json!({ "path": "/tmp/made/x.bin" }));
    assert_eq!(read["content"][0]["resource"]["blob"], "/wAB", "{read}");
    assert_eq!(read["content"][0]["resource"]["mimeType"], "application/octet-stream");

    let listed = lines.ok("list_files", &json!({ "path": "/tmp/made" }));
    let entries = listed["entries"].as_array().unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pixel", "some file.csv", "x.bin"]);
    for wrong in
        [json!({ "path": "tmp" }), json!({ "path": "/tmp/made" }), json!({ "path": "/no" })]
    {
        let refused = lines.call("read_file", &wrong);
        assert_eq!(refused["isError"], true, "{wrong}");
    }
}

#[test]
fn sandboxes_are_handles_that_are_made_listed_and_ended() {
    let (_burrow, mut lines) = client();
    let body =
        json!({ "name": "work", "memory_mib": 256, "env": { "A": "1" }, "ttl_seconds": 600 });
    assert_eq!(lines.ok("sandbox_create", &body)["sandbox"], "work");
    let echoed = json!({ "command": "echo $A", "sandbox": "work" });
    assert_eq!(lines.ok("shell_execute", &echoed)["stdout"], "1\n");
    lines.ok("execute", &json!({ "code": "1" }));
    let listed = lines.ok("sandbox_list", &json!({}));
    let rows = listed["sandboxes"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{listed}");
    assert!(rows.iter().any(|row| row["sandbox"] == listed["own"]), "{listed}");
    let taken = lines.call("sandbox_create", &json!({ "name": "work" }));
    assert_eq!(taken["isError"], true);
    let stopped = lines.ok("sandbox_stop", &json!({ "sandbox": "work" }));
    assert_eq!(stopped["state"], "stopped");
    let refused = lines.call("shell_execute", &echoed);
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).starts_with("conflict: "), "{refused}");
    assert_eq!(lines.ok("sandbox_remove", &json!({ "sandbox": "work" }))["state"], "removed");
    let unknown = lines.call("sandbox_remove", &json!({ "sandbox": "work" }));
    assert!(text(&unknown).contains("sandbox_list"), "{unknown}");
    // A session whose own sandbox is gone gets another, with a notice.
    let own = listed["own"].as_str().unwrap();
    lines.ok("sandbox_remove", &json!({ "sandbox": own }));
    let again = lines.call("execute", &json!({ "code": "1" }));
    assert_eq!(again["isError"], false, "{again}");
    assert_ne!(again["structuredContent"]["sandbox"], own);
    assert!(text(&again).contains("this result is from a new sandbox"), "{again}");
}

#[test]
fn a_port_is_reached_from_the_host_until_it_is_closed() {
    let (_burrow, mut lines) = client();
    let serve = "import http.server, threading\n\
        server = http.server.HTTPServer(('127.0.0.1', 8000), http.server.SimpleHTTPRequestHandler)\n\
        threading.Thread(target=server.serve_forever, daemon=True).start()";
    lines.ok("execute", &json!({ "code": serve }));
    let open = lines.ok("expose_port", &json!({ "port": 8000 }));
    let url = open["url"].as_str().unwrap().trim_end_matches('/').to_owned();
    assert_eq!(tests::http::Client::new(&url).get("/").status, 200);
    assert_eq!(lines.ok("expose_port", &json!({ "port": 8000 }))["host_port"], open["host_port"]);
    assert_eq!(lines.ok("list_ports", &json!({}))["ports"].as_array().unwrap().len(), 1);
    lines.ok("close_port", &json!({ "host_port": open["host_port"] }));
    assert_eq!(lines.ok("list_ports", &json!({}))["ports"], json!([]));
}

#[test]
fn there_is_something_to_know_before_and_after_the_first_run() {
    let (_burrow, mut lines) = client();
    let before = lines.ok("get_execution_info", &json!({}));
    assert!(before.get("own_sandbox").is_none(), "{before}");
    lines.ok("execute", &json!({ "code": "1" }));
    let after = lines.ok("get_execution_info", &json!({}));
    assert_eq!(after["contexts"][0]["context"], "python", "{after}");
    assert_eq!(after["sandbox"]["name"], after["own_sandbox"]);
    let used = lines.ok("metrics", &json!({}));
    assert_eq!(used["samples"].as_array().unwrap().len(), 1, "{used}");
}

#[test]
fn a_command_that_cannot_begin_says_why() {
    let (_burrow, mut lines) = client();
    let body = json!({ "command": "pwd", "working_directory": "/no/such/place" });
    let result = lines.call("shell_execute", &body);
    assert_eq!(result["isError"], true, "{result}");
    let message = text(&result);
    assert!(
        message.contains("/no/such/place") && message.contains("working_directory"),
        "{result}"
    );
}

#[test]
fn a_session_whose_sandbox_has_ended_still_says_what_there_is() {
    let (_burrow, mut lines) = client();
    let own = lines.ok("execute", &json!({ "code": "1" }))["sandbox"].clone();
    lines.ok("sandbox_remove", &json!({ "sandbox": own }));
    let info = lines.ok("get_execution_info", &json!({}));
    assert!(info.get("own_sandbox").is_none(), "{info}");
    assert!(lines.ok("sandbox_list", &json!({})).get("own").is_none());
    let refused = lines.call("read_file", &json!({ "path": "/etc/hostname" }));
    assert!(text(&refused).contains("this session has no sandbox of its own"), "{refused}");
}

#[test]
fn names_that_are_no_text_are_listed_to_the_last() {
    let (_burrow, mut lines) = client();
    let code = "import os\nos.mkdir(b'/tmp/names')\n\
        for n in range(600): open(b'/tmp/names/\\xff%03d' % n, 'w').close()";
    lines.ok("execute", &json!({ "code": code }));
    let (mut found, mut body) = (Vec::new(), json!({ "path": "/tmp/names" }));
    loop {
        let page = lines.ok("list_files", &body);
        let entries = page["entries"].as_array().expect("entries").clone();
        found.extend(entries.iter().map(|entry| entry["name_base64"].to_string()));
        assert!(!entries.is_empty() && found.len() <= 600, "it gets on, and no further");
        let Some(next) = page.get("next") else { break };
        body["after"] = next.clone();
    }
    found.dedup();
    assert_eq!(found.len(), 600);
}

#[test]
fn long_output_is_truncated_and_marked() {
    let (_burrow, mut lines) = client();
    let raised = lines.call("execute", &json!({ "code": "raise ValueError('x' * 100000)" }));
    let message = raised["structuredContent"]["error"]["message"].as_str().expect("a message");
    assert!(message.len() < 40_000 && message.contains("[cut: "), "{}", message.len());
    let value = lines.ok("execute", &json!({ "code": "'y' * 100000" }));
    let value = value["value"].as_str().expect("a value");
    assert!(value.len() < 40_000 && value.contains("[cut: "), "{}", value.len());
}

#[test]
fn bad_arguments_are_refused_in_words_that_help() {
    let (_burrow, mut lines) = client();
    let wrong: [(&str, Value, &str); 7] = [
        ("execute", json!({}), "code"),
        ("execute", json!({ "code": "1", "colour": 1 }), "colour"),
        ("execute", json!({ "code": "1", "language": "cobol" }), "python"),
        ("execute", json!({ "code": "1", "timeout": -1 }), "timeout"),
        ("execute", json!({ "code": "1", "sandbox": "../x" }), "sandbox"),
        ("execute", json!({ "code": "1", "sandbox": "nobody" }), "sandbox_list"),
        ("write_file", json!({ "path": "/tmp/x" }), "content"),
    ];
    for (tool, arguments, word) in wrong {
        let result = lines.call(tool, &arguments);
        assert_eq!(result["isError"], true, "{arguments}");
        assert!(text(&result).contains(word), "{arguments}: {result}");
        assert!(result.get("structuredContent").is_none(), "{result}");
    }
    let unknown = lines.ask("tools/call", &json!({ "name": "fly", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}
