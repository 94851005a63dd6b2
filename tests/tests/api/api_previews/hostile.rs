//! Clients and programs that mean ill.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use super::{Served, served};

/// Sends bytes, and reads until the server closes the connection.
fn exchange(served: &Served, request: &str) -> String {
    let mut stream = served.client.raw();
    stream.write_all(request.as_bytes()).unwrap();
    read(&mut stream)
}

fn read(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).ok();
    String::from_utf8_lossy(&all).into_owned()
}

fn host(served: &Served) -> &str {
    served.server.url().trim_start_matches("http://")
}

#[test]
fn no_request_hides_another_from_this_server() {
    let served = served();
    let (prefix, host) = (&served.prefix, host(&served));
    let hidden = format!("GET {prefix}/hidden HTTP/1.1\r\nhost: {host}\r\n\r\n");
    // Of a length and chunks the chunks count, and the connection ends behind them.
    for case in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    ] {
        let answer = exchange(
            &served,
            &format!("POST {prefix}/ HTTP/1.1\r\nhost: {host}\r\n{case}{hidden}"),
        );
        assert!(
            answer.contains("\"bytes\": 0") && !answer.contains("/hidden"),
            "{case:?}: {answer}"
        );
        assert!(answer.contains("connection: close"), "{case:?}: {answer}");
    }
    let cases = [
        "content-length: 5\r\ncontent-length: 6\r\n\r\nhello".to_owned(),
        "content-length: +5\r\n\r\nhello".to_owned(),
        "transfer-encoding: chunked\r\n folded: yes\r\n\r\n0\r\n\r\n".to_owned(),
        "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n".to_owned(),
        "transfer-encoding : chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n".to_owned(),
        "transfer-encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n".to_owned(),
        format!("x-a: b\0\r\ncontent-length: {}\r\n\r\n{hidden}", hidden.len()),
    ];
    for case in cases {
        let answer = exchange(
            &served,
            &format!("POST {prefix}/ HTTP/1.1\r\nhost: {host}\r\n{case}{hidden}"),
        );
        assert!(!answer.contains("/hidden"), "{case:?}: {answer}");
        assert!(!answer.starts_with("HTTP/1.1 200"), "{case:?}: {answer}");
    }
    // What is a body stays one.
    let ask = format!(
        "POST {prefix}/ HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{hidden}",
        hidden.len()
    );
    let answer = exchange(&served, &ask);
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("/hidden"), "{answer}");
}

#[test]
fn no_answer_of_a_program_is_taken_for_two() {
    let served = served();
    let second = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhidden";
    for answer in [
        format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok{second}"),
        format!("HTTP/1.1 204 No Content\r\n\r\n{second}"),
        format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{second}"
        ),
    ] {
        let shown = served.raw(&answer);
        assert!(shown.status < 300 && !shown.text().contains("hidden"), "{}", shown.text());
        // The connection to the server says nothing that was not asked for.
        served.get("/").expect(200).json();
    }
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nx-a: 1\r\n folded: 2\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-a : 1\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "",
    ] {
        let refused = served.raw(answer);
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (502, "port_unreachable"),
            "{answer:?}"
        );
    }
    // More headers than are read of an answer.
    let many =
        (0..200).fold(String::new(), |all, number| all + "x-" + &number.to_string() + ": 1\r\n");
    let refused = served.raw(&format!("HTTP/1.1 200 OK\r\n{many}content-length: 0\r\n\r\n"));
    assert_eq!((refused.status, refused.code().as_str()), (502, "port_unreachable"));
}

#[test]
fn an_answer_that_breaks_off_is_never_whole() {
    let served = served();
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let path = format!("{}/raw/{}", served.prefix, super::hex(answer));
        let mut incoming = served.client.open("GET", &path, &[], &[]);
        assert_eq!(incoming.status, 200);
        let mut body = Vec::new();
        incoming.read_to_end(&mut body).expect_err("the body broke off");
        assert_eq!(body, b"hello");
    }
}

#[test]
fn a_path_is_the_programs_own_to_the_byte_and_leads_nowhere_else() {
    let served = served();
    for path in [
        "/a//b",
        "//evil.example/",
        "/../../../v1/sandboxes",
        "/%2e%2e/%2e%2e/v1/sandboxes",
        "/a%2fb",
        "/a%00b",
        "/a;b=c",
        "/a?b#",
        "/p/default/box/1/",
    ] {
        let said = served.said(path, &[]);
        assert_eq!(said["target"], path.trim_end_matches('#'), "{path}");
    }
    for path in [
        "/p/default/box/0/",
        "/p/default/box/080/",
        "/p/default/box/65536/",
        "/p/default/box/+80/",
        "/p/default/box//",
        "/p/default//80/",
        "/p/default/b%6fx/80/",
        "/p/../box/80/",
        "/p/default/../80/",
        "/p//box/80/",
        "/p/default/box",
    ] {
        assert_eq!(served.client.get(path).status, 404, "{path}");
    }
    // Nor is where it stands in the table a way in.
    served.client.get(&format!("/.preview/default/box/{}", served.app.port)).expect(404);
    served.client.get("/.preview").expect(404);
}

#[test]
fn headers_of_a_client_name_no_other_header_away_and_lie_about_nothing() {
    let served = served();
    let said = served.said(
        "/",
        &[
            ("connection", "close, x-forwarded-host, host"),
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-for", "1.2.3.4"),
            ("te", "trailers"),
        ],
    );
    assert_eq!(super::got(&said, "x-forwarded-host"), [host(&served)]);
    assert_eq!(super::got(&said, "host"), [format!("localhost:{}", served.app.port)]);
    assert_eq!(super::got(&said, "x-forwarded-for"), ["1.2.3.4, 127.0.0.1"]);
    assert_eq!(super::got(&said, "connection"), ["close"]);
    assert!(super::got(&said, "te").is_empty());
    // The name of the target and that of the header are one.
    let ask = |target: &str| {
        let head = format!(
            "GET {target} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            host(&served)
        );
        exchange(&served, &head)
    };
    assert!(
        ask(&format!("http://{}{}/", host(&served), served.prefix)).starts_with("HTTP/1.1 200")
    );
    let other = ask(&format!("http://evil.example{}/", served.prefix));
    assert!(other.starts_with("HTTP/1.1 400"), "{other}");
}

#[test]
fn clients_that_leave_or_read_nothing_hold_no_one_up() {
    let served = served();
    let path = format!("{}/events", served.prefix);
    let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", host(&served));
    let mut waiting: Vec<TcpStream> = Vec::new();
    for _ in 0..50 {
        let mut stream = served.client.raw();
        stream.write_all(head.as_bytes()).unwrap();
        waiting.push(stream);
    }
    served.get("/").expect(200);
    drop(waiting);
    // Uploads that are never finished, too.
    let mut standing: Vec<TcpStream> = Vec::new();
    for _ in 0..50 {
        let mut stream = served.client.raw();
        let head = format!(
            "POST {}/ HTTP/1.1\r\nhost: {}\r\ncontent-length: 1000000\r\n\r\nx",
            served.prefix,
            host(&served)
        );
        stream.write_all(head.as_bytes()).unwrap();
        standing.push(stream);
    }
    served.get("/").expect(200);
    drop(standing);
    let running = json!({ "argv": ["true"], "timeout_ms": Duration::from_secs(20).as_millis() });
    served.client.post(&format!("{}/exec", tests::door::BOX), &running).expect(200);
}
