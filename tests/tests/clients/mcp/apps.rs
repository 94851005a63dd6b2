//! Web apps as tools.

use serde_json::{Value, json};
use tests::Burrow;
use tests::frameworks::frameworks;
use tests::http::Client;
use tests::mcp::{Lines, text};

const FLASK: &str = "from flask import Flask\napp = Flask(__name__)\n\
                     app.add_url_rule('/', view_func=lambda: 'hello')";

fn client() -> (Burrow, Lines) {
    let burrow = Burrow::new();
    let lines = Lines::open(&burrow, &[]);
    (burrow, lines)
}

fn get(app: &Value) -> String {
    Client::new(app["url"].as_str().expect("a URL")).get("/").expect(200).text()
}

#[test]
fn an_app_of_code_is_reached_at_the_url_of_the_answer() {
    let Some(home) = frameworks() else { return };
    let (_burrow, mut lines) = client();
    // An image that has the frameworks, as its interpreter sees it.
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let body = json!({ "command": format!("python3 -c \"{version}\"") });
    let version = lines.ok("shell_execute", &body)["stdout"].as_str().expect("text").to_owned();
    let packages = home.join(format!("lib/python{}/site-packages", version.trim()));
    let env = json!({ "PYTHONPATH": packages.to_string_lossy() });
    lines.ok("sandbox_create", &json!({ "name": "apps", "env": env }));
    let body = json!({ "code": FLASK, "app_type": "flask", "port": 5005, "sandbox": "apps" });
    let app = lines.ok("start_web_app", &body);
    assert_eq!((&app["app"], &app["guest_port"]), (&json!("flask"), &json!(5005)));
    assert_eq!(get(&app), "hello");
    // An app is a Flask app by default.
    let other = lines.ok("start_web_app", &json!({ "code": FLASK, "sandbox": "apps" }));
    assert_eq!(get(&other), "hello");
    let body = json!({ "code": format!("{FLASK}\nprint('so far')\n1 / 0"), "sandbox": "apps" });
    let failed = lines.call("start_web_app", &body);
    assert_eq!(failed["isError"], true);
    let message = text(&failed);
    assert!(message.starts_with("app_failed: ") && message.contains("so far"), "{message}");
    assert!(message.contains("ZeroDivisionError"), "{message}");
    assert_eq!(failed["_meta"]["burrow/problem"]["code"], "app_failed");
}

#[test]
fn a_command_is_an_app_in_the_sessions_own_sandbox() {
    let (_burrow, mut lines) = client();
    assert_eq!(lines.ok("list_web_apps", &json!({}))["apps"], json!([]));
    let serve = "exec python3 -m http.server $PORT --bind 127.0.0.1";
    let app = lines.ok("start_web_app", &json!({ "command": serve, "name": "files" }));
    assert!(app["sandbox"].as_str().expect("a name").starts_with("mcp-"), "{app}");
    assert!(get(&app).contains("Directory listing"));
    assert_eq!(lines.ok("list_web_apps", &json!({}))["apps"], json!([app]));
    let stopped = lines.ok("stop_web_app", &json!({ "app": "files" }));
    assert_eq!((&stopped["app"], &stopped["sandbox"]), (&json!("files"), &app["sandbox"]));
    assert_eq!(lines.ok("list_web_apps", &json!({}))["apps"], json!([]));
    let again = lines.call("stop_web_app", &json!({ "app": "files" }));
    assert_eq!(again["isError"], true);
    assert!(text(&again).contains("list_web_apps"), "{again}");
    let silent = json!({ "command": "echo thinking; sleep 600", "timeout": 0.5 });
    let late = lines.call("start_web_app", &silent);
    assert_eq!(late["isError"], true);
    assert!(
        text(&late).starts_with("app_not_ready: ") && text(&late).contains("thinking"),
        "{late}"
    );
    let neither = lines.call("start_web_app", &json!({ "app_type": "flask" }));
    assert!(text(&neither).starts_with("invalid: "), "{neither}");
}

#[test]
fn a_start_that_is_cancelled_leaves_nothing() {
    let (_burrow, mut lines) = client();
    lines.ok("shell_execute", &json!({ "command": "true" }));
    let arguments = json!({ "command": "sleep 600" });
    let id = lines.send("tools/call", &json!({ "name": "start_web_app", "arguments": arguments }));
    tests::eventually("it is being started", || {
        lines.ok("list_web_apps", &json!({}))["apps"][0]["state"] == "starting"
    });
    let params = json!({ "requestId": id });
    lines.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    tests::eventually("nobody has it any more", || {
        lines.ok("list_web_apps", &json!({}))["apps"] == json!([])
    });
}
