//! Clients that do not read: what they miss, what they cost, and that they hold nobody up.

use serde_json::json;
use tests::anonymous_bytes;
use tests::http::Client;
use tests::server::Server;

use super::wire::{Cells, kind, reply, start, text};

const MIB: u64 = 1024 * 1024;
/// What one cell writes: many times what may wait for a client.
const OUTPUT_BYTES: u64 = 24 * MIB;
/// What the bridge may grow by meanwhile: what waits for each client, what is on its way through links and
/// the allocator.
const GROWTH_BYTES_MAX: u64 = 40 * MIB;
/// Requests that may wait for a kernel.
const REQUESTS_WAITING_MAX: usize = 2048;

#[test]
fn a_client_that_does_not_read_misses_output_and_learns_that_and_holds_nobody_up() {
    let server = Server::start(&[
        "--set",
        "server.memory_bytes_max=128MiB",
        "--set",
        "server.body_bytes_max=4MiB",
    ]);
    let key = server.ok(&["keygen", "--namespace", "a"]);
    let client = Client::new(server.url()).key(key.trim());
    let kernel = start(&client, &json!({}));
    let mut silent = Cells::open(&client, &kernel, false);
    let mut reader = Cells::open(&client, &kernel, true);
    assert_eq!(reply(&reader.run("1"))["status"], "ok");
    let before = anonymous_bytes(server.daemon_pid()).expect("it runs");
    let code =
        format!("line = 'x' * 1023\nfor _ in range({}):\n    print(line)", OUTPUT_BYTES / 1024);
    let id = reader.send("shell", "execute_request", &json!({ "code": code }));
    let (mut bytes, mut growth) = (0, 0);
    loop {
        let message = reader.hear();
        if message["parent_header"]["msg_id"] != id.as_str() {
            continue;
        }
        bytes += message["content"]["text"].as_str().map_or(0, |text| text.len() as u64);
        if message["content"]["execution_state"] == "idle" {
            break;
        }
        let now = anonymous_bytes(server.daemon_pid()).expect("it runs");
        growth = growth.max(now.saturating_sub(before));
    }
    assert_eq!(bytes, OUTPUT_BYTES, "who reads misses nothing");
    assert!(growth < GROWTH_BYTES_MAX, "the bridge grew by {} MiB", growth / MIB);
    // The reply was for the other one.
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last: &serde_json::Value| {
        last["content"]["execution_state"] != "idle"
            || last["parent_header"]["msg_id"] != id.as_str()
    }) {
        seen.push(silent.hear());
    }
    let (got, told) = (text(&seen, "stdout").len() as u64, text(&seen, "stderr"));
    assert!(got < OUTPUT_BYTES, "{got}");
    assert!(told.contains("are missing here"), "{told}");
    // It has read what waited, and misses nothing more.
    let again = silent.run("print('again')");
    assert_eq!((text(&again, "stdout").as_str(), text(&again, "stderr").as_str()), ("again\n", ""));
}

#[test]
fn a_client_that_only_asks_is_closed_with_the_reason() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let kernel = start(&client, &json!({}));
    let mut cells = Cells::open(&client, &kernel, false);
    cells.send("shell", "execute_request", &json!({ "code": "import time; time.sleep(30)" }));
    // Its cell has begun, and waits no more.
    while kind(&cells.hear()) != "execute_input" {}
    for _ in 0..=REQUESTS_WAITING_MAX {
        cells.send("shell", "history_request", &json!({}));
    }
    let (code, reason) = cells.closed();
    assert!(
        code == Some(1008) && reason.contains("requests wait for this kernel"),
        "{code:?} {reason}"
    );
    client.delete(&format!("/api/kernels/{kernel}")).expect(204);
}
