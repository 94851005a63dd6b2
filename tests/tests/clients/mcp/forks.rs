//! Forks, commands that are tried, templates and snapshots, as tools.

use serde_json::{Value, json};
use tests::Burrow;
use tests::http::Client;
use tests::machines::machines_or_skip;
use tests::mcp::{Lines, VERSION, Web, text};
use tests::server::Server;

fn changes(ran: &Value) -> Vec<(String, String)> {
    let all = ran["changes"].as_array().into_iter().flatten();
    let word = |one: &Value| one.as_str().expect("a word").to_owned();
    all.map(|one| (word(&one["change"]), word(&one["path"]))).collect()
}

fn names(lines: &mut Lines) -> Vec<String> {
    let listed = lines.ok("sandbox_list", &json!({}));
    let all = listed["sandboxes"].as_array().expect("a list").iter();
    all.map(|one| one["sandbox"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_command_is_tried_in_a_fork_that_is_dropped_or_kept() {
    let burrow = Burrow::serving();
    let mut lines = Lines::open(&burrow, &[]);
    lines.ok("sandbox_create", &json!({ "name": "work" }));
    let shell = |command: &str| json!({ "command": command, "sandbox": "work" });
    lines.ok("shell_execute", &shell("echo 1 > /tmp/version; echo old > /tmp/old"));
    let mut attempt =
        shell("echo 2 > /tmp/version; rm /tmp/old; echo new > /tmp/new; cat /tmp/new");
    attempt["try"] = json!("drop");
    let result = lines.call("shell_execute", &attempt);
    let ran = &result["structuredContent"];
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("new\n"), &json!(0)), "{result}");
    let expected = [("A", "/tmp/new"), ("D", "/tmp/old"), ("M", "/tmp/version")];
    let mut found = changes(ran);
    found.sort();
    let owned = |(change, path): (&str, &str)| (change.to_owned(), path.to_owned());
    assert_eq!(found, expected.map(owned), "{result}");
    let shown = text(&result);
    assert!(shown.contains("D /tmp/old") && shown.contains("which is removed"), "{shown}");
    assert!(ran.get("fork").is_none(), "{ran}");
    assert_eq!(names(&mut lines), ["work"]);
    assert_eq!(
        lines.ok("shell_execute", &shell("cat /tmp/version /tmp/old"))["stdout"],
        "1\nold\n"
    );

    // A command that fails has changed things, too, and is an error with them.
    attempt["command"] = json!("echo 3 > /tmp/version; exit 7");
    attempt["try"] = json!("keep");
    let failed = lines.call("shell_execute", &attempt);
    let ran = &failed["structuredContent"];
    assert_eq!((&failed["isError"], &ran["exit_code"]), (&json!(true), &json!(7)), "{failed}");
    assert_eq!(changes(ran), [owned(("M", "/tmp/version"))]);
    let fork = ran["fork"].as_str().expect("it is kept").to_owned();
    assert_eq!(ran["sandbox"], fork);
    let read = json!({ "path": "/tmp/version", "sandbox": fork });
    assert_eq!(lines.ok("read_file", &read)["text"], "3\n");
    lines.ok("sandbox_remove", &json!({ "sandbox": fork }));
    attempt["try"] = json!("perhaps");
    assert!(text(&lines.call("shell_execute", &attempt)).starts_with("invalid: "));
}

#[test]
fn a_tried_command_that_is_cancelled_leaves_no_fork() {
    let burrow = Burrow::serving();
    let mut lines = Lines::open(&burrow, &[]);
    lines.ok("sandbox_create", &json!({ "name": "work" }));
    let arguments = json!({ "command": "sleep 600", "sandbox": "work", "try": "keep" });
    let id = lines.send("tools/call", &json!({ "name": "shell_execute", "arguments": arguments }));
    tests::eventually("it is being tried", || names(&mut lines).len() == 2);
    let params = json!({ "requestId": id });
    lines.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    tests::eventually("the fork is gone", || names(&mut lines) == ["work"]);
}

#[test]
fn a_sandbox_is_made_of_another_and_of_a_template() {
    let burrow = Burrow::serving();
    let ready = "test -s /tmp/begun";
    let start = "echo $WORD > /tmp/begun";
    burrow.ok(&[
        "template",
        "create",
        "shop",
        "-e",
        "WORD=hello",
        "--start",
        start,
        "--ready",
        ready,
    ]);
    let mut lines = Lines::open(&burrow, &[]);
    let listed = lines.ok("sandbox_list", &json!({ "kind": "templates" }));
    assert_eq!(listed["templates"][0]["template"], "shop", "{listed}");
    assert_eq!(listed["templates"][0]["has_ready_command"], true);
    assert_eq!(lines.ok("sandbox_list", &json!({ "kind": "snapshots" })).get("snapshots"), None);
    lines.ok("sandbox_create", &json!({ "name": "one", "template": "shop" }));
    let cat = |sandbox: &str| json!({ "command": "cat /tmp/begun", "sandbox": sandbox });
    assert_eq!(lines.ok("shell_execute", &cat("one"))["stdout"], "hello\n");
    let none = lines.call("sandbox_create", &json!({ "name": "two", "template": "nothing" }));
    let why = text(&none);
    assert!(why.starts_with("not_found: ") && why.contains("`kind` `templates`"), "{why}");

    let made = lines.ok("sandbox_create", &json!({ "fork_of": "one" }));
    assert_eq!((&made["sandbox"], &made["report"]["memory"]), (&json!("one-1"), &json!(false)));
    assert_eq!(lines.ok("shell_execute", &cat("one-1"))["stdout"], "hello\n");
    let named = json!({ "fork_of": "one", "name": "copy", "ttl_seconds": 600 });
    let copy = lines.ok("sandbox_create", &named)["record"].clone();
    assert_eq!(copy["ancestors"][0]["name"], "one", "{copy}");
    assert!(copy["expires_at_ms"].is_u64(), "{copy}");
    let more = lines.call("sandbox_create", &json!({ "fork_of": "one", "memory_mib": 64 }));
    assert!(text(&more).starts_with("invalid: memory_mib: "), "{more}");
    let nobody = lines.call("sandbox_create", &json!({ "fork_of": "nobody" }));
    assert!(text(&nobody).starts_with("not_found: "), "{nobody}");
    // What a process machine cannot do is refused, and the sandbox goes on.
    let stop = json!({ "sandbox": "one", "snapshot": "base" });
    let refused = lines.call("sandbox_stop", &stop);
    assert!(text(&refused).starts_with("unsupported: "), "{refused}");
    assert_eq!(lines.ok("shell_execute", &cat("one"))["stdout"], "hello\n");
    let neither = lines.call("sandbox_remove", &json!({}));
    assert!(text(&neither).contains("either `sandbox` or `snapshot`"), "{neither}");
    for sandbox in ["one", "one-1", "copy"] {
        lines.ok("sandbox_remove", &json!({ "sandbox": sandbox }));
    }
}

#[test]
fn a_key_forks_and_lists_what_is_its_own() {
    let server = Server::with_keys();
    let client = |scope: &str, namespace: &str| {
        let words = ["keygen", "--scope", scope, "--namespace", namespace];
        Client::new(server.url()).key(server.ok(&words).trim())
    };
    let mut owner = Web::open(client("run", "team"), VERSION);
    assert_eq!(owner.call("sandbox_create", &json!({ "name": "work" }))["isError"], false);
    server.ok(&["template", "create", "team/shop", "--ready", "true"]);
    let fork = json!({ "fork_of": "team/work" });
    let attempt = json!({ "command": "true", "sandbox": "team/work", "try": "drop" });
    for (scope, namespace) in [("run", "other"), ("read", "team")] {
        let mut stranger = Web::open(client(scope, namespace), VERSION);
        for (tool, body) in [("sandbox_create", &fork), ("shell_execute", &attempt)] {
            let refused = stranger.call(tool, body);
            assert!(text(&refused).starts_with("forbidden: "), "{scope} {namespace}: {refused}");
        }
    }
    let templates = json!({ "kind": "templates" });
    let mut reader = Web::open(client("read", "team"), VERSION);
    let listed = reader.call("sandbox_list", &templates);
    assert_eq!(listed["structuredContent"]["templates"][0]["template"], "team/shop", "{listed}");
    let mut other = Web::open(client("run", "other"), VERSION);
    let hidden = other.call("sandbox_list", &templates);
    assert!(hidden["structuredContent"].get("templates").is_none(), "{hidden}");
    let remove = json!({ "snapshot": "team/base" });
    assert!(text(&other.call("sandbox_remove", &remove)).starts_with("forbidden: "));
    let made = owner.call("sandbox_create", &fork);
    assert_eq!(made["structuredContent"]["sandbox"], "team/work-1", "{made}");
}

#[test]
fn a_machine_is_saved_and_another_goes_on_from_it() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    burrow.ok(&[
        "start",
        "--name",
        "vm",
        "--machine",
        "qemu",
        "--image",
        "python",
        "--memory",
        "256",
    ]);
    let mut lines = Lines::open(&burrow, &[]);
    let code = |code: &str, sandbox: &str| json!({ "code": code, "sandbox": sandbox });
    lines.ok("execute", &code("count = 41", "vm"));
    let stopped = lines.ok("sandbox_stop", &json!({ "sandbox": "vm", "snapshot": "base" }));
    assert_eq!(stopped["state"], "stopped", "{stopped}");
    let listed = lines.ok("sandbox_list", &json!({ "kind": "snapshots" }));
    let row = &listed["snapshots"][0];
    assert_eq!((&row["snapshot"], &row["sandbox"]), (&json!("base"), &json!("vm")), "{row}");
    lines.ok("sandbox_create", &json!({ "name": "copy", "snapshot": "base" }));
    assert_eq!(lines.ok("execute", &code("count + 1", "copy"))["value"], "42");
    let removed = lines.ok("sandbox_remove", &json!({ "snapshot": "base" }));
    assert_eq!((&removed["sandbox"], &removed["state"]), (&json!("base"), &json!("removed")));
    let again = lines.call("sandbox_remove", &json!({ "snapshot": "base" }));
    assert!(text(&again).contains("`kind` `snapshots`"), "{again}");
    lines.ok("sandbox_remove", &json!({ "sandbox": "copy" }));
}
