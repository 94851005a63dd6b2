use super::*;

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

fn injected(name: &str, hosts: &[&str], value: &str) -> InjectedSecret {
    let value = Secret::of(value.as_bytes().to_vec()).unwrap();
    let hosts = hosts.iter().map(|text| host(text)).collect();
    let fields = ["authorization", "x-two"].map(str::to_owned).to_vec();
    InjectedSecret { name: name.to_owned(), hosts, fields, value: Some(value) }
}

fn both() -> Injections {
    Injections::new(vec![
        injected("token", &["api.example.org"], "s3cr3t"),
        injected("token-2", &["api.example.org", "b.example.org"], "other"),
    ])
}

fn filled(to: &str, head: &str) -> (String, Vec<String>) {
    let (out, used) = both().fill(&host(to), head.as_bytes()).unwrap();
    (String::from_utf8(out.to_vec()).unwrap(), used)
}

#[test]
fn placeholders_in_fields_become_values_for_their_hosts_alone() {
    let head = "GET /?burrow-secret~token~ HTTP/1.1\r\nhost: x\r\n\
                authorization: Bearer burrow-secret~token~\r\n\
                x-two: a burrow-secret~token-2~ burrow-secret~token~ b\r\n\r\n";
    let (head_out, used) = filled("api.example.org", head);
    assert_eq!(
        head_out,
        "GET /?burrow-secret~token~ HTTP/1.1\r\nhost: x\r\nauthorization: Bearer s3cr3t\r\n\
         x-two: a other s3cr3t b\r\n\r\n"
    );
    assert_eq!(used, ["token", "token-2"]);
    let (head_out, used) = filled("b.example.org", head);
    assert!(
        head_out.contains("Bearer burrow-secret~token~\r\n") && head_out.contains("a other burrow")
    );
    assert_eq!(used, ["token-2"]);
    let (head_out, used) = filled("c.example.org", head);
    assert_eq!((head_out.as_str(), used.len()), (head, 0));
}

#[test]
fn text_like_a_placeholder_stays() {
    for text in ["burrow-secret~", "burrow-secret~token", "burrow-secret~none~", "~token~"] {
        let head = format!("GET / HTTP/1.1\r\nX-Two: {text}\r\n\r\n");
        let (head_out, used) = filled("api.example.org", &head);
        assert_eq!((head_out, used.len()), (head, 0), "{text}");
    }
}

#[test]
fn a_password_is_found_where_it_is_encoded() {
    let encoded = STANDARD.encode("me:burrow-secret~token~");
    let head = format!("GET / HTTP/1.1\r\nAuthorization: basic {encoded}\r\nhost: x\r\n\r\n");
    let (head_out, used) = filled("api.example.org", &head);
    let expected = STANDARD.encode("me:s3cr3t");
    assert_eq!(
        head_out,
        format!("GET / HTTP/1.1\r\nAuthorization: Basic {expected}\r\nhost: x\r\n\r\n")
    );
    assert_eq!(used, ["token"]);
    let plain = STANDARD.encode("me:mine");
    let head = format!("GET / HTTP/1.1\r\nAuthorization: Basic {plain}\r\n\r\n");
    assert_eq!(filled("api.example.org", &head).0, head, "nobody else's is touched");
    let head = format!("GET / HTTP/1.1\r\nAuthorization:basic {encoded}\t\r\n\r\n");
    assert_eq!(filled("c.example.org", &head).0, head, "and for another host nothing is");
}

#[test]
fn a_head_that_would_become_endless_is_refused() {
    let long = "x".repeat(host::secret::limits::SECRET_BYTES_MAX);
    let injections = Injections::new(vec![injected("t", &["a.example.org"], &long)]);
    let field = "X-Two: burrow-secret~t~\r\n".repeat(8);
    let head = format!("GET / HTTP/1.1\r\n{field}\r\n");
    let refused = injections.fill(&host("a.example.org"), head.as_bytes());
    assert_eq!(refused.err(), Some(BadRequest::TooLong));
}

#[test]
fn fields_that_servers_give_back_are_not_filled() {
    let head = "OPTIONS / HTTP/1.1\r\norigin: burrow-secret~token~\r\n\
                access-control-request-headers: burrow-secret~token~\r\n\
                X-TWO: burrow-secret~token~\r\n\r\n";
    let (head_out, used) = filled("api.example.org", head);
    assert_eq!(head_out, head.replace("X-TWO: burrow-secret~token~", "X-TWO: s3cr3t"));
    assert_eq!(used, ["token"]);
}

#[test]
fn a_secret_that_could_not_be_read_closes_its_hosts() {
    let mut lost = injected("token", &["api.example.org"], "x");
    lost.value = None;
    let injections = Injections::new(vec![lost]);
    assert_eq!(injections.are_for(&host("a.example.org")), Ok(false));
    let missing = injections.are_for(&host("api.example.org")).unwrap_err();
    assert_eq!(missing.name, "token");
    assert_eq!(both().are_for(&host("b.example.org")), Ok(true));
}

#[test]
fn line_breaks_fit_no_field() {
    assert!(fits_a_field("ghp_0123 äöü=") && !fits_a_field("a\r\nb: c") && !fits_a_field("a\nb"));
}
