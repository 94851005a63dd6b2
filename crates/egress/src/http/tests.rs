//! Requests, good and hostile, whole and in pieces.

use proptest::prelude::*;

use super::*;

fn requests() -> Requests {
    Requests::new("a.org".parse().unwrap(), 80)
}

/// What is forwarded of some bytes, given in pieces of this size.
fn passed(text: &[u8], bytes: usize) -> Result<Vec<u8>, BadRequest> {
    let (mut requests, mut out) = (requests(), Vec::new());
    for piece in text.chunks(bytes) {
        requests.push(piece, &mut out)?;
    }
    Ok(out)
}

fn wrong(text: &str) -> BadRequest {
    let wrong = passed(text.as_bytes(), usize::MAX).expect_err(text);
    for bytes in 1..text.len().min(40) {
        passed(text.as_bytes(), bytes).expect_err(text);
    }
    wrong
}

#[test]
fn requests_for_the_host_go_on_byte_for_byte_in_pieces_of_any_size() {
    let text = b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n\
        POST /x?y HTTP/1.1\r\nhost: A.ORG:80\r\nContent-Length: 5\r\n\r\nhello\
        PUT http://a.org/z HTTP/1.1\r\nHost: a.org.\r\nTransfer-Encoding: chunked\r\n\r\n\
        5;ext=1\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n\
        OPTIONS * HTTP/1.0\r\nHost: a.org\r\n\r\n";
    for bytes in 1..text.len() {
        assert_eq!(passed(text, bytes).unwrap(), text, "pieces of {bytes}");
    }
}

#[test]
fn a_request_for_another_host_does_not_go_on() {
    for text in [
        "GET / HTTP/1.1\r\nHost: b.org\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.org:8080\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.org@b.org\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET http://b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    ] {
        assert!(matches!(wrong(text), BadRequest::AnotherHost { .. }), "{text:?}");
    }
}

#[test]
fn the_second_request_of_a_connection_is_judged_as_the_first() {
    let first = "POST / HTTP/1.1\r\nHost: a.org\r\nContent-Length: 2\r\n\r\nhi";
    let text = format!("{first}GET /secret HTTP/1.1\r\nHost: b.org\r\n\r\n");
    assert!(matches!(wrong(&text), BadRequest::AnotherHost { .. }));
    let (mut requests, mut out) = (requests(), Vec::new());
    requests.push(text.as_bytes(), &mut out).unwrap_err();
    assert_eq!(out, first.as_bytes(), "nothing of the second has gone on");
}

#[test]
fn a_request_that_can_be_understood_in_two_ways_does_not_go_on() {
    for fields in [
        "Host: a.org\r\nHost: a.org",
        "X: y",
        "Host: a.org\r\nContent-Length: 1\r\nContent-Length: 2",
        "Host: a.org\r\nContent-Length: 1, 2",
        "Host: a.org\r\nContent-Length: +1",
        "Host: a.org\r\nContent-Length:",
        "Host: a.org\r\nContent-Length: 99999999999999999999",
        "Host: a.org\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        "Host: a.org\r\nTransfer-Encoding: gzip, chunked",
        "Host: a.org\r\nTransfer-Encoding: xchunked",
        "Host: a.org\r\nTransfer-Encoding : chunked",
        "Host: a.org\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Host: a.org\r\n folded: x",
        "Host: a.org\r\nX: y\n\nGET / HTTP/1.1\nHost: b.org",
        "Host: a.org\rX: y",
        "Host: a.org\r\nX\0: y",
        "Host: a.org\r\nno colon",
    ] {
        let text = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
        assert!(matches!(wrong(&text), BadRequest::Malformed(_)), "{text:?}");
    }
    for line in ["GET  / HTTP/1.1", "GET /", "GET / HTTP/2.0", "GET / HTTP/1.1 x", "G(T / HTTP/1.1"]
    {
        let text = format!("{line}\r\nHost: a.org\r\n\r\n");
        assert!(matches!(wrong(&text), BadRequest::Malformed(_)), "{text:?}");
    }
    let coded = "POST / HTTP/1.0\r\nHost: a.org\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(matches!(wrong(coded), BadRequest::Malformed(_)), "the older version has no pieces");
}

#[test]
fn pieces_of_a_body_have_plain_sizes_and_ends() {
    let head = "POST / HTTP/1.1\r\nHost: a.org\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "x\r\n",
        "-1\r\n",
        "0x5\r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\nhelloX\r\n",
        "\r\n",
        "ffffffffffffffff\r\n",
        "5 5\r\n",
        "5\r\nhello\n0\r\n\r\n",
    ] {
        let text = format!("{head}{body}");
        assert!(matches!(wrong(&text), BadRequest::Malformed(_)), "{body:?}");
    }
}

#[test]
fn heads_and_lines_have_bounds() {
    let long = format!("GET /{} HTTP/1.1\r\nHost: a.org\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(passed(long.as_bytes(), 1000), Err(BadRequest::TooLong));
    let endless = vec![b'x'; HEAD_BYTES_MAX + 1];
    assert_eq!(passed(&endless, 100), Err(BadRequest::TooLong));
    let many = "X: y\r\n".repeat(1000);
    let text = format!("GET / HTTP/1.1\r\nHost: a.org\r\n{many}\r\n");
    assert!(matches!(passed(text.as_bytes(), 9000), Err(BadRequest::Malformed(_))));
}

#[test]
fn a_body_that_means_nothing_is_the_last_of_its_connection() {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: b.org\r\n\r\n";
    for method in ["GET", "HEAD", "DELETE"] {
        let head = |connection: &str| {
            let length = hidden.len();
            format!(
                "{method} / HTTP/1.1\r\n{connection}Host: a.org\r\nContent-Length: {length}\r\n\r\n"
            )
        };
        let closing = format!("{}{hidden}", head("Connection: close\r\n"));
        for fields in ["", "connection: keep-alive\r\nCONNECTION: x\r\n"] {
            let text = format!("{}{hidden}", head(fields));
            assert_eq!(passed(text.as_bytes(), 9).unwrap(), closing.as_bytes());
            let more = format!("{text}GET / HTTP/1.1\r\nHost: a.org\r\n\r\n");
            assert!(matches!(wrong(&more), BadRequest::Malformed(_)), "{more:?}");
        }
    }
    let post = format!(
        "POST / HTTP/1.1\r\nHost: a.org\r\nContent-Length: {}\r\n\r\n{hidden}",
        hidden.len()
    );
    assert_eq!(passed(post.repeat(2).as_bytes(), 9).unwrap(), post.repeat(2).as_bytes());
}

#[test]
fn a_whole_address_has_a_path_behind_its_host_and_nothing_else() {
    for target in ["http://a.org?@b.org/", "http://a.org#@b.org/", "http://a.org?/"] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a.org\r\n\r\n");
        assert!(matches!(wrong(&text), BadRequest::Malformed(_)), "{text:?}");
    }
    for target in ["http://a.org", "http://a.org/", "HTTP://A.org:80/?@b.org"] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a.org\r\n\r\n");
        assert_eq!(passed(text.as_bytes(), 3).unwrap(), text.as_bytes());
    }
}

#[test]
fn a_tunnel_is_not_asked_for() {
    assert_eq!(wrong("CONNECT a.org:80 HTTP/1.1\r\nHost: a.org\r\n\r\n"), BadRequest::Tunnel);
}

#[test]
fn a_websocket_waits_for_the_server_and_nothing_else_is_agreed_upon() {
    let ask = |protocol: &str| {
        format!(
            "GET / HTTP/1.1\r\nHost: a.org\r\nConnection: keep-alive, Upgrade\r\n\
            Upgrade: {protocol}\r\n\r\n"
        )
    };
    let (mut requests, mut out) = (requests(), Vec::new());
    requests.push(ask("websocket").as_bytes(), &mut out).unwrap();
    assert!(requests.awaits_agreement());
    requests.push(b"GET", &mut out).expect_err("before the server has agreed");
    requests.declined();
    let other = b"GET / HTTP/1.1\r\nHost: b.org\r\n\r\n";
    requests.push(other, &mut out).expect_err("requests are judged on when it has not");
    for protocol in ["tls/1.0", "h2c, websocket", "h2"] {
        assert!(matches!(wrong(&ask(protocol)), BadRequest::Upgrade { .. }), "{protocol}");
        let unsaid = ask(protocol).replace("keep-alive, Upgrade", "HTTP2-Settings");
        assert!(matches!(wrong(&unsaid), BadRequest::Upgrade { .. }), "{protocol}");
    }
    // An offer is removed, whether it is well-formed or not.
    let unsaid = ask("h2c").replace("keep-alive, Upgrade", "HTTP2-Settings");
    for (offer, left) in [(ask("h2c"), "Connection: keep-alive\r\n"), (unsaid, "")] {
        for bytes in [1, 7, 1000] {
            let passed = passed(offer.as_bytes(), bytes).unwrap();
            let plain = format!("GET / HTTP/1.1\r\nHost: a.org\r\n{left}\r\n");
            assert_eq!(String::from_utf8(passed).unwrap(), plain);
        }
    }
    let later = format!("GET / HTTP/1.1\r\nHost: a.org\r\n\r\n{}", ask("websocket"));
    assert!(matches!(wrong(&later), BadRequest::Upgrade { .. }));
    assert_eq!(agrees(b"HTTP/1.1 101 Switching"), Some(true));
    assert_eq!(agrees(b"HTTP/1.1 1"), None);
    assert_eq!(agrees(b"HTTP/1.1 200 OK"), Some(false));
}

#[test]
fn the_first_bytes_tell_a_request() {
    for bytes in [&b"GET / "[..], b"M-SEARCH *", b"PRINT /"] {
        assert_eq!(is_request(bytes), Some(true), "{bytes:?}");
    }
    for bytes in [&b"\x16\x03\x01"[..], b"SSH-2.0-x", b"PRI * HTTP/2.0\r\n", b" GET", b"get / "] {
        assert_eq!(is_request(bytes), Some(false), "{bytes:?}");
    }
    for bytes in [&b""[..], b"G", b"PRI", b"PRI * HTT"] {
        assert_eq!(is_request(bytes), None, "{bytes:?}");
    }
}

#[test]
fn a_proxy_request_becomes_a_server_request() {
    let text =
        b"GET http://a.org:8080?q HTTP/1.1\r\nHost: b.org\r\nProxy-Connection: keep-alive\r\n\
        Connection: X-Mine\r\nX-Mine: 1\r\nAccept: */*\r\n\r\n";
    let head = Head::parse(text).unwrap();
    let (host, path) = head.absolute().unwrap();
    assert_eq!((host, path), ("a.org:8080", "?q"));
    let sent = String::from_utf8(head.for_server(host, path)).unwrap();
    assert_eq!(
        sent,
        "GET /?q HTTP/1.1\r\nhost: a.org:8080\r\nconnection: close\r\naccept: */*\r\n\r\n"
    );
}

#[test]
fn the_end_of_a_body_is_never_between_a_client_and_its_proxy_alone() {
    for field in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let text = format!(
            "POST http://a.org/ HTTP/1.1\r\n{field}\r\nConnection: content-length, Transfer-Encoding\r\n\r\n"
        );
        let sent = Head::parse(text.as_bytes()).unwrap().for_server("a.org", "/");
        let sent = String::from_utf8(sent).unwrap();
        assert!(sent.contains(&field.to_ascii_lowercase()), "{sent}");
    }
}

proptest! {
    /// However a connection is split, the same bytes are forwarded.
    #[test]
    fn pieces_make_no_difference(
        picks in proptest::collection::vec(0_usize..8, 0..30),
        bytes in 1_usize..50,
    ) {
        const PARTS: [&[u8]; 8] = [
            b"GET / HTTP/1.1\r\n", b"Host: a.org\r\n", b"Content-Length: 3\r\n", b"\r\n", b"abc",
            b"Transfer-Encoding: chunked\r\n", b"3\r\n", b"0\r\n",
        ];
        let text: Vec<u8> = picks.iter().flat_map(|pick| PARTS[*pick]).copied().collect();
        let whole = passed(&text, usize::MAX);
        let pieces = passed(&text, bytes);
        prop_assert_eq!(whole.is_ok(), pieces.is_ok());
        if let Ok(whole) = whole {
            prop_assert_eq!(whole, pieces.unwrap());
        }
    }

    #[test]
    fn no_bytes_of_a_stranger_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let whole = passed(&bytes, usize::MAX);
        let pieces = passed(&bytes, 7);
        prop_assert_eq!(whole.is_ok(), pieces.is_ok());
        if let Ok(passed) = whole {
            prop_assert!(bytes.starts_with(&passed));
            prop_assert_eq!(passed, pieces.unwrap());
        }
        // An early decision does not change, whatever follows.
        for end in 0..bytes.len() {
            if let Some(decided) = is_request(&bytes[..end]) {
                prop_assert_eq!(is_request(&bytes), Some(decided));
            }
            if let Some(decided) = agrees(&bytes[..end]) {
                prop_assert_eq!(agrees(&bytes), Some(decided));
            }
        }
    }
}
