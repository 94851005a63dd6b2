//! Calls that are done once, however often they are sent.

use std::io::BufReader;
use std::time::Duration;

use serde_json::{Value, json};
use tests::eventually;
use tests::http::{Answer, Client};
use tests::server::Server;

use super::path_of;
use super::raw::{answer, send};

fn create_once(client: &Client, key: &str, spec: &Value) -> Answer {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    client.send("POST", "/v1/sandboxes", &headers, spec.to_string().as_bytes())
}

#[test]
fn the_same_key_gets_the_same_answer_marked_as_repeated() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let spec = json!({ "name": "once" });
    let first = create_once(&client, "k1", &spec).expect(201);
    assert_eq!(first.header("idempotency-replayed"), None);
    let second = create_once(&client, "k1", &spec).expect(201);
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(second.body, first.body);
    assert_eq!(second.header("content-type"), first.header("content-type"));
    assert_ne!(second.header("x-request-id"), first.header("x-request-id"));
    // A refusal that would be the same is remembered too, and one that is over does not stay.
    assert_eq!(create_once(&client, "k2", &spec).expect(409).code(), "conflict");
    client.delete(&format!("{}?force=true", path_of("once"))).expect(200);
    create_once(&client, "k3", &spec).expect(201);
}

#[test]
fn a_key_is_for_one_call_alone() {
    let server = Server::dev();
    let client = Client::new(server.url());
    create_once(&client, "k", &json!({ "name": "a" })).expect(201);
    let other = create_once(&client, "k", &json!({ "name": "b" })).expect(422);
    assert_eq!(other.code(), "idempotency_mismatch");
    assert!(other.json()["hint"].is_string());
    client.get(&path_of("b")).expect(404);
    for bad in ["", "ä", &"x".repeat(129)] {
        let refused = create_once(&client, bad, &json!({ "name": "c" })).expect(400);
        assert_eq!(refused.code(), "invalid");
    }
    create_once(&client, &"x".repeat(128), &json!({ "name": "c" })).expect(201);
}

#[test]
fn duplicates_at_the_same_time_make_one_sandbox() {
    let server = Server::dev();
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let url = server.url();
        let threads = (0..8).map(|_| {
            scope.spawn(move || create_once(&Client::new(url), "k", &json!({ "name": "one" })))
        });
        threads.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
    let is_first = |answer: &&Answer| answer.header("idempotency-replayed").is_none();
    assert_eq!(answers.iter().filter(is_first).count(), 1);
    assert!(answers.iter().all(|answer| answer.body == answers[0].body));
}

#[test]
fn a_call_with_a_key_goes_on_when_its_client_is_gone() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let spec = json!({ "name": "kept" }).to_string();
    let connection = client.raw();
    let length = spec.len();
    send(
        &connection,
        format!(
            "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         idempotency-key: k\r\ncontent-length: {length}\r\n\r\n{spec}"
        ),
    );
    // It has arrived when a duplicate waits for it; then the first client leaves.
    eventually("the sandbox", || client.get(&path_of("kept")).status == 200);
    drop(connection);
    let again = create_once(&client, "k", &json!({ "name": "kept" }));
    // The body is the same, byte by byte.
    let again = again.expect(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
}

#[test]
fn an_answer_is_known_to_the_next_bridge_after_a_kill() {
    let mut server = Server::dev();
    let spec = json!({ "name": "once", "labels": { "by": "key" } });
    let first = create_once(&Client::new(server.url()), "k1", &spec).expect(201);
    server.kill_and_serve_again();
    let client = Client::new(server.url());
    let again = create_once(&client, "k1", &spec).expect(201);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!((again.body, again.status), (first.body, first.status));
    assert_eq!(create_once(&client, "k1", &json!({})).expect(422).code(), "idempotency_mismatch");
    let all = client.get("/v1/sandboxes").expect(200).json();
    assert_eq!(all["sandboxes"].as_array().map(Vec::len), Some(1), "{all}");
    // A refusal is not remembered, there or here.
    create_once(&client, "k2", &json!({ "name": "once" })).expect(409);
    server.end_and_serve_again();
    let client = Client::new(server.url());
    create_once(&client, "k2", &json!({ "name": "yes" })).expect(201);
}

#[test]
fn without_a_key_nothing_is_remembered() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let spec = json!({ "name": "x" });
    client.post("/v1/sandboxes", &spec).expect(201);
    client.post("/v1/sandboxes", &spec).expect(409);
    // A call that makes nothing does not heed it.
    let connection = client.raw();
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut from = BufReader::new(&connection);
    for _ in 0..2 {
        send(&connection, "GET /livez HTTP/1.1\r\nhost: localhost\r\nidempotency-key: k\r\n\r\n");
        let answered = answer(&mut from).unwrap();
        assert!(answered.status == 200 && !answered.has("idempotency-replayed"));
    }
}
