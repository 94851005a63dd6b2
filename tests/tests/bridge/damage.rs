//! Files that were damaged while no bridge ran: what does not need them goes on, what needs them is
//! refused with the reason, and there is a way out of each.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::{Burrow, eventually};

const ALL: &str = "/v1/sandboxes";
const WORK: &str = "/v1/sandboxes/default/work";

fn client(server: &Server) -> Client {
    Client::new(server.url())
}

fn get(server: &Server, path: &str) -> Value {
    client(server).get(path).expect(200).json()
}

/// A running sandbox: its id, its machine's process, its directory.
fn make(server: &Server) -> (String, Pid, PathBuf) {
    client(server).post(ALL, &json!({ "name": "work" })).expect(201);
    let record = server.ok(&["inspect", "--json", "work"]);
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let id = record["id"].as_str().expect("an id").to_owned();
    let pid = Pid::from_raw(record["pid"].as_i64().expect("a process") as i32);
    let directory = server.state().join("boxes").join(&id);
    (id, pid, directory)
}

/// A word that a shell in the sandbox says.
fn says(server: &Server, which: &str) -> String {
    let path = format!("{ALL}/default/{which}/shell");
    let answer = client(server).post(&path, &json!({ "script": "echo hello" })).expect(200).json();
    answer["stdout"].as_str().expect("text").to_owned()
}

#[test]
fn a_sandbox_whose_record_is_damaged_is_listed_and_removed_with_all_that_is_left() {
    type Damage = fn(&str) -> String;
    let one_byte: Damage = |text| text.replacen("\"hostname\"", "\"hostnam\u{1}\"", 1);
    let empty: Damage = |_| String::new();
    for (damage, keeps_name, by_id) in
        [(one_byte, true, false), (one_byte, true, true), (empty, false, true)]
    {
        let mut server = Server::dev();
        let (id, pid, directory) = make(&server);
        let record = directory.join("box.json");
        server.kill_daemon_for_a_moment(|| {
            let text = fs::read_to_string(&record).expect("the record");
            fs::write(&record, damage(&text)).expect("it is ours");
        });
        let name = if keeps_name { "work" } else { id.as_str() };
        let listed = get(&server, ALL)["sandboxes"].clone();
        assert_eq!((&listed[0]["name"], &listed[0]["state"]), (&json!(name), &json!("damaged")));
        assert_eq!(listed[0]["id"], id, "{listed}");
        assert!(listed[0]["reason"].as_str().expect("a reason").contains("box.json"), "{listed}");
        let row = server.ok(&["ps"]);
        assert!(row.contains("damaged") && row.contains("(unknown)"), "{row}");
        if keeps_name {
            assert_eq!(client(&server).post(ALL, &json!({ "name": "work" })).status, 409);
        }
        let found = format!("{ALL}/default/{id}");
        assert_eq!(get(&server, &found)["state"], "damaged");
        let refused = client(&server).post(&format!("{found}/shell"), &json!({ "script": "true" }));
        assert_eq!(refused.status, 409, "{}", refused.text());
        assert!(refused.text().contains("remove it"), "{}", refused.text());
        let refused = server.run(&["exec", name, "--", "true"]);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        // A restart would be refused too.
        let hint = format!("`host-bridge rm {name}` ends and removes it");
        assert!(stderr.contains(&hint) && !stderr.contains("restart"), "{stderr}");
        assert!(server.ok(&["doctor", "--json"]).contains("a sandbox is damaged"));
        assert!(kill(pid, None).is_ok(), "its machine lives");
        server.ok(&["rm", if by_id { &id } else { "work" }]);
        assert!(!directory.exists());
        eventually("its machine is gone", || kill(pid, None).is_err());
        assert_eq!(get(&server, ALL)["sandboxes"], json!([]));
        make(&server);
        client(&server).delete(&format!("{WORK}?force=true")).expect(200);
    }
}

#[test]
fn a_damaged_store_costs_the_bridge_only_what_is_in_it_until_it_is_repaired() {
    let mut server = Server::dev();
    make(&server);
    let store = server.state().join("burrow.db");
    server.kill_daemon_for_a_moment(|| {
        fs::write(&store, vec![b'x'; 5000]).expect("it is ours");
        // It would have the store whole again.
        fs::remove_file(store.with_extension("db-wal")).expect("it is ours");
    });
    assert_eq!(says(&server, "work"), "hello\n");
    assert!(!get(&server, &format!("{WORK}/logs"))["entries"].is_null());
    for path in ["/v1/notebooks", "/v1/artifacts"] {
        let refused = client(&server).get(path).expect(503);
        assert_eq!(refused.code(), "unavailable");
        assert!(refused.text().contains("store repair"), "{}", refused.text());
    }
    client(&server).get("/readyz").expect(200);
    let checked = server.run(&["serve", "--check-config"]);
    let stderr = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{stderr}");
    assert_eq!(stderr.matches("store repair").count(), 1, "{stderr}");
    assert!(server.ok(&["doctor", "--json"]).contains("store repair"));
    assert_eq!(server.run(&["store", "repair"]).status.code(), Some(125), "the daemon runs");
    let mut stderr = String::new();
    let (runtime, state) = (server.runtime(), server.state());
    server.kill_daemon_for_a_moment(|| {
        let mut command = std::process::Command::new(tests::bridge_path());
        command.args(["store", "repair"]);
        command.env("BURROW_RUNTIME_DIR", runtime).env("BURROW_STATE_DIR", state);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stderr = String::from_utf8(output.stdout).expect("UTF-8");
    });
    assert!(stderr.starts_with("kept 0 notebooks, 0 runs, 0 artifacts\n"), "{stderr}");
    assert!(stderr.contains("burrow.db.damaged-"), "{stderr}");
    client(&server).get("/v1/notebooks").expect(200);
    client(&server).delete(&format!("{WORK}?force=true")).expect(200);
}

#[test]
fn tools_without_a_daemon_go_on_with_a_damaged_store() {
    let burrow = Burrow::new();
    fs::create_dir_all(burrow.state()).expect("a directory");
    fs::write(burrow.state().join("burrow.db"), "no store".repeat(1000)).expect("a file");
    let call = |id: u32, name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let calls = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" }
        } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        call(2, "shell_execute", json!({ "command": "echo it; echo works" })),
        call(3, "session_list", json!({})),
    ];
    let calls = calls.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n") + "\n";
    let output = burrow.feed(&["mcp"], calls.as_bytes());
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("works"), "{stdout} {}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("host-bridge store repair"), "{stdout}");
    // What needs the store alone refuses with the way out; nothing else does.
    let history = burrow.run(&["history"]);
    assert_eq!(history.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&history.stderr).contains("store repair"), "{history:?}");
    assert_eq!(burrow.ok(&["run", "--", "echo", "here"]), "here\n");
}

#[test]
fn an_audit_directory_that_is_a_file_stops_only_what_must_be_recorded() {
    for (on_failure, refuses) in [("continue", false), ("refuse", true)] {
        let option = format!("audit.on_failure={on_failure}");
        let mut server = Server::start(&["--dev", "--set", &option]);
        make(&server);
        let audit = server.state().join("audit");
        server.kill_daemon_for_a_moment(|| {
            fs::remove_dir_all(&audit).expect("it is ours");
            fs::write(&audit, "no directory").expect("it is ours");
        });
        get(&server, WORK);
        let made = client(&server).post(ALL, &json!({ "name": "other" }));
        let ready = client(&server).get("/readyz");
        assert_eq!((made.status, ready.status), if refuses { (503, 503) } else { (201, 200) });
        let checked = server.run(&["serve", "--check-config"]);
        assert!(String::from_utf8_lossy(&checked.stderr).contains("is not a directory"));
        fs::remove_file(&audit).expect("it is ours");
        eventually("it is recorded again", || {
            client(&server).get("/readyz").status == 200 && audit.is_dir()
        });
        assert_eq!(says(&server, "work"), "hello\n");
        for name in ["work", "other"] {
            client(&server).delete(&format!("{ALL}/default/{name}?force=true"));
        }
    }
}

#[test]
fn doctor_and_check_config_name_damaged_keys_and_names_of_images() {
    for (file, words) in [
        ("keys/keys.json", "no server that asks for keys starts"),
        ("images/names.json", "no image can be named"),
    ] {
        let burrow = Burrow::new();
        burrow.ok(&["keygen"]);
        burrow.ok(&["image", "ls"]);
        fs::write(burrow.state().join(file), "{x").expect("it is ours");
        let checked = burrow.run(&["serve", "--check-config"]);
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(said.contains(words) && said.contains(file), "{said}");
        let doctor = burrow.run(&["doctor", "--json"]);
        assert!(String::from_utf8_lossy(&doctor.stdout).contains(words), "{file}");
    }
}
