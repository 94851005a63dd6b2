//! Ports of sandboxes by their previews: below a path and under host names of their own, with keys, with
//! links, and for everybody.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

mod access;
mod hostile;
mod links;
mod load;
mod names;

use std::io::Read;

use serde_json::{Value, json};
use tests::door::{BOX, open};
use tests::http::{Answer, Client, SocketMessage};
use tests::listening::{Listening, listen};
use tests::server::Server;

/// See its own words.
const APP: &str = include_str!("api_previews/app.py");

/// A server with one sandbox in which the app listens, a client of the server, and what the app's path
/// begins with.
struct Served {
    server: Server,
    client: Client,
    app: Listening,
    prefix: String,
}

fn served() -> Served {
    let (server, client) = open();
    let app = listen(&server, APP);
    let prefix = format!("/p/default/box/{}", app.port);
    Served { server, client, app, prefix }
}

impl Served {
    fn get(&self, path: &str) -> Answer {
        self.client.get(&format!("{}{path}", self.prefix))
    }

    /// What the app says that it got.
    fn said(&self, path: &str, headers: &[(&str, &str)]) -> Value {
        let path = format!("{}{path}", self.prefix);
        self.client.send("GET", &path, headers, &[]).expect(200).json()
    }

    /// What a raw answer of the app is for the client.
    fn raw(&self, answer: &str) -> Answer {
        self.get(&format!("/raw/{}", hex(answer)))
    }
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

/// The values of a header that the app got.
fn got<'a>(said: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = said["headers"].as_array().unwrap().iter();
    headers.filter(|header| header[0] == name).map(|header| header[1].as_str().unwrap()).collect()
}

#[test]
fn a_request_and_its_answer_go_through_as_they_are() {
    let served = served();
    let path = format!("{}/a/b?c=d&c=%20e", served.prefix);
    let headers = [("accept", "text/plain"), ("x-own", "1"), ("content-type", "text/x-own")];
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let answer = served.client.send(method, &path, &headers, b"hello").expect(200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let said = answer.json();
        assert_eq!((&said["method"], &said["target"]), (&json!(method), &json!("/a/b?c=d&c=%20e")));
        assert_eq!(said["bytes"], 5);
        assert_eq!(said["sha256"], tests::sha256("hello"));
        for (name, value) in headers {
            assert_eq!(got(&said, name), [value]);
        }
        assert_eq!(got(&said, "x-forwarded-prefix"), [&served.prefix]);
        assert_eq!(got(&said, "host"), [format!("localhost:{}", served.app.port)]);
    }
    let said = served.said("", &[]);
    assert_eq!(said["target"], "/");
    let head = served.client.send("HEAD", &path, &[], &[]).expect(200);
    assert!(head.body.is_empty() && head.header("content-length").is_some_and(|size| size != "0"));
    served.client.send("OPTIONS", &path, &[], &[]).expect(200);
    assert_eq!(served.client.send("TRACE", &path, &[], &[]).status, 405);
}

#[test]
fn redirects_and_cookies_stay_below_the_path() {
    let served = served();
    let answer = served.raw(
        "HTTP/1.1 302 Found\r\nlocation: /login?next=/a\r\nset-cookie: a=1; Path=/; Domain=localhost\r\n\
         set-cookie: b=2\r\ncontent-length: 0\r\n\r\n",
    );
    let prefix = &served.prefix;
    assert_eq!(answer.expect(302).header("location"), Some(&format!("{prefix}/login?next=/a")[..]));
    let again =
        served.raw("HTTP/1.1 200 OK\r\nset-cookie: a=1; Path=/\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(again.header("set-cookie"), Some(&format!("a=1; Path={prefix}/")[..]));
}

#[test]
fn an_event_arrives_before_the_next_one_is_sent() {
    let served = served();
    let mut events = served.client.open("GET", &format!("{}/events", served.prefix), &[], &[]);
    assert_eq!(events.headers.get("content-type"), Some("text/event-stream"));
    let mut first = [0; 13];
    events.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"data: first\n\n");
    served.get("/release").expect(200);
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "data: second\n\n");
}

#[test]
fn a_body_goes_both_ways_while_neither_end_is_known() {
    use std::io::Write;
    let served = served();
    let mut stream = served.client.raw();
    let host = served.server.url().trim_start_matches("http://");
    let head = format!(
        "POST {}/echo HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n\r\n",
        served.prefix
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut seen = Vec::new();
    for word in ["one", "two", "three"] {
        stream.write_all(format!("{:x}\r\n{word}\r\n", word.len()).as_bytes()).unwrap();
        // It comes back while the request goes on.
        while !String::from_utf8_lossy(&seen).contains(word) {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&buffer[..count]);
        }
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    while !seen.ends_with(b"0\r\n\r\n") {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..count]);
    }
}

#[test]
fn a_websocket_of_a_program_is_one_of_the_client() {
    let served = served();
    let mut socket = served.client.websocket(&format!("{}/ws", served.prefix), &[]);
    for size in [1, 125, 126, 70_000, 1_000_000] {
        let sent: Vec<u8> = (0..size).map(|at| at as u8).collect();
        socket.binary(&sent);
        assert!(socket.hear() == SocketMessage::Binary(sent), "{size} bytes came back otherwise");
    }
    socket.close();
}

#[test]
fn a_connection_serves_request_after_request() {
    let served = served();
    let mut stream = served.client.raw();
    let host = served.server.url().trim_start_matches("http://");
    for number in 0..3 {
        use std::io::Write;
        let request =
            format!("GET {}/slow?{number} HTTP/1.1\r\nhost: {host}\r\n\r\n", served.prefix);
        stream.write_all(request.as_bytes()).unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"slow") {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "closed after {number}");
            seen.extend_from_slice(&buffer[..count]);
        }
    }
}

#[test]
fn a_port_where_nobody_listens_is_a_bad_gateway_that_says_what_to_do() {
    let (_server, client) = open();
    let refused = client.get("/p/default/box/1/").expect(502);
    assert_eq!(refused.code(), "port_unreachable");
    let said = refused.json();
    assert!(said["message"].as_str().unwrap().contains("nothing listens on port 1"), "{said}");
    assert!(said["hint"].as_str().unwrap().contains("listens on port 1"), "{said}");
    assert_eq!(said["details"]["reason"], "not_listening");
    // A person gets a page.
    let page =
        client.send("GET", "/p/default/box/1/", &[("accept", "text/html,*/*")], &[]).expect(502);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("nothing listens on port 1"));
}

#[test]
fn a_sandbox_that_does_not_run_is_a_bad_gateway_and_one_that_is_not_there_is_not_found() {
    let served = served();
    served.get("/").expect(200);
    served.client.post(&format!("{BOX}/stop"), &json!({})).expect(200);
    let refused = served.get("/").expect(502);
    assert_eq!(refused.json()["details"]["reason"], "not_running");
    assert!(refused.json()["hint"].is_string(), "{}", refused.text());
    assert_eq!(served.client.get("/p/default/none/80/").expect(404).code(), "not_found");
}

#[test]
fn a_large_upload_is_carried_and_not_held() {
    const BYTES: usize = 96 * 1024 * 1024;
    let served = served();
    let body = vec![7; BYTES];
    let before = tests::resident_bytes(served.server.daemon_pid()).unwrap();
    let said =
        served.client.send("PUT", &format!("{}/", served.prefix), &[], &body).expect(200).json();
    assert_eq!(said["bytes"], BYTES);
    let peak = tests::resident_bytes_peak(served.server.daemon_pid()).unwrap();
    assert!(peak < before + BYTES as u64 / 3, "{before} bytes grew to {peak}");
    // An answer that comes before the program has read all arrives.
    served.client.send("PUT", &format!("{}/early", served.prefix), &[], &body).expect(413);
}
