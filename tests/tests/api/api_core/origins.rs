//! Whose pages and which names may drive a server on the loopback address.

use serde_json::json;
use tests::http::{Answer, Client};
use tests::server::Server;

use super::raw::{RawAnswer, answer, send};

fn with_host(client: &Client, host: &str) -> RawAnswer {
    let connection = client.raw();
    send(&connection, format!("GET /v1/sandboxes HTTP/1.1\r\n{host}connection: close\r\n\r\n"));
    answer(&mut std::io::BufReader::new(&connection)).unwrap()
}

fn with_origin(client: &Client, origin: &str) -> Answer {
    client.send("GET", "/v1/sandboxes", &[("origin", origin)], &[])
}

#[test]
fn only_the_machines_own_names_lead_to_a_server_on_loopback() {
    let server = Server::start(&["--dev", "--set", "server.allowed_hosts=burrow.test"]);
    let client = Client::new(server.url());
    for host in
        ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:99", "burrow.test", "burrow.test:8"]
    {
        assert_eq!(with_host(&client, &format!("host: {host}\r\n")).status, 200, "{host}");
    }
    for host in [
        "host: evil.example\r\n",
        "host: localhost.evil.example\r\n",
        "host: 127.0.0.1.evil.example\r\n",
        "host: evil.example:5555\r\n",
        "host: \r\n",
        "host: user@localhost\r\n",
        "",
    ] {
        let refused = with_host(&client, host);
        assert_eq!((refused.status, refused.code().as_str()), (421, "misdirected"), "{host}");
    }
    // A page could name a path in the absolute form as little as another host.
    let connection = client.raw();
    send(
        &connection,
        "GET http://evil.example/v1/sandboxes HTTP/1.1\r\nhost: evil.example\r\n\r\n",
    );
    assert_eq!(answer(&mut std::io::BufReader::new(&connection)).unwrap().status, 421);
}

#[test]
fn a_page_of_another_site_may_not_drive_it() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let own = server.url().to_owned();
    with_origin(&client, &own).expect(200);
    for origin in ["https://evil.example", "null", "http://localhost:1", "file://", ""] {
        let refused = with_origin(&client, origin).expect(421);
        assert_eq!(refused.code(), "misdirected", "{origin}");
        assert_eq!(refused.header("access-control-allow-origin"), None);
    }
    let create = |headers: &[(&str, &str)]| {
        let body = json!({ "name": "x" }).to_string();
        client.send("POST", "/v1/sandboxes", headers, body.as_bytes())
    };
    // What a form or a script of a page can send without being asked first.
    create(&[("origin", "https://evil.example"), ("content-type", "text/plain")]).expect(421);
    create(&[("sec-fetch-site", "cross-site"), ("content-type", "application/json")]).expect(421);
    create(&[("content-type", "text/plain")]).expect(415);
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
    client.send("GET", "/docs", &link, &[]).expect(200);
    assert_eq!(client.get("/v1/sandboxes").json()["sandboxes"], json!([]));
}

#[test]
fn a_listed_page_is_asked_for_leave_and_reads_answers_and_refusals() {
    let page = "https://app.example";
    let server = Server::start(&["--dev", "--set", &format!("server.allowed_origins={page}")]);
    let client = Client::new(server.url());
    let headers = [
        ("origin", page),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let leave = client.send("OPTIONS", "/v1/sandboxes", &headers, &[]).expect(204);
    assert_eq!(leave.header("access-control-allow-origin"), Some(page));
    assert!(leave.header("access-control-allow-methods").unwrap().contains("POST"));
    assert!(leave.header("access-control-allow-headers").unwrap().contains("authorization"));
    for (path, status) in [("/v1/sandboxes", 200), ("/v1/sandboxes/a/b", 404), ("/nowhere", 404)] {
        let read = client.send("GET", path, &[("origin", page)], &[]).expect(status);
        assert_eq!(read.header("access-control-allow-origin"), Some(page), "{path}");
        assert_eq!(read.header("vary"), Some("origin"));
        // What a page may read of an answer beside its body.
        let shown = read.header("access-control-expose-headers").unwrap_or_default();
        for name in ["x-request-id", "retry-after"] {
            assert!(shown.contains(name), "{path}: a page does not see {name}: {shown:?}");
        }
    }
    let stranger = [("origin", "https://evil.example"), headers[1], headers[2]];
    client.send("OPTIONS", "/v1/sandboxes", &stranger, &[]).expect(421);
}
