//! Requests that say one thing twice, and what a flood of requests writes to the log.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use tests::http::Client;
use tests::server::Server;
use tests::{PATIENCE, eventually};

/// What comes back on a connection of its own.
fn raw(server: &Server, head: &str) -> String {
    let address = server.url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn status(text: &str) -> &str {
    text.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn a_request_that_says_something_twice_is_refused() {
    let server = Server::dev();
    let close = "Connection: close\n\n";
    let good = raw(&server, &format!("GET /livez HTTP/1.1\nHost: localhost\n{close}"));
    assert_eq!(status(&good), "200", "{good}");
    for twice in [
        "Host: localhost\nHost: evil.example",
        "Host: evil.example\nHost: localhost",
        "Host: localhost\nHost: localhost",
        "Host: localhost\nhOST: localhost",
        "Host: localhost\nAuthorization: Bearer a\nAuthorization: Bearer b",
        "Host: localhost\nOrigin: http://localhost\nOrigin: http://evil.example",
        "Host: localhost\nContent-Type: application/json\nContent-Type: text/plain",
        "Host: localhost\nContent-Length: 2\nContent-Length: 3",
        "Host: localhost\nContent-Length: +2",
        "Host: localhost\nTransfer-Encoding: chunked, gzip",
        "Host: localhost\nHost : localhost",
        "Host: localhost\nHost\n : localhost",
    ] {
        let output = raw(&server, &format!("GET /livez HTTP/1.1\n{twice}\n{close}"));
        assert_eq!(status(&output), "400", "{twice:?}: {output}");
    }
}

#[test]
fn a_length_beside_chunks_lets_no_second_request_in() {
    let server = Server::dev();
    // A server that trusts the length would read what follows the chunks as another request.
    for order in [
        "Content-Length: 4\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\nContent-Length: 4",
    ] {
        let head = format!(
            "POST /v1/sandboxes HTTP/1.1\nHost: localhost\nContent-Type: application/json\n\
             Connection: close\n{order}\n\n0\n\nGET /livez HTTP/1.1\nHost: localhost\n\n"
        );
        let output = raw(&server, &head);
        assert_eq!(output.matches("HTTP/1.1 ").count(), 1, "{order:?}: {output}");
        assert!(status(&output).starts_with('4'), "{order:?}: {output}");
    }
}

#[test]
fn refused_requests_fill_no_log_and_are_counted() {
    const REQUESTS: usize = 3_000;
    const THREADS: usize = 4;
    /// What is promised of requests that are refused: so many lines at once, and so many a second.
    const LINES_AT_ONCE: usize = 200;
    const LINES_A_SECOND: usize = 20;
    let server = Server::with_keys();
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let url = server.url();
            scope.spawn(move || {
                let client = Client::new(url);
                for _ in 0..REQUESTS / THREADS {
                    client.get("/v1/sandboxes/default/flood");
                }
            });
        }
    });
    let lines = || fs::read_to_string(server.log()).unwrap();
    let count = |output: &str| output.lines().filter(|line| line.contains("/flood")).count();
    let written = count(&lines());
    let most = LINES_AT_ONCE + LINES_A_SECOND * (began.elapsed().as_secs() as usize + 1);
    assert!(written <= most, "{written} lines of {REQUESTS} requests, {most} at most");
    assert!(most < REQUESTS, "the flood was none: {:?}", began.elapsed());
    // One line says how many there were besides.
    eventually("what was left out is said", || lines().contains("have no line here"));
    let output = lines();
    let line = output.lines().find(|line| line.contains("have no line here")).unwrap();
    assert!(line.contains(" more requests of this sort"), "{line}");
    // Others are served.
    let _ = server.ok(&["ps"]);
}
