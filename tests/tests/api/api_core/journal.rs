//! What a server says of what it does.

use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;
use tests::Burrow;
use tests::http::Client;

use super::own::Own;
use super::{USUAL, bash, create};

const SERVE: [&str; 3] = ["--dev", "--listen", "127.0.0.1:0"];

#[test]
fn a_journal_that_nobody_reads_does_not_stop_the_server() {
    // The port is chosen here, because the server's words are not read.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let own = Own::start_in(Burrow::new(), &["--dev", "--listen", &listen], |command| {
        command.stderr(Stdio::piped());
    });
    let client = Client::new(&format!("http://{listen}"));
    let mut slowest = std::time::Duration::ZERO;
    // A pipe holds 64 KiB, and the server some thousand lines of a hundred bytes.
    for _ in 0..8000 {
        let began = Instant::now();
        client.get("/livez").expect(200);
        slowest = slowest.max(began.elapsed());
    }
    assert!(slowest < USUAL, "a client waited {slowest:?}");
    let ended = Instant::now();
    own.end();
    assert!(ended.elapsed() < USUAL * 2, "it took {:?} to end", ended.elapsed());
}

#[test]
fn lines_of_json_say_which_request_and_which_sandbox_they_are_about() {
    let own = Own::start(&[&SERVE[..], &["--set", "log.format=json"]].concat());
    tests::eventually("the address is told", || own.log().contains("listening on http://"));
    // In this form the address is within an object.
    let log = own.log();
    let url = log.split("listening on ").find(|text| text.starts_with("http://")).unwrap();
    let end = url.find(['"', '\\', ' ', '\n']).unwrap();
    let client = Client::new(&url[..end]);
    create(&client, "web");
    bash(&client, "web", "echo a-word-of-the-program").expect(200);
    let headers = [("x-request-id", "mine-1")];
    client.send("GET", "/v1/sandboxes/default/web", &headers, &[]).expect(200);
    client
        .send("GET", "/v1/sandboxes/a/b%0a%22forged%22", &[("x-request-id", "mine-2")], &[])
        .expect(400);
    client.delete("/v1/sandboxes/default/web?force=true").expect(200);
    let text_of = |own: &Own| own.log();
    tests::eventually("the removal is told", || text_of(&own).contains("removed"));
    let log = own.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        for field in ["timestamp", "level", "target", "message"] {
            let answer =
                line[field].is_string() || (field == "message" && line["request"].is_string());
            assert!(answer, "no {field} in {line}");
        }
    }
    let of = |request: &str| lines.iter().find(|line| line["request"] == request).unwrap();
    assert_eq!(of("mine-1")["status"], 200);
    assert_eq!(of("mine-1")["operation"], "get_sandbox");
    assert!(of("mine-1")["micros"].is_u64());
    assert_eq!(of("mine-1")["sandbox"], "web", "{}", of("mine-1"));
    assert_eq!(of("mine-2")["code"], "invalid");
    assert!(
        lines.iter().any(|line| line["sandbox"] == "web" && line["request"].is_null()),
        "{log}"
    );
    assert!(!log.contains("a-word-of-the-program"), "what runs in a sandbox is nobody's business");
    own.end();
}

#[test]
fn lines_for_people_cannot_be_forged_by_a_request() {
    let own = Own::start(&SERVE);
    let client = Client::new(&own.url("http://"));
    client.get("/a%0Ahost-bridge:%20error:%20forged").expect(404);
    client.send("GET", "/\u{1b}[2J", &[], &[]);
    client.get("/livez").expect(200);
    tests::eventually("the requests are told", || own.log().contains("livez"));
    let log = own.log();
    assert!(log.lines().all(|line| line.starts_with("host-bridge: ")), "{log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
    assert!(
        !log.lines()
            .any(|line| line.contains("host-bridge: error: forged") && !line.contains("path")),
        "{log}"
    );
    own.end();
}
