//! Bodies that are wrong, late, large or never whole.

use std::io::{BufReader, Write};
use std::time::{Duration, Instant};

use serde_json::json;
use tests::http::Client;
use tests::server::Server;

use super::raw::{RawAnswer, answer, is_closed, send};
use super::{USUAL, answers_as_usual, create, path_of};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

#[test]
fn invalid_bodies_are_refused_in_one_shape() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let deep = "[".repeat(100_000);
    let long_name = format!("{{\"name\":\"{}\"}}", "x".repeat(100_000));
    let rows: [(&str, &str, u16, &str); 15] = [
        ("application/json", "", 400, "invalid"),
        ("application/json", "{", 400, "invalid"),
        ("application/json", "null", 400, "invalid"),
        ("application/json", "[]", 400, "invalid"),
        ("application/json", "{\"name\":\"x\"} trailing", 400, "invalid"),
        ("application/json", "{\"name\":7}", 400, "invalid"),
        ("application/json", "{\"name\":\"x\",\"name\":\"y\"}", 400, "invalid"),
        ("application/json", "{\"name\":\"x\",\"memory_mib\":\"much\"}", 400, "invalid"),
        ("application/json", "{\"name\":\"x\",\"memory_mib\":1e400}", 400, "invalid"),
        ("application/json", "{\"name\":\"x\",\"colour\":\"blue\"}", 400, "invalid"),
        ("application/json", &deep, 400, "invalid"),
        ("application/json", &long_name, 400, "invalid"),
        ("text/plain", "{\"name\":\"x\"}", 415, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", "name=x", 415, "unsupported_media_type"),
        ("", "{\"name\":\"x\"}", 415, "unsupported_media_type"),
    ];
    for (kind, body, status, code) in rows {
        let headers = [("content-type", kind)];
        let headers = if kind.is_empty() { &[][..] } else { &headers[..] };
        let refused = client.send("POST", "/v1/sandboxes", headers, body.as_bytes());
        let what = &body[..body.len().min(60)];
        assert_eq!((refused.status, refused.code().as_str()), (status, code), "{kind} {what}");
        assert_eq!(refused.header("content-type"), Some("application/json"));
        let problem = refused.json();
        let message = problem["message"].as_str().unwrap();
        assert!(
            !message.is_empty() && message.len() < 1000,
            "{kind} {what}: {} bytes",
            message.len()
        );
    }
    let not_text = client.send("POST", "/v1/sandboxes", &JSON, b"{\"name\":\"\xff\"}").expect(400);
    assert_eq!(not_text.code(), "invalid");
    // A parameter of the media type changes nothing.
    let headers = [("content-type", "Application/JSON; charset=utf-8")];
    client.send("POST", "/v1/sandboxes", &headers, b"{\"name\":\"x\"}").expect(201);
}

#[test]
fn a_body_of_a_hundred_megabytes_is_refused_and_the_client_reads_why() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let body = vec![b' '; 100 * 1000 * 1000];
    for chunked in [false, true] {
        let connection = client.raw();
        let how = if chunked {
            "transfer-encoding: chunked".to_owned()
        } else {
            format!("content-length: {}", body.len())
        };
        let head = format!(
            "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{how}\r\n\r\n"
        );
        // As most clients do it: all is sent before anything is read.
        (&connection).write_all(head.as_bytes()).unwrap();
        let mut writing = Ok(());
        for chunk in body.chunks(1 << 20) {
            let framed = format!("{:x}\r\n", chunk.len());
            let parts: [&[u8]; 3] =
                if chunked { [framed.as_bytes(), chunk, b"\r\n"] } else { [b"", chunk, b""] };
            writing = parts.into_iter().try_for_each(|part| (&connection).write_all(part));
            if writing.is_err() {
                break;
            }
        }
        assert!(
            writing.is_ok(),
            "chunked: {chunked}: the connection was cut while it was written to"
        );
        if chunked {
            send(&connection, "0\r\n\r\n");
        }
        let refused = answer(&mut BufReader::new(&connection)).expect("an answer");
        assert_eq!((refused.status, refused.code().as_str()), (413, "too_large"), "{chunked}");
    }
    answers_as_usual(&client);
    let resident = tests::resident_bytes_peak(server.daemon_pid()).unwrap();
    assert!(resident < 400 << 20, "it took {resident} bytes of memory");
}

#[test]
fn a_body_in_chunks_is_read_and_one_beyond_the_limit_is_not() {
    let server = Server::start(&["--dev", "--set", "server.body_bytes_max=4KiB"]);
    let client = Client::new(server.url());
    let chunked = |chunks: &[&str]| -> RawAnswer {
        let connection = client.raw();
        send(
            &connection,
            "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\n\
            content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        );
        for chunk in chunks {
            send(&connection, format!("{:x}\r\n{chunk}\r\n", chunk.len()));
        }
        send(&connection, "0\r\n\r\n");
        answer(&mut BufReader::new(&connection)).unwrap()
    };
    assert_eq!(chunked(&["{\"na", "me\":", "\"chunks\"}"]).status, 201);
    let large = " ".repeat(1500);
    assert_eq!(chunked(&["{\"name\":", &large, &large, &large, "\"y\"}"]).status, 413);
    let exact = format!("{{\"name\":\"exact\"{}}}", " ".repeat(4096 - 15 - 1));
    client.send("POST", "/v1/sandboxes", &JSON, exact.as_bytes()).expect(201);
    let above = format!("{{\"name\":\"above\"{}}}", " ".repeat(4096 - 15));
    let refused = client.send("POST", "/v1/sandboxes", &JSON, above.as_bytes()).expect(413).json();
    assert_eq!(refused["details"]["limit"], 4096);
    assert!(refused["hint"].is_string());
    // A connection whose body was refused is of use again, or says that it is not.
    client.get("/v1/sandboxes").expect(200);
}

#[test]
fn a_body_that_stops_half_way_keeps_nobody_else_waiting() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let halves: Vec<_> = (0..50)
        .map(|_| {
            let connection = client.raw();
            send(
                &connection,
                "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\ncontent-length: 100\r\n\r\n{\"name\":",
            );
            connection
        })
        .collect();
    answers_as_usual(&client);
    create(&client, "other");
    drop(halves);
    answers_as_usual(&client);
    assert_eq!(client.get("/v1/sandboxes").json()["sandboxes"].as_array().unwrap().len(), 1);
}

#[test]
fn expect_continue_is_answered_before_the_body() {
    let server = Server::start(&["--dev", "--set", "server.body_bytes_max=4KiB"]);
    let client = Client::new(server.url());
    let head = |length: usize| {
        format!(
            "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             expect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let connection = client.raw();
    let mut from = BufReader::new(&connection);
    let spec = json!({ "name": "asked" }).to_string();
    send(&connection, head(spec.len()));
    assert_eq!(answer(&mut from).unwrap().status, 100);
    send(&connection, &spec);
    assert_eq!(answer(&mut from).unwrap().status, 201);

    let began = Instant::now();
    let connection = client.raw();
    let mut from = BufReader::new(&connection);
    send(&connection, head(1_000_000));
    let refused = answer(&mut from).unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (413, "too_large"));
    assert!(
        began.elapsed() < USUAL,
        "it waited {:?} for what it had not asked for",
        began.elapsed()
    );
    // What would come next could be the body or a request, so there is no next.
    assert!(refused.has("connection: close") || is_closed(&mut from), "{}", refused.head);
}

#[test]
fn a_body_that_nobody_wants_does_not_spoil_the_next_request() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let connection = client.raw();
    let mut from = BufReader::new(&connection);
    let body = "x".repeat(100_000);
    for (request, status) in [
        ("GET /v1/sandboxes", 200),
        ("POST /nowhere", 404),
        ("PUT /v1/sandboxes", 405),
        ("POST /v1/sandboxes", 415),
    ] {
        let length = body.len();
        send(
            &connection,
            format!(
                "{request} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        );
        let answered = answer(&mut from).unwrap_or_else(|| panic!("{request}: no answer"));
        assert_eq!(answered.status, status, "{request}");
        assert!(!answered.has("connection: close"), "{request}: a small body cost the connection");
    }
}

#[test]
fn a_client_that_is_gone_before_its_body_is_whole_makes_nothing() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let spec = json!({ "name": "ghost" }).to_string();
    let connection = client.raw();
    send(
        &connection,
        format!(
            "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{spec}",
            spec.len() + 1
        ),
    );
    connection.shutdown(std::net::Shutdown::Write).unwrap();
    let answered = answer(&mut BufReader::new(&connection));
    assert!(answered.is_none_or(|answered| answered.status == 400));
    // A server that takes half a body for a whole one has time to make a sandbox of it.
    std::thread::sleep(Duration::from_millis(100));
    client.get(&path_of("ghost")).expect(404);
}
