//! The official Python SDK against the server. What it is unhappy with it logs, and goes on.

use std::process::Command;

use tests::server::Server;

use crate::environment::{installed, workspace};

#[test]
fn the_official_sdk_opens_uses_and_ends_a_session_without_a_complaint() {
    let ours = workspace().join("tests/mcp");
    let python = match installed("mcp-sdk", &ours.join("install")) {
        Ok(home) => home.join("bin/python"),
        Err(reason) => return tests::skip(&format!("no official SDK of MCP: {reason}")),
    };
    let server = Server::with_keys();
    let mut client = Command::new(python);
    client.arg(ours.join("official.py")).arg(format!("{}/mcp", server.url()));
    let output = client.arg(server.ok(&["keygen"]).trim()).output().expect("Python runs");
    let logged = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (String::from_utf8_lossy(&output.stdout).as_ref(), logged.as_ref()),
        ("25 42\nA /tmp/one\nwork False\n[] []\n", "",)
    );
    // The session has ended, and its sandbox with it.
    tests::eventually("nothing is left", || server.ok(&["ps", "--all", "--quiet"]).is_empty());
}
