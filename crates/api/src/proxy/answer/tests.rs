use super::*;

const PREFIX: &str = "/p/default/work/3000";

fn by_name() -> Way {
    Way::sample(Form::Host, "3000-work.localhost:5555")
}

fn by_path() -> Way {
    Way::sample(Form::Path(PREFIX.to_owned()), "127.0.0.1:5555")
}

fn answered(way: &Way, pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, HeaderValue::from_static(value));
    }
    way.answer(map, StatusCode::OK, &Method::GET)
}

fn located(way: &Way, place: &'static str) -> String {
    answered(way, &[("location", place)])["location"].to_str().unwrap().to_owned()
}

#[test]
fn redirects_of_a_program_stay_below_its_path() {
    let way = by_path();
    for (place, expected) in [
        ("/", "/p/default/work/3000/"),
        ("/a?b#c", "/p/default/work/3000/a?b#c"),
        ("http://localhost:3000/a", "/p/default/work/3000/a"),
        ("http://127.0.0.1:3000", "/p/default/work/3000/"),
        ("https://127.0.0.1:5555/a", "/p/default/work/3000/a"),
        ("//localhost:3000/a", "/p/default/work/3000/a"),
        ("/p/default/work/3000/a", "/p/default/work/3000/a"),
        ("http://127.0.0.1:5555/p/default/work/3000?a", "/p/default/work/3000?a"),
        ("/p/default/work/30001", "/p/default/work/3000/p/default/work/30001"),
        ("/v1/sandboxes", "/p/default/work/3000/v1/sandboxes"),
        // Elsewhere, and relative to where the client is.
        ("https://example.org/a", "https://example.org/a"),
        ("http://localhost:3001/a", "http://localhost:3001/a"),
        ("a/b", "a/b"),
        ("?page=2", "?page=2"),
    ] {
        assert_eq!(located(&way, place), expected, "{place}");
    }
}

#[test]
fn redirects_under_a_name_stay_under_it() {
    let way = by_name();
    for (place, expected) in [
        ("/a", "/a"),
        ("http://localhost:3000/a", "/a"),
        ("http://3000-work.localhost:5555/a", "/a"),
        ("http://0.0.0.0:3000?a", "/?a"),
        ("http://localhost:3000//evil.example", "http://localhost:3000//evil.example"),
        ("https://example.org/", "https://example.org/"),
    ] {
        assert_eq!(located(&way, place), expected, "{place}");
    }
}

#[test]
fn cookies_are_for_the_port_alone() {
    let cookies = |way: &Way, cookie: &'static str| {
        let head = answered(way, &[("set-cookie", cookie)]);
        head.get("set-cookie").map(|cookie| cookie.to_str().unwrap().to_owned())
    };
    for (cookie, expected) in [
        ("a=1", "a=1; Path=/p/default/work/3000/"),
        ("a=1; path=/", "a=1; Path=/p/default/work/3000/"),
        ("a=1; Path=/x; HttpOnly", "a=1; HttpOnly; Path=/p/default/work/3000/x"),
        ("a=1; Path=//evil; Domain=localhost", "a=1; Path=/p/default/work/3000/"),
        ("a=1; Path=/x; PATH=/y", "a=1; Path=/p/default/work/3000/y"),
    ] {
        assert_eq!(cookies(&by_path(), cookie).as_deref(), Some(expected), "{cookie}");
    }
    for (cookie, expected) in [
        ("a=1; Path=/; Secure", "a=1; Secure; Path=/"),
        ("a=1; Domain=preview.example.org", "a=1"),
        ("a=1; DOMAIN =.example.org; Max-Age=1", "a=1; Max-Age=1"),
    ] {
        assert_eq!(cookies(&by_name(), cookie).as_deref(), Some(expected), "{cookie}");
    }
    for ours in ["burrow-link=x", "__Host-burrow-link=x; Path=/; Secure", " burrow-link =x"] {
        assert_eq!(cookies(&by_name(), ours), None, "{ours}");
    }
}

#[test]
fn a_page_on_the_servers_own_origin_has_no_rights() {
    let hostile = [
        ("content-security-policy", "sandbox allow-scripts allow-same-origin"),
        ("strict-transport-security", "max-age=1"),
        ("service-worker-allowed", "/"),
        ("clear-site-data", "\"*\""),
        ("alt-svc", "h3=\":443\""),
        ("nel", "{}"),
    ];
    let head = answered(&by_path(), &hostile);
    let policies: Vec<_> = head.get_all("content-security-policy").iter().collect();
    // A browser takes what both allow.
    assert_eq!(policies, ["sandbox allow-scripts allow-same-origin", "sandbox"]);
    assert_eq!(head["x-content-type-options"], "nosniff");
    for (name, _) in &hostile[1..] {
        assert!(!head.contains_key(*name), "{name}");
    }
    let head = answered(&by_name(), &hostile);
    assert!(head.contains_key("strict-transport-security"));
    assert!(!head.contains_key("clear-site-data") && !head.contains_key("alt-svc"));
    let policies: Vec<_> = head.get_all("content-security-policy").iter().collect();
    assert_eq!(policies.last().unwrap(), &"frame-ancestors 'self'");
}

#[test]
fn the_length_of_an_answer_is_not_what_the_program_says() {
    let said = [
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
        ("connection", "x-a"),
        ("x-a", "1"),
    ];
    let head = answered(&by_name(), &said);
    for (name, _) in said {
        assert!(!head.contains_key(name), "{name}");
    }
    let head = |lengths: &[&'static str]| {
        let mut map = HeaderMap::new();
        for length in lengths {
            map.append("content-length", HeaderValue::from_static(length));
        }
        by_name().answer(map, StatusCode::OK, &Method::HEAD)
    };
    assert_eq!(head(&["5"])["content-length"], "5");
    assert!(!head(&["5", "6"]).contains_key("content-length"));
    assert!(!head(&["+5"]).contains_key("content-length"));
}
