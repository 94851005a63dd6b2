//! Host names of ports, and which pages may drive them.

use serde_json::json;
use tests::http::Client;
use tests::listening::listen;

use super::{APP, Served, served};

/// A client under the host name of the app's port.
fn named(served: &Served) -> Client {
    Client::new(served.server.url()).host(&format!("{}-box.localhost", served.app.port))
}

fn authority(served: &Served) -> String {
    let port = served.server.url().rsplit_once(':').unwrap().1;
    format!("{}-box.localhost:{port}", served.app.port)
}

#[test]
fn under_its_own_name_a_port_has_every_path_and_an_origin_of_its_own() {
    let served = served();
    let client = named(&served);
    for path in ["/", "/v1/sandboxes", "/docs", "/p/default/box/1/", "/.preview", "//a/../b"] {
        let answer = client.get(path).expect(200);
        assert_eq!(answer.json()["target"], path);
        // Its own page may do what its own origin allows.
        assert_eq!(answer.header("content-security-policy"), Some("frame-ancestors 'self'"));
        assert_eq!(answer.header("cache-control"), None);
    }
    let said = client.get("/").json();
    assert_eq!(super::got(&said, "host"), [authority(&served)]);
    assert_eq!(super::got(&said, "x-forwarded-host"), [authority(&served)]);
    assert!(super::got(&said, "x-forwarded-prefix").is_empty());
    let mut socket = client.websocket("/ws", &[]);
    socket.binary(b"hello");
    assert_eq!(socket.hear(), tests::http::SocketMessage::Binary(b"hello".to_vec()));
    socket.close();
    let id = served.client.get(tests::door::BOX).json()["id"].as_str().unwrap().to_owned();
    let by_id =
        Client::new(served.server.url()).host(&format!("{}-{id}.localhost", served.app.port));
    assert_eq!(by_id.get("/x").expect(200).json()["target"], "/x");
}

#[test]
fn names_that_mean_no_port_of_a_sandbox_lead_nowhere() {
    let served = served();
    let port = served.app.port;
    let status =
        |host: &str| Client::new(served.server.url()).host(host).get("/v1/sandboxes").status;
    assert_eq!(status(&format!("{port}-none.localhost")), 404);
    assert_eq!(status(&format!("{port}-.localhost")), 404);
    assert_eq!(status(&format!("{port}-000000000000.localhost")), 502);
    assert_eq!(status("1-box.localhost"), 502);
    for other in [
        "box.localhost",
        "api.localhost",
        &format!("0{port}-box.localhost")[..],
        &format!("{port}-box.localhost.evil.example")[..],
        &format!("{port}-box.evil.example")[..],
        &format!("{port}-box.127.0.0.1")[..],
    ] {
        assert_eq!(status(other), 421, "{other}");
    }
}

#[test]
fn pages_of_other_sandboxes_and_sites_drive_no_port() {
    let served = served();
    let client = named(&served);
    let own = format!("http://{}", authority(&served));
    let status = |headers: &[(&str, &str)]| client.send("GET", "/", headers, &[]).status;
    assert_eq!(status(&[("origin", &own)]), 200);
    // Another port of the same sandbox.
    let kin = own.replacen(&served.app.port.to_string(), "8000", 1);
    assert_eq!(status(&[("origin", &kin)]), 200);
    let neighbour = own.replacen("-box.", "-evil.", 1);
    for origin in [&neighbour[..], served.server.url(), "null", "https://evil.example"] {
        assert_eq!(status(&[("origin", origin)]), 421, "{origin}");
    }
    for site in ["cross-site", "same-site"] {
        assert_eq!(
            status(&[("sec-fetch-site", site), ("sec-fetch-mode", "no-cors")]),
            421,
            "{site}"
        );
        assert_eq!(
            status(&[("sec-fetch-site", site), ("sec-fetch-mode", "navigate")]),
            200,
            "{site}"
        );
    }
    // Nor does a page of a port drive the server.
    let refused = served.client.send("GET", "/v1/sandboxes", &[("origin", &own)], &[]);
    assert_eq!(refused.expect(421).code(), "misdirected");
    // An answer for pages of other origins is the program's own to give.
    assert_eq!(client.get("/").header("access-control-allow-origin"), None);
}

#[test]
fn a_page_on_the_servers_own_name_has_no_rights_and_a_browser_is_sent_elsewhere() {
    let served = served();
    let page =
        served.raw("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1\r\n\r\nx");
    assert_eq!(page.header("content-security-policy"), Some("sandbox"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let path = format!("{}/a?b=c", served.prefix);
    let sent = served.client.send("GET", &path, &[("sec-fetch-mode", "navigate")], &[]).expect(307);
    assert_eq!(sent.header("location"), Some(&format!("http://{}/a?b=c", authority(&served))[..]));
}

#[test]
fn names_are_below_the_domain_that_the_operator_chose_and_none_where_they_are_off() {
    let domain = "previews.url=https://preview.example.org";
    let server = tests::server::Server::start(&["--dev", "--set", domain]);
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201);
    let app = listen(&server, APP);
    let at = |host: String| Client::new(server.url()).host(&host).get("/").status;
    assert_eq!(at(format!("{}-box.preview.example.org", app.port)), 200);
    assert_eq!(at(format!("{}-box.localhost", app.port)), 421);
    let made = client.post(&format!("{}/previews", tests::door::BOX), &json!({ "port": app.port }));
    let url = made.expect(201).json()["url"].as_str().unwrap().to_owned();
    let origin = format!("https://{}-box.preview.example.org/?burrow_link=bpl_", app.port);
    assert!(url.starts_with(&origin), "{url}");
    let said = Client::new(server.url()).host(&format!("{}-box.preview.example.org", app.port));
    assert_eq!(super::got(&said.get("/").json(), "x-forwarded-proto"), ["https"]);
    let off = tests::server::Server::start(&["--dev", "--set", "previews.url=off"]);
    Client::new(off.url()).post("/v1/sandboxes", &json!({ "name": "box" })).expect(201);
    assert_eq!(Client::new(off.url()).host("80-box.localhost").get("/").status, 421);
}
