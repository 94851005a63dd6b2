use super::*;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, HeaderValue::from_static(value));
    }
    map
}

fn by_name() -> Way {
    Way::sample(Form::Host, "3000-work.localhost:5555")
}

fn by_path() -> Way {
    Way::sample(Form::Path("/p/default/work/3000".to_owned()), "127.0.0.1:5555")
}

#[test]
fn keys_links_and_tokens_never_reach_the_program() {
    let head = by_name().head(&headers(&[
        ("authorization", "BeArEr   msb_a.b.c"),
        ("x-api-key", "msb_a.b.c"),
        ("x-access-token", "ea_00"),
        ("e2b-traffic-access-token", "ea_00"),
        ("e2b-sandbox-id", "0123456789ab"),
        ("cookie", "a=1; burrow-link=bpl_00; b=2"),
        ("cookie", "__Host-burrow-link=bpl_00"),
        ("sec-websocket-protocol", "chat, bearer.msb_a.b.c"),
    ]));
    for name in [
        "authorization",
        "x-api-key",
        "x-access-token",
        "e2b-traffic-access-token",
        "e2b-sandbox-id",
    ] {
        assert!(!head.contains_key(name), "{name}");
    }
    let cookies: Vec<_> = head.get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
    assert_eq!(head["sec-websocket-protocol"], "chat");
    assert!(!format!("{head:?}").contains("msb_") && !format!("{head:?}").contains("bpl_"));
}

#[test]
fn what_is_the_programs_own_reaches_it() {
    let head = by_name().head(&headers(&[
        ("authorization", "Basic dTpw"),
        ("x-api-key", "its own"),
        ("x-access-token", "its own"),
        ("cookie", "session=1"),
        ("accept", "text/html"),
    ]));
    assert_eq!(head["authorization"], "Basic dTpw");
    assert_eq!(head["x-api-key"], "its own");
    assert_eq!(head["x-access-token"], "its own");
    assert_eq!(head["cookie"], "session=1");
    assert_eq!(head["accept"], "text/html");
}

#[test]
fn what_concerns_one_connection_ends_here() {
    let head = by_name().head(&headers(&[
        ("connection", "close, X-Secret"),
        ("x-secret", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("trailer", "x-late"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("upgrade", "websocket"),
        ("proxy-authorization", "Basic dTpw"),
        ("expect", "100-continue"),
    ]));
    let left: Vec<&str> = head.keys().map(HeaderName::as_str).collect();
    let own = ["connection", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
    assert!(left.iter().all(|name| own.contains(name)), "{left:?}");
    assert_eq!(head["connection"], "close");
}

#[test]
fn only_this_server_says_where_a_request_came_from() {
    let lies = [
        ("host", "3000-work.localhost:5555"),
        ("forwarded", "for=evil"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-proto", "gopher"),
        ("x-forwarded-prefix", "/evil"),
        ("x-forwarded-for", "198.51.100.7"),
    ];
    let head = by_name().head(&headers(&lies));
    assert_eq!(head["host"], "3000-work.localhost:5555");
    assert_eq!(head["x-forwarded-host"], "3000-work.localhost:5555");
    assert_eq!(head["x-forwarded-proto"], "http");
    assert_eq!(head["x-forwarded-for"], "198.51.100.7, 192.0.2.1");
    assert!(!head.contains_key("x-forwarded-prefix") && !head.contains_key("forwarded"));
    let head = by_path().head(&headers(&lies));
    assert_eq!(head["host"], "localhost:3000");
    assert_eq!(head["x-forwarded-host"], "127.0.0.1:5555");
    assert_eq!(head["x-forwarded-prefix"], "/p/default/work/3000");
}

#[test]
fn another_protocol_is_asked_for_unless_it_is_another_http() {
    let mut way = by_name();
    way.upgrade = Some(HeaderValue::from_static("websocket"));
    let head =
        way.head(&headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]));
    assert_eq!(
        (&head["connection"], &head["upgrade"]),
        (&"upgrade".parse().unwrap(), &"websocket".parse().unwrap())
    );
    for http in ["h2c", "H2C", "websocket, h2c", "h2"] {
        assert!(is_http(&HeaderValue::from_static(http)), "{http}");
    }
    assert!(!is_http(&HeaderValue::from_static("websocket")));
}
