//! Sandboxes of other nodes at doors beside the native API.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::fleet::{Member, Nats, open};
use tests::http::Client;
use tests::mcp::{VERSION, Web, text};

fn call(client: &Client, method: &str, params: &Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    client.post("/api/v1/rpc", &body).json()
}

fn with_one_there(nats: &Nats) -> Vec<Member> {
    let members = open(nats, 2);
    members[1].server.ok(&["start", "--name", "there"]);
    members
}

#[test]
fn json_rpc_of_any_node_runs_in_a_sandbox_of_another() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    let client = &members[0].client;
    let run =
        json!({ "namespace": "default", "sandbox": "there", "command": "echo", "args": ["hi"] });
    let answer = call(client, "sandbox.command.run", &run);
    assert_eq!(answer["id"], 7, "{answer}");
    assert!(answer["result"].to_string().contains("hi"), "{answer}");
    let own = call(&members[1].client, "sandbox.command.run", &run);
    assert!(own["result"].to_string().contains("hi"), "{own}");
    // A batch has one answer, and it is of this node.
    let batch =
        json!([{ "jsonrpc": "2.0", "id": 1, "method": "sandbox.command.run", "params": run }]);
    let batch = client.post("/api/v1/rpc", &batch).json();
    let why = batch[0]["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("n2") && why.contains("batch"), "{batch}");
    let stop = json!({ "namespace": "default", "sandbox": "there" });
    assert!(call(client, "sandbox.stop", &stop).get("error").is_none());
    let gone = call(client, "sandbox.command.run", &run);
    assert_eq!(gone["error"]["code"], -32001, "{gone}");
}

#[test]
fn json_rpc_says_in_its_own_words_that_a_node_does_not_answer() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    members[1].signal(Signal::SIGKILL);
    let run = json!({ "namespace": "default", "sandbox": "there", "command": "true" });
    let answer = call(&members[0].client, "sandbox.command.run", &run);
    assert_eq!(answer["id"], 7, "{answer}");
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("n2"), "{answer}");
}

#[test]
fn a_tool_of_mcp_says_which_node_has_a_sandbox() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    let mut web = Web::open(Client::new(members[0].server.url()), VERSION);
    let run = json!({ "sandbox": "there", "command": "true" });
    let refused = web.call("shell_execute", &run);
    assert_eq!(refused["isError"], true, "{refused}");
    let text = text(&refused);
    assert!(text.contains("n2") && text.contains(members[1].server.url()), "{text}");
}

#[test]
fn verbs_say_which_node_has_a_sandbox() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    let address = members[1].server.url();
    for verb in [&["inspect", "there"][..], &["exec", "there", "--", "true"], &["rm", "there"]] {
        let output = members[0].server.run(verb);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{verb:?}");
        assert!(stderr.contains("n2") && stderr.contains(address), "{verb:?}: {stderr}");
    }
    let output = members[0].server.run(&["inspect", "nowhere"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !stderr.contains("n2"), "{stderr}");
}
