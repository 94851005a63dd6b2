//! Ports of the host are given out within a range; others are for those who may do everything.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::net::TcpListener;

use serde_json::json;
use tests::http::Client;
use tests::own_port::OwnPort;
use tests::server::Server;

const PORTS: &str = "/v1/sandboxes/default/x/ports";
const APPS: &str = "/v1/sandboxes/default/x/apps";

fn client(server: &Server, scope: &str) -> Client {
    Client::new(server.url()).key(server.ok(&["keygen", "--scope", scope]).trim())
}

#[test]
fn ports_of_the_hosts_services_are_for_admins_alone() {
    let server = Server::with_keys();
    let (run, admin) = (client(&server, "run"), client(&server, "admin"));
    run.post("/v1/sandboxes", &json!({ "name": "x" })).expect(201);
    for port in [1, 22, 80, 443, 1023] {
        let body = json!({ "port": 8000, "host_port": port });
        let refused = run.post(PORTS, &body).expect(403);
        assert!(refused.text().contains("1024 to 65535"), "{}", refused.text());
        let app = json!({ "type": "command", "command": ["true"], "host_port": port });
        run.post(APPS, &app).expect(403);
    }
    assert_eq!(run.get(PORTS).json()["ports"], json!([]));
    // Only the kernel refuses an administrator.
    let free = (1000..1024).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    if let Some(port) = free {
        let body = json!({ "port": 8000, "host_port": port });
        assert_eq!(admin.post(PORTS, &body).expect(201).json()["host_port"], port);
    }
}

#[test]
fn an_operators_range_bounds_what_clients_name_and_what_they_are_given() {
    let own = OwnPort::claim();
    let (inside, outside) = (own.number(), own.number() - 1);
    let range = format!("forwards.ports={inside}-{inside}");
    let server = Server::start(&["--set", &range]);
    let (run, admin) = (client(&server, "run"), client(&server, "admin"));
    run.post("/v1/sandboxes", &json!({ "name": "x" })).expect(201);
    let refused = run.post(PORTS, &json!({ "port": 8000, "host_port": outside })).expect(403);
    assert_eq!(refused.json()["details"]["port"], outside, "{}", refused.text());
    // Any port is one of the range.
    let given = run.post(PORTS, &json!({ "port": 8000 })).expect(201).json();
    assert_eq!(given["host_port"], inside);
    let none = run.post(PORTS, &json!({ "port": 8001 })).expect(429);
    assert!(none.text().contains("is free"), "{}", none.text());
    admin.post(PORTS, &json!({ "port": 8000, "host_port": outside })).expect(201);
}
