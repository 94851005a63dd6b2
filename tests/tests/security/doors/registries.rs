//! Registries: what a client names, and where a registry sends the bridge, is on the public internet,
//! or the operator has named it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;
use tests::Burrow;
use tests::http::Client;
use tests::server::Server;

/// Somebody who listens on this host, and how often somebody came.
struct Listener {
    port: u16,
    came: Arc<AtomicUsize>,
}

impl Listener {
    /// Who answers every request with this head.
    fn answering(head: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let came = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&came);
        thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                let Ok(stream) = stream else { return };
                answer(stream, &head);
            }
        });
        Self { port, came }
    }
}

fn answer(mut stream: TcpStream, head: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        line.clear();
    }
    let _ = write!(stream, "{head}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let _ = stream.shutdown(Shutdown::Write);
}

fn closed_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// The refusal for a client with a `run` key that asks for an image there, without the port.
fn refusal_of(client: &Client, place: &str, port: u16) -> String {
    let body = json!({ "name": "x", "image": format!("{place}:{port}/team/app:1") });
    let refused = client.post("/v1/sandboxes", &body).expect(502);
    assert_eq!(refused.code(), "pull_failed");
    let answer = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(answer.contains("public internet"), "{place}: {answer}");
    answer.replace(&port.to_string(), "PORT")
}

#[test]
fn a_client_has_no_registry_asked_on_the_host_or_its_network() {
    let set = ["--set", "image_policy.pull=missing"];
    let server = Server::start_in(Burrow::new(), &set);
    let key = server.ok(&["keygen", "--scope", "run"]).trim().to_owned();
    let client = Client::new(server.url()).key(&key);
    let listener = Listener::answering("HTTP/1.1 200 OK".to_owned());
    for place in ["localhost", "127.0.0.1", "169.254.169.254", "10.0.0.1"] {
        let open = refusal_of(&client, place, listener.port);
        assert_eq!(open, refusal_of(&client, place, closed_port()), "{place}");
    }
    assert_eq!(listener.came.load(Ordering::SeqCst), 0);
}

#[test]
fn a_registry_that_the_operator_names_sends_the_bridge_nowhere_into_the_host() {
    let other = Listener::answering("HTTP/1.1 200 OK".to_owned());
    let mut bytes = Vec::new();
    for port in [other.port, closed_port()] {
        for head in [
            format!("HTTP/1.1 307 Elsewhere\r\nlocation: https://127.0.0.1:{port}/x"),
            format!("HTTP/1.1 307 Elsewhere\r\nlocation: http://localhost:{port}/x"),
            format!(
                "HTTP/1.1 401 No\r\nwww-authenticate: Bearer realm=\"https://127.0.0.1:{port}/t\""
            ),
            format!(
                "HTTP/1.1 401 No\r\nwww-authenticate: Bearer realm=\"http://127.0.0.1:{port}/t\""
            ),
            format!("HTTP/1.1 307 Elsewhere\r\nlocation: https://169.254.169.254:{port}/x"),
        ] {
            let registry = Listener::answering(head);
            let named = format!("registries.localhost:{}.insecure=true", registry.port);
            let set = ["--set", "image_policy.pull=missing", "--set", &named];
            let server = Server::start_in(Burrow::new(), &set);
            let key = server.ok(&["keygen", "--scope", "run"]).trim().to_owned();
            let client = Client::new(server.url()).key(&key);
            let answer = refusal_of(&client, "localhost", registry.port);
            assert_eq!(registry.came.load(Ordering::SeqCst), 1, "it was asked itself");
            bytes.push(answer.replace(&port.to_string(), "PORT"));
        }
    }
    let (open, closed) = bytes.split_at(bytes.len() / 2);
    assert_eq!(open, closed);
    assert_eq!(other.came.load(Ordering::SeqCst), 0);
}
