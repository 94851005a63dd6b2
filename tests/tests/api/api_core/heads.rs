//! Methods, paths, request numbers and deadlines.

use std::io::BufReader;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::http::Client;
use tests::server::Server;

use super::raw::{answer, send};
use super::{bash, create, path_of};

#[test]
fn a_request_keeps_the_number_that_its_client_gives_it() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let ask = |id: &str| {
        let answered = client.send("GET", "/v1/sandboxes/a/b", &[("x-request-id", id)], &[]);
        answered.expect(404).header("x-request-id").unwrap().to_owned()
    };
    for id in ["a", "0f-3_b.c:d", &"z".repeat(64)] {
        assert_eq!(ask(id), id);
    }
    for id in ["", "a b", "ü", "a\tb", "\"", &"z".repeat(65)] {
        let ours = ask(id);
        assert!(ours != id && !ours.is_empty(), "{id:?} became {ours:?}");
    }
    assert_ne!(ask(""), ask(""));
    for path in ["/livez", "/docs", "/nowhere"] {
        assert!(client.get(path).header("x-request-id").is_some(), "{path}");
    }
}

#[test]
fn a_call_ends_at_its_deadline_and_so_does_what_it_began() {
    let server = Server::dev();
    let client = Client::new(server.url());
    create(&client, "box");
    bash(&client, "box", "true").expect(200);
    let run = format!("{}/run", path_of("box"));
    let headers = [("content-type", "application/json"), ("burrow-deadline-ms", "500")];
    let code = json!({ "language": "bash", "code": "sleep 30; echo never" }).to_string();
    let began = Instant::now();
    let ended = client.send("POST", &run, &headers, code.as_bytes());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    // The guest ends it by itself as a rule, and its result says so; the call's own end is the last
    // resort.
    match ended.status {
        200 => assert_eq!(ended.json()["status"], "timeout", "{}", ended.text()),
        status => assert_eq!((status, ended.code().as_str()), (504, "deadline_exceeded")),
    }
    // Its turn would not come while the first one sleeps.
    let next = bash(&client, "box", "echo next").expect(200);
    assert_eq!(next.json()["stdout"], "next\n");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_time_limit_is_reported_as_it_was_given() {
    let server = Server::dev();
    let client = Client::new(server.url());
    create(&client, "box");
    let exec = format!("{}/exec", path_of("box"));
    let limits = json!({ "argv": ["sleep", "30"], "timeout_ms": 700 });
    let cause = client.post(&exec, &limits).expect(200).json()["cause"].clone();
    assert_eq!(cause, json!({ "type": "timeout", "limit_ms": 700 }));
}

#[test]
fn a_wait_beyond_the_deadline_is_a_504() {
    let server = Server::dev();
    let client = Client::new(server.url());
    create(&client, "box");
    let wait = format!("{}/wait", path_of("box"));
    let began = Instant::now();
    let ended = client.send("GET", &wait, &[("burrow-deadline-ms", "300")], &[]).expect(504);
    assert_eq!(ended.code(), "deadline_exceeded");
    assert!(ended.json()["hint"].is_string());
    let message = "the call took longer than its deadline of 300 ms";
    assert_eq!(ended.json()["message"], message);
    let took = began.elapsed();
    assert!((Duration::from_millis(290)..Duration::from_secs(3)).contains(&took), "{took:?}");
    for bad in ["0", "-1", "soon", "", "1.5", "86400001", "99999999999999999999999"] {
        let refused = client.send("GET", &wait, &[("burrow-deadline-ms", bad)], &[]).expect(400);
        assert_eq!(refused.code(), "invalid", "{bad}");
    }
}

#[test]
fn a_deadline_holds_while_the_body_is_still_on_its_way() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let connection = client.raw();
    let began = Instant::now();
    send(
        &connection,
        "POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\nburrow-deadline-ms: 300\r\n\
        content-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    );
    let ended = answer(&mut BufReader::new(&connection)).unwrap();
    assert_eq!((ended.status, ended.code().as_str()), (504, "deadline_exceeded"));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn a_head_is_asked_for_like_a_get_and_has_no_body() {
    let server = Server::dev();
    let client = Client::new(server.url());
    for (path, status) in [("/livez", 200), ("/openapi.json", 200), ("/v1/sandboxes/a/b", 404)] {
        let get = client.get(path).expect(status);
        let connection = client.raw();
        let mut from = BufReader::new(&connection);
        send(
            &connection,
            format!(
                "HEAD {path} HTTP/1.1\r\nhost: localhost\r\n\r\nGET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
            ),
        );
        // Only the head is there; what follows it is the next answer.
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            std::io::BufRead::read_line(&mut from, &mut head).unwrap();
        }
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", get.body.len())), "{head}");
        assert_eq!(answer(&mut from).unwrap().status, 200);
    }
}

#[test]
fn paths_and_methods_that_are_not_there_are_distinguished() {
    let server = Server::dev();
    let client = Client::new(server.url());
    for path in
        ["/v1", "/v1/", "/v1/sandboxes/", "/v3/sandboxes", "/v1//sandboxes", "/%76%31/sandboxes"]
    {
        let missing = client.get(path).expect(404);
        assert_eq!(missing.code(), "not_found", "{path}");
        assert!(missing.json()["hint"].is_string());
    }
    for (method, path, allow) in [
        ("PUT", "/v1/sandboxes", "POST, GET, HEAD"),
        ("DELETE", "/livez", "GET, HEAD"),
        ("BREW", "/livez", "GET, HEAD"),
        ("OPTIONS", "/v1/sandboxes", "POST, GET, HEAD"),
        ("TRACE", "/v1/sandboxes", "POST, GET, HEAD"),
    ] {
        let refused = client.send(method, path, &[], &[]).expect(405);
        assert_eq!(
            (refused.code().as_str(), refused.header("allow")),
            ("method_not_allowed", Some(allow))
        );
    }
    for name in ["a%20b", "-a", "%2e%2e", "%00", "%ff", "%zz", "a%2Fb", &"a".repeat(64)] {
        let refused = client.get(&path_of(name)).expect(400);
        assert_eq!(refused.code(), "invalid", "{name}");
    }
}

#[test]
fn answers_are_kept_by_no_cache_and_taken_for_no_page() {
    let server = Server::dev();
    let client = Client::new(server.url());
    for path in ["/v1/sandboxes", "/v1/sandboxes/a/b", "/openapi.json", "/metrics"] {
        let answered = client.get(path);
        assert_eq!(answered.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(answered.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
}
