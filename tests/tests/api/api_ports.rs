//! Ports through the server's door: forwarded from this host and over a WebSocket, with ends that
//! close one after the other, and what is left when a forward or its sandbox goes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};
use tests::door::{BOX, open, open_with};
use tests::http::{Answer, Client, Socket, SocketMessage};
use tests::listening::listen;
use tests::{PATIENCE, eventually};

/// Sends back what it gets, as it comes, and after its end says how much that was.
const ECHO: &str = "
import socket, threading
def serve(peer):
    count = 0
    while data := peer.recv(65536):
        peer.sendall(data)
        count += len(data)
    peer.sendall(b'END %d' % count)
    peer.close()
server = socket.create_server(('127.0.0.1', 0))
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],)).start()
";

/// Takes one connection at a time, reads a line, and breaks it off.
const BREAKS: &str = "
import socket, struct
server = socket.create_server(('127.0.0.1', 0))
print(server.getsockname()[1], flush=True)
while True:
    peer = server.accept()[0]
    peer.recv(1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    peer.close()
";

fn forward(client: &Client, port: u16) -> Value {
    client.post(&format!("{BOX}/ports"), &json!({ "port": port })).expect(201).json()
}

fn connect(forward: &Value) -> TcpStream {
    let host = forward["host_address"].as_str().expect("an address");
    let port = forward["host_port"].as_u64().expect("a port") as u16;
    let stream = TcpStream::connect((host, port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
    stream
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn connections(client: &Client) -> u64 {
    let listed = client.get(&format!("{BOX}/ports")).expect(200).json();
    listed["ports"][0]["connections"].as_u64().expect("a number")
}

#[test]
fn a_forwarded_port_carries_both_directions_to_their_ends() {
    let (server, client) = open();
    let echo = listen(&server, ECHO);
    let forwarded = forward(&client, echo.port);
    assert_eq!(forwarded["port"], echo.port);
    assert_eq!(forwarded["host_address"], "127.0.0.1");
    let url = format!("http://127.0.0.1:{}/", forwarded["host_port"]);
    assert_eq!(forwarded["url"], url);
    let bytes = pattern(20_000_000);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let mut stream = connect(&forwarded);
            let (sent, mut sink) = (&bytes, stream.try_clone().expect("a second handle"));
            scope.spawn(move || {
                sink.write_all(sent).expect("taken");
                sink.shutdown(Shutdown::Write).expect("it is open");
            });
            scope.spawn(move || {
                let mut got = Vec::new();
                stream.read_to_end(&mut got).expect("an end in order");
                assert!(got[..sent.len()] == **sent, "the bytes differ");
                assert_eq!(&got[sent.len()..], format!("END {}", sent.len()).as_bytes());
            });
        }
    });
    eventually("they are over", || connections(&client) == 0);
}

#[test]
fn a_connection_that_breaks_off_is_not_ended_in_order() {
    let (server, client) = open();
    let breaks = listen(&server, BREAKS);
    let mut stream = connect(&forward(&client, breaks.port));
    stream.write_all(b"x").expect("taken");
    let error = stream.read(&mut [0; 8]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // Nobody listens on port 1.
    let mut stream = connect(&forward(&client, 1));
    let error = stream.read(&mut [0; 8]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_forward_ends_when_it_is_closed_and_its_connections_with_it() {
    let (server, client) = open();
    let echo = listen(&server, ECHO);
    let forwarded = forward(&client, echo.port);
    let mut stream = connect(&forwarded);
    stream.write_all(b"x").expect("taken");
    stream.read_exact(&mut [0]).expect("it is sent back");
    assert_eq!(connections(&client), 1);
    let host_port = &forwarded["host_port"];
    let again = json!({ "port": 80, "host_port": host_port });
    assert_eq!(client.post(&format!("{BOX}/ports"), &again).expect(409).code(), "conflict");
    let other = json!({ "port": 80, "host_port": host_port, "host_address": "::1" });
    assert_eq!(client.post(&format!("{BOX}/ports"), &other).expect(409).code(), "conflict");
    client.delete(&format!("{BOX}/ports/{host_port}")).expect(204);
    stream.read(&mut [0; 8]).expect_err("a reset");
    client.delete(&format!("{BOX}/ports/{host_port}")).expect(404);
    assert_eq!(client.get(&format!("{BOX}/ports")).expect(200).json(), json!({ "ports": [] }));
    client.post(&format!("{BOX}/ports"), &again).expect(201);
}

#[test]
fn a_forward_ends_with_its_sandbox() {
    let (server, client) = open();
    let echo = listen(&server, ECHO);
    let forwarded = forward(&client, echo.port);
    let mut stream = connect(&forwarded);
    stream.write_all(b"x").expect("taken");
    stream.read_exact(&mut [0]).expect("it is sent back");
    client.post(&format!("{BOX}/kill"), &json!({})).expect(200);
    stream.read(&mut [0; 8]).expect_err("a reset");
    let port = forwarded["host_port"].as_u64().expect("a port") as u16;
    eventually("nobody listens", || TcpStream::connect(("127.0.0.1", port)).is_err());
    assert_eq!(client.get(&format!("{BOX}/ports")).expect(200).json(), json!({ "ports": [] }));
    let stopped = client.post(&format!("{BOX}/ports"), &json!({ "port": 80 }));
    assert_eq!(stopped.expect(409).json()["details"]["reason"], "not_running");
}

#[test]
fn a_sandbox_is_idle_while_nobody_is_connected() {
    let (server, client) = open_with(&json!({ "idle_ttl_ms": 600_000 }));
    let echo = client.post(&format!("{BOX}/files/directories"), &json!({ "path": "/tmp/x" }));
    echo.expect(204);
    // One that outlives the call that starts it, so that nothing else is at work.
    let script = format!("setsid python3 -c \"{ECHO}\" > /tmp/port 2>&1 < /dev/null &");
    server.ok(&["exec", "box", "--", "sh", "-c", &script]);
    let mut port = String::new();
    eventually("it listens", || {
        port = client.get(&format!("{BOX}/files/content?path=/tmp/port")).text();
        port.ends_with('\n')
    });
    let forwarded = forward(&client, port.trim().parse().expect("a port"));
    let is_idle = || client.get(BOX).json()["idle_since_ms"].is_number();
    eventually("nothing is at work", is_idle);
    let mut stream = connect(&forwarded);
    stream.write_all(b"x").expect("taken");
    stream.read_exact(&mut [0]).expect("it is sent back");
    assert!(!is_idle());
    drop(stream);
    eventually("nothing is at work", is_idle);
}

#[test]
fn a_repeated_idempotency_key_makes_one_forward() {
    let (_server, client) = open();
    let ask = |port: u16| {
        let body = json!({ "port": port }).to_string();
        let headers = [("content-type", "application/json"), ("idempotency-key", "once")];
        client.send("POST", &format!("{BOX}/ports"), &headers, body.as_bytes())
    };
    let first = ask(80).expect(201);
    let second = ask(80).expect(201);
    assert_eq!(first.json(), second.json());
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(ask(81).expect(422).code(), "idempotency_mismatch");
    let listed = client.get(&format!("{BOX}/ports")).expect(200).json();
    assert_eq!(listed, json!({ "ports": [first.json()] }));
}

#[test]
fn unforwardable_ports_are_refused() {
    let (_server, client) = open();
    let post = |value: Value| client.post(&format!("{BOX}/ports"), &value);
    for wrong in [
        json!({ "port": 0 }),
        json!({ "port": 65536 }),
        json!({ "port": 80, "host_address": "0.0.0.0" }),
        json!({ "port": 80, "host_port": -1 }),
        json!({}),
    ] {
        assert_eq!(post(wrong.clone()).expect(400).code(), "invalid", "{wrong}");
    }
    let ports: Vec<Answer> = (0..64).map(|_| post(json!({ "port": 80 }))).collect();
    assert!(ports.iter().all(|answer| answer.status == 201));
    let full = post(json!({ "port": 80 })).expect(429);
    assert_eq!((full.code(), full.header("retry-after")), ("limit_reached".to_owned(), Some("1")));
    for wrong in ["0", "080", "65536", "http"] {
        client.delete(&format!("{BOX}/ports/{wrong}")).expect(400);
    }
    client.get("/v1/sandboxes/default/other/ports").expect(404);
}

/// All bytes until the socket closes, and how it does.
fn hear_all(socket: &mut Socket) -> (Vec<u8>, Option<u16>) {
    let mut got = Vec::new();
    loop {
        match socket.hear() {
            SocketMessage::Binary(bytes) => got.extend(bytes),
            SocketMessage::Value(value) => panic!("{value}"),
            SocketMessage::Closed(code) => return (got, code),
        }
    }
}

#[test]
fn a_websocket_is_a_connection_to_a_port() {
    let (server, client) = open();
    let echo = listen(&server, ECHO);
    let path = format!("{BOX}/ports/{}/connect", echo.port);
    let mut socket = client.websocket(&path, &[]);
    let bytes = pattern(1_000_000);
    // All of it is written before anything is read.
    bytes.chunks(300_000).for_each(|chunk| socket.binary(chunk));
    socket.tell(&json!({ "type": "end" }));
    let (got, code) = hear_all(&mut socket);
    assert!(got[..bytes.len()] == bytes, "the bytes differ");
    assert_eq!((&got[bytes.len()..], code), (b"END 1000000".as_slice(), Some(1000)));
    let mut rude = client.websocket(&path, &[]);
    rude.tell(&json!({ "type": "nonsense" }));
    assert_eq!(hear_all(&mut rude).1, Some(1008));
    let breaks = listen(&server, BREAKS);
    let mut socket = client.websocket(&format!("{BOX}/ports/{}/connect", breaks.port), &[]);
    socket.binary(b"x");
    assert_eq!(hear_all(&mut socket), (Vec::new(), Some(1011)));
    let closed = client.try_websocket(&format!("{BOX}/ports/1/connect"), &[]);
    assert_eq!(closed.err().expect("nobody listens").expect(422).code(), "io");
    client.get(&path).expect(400);
}

#[test]
fn a_tunnel_whose_client_is_gone_is_given_up() {
    let (server, client) = open();
    // Says what it reads when its connection is over.
    let program = "
import socket
server = socket.create_server(('127.0.0.1', 0))
print(server.getsockname()[1], flush=True)
peer = server.accept()[0]
try:
    while peer.recv(65536): pass
    received = 'end'
except OSError as error:
    received = 'reset'
open('/tmp/said', 'w').write(received)
";
    let one = listen(&server, program);
    let mut socket = client.websocket(&format!("{BOX}/ports/{}/connect", one.port), &[]);
    socket.binary(b"half of it");
    drop(socket);
    let text = || client.get(&format!("{BOX}/files/content?path=/tmp/said")).text();
    eventually("the program hears of it", || text() == "reset");
}
