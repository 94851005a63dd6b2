//! What goes beyond a machine: variables that outlive it, what its runs leave, and apps in it that are
//! reached from here.

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use tests::eventually;
use tests::http::Client;
use tests::machines::{machines_or_skip, process_of};
use tests::server::Server;

/// A picture that needs nothing of the image.
const PICTURE: &str = "class P:
    def _repr_png_(self):
        return b'\\x89PNG\\r\\n\\x1a\\n' + b'.' * 20
";

/// A machine of this name, which is there when this returns, however slowly it boots here.
fn machine(server: &Server, name: &str) {
    super::start(server, name, &[]);
}

/// A run in the notebook that must go well.
fn run(client: &Client, code: &str) -> Value {
    let ran = client.post("/v1/notebooks/default/a/run", &json!({ "code": code }));
    let ran = ran.expect(200).json();
    assert_eq!(ran["status"], "ok", "{code}: {ran}");
    ran
}

/// Ends a machine as an accident would.
fn crash(server: &Server, name: &str) {
    let record: Value =
        serde_json::from_str(&server.ok(&["inspect", "--json", name])).expect("JSON");
    let supervisor = record["pid"].as_u64().expect("a supervisor") as u32;
    kill(process_of(supervisor, "qemu-system-x86_64"), Signal::SIGKILL).expect("it is ours");
}

#[test]
fn a_notebooks_variables_outlive_its_machine_and_the_bridge() {
    if !machines_or_skip() {
        return;
    }
    let mut server = Server::dev();
    let client = Client::new(server.url());
    machine(&server, "work");
    let made = client.post("/v1/notebooks", &json!({ "name": "a", "sandbox": "work" }));
    assert!(made.status < 300, "{}", made.text());
    let define = "import math\nclass Shape:\n    sides = 4\nshape = Shape()\n\
                  def area(r): return round(math.pi * r * r, 2)\nlog = open('/tmp/log', 'w')";
    run(&client, define);
    let saved = client.post("/v1/notebooks/default/a/save", &json!({})).expect(200).json();
    assert_eq!(saved["saved"]["run"], 1, "{saved}");
    crash(&server, "work");
    let state = || client.get("/v1/sandboxes/default/work").expect(200).json();
    eventually("it is gone", || state()["state"] == "stopped");
    let gone = client.post("/v1/notebooks/default/a/run", &json!({ "code": "1" })).expect(409);
    assert_eq!(gone.json()["details"]["reason"], "sandbox_gone");
    server.ok(&["rm", "work"]);
    machine(&server, "work");
    let ran = run(&client, "print(area(2), type(shape) is Shape, open('/proc/1/comm').read())");
    assert_eq!(ran["stdout"], "12.57 True init\n\n", "{ran}");
    let reopened = &ran["notebook"]["reopened"];
    assert_eq!(
        (&reopened["as_of_run"], &reopened["unsaved_runs"]),
        (&json!(1), &json!(0)),
        "{ran}"
    );
    assert_eq!(reopened["lost"][0]["name"], "log", "{ran}");

    // The machine goes on without the bridge, and its interpreter with it.
    run(&client, "kept = [shape]");
    server.kill_and_serve_again();
    let client = Client::new(server.url());
    let ran = run(&client, "print(kept[0] is shape)");
    assert_eq!(ran["stdout"], "True\n", "{ran}");
    assert_eq!(ran["notebook"]["reopened"], Value::Null, "{ran}");
    client.delete("/v1/notebooks/default/a").expect(204);
}

#[test]
fn artifacts_of_a_machines_runs_outlive_it() {
    if !machines_or_skip() {
        return;
    }
    let server = Server::dev();
    let client = Client::new(server.url());
    machine(&server, "work");
    let code = format!(
        "{PICTURE}\nimport os; os.makedirs('/artifacts')\n\
         open('/artifacts/table.csv', 'w').write('a,b\\n1,2\\n')\nP()"
    );
    let body = json!({ "language": "python", "code": code, "artifacts": true });
    let ran = client.post("/v1/sandboxes/default/work/run", &body).expect(200).json();
    assert_eq!(ran["status"], "ok", "{ran}");
    crash(&server, "work");
    let content = |name: &str| {
        let all = ran["captured"]["artifacts"].as_array().expect("a list");
        let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{ran}"));
        let id = one["id"].as_str().expect("an id");
        client.get(&format!("/v1/artifacts/{id}/content")).expect(200).body
    };
    assert_eq!(content("table.csv"), b"a,b\n1,2\n");
    assert!(content("figure-1.png").starts_with(b"\x89PNG\r\n\x1a\n"));
}

#[test]
fn an_app_in_a_machine_is_reached_at_its_url_until_it_is_stopped() {
    if !machines_or_skip() {
        return;
    }
    let server = Server::dev();
    let client = Client::new(server.url());
    machine(&server, "work");
    let put = "/v1/sandboxes/default/work/files/content?path=/srv/hello.txt";
    assert!(client.send("PUT", put, &[], b"from the machine").status < 300);
    let apps = "/v1/sandboxes/default/work/apps";
    let serve = "exec python3 -m http.server $PORT --bind 127.0.0.1";
    let body = json!({ "type": "command", "command": serve, "workdir": "/srv", "name": "files",
        "ready_timeout_ms": 120_000 });
    let app = client.post(apps, &body).expect(201).json();
    let url = app["url"].as_str().expect("a URL").trim_end_matches('/').to_owned();
    let outside = Client::new(&url);
    assert_eq!(outside.get("/hello.txt").expect(200).text(), "from the machine");
    // One whose machine dies is not running any more, and its port is free.
    crash(&server, "work");
    eventually("the app is gone", || {
        let all = client.get("/v1/apps").expect(200).json();
        all["apps"].as_array().is_some_and(Vec::is_empty)
    });
    let refused = std::net::TcpStream::connect(url.trim_start_matches("http://"));
    assert!(refused.is_err(), "nobody listens where it was reached");
}
