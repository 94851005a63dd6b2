//! How many system calls the bridge makes for one request, as `agent::calls` counts those of the agent. Times differ
//! between machines and hours; these counts do not, so they show in every CI run what has become more expensive.

use serde_json::{Value, json};
use tests::door::run_code_as_e2b;
use tests::have_or_skip;
use tests::http::Client;
use tests::server::Server;
use tests::trace::{Threads, Trace};

/// Requests that are counted together, and those before them that are not counted.
const REQUESTS: usize = 100;
const FIRST_REQUESTS: usize = 20;
/// For a command by JSON-RPC: 16 to 20, depending on how many messages arrive together. The bound is a quarter more.
const CALLS_OF_A_COMMAND_MAX: usize = 25;
/// For a warm run of code by the native API: 12 to 16, four of them for what its receipt is made of.
const CALLS_OF_A_RUN_MAX: usize = 20;
/// For the same by the protocol of E2B, which asks for the contexts first: 26.
const CALLS_OF_A_RUN_BY_E2B_MAX: usize = 32;

fn command(client: &Client, _: &str) {
    let params = json!({ "namespace": "default", "sandbox": "box", "command": "/bin/true" });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.command.run", "params": params });
    let answer = client.post("/api/v1/rpc", &body).expect(200).json();
    assert_eq!(answer["result"]["exit_code"], 0, "{answer}");
}

fn run(client: &Client, _: &str) {
    let body = json!({ "language": "python", "code": "print(1)" });
    let answer: Value =
        client.post("/v1/sandboxes/default/box/contexts/python/run", &body).expect(200).json();
    assert_eq!(answer["stdout"], "1\n", "{answer}");
}

fn run_by_e2b(client: &Client, id: &str) {
    let answer = run_code_as_e2b(client, id, "print(1)").expect(200).text();
    assert!(answer.contains(r#""text":"1\n""#), "{answer}");
}

/// The calls of one request by one keep-alive client, on average.
fn calls(request: fn(&Client, &str)) -> Option<(usize, String)> {
    let server = Server::dev();
    let client = Client::new(server.url());
    let made = client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201).json();
    let id = made["id"].as_str().expect("a sandbox has an id");
    (0..FIRST_REQUESTS).for_each(|_| request(&client, id));
    let trace = Trace::of(server.daemon_pid(), Threads::All)?;
    (0..REQUESTS).for_each(|_| request(&client, id));
    let calls = trace.end();
    let last = calls[calls.len().saturating_sub(2 * CALLS_OF_A_COMMAND_MAX)..].join("\n");
    Some((calls.len() / REQUESTS, last))
}

#[test]
fn a_command_costs_the_bridge_few_system_calls() {
    if !have_or_skip("strace") {
        return;
    }
    let Some((count, last)) = calls(command) else { return };
    println!("{count} calls for a command");
    assert!(count <= CALLS_OF_A_COMMAND_MAX, "{count} calls for a command; the last ones:\n{last}");
}

#[test]
fn a_warm_run_costs_the_bridge_few_system_calls() {
    if !have_or_skip("strace") {
        return;
    }
    let Some((count, last)) = calls(run) else { return };
    println!("{count} calls for a run");
    assert!(count <= CALLS_OF_A_RUN_MAX, "{count} calls for a run; the last ones:\n{last}");
}

#[test]
fn a_warm_run_by_the_protocol_of_e2b_costs_the_bridge_few_system_calls() {
    if !have_or_skip("strace") {
        return;
    }
    let Some((count, last)) = calls(run_by_e2b) else { return };
    println!("{count} calls for a run by E2B's protocol");
    assert!(count <= CALLS_OF_A_RUN_BY_E2B_MAX, "{count} calls for a run; the last ones:\n{last}");
}
