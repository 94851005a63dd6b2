//! Cells and what belongs to them, over raw WebSockets.

use serde_json::{Value, json};
use tests::eventually;
use tests::http::Client;
use tests::server::Server;

use super::wire::{Cells, V1, contents, kind, reply, start, text};

fn open() -> (Server, Client) {
    let server = Server::dev();
    let client = Client::new(server.url());
    (server, client)
}

fn python(client: &Client) -> String {
    start(client, &json!({ "name": "python3" }))
}

#[test]
fn cells_run_in_both_framings() {
    let (_server, client) = open();
    let kernel = python(&client);
    for is_binary in [false, true] {
        let mut cells = Cells::open(&client, &kernel, is_binary);
        let info = cells.ask("kernel_info_request", &json!({}));
        assert_eq!(
            (&info["status"], &info["language_info"]["name"]),
            (&json!("ok"), &json!("python"))
        );
        let first =
            cells.run("import sys\nprint('é', end='')\nprint('bad', file=sys.stderr)\n6 * 7");
        assert_eq!(
            (text(&first, "stdout"), text(&first, "stderr")),
            ("é".to_owned(), "bad\n".to_owned())
        );
        assert_eq!(contents(&first, "execute_result")[0]["data"]["text/plain"], "42");
        assert_eq!(kind(&first[0]), "status");
        let count = contents(&first, "execute_input")[0]["execution_count"].clone();
        assert_eq!(
            (&reply(&first)["status"], &reply(&first)["execution_count"]),
            (&json!("ok"), &count)
        );
        let png = "class P:\n    def _repr_png_(self):\n        return b'\\x89PNG\\r\\n\\x1a\\n'\n\
                   h = display(P(), display_id='mine')\nh.update('two')";
        let shown = cells.run(png);
        let display = &contents(&shown, "display_data")[0];
        assert_eq!(
            (&display["data"]["image/png"], &display["transient"]["display_id"]),
            (&json!("iVBORw0KGgo="), &json!("mine")),
            "{shown:?}"
        );
        assert_eq!(contents(&shown, "update_display_data")[0]["transient"]["display_id"], "mine");
        an_error_stops_the_cells_behind_it(&mut cells);
        words_about_code(&mut cells);
    }
    client.delete(&format!("/api/kernels/{kernel}")).expect(204);
}

fn an_error_stops_the_cells_behind_it(cells: &mut Cells) {
    let failing = cells.send(
        "shell",
        "execute_request",
        &json!({ "code": "import time; time.sleep(.3)\n1 / 0" }),
    );
    let behind = cells.send("shell", "execute_request", &json!({ "code": "print('never')" }));
    let failed = cells.answers(&failing);
    let error = &contents(&failed, "error")[0];
    assert_eq!(error["ename"], "ZeroDivisionError");
    let lines = error["traceback"].as_array().expect("lines");
    assert!(lines.len() > 1 && lines[0].as_str().is_some_and(|line| line.starts_with("Traceback")));
    assert_eq!(
        (&reply(&failed)["status"], &reply(&failed)["ename"]),
        (&json!("error"), &error["ename"])
    );
    let aborted = cells.answers(&behind);
    assert_eq!(
        (reply(&aborted)["status"].as_str(), text(&aborted, "stdout").as_str()),
        (Some("aborted"), "")
    );
}

fn words_about_code(cells: &mut Cells) {
    let code = "é = 1; impor";
    let found = cells.ask("complete_request", &json!({ "code": code, "cursor_pos": 12 }));
    assert_eq!((&found["cursor_start"], &found["cursor_end"]), (&json!(7), &json!(12)), "{found}");
    assert!(found["matches"].as_array().expect("matches").contains(&json!("import")), "{found}");
    for (code, state) in
        [("x = 1", "complete"), ("for x in y:", "incomplete"), ("1 +* 2", "invalid")]
    {
        assert_eq!(cells.ask("is_complete_request", &json!({ "code": code }))["status"], state);
    }
    let inspected =
        cells.ask("inspect_request", &json!({ "code": "x", "cursor_pos": 1, "detail_level": 0 }));
    assert_eq!((&inspected["status"], &inspected["found"]), (&json!("ok"), &json!(false)));
    let history = cells.ask(
        "history_request",
        &json!({ "hist_access_type": "search", "pattern": "*6 * 7", "n": 9 }),
    );
    let rows = history["history"].as_array().expect("rows");
    assert!(rows[0][2].as_str().is_some_and(|code| code.ends_with("6 * 7")), "{history}");
    assert_eq!(cells.ask("comm_info_request", &json!({}))["comms"], json!({}));
    let unknown = cells.ask("debug_request", &json!({}));
    assert_eq!((&unknown["status"], &unknown["ename"]), (&json!("error"), &json!("unsupported")));
    cells.send("shell", "comm_open", &json!({ "comm_id": "c", "target_name": "t", "data": {} }));
    while kind(&cells.hear()) != "comm_close" {}
}

#[test]
fn a_cell_asks_its_client_for_input() {
    let (_server, client) = open();
    let kernel = python(&client);
    let mut cells = Cells::open(&client, &kernel, true);
    let code = json!({ "code": "print('hello', input('name? '))", "allow_stdin": true });
    let id = cells.send("shell", "execute_request", &code);
    let question = loop {
        let message = cells.hear();
        if kind(&message) == "input_request" {
            break message;
        }
    };
    assert_eq!(
        (&question["channel"], &question["content"]["prompt"]),
        (&json!("stdin"), &json!("name? "))
    );
    cells.send("stdin", "input_reply", &json!({ "value": "Ada" }));
    assert!(text(&cells.answers(&id), "stdout").ends_with("hello Ada\n"));
    let refused = cells.run("input('nobody? ')");
    assert_eq!(reply(&refused)["ename"], "EOFError");
    // A question of a client that leaves is answered for it, and the cell goes on.
    cells.send("shell", "execute_request", &code);
    while kind(&cells.hear()) != "input_request" {}
    drop(cells);
    let mut other = Cells::open(&client, &kernel, false);
    assert_eq!(reply(&other.run("1"))["status"], "ok");
}

#[test]
fn a_kernel_is_interrupted_restarted_and_shut_down() {
    let (_server, client) = open();
    let kernel = python(&client);
    let path = format!("/api/kernels/{kernel}");
    let mut cells = Cells::open(&client, &kernel, false);
    assert_eq!(reply(&cells.run("x = 1"))["status"], "ok");
    for by_message in [false, true] {
        let code = json!({ "code": "import time\nprint('on')\ntime.sleep(60)" });
        let id = cells.send("shell", "execute_request", &code);
        while kind(&cells.hear()) != "stream" {}
        assert_eq!(client.get(&path).json()["execution_state"], "busy");
        if by_message {
            cells.send("control", "interrupt_request", &json!({}));
        } else {
            client.post(&format!("{path}/interrupt"), &json!({})).expect(204);
        }
        let ended = cells.answers(&id);
        assert_eq!(reply(&ended)["ename"], "KeyboardInterrupt", "{ended:?}");
    }
    assert_eq!(contents(&cells.run("x"), "execute_result")[0]["data"]["text/plain"], "1");
    eventually("the kernel is idle", || client.get(&path).json()["execution_state"] == "idle");
    let shown = client.post(&format!("{path}/restart"), &json!({})).expect(200).json();
    assert_eq!((&shown["id"], &shown["connections"]), (&json!(kernel), &json!(1)));
    let fresh = cells.run("x");
    assert_eq!(
        (&reply(&fresh)["ename"], &reply(&fresh)["execution_count"]),
        (&json!("NameError"), &json!(1))
    );
    cells.send("control", "shutdown_request", &json!({ "restart": false }));
    while kind(&cells.hear()) != "shutdown_reply" {}
    let (_, reason) = cells.closed();
    assert_eq!(reason, "the kernel was shut down");
    client.get(&path).expect(404);
    assert_eq!(client.get("/v1/sandboxes").json()["sandboxes"], json!([]));
}

#[test]
fn two_clients_of_a_kernel_see_the_same_cells() {
    let (_server, client) = open();
    let kernel = python(&client);
    let mut one = Cells::open(&client, &kernel, false);
    let mut other = Cells::open(&client, &kernel, true);
    let id = one.send("shell", "execute_request", &json!({ "code": "print('both')" }));
    assert_eq!(text(&one.answers(&id), "stdout"), "both\n");
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last: &Value| last["content"]["execution_state"] != "idle") {
        seen.push(other.hear());
    }
    assert!(seen.iter().all(|message| message["parent_header"]["msg_id"] == id.as_str()));
    assert!(seen.iter().all(|message| message["channel"] == "iopub"), "replies are for one");
    assert_eq!(text(&seen, "stdout"), "both\n");
    assert_eq!(client.get(&format!("/api/kernels/{kernel}")).json()["connections"], 2);
}

#[test]
fn other_kernels_sandboxes_that_are_there_and_bridges_that_are_new() {
    let (mut server, client) = open();
    let specs = client.get("/api/kernelspecs").expect(200).json();
    assert_eq!(specs["default"], "python3");
    client.post("/v1/sandboxes", &json!({ "name": "mine" })).expect(201);
    for (name, code) in [("javascript", "console.log(6 * 7)"), ("bash", "echo $((6 * 7)) $COLOUR")]
    {
        assert_eq!(specs["kernelspecs"][name]["name"], name);
        let env = json!({ "KERNEL_BURROW_SANDBOX": "mine", "COLOUR": "" });
        let kernel = start(&client, &json!({ "name": name, "env": env }));
        let mut cells = Cells::open(&client, &kernel, true);
        assert_eq!(text(&cells.run(code), "stdout").trim(), "42");
        assert_eq!(
            client.get("/v1/sandboxes/default/mine/contexts").json()["contexts"]
                .as_array()
                .map(Vec::len),
            Some(1)
        );
        client.delete(&format!("/api/kernels/{kernel}")).expect(204);
    }
    assert_eq!(client.get("/v1/sandboxes/default/mine/contexts").json()["contexts"], json!([]));
    for (body, status) in [
        (json!({ "name": "ruby" }), 404),
        (json!({ "env": { "KERNEL_BURROW_SANDBOX": "not there" } }), 400),
        (json!({ "env": { "KERNEL_BURROW_SANDBOX": "nothing" } }), 404),
        (json!({ "env": { "KERNEL_BURROW_MEMORY": "64" } }), 400),
        (json!({ "env": { "KERNEL_BURROW_SANDBOX": "mine", "KERNEL_BURROW_IMAGE": "x" } }), 400),
    ] {
        let refused = client.post("/api/kernels", &body).expect(status).json();
        assert!(refused["message"].is_string() && refused["reason"].is_string(), "{refused}");
    }
    let kernel = python(&client);
    assert_eq!(reply(&Cells::open(&client, &kernel, false).run("x = 'kept'"))["status"], "ok");
    server.kill_and_serve_again();
    let client = Client::new(server.url());
    eventually("the kernel is there again", || {
        client.get("/api/kernels").json()[0]["id"] == kernel.as_str()
    });
    let shown = Cells::open(&client, &kernel, false).run("x");
    assert_eq!(contents(&shown, "execute_result")[0]["data"]["text/plain"], "'kept'", "{shown:?}");
}

#[test]
fn a_kernel_of_another_namespace_is_not_there() {
    let server = Server::with_keys();
    let key = |namespace: &str, scope: &str| {
        server.ok(&["keygen", "--namespace", namespace, "--scope", scope]).trim().to_owned()
    };
    let (own, others, reads) = (key("a", "run"), key("b", "run"), key("a", "read"));
    let client = Client::new(server.url());
    let ask = |method: &str, path: &str, key: &str| {
        client.send(method, path, &[("authorization", &format!("token {key}"))], b"")
    };
    client.get("/api/kernels").expect(401);
    let made = ask("POST", "/api/kernels", &own).expect(201).json();
    let path = format!("/api/kernels/{}", made["id"].as_str().expect("an id"));
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/interrupt")),
        ("POST", format!("{path}/restart")),
    ] {
        ask(method, &path, &others).expect(404);
    }
    assert_eq!(ask("GET", "/api/kernels", &others).json(), json!([]));
    let channels = |key: &str| client.try_websocket(&format!("{path}/channels?token={key}"), &[V1]);
    for (key, status) in [(&others[..], 404), (&reads[..], 403), ("", 401), ("msb_x", 401)] {
        assert_eq!(channels(key).err().map(|answer| answer.status), Some(status), "{key}");
    }
    drop(channels(&own).unwrap_or_else(|answer| panic!("{}", answer.text())));
    for key in [&own, &reads] {
        assert_eq!(
            client.get(&format!("/api/kernels?token={key}")).expect(200).json()[0]["id"],
            made["id"]
        );
    }
    let log = std::fs::read_to_string(server.log()).expect("a log");
    assert!(
        [&own, &others, &reads].iter().all(|key| !log.contains(&key[..])),
        "a key is in the log"
    );
    let audit = || server.ok(&["audit", "--json"]);
    eventually("it is recorded", || audit().contains("jupyter_create"));
    assert!(!audit().contains(&own), "{}", audit());
    ask("DELETE", &path, &own).expect(204);
}

#[test]
fn a_revoked_key_runs_nothing_more_over_an_open_socket() {
    let server = Server::with_keys();
    let made = server.ok(&["keygen", "--namespace", "a", "--scope", "run", "--json"]);
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let client = Client::new(server.url()).key(made["key"].as_str().expect("a key"));
    let mut cells = Cells::open(&client, &python(&client), false);
    assert_eq!(reply(&cells.run("1"))["status"], "ok");
    server.ok(&["keys", "revoke", made["id"].as_str().expect("an id")]);
    eventually("the key is good for nothing", || {
        reply(&cells.run("1"))["ename"] == "unauthenticated"
    });
}

#[test]
fn what_is_no_message_closes_the_socket_with_the_reason() {
    let (_server, client) = open();
    let kernel = python(&client);
    let long = json!({
        "channel": "shell", "header": { "msg_type": "x", "more": "y".repeat(20_000) }, "content": {},
    });
    let wrong = json!({ "channel": "iopub", "header": { "msg_type": "x" }, "content": {} });
    for (message, words) in [
        (json!("text"), "not one of Jupyter's"),
        (json!({ "channel": "heap", "header": {}, "content": {} }), "not one of Jupyter's"),
        (json!({ "channel": "shell", "header": {}, "content": {} }), "no msg_type"),
        (long, "at most 8192"),
        (wrong, "clients send nothing"),
    ] {
        let mut cells = Cells::open(&client, &kernel, false);
        cells.socket.tell(&message);
        let (code, reason) = cells.closed();
        assert!(code == Some(1008) && reason.contains(words), "{code:?} {reason}");
    }
    for bytes in [&b"short"[..], &[0xff; 64], &[0; 64]] {
        let mut cells = Cells::open(&client, &kernel, true);
        cells.socket.binary(bytes);
        let (code, reason) = cells.closed();
        assert!(code == Some(1008) && reason.contains("offsets"), "{code:?} {reason}");
    }
    let mut cells = Cells::open(&client, &kernel, false);
    assert_eq!(reply(&cells.run("'still ' + 'there'"))["status"], "ok");
}
