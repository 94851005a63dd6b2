//! Who reaches a port.

use serde_json::{Value, json};
use tests::http::Client;
use tests::listening::listen_in;
use tests::server::Server;

use super::{APP, got};

/// A key and its id.
pub fn keygen(server: &Server, options: &[&str]) -> (String, String) {
    let made = server.ok(&[&["keygen", "--json"], options].concat());
    let made: Value = serde_json::from_str(&made).unwrap();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("key"), text("id"))
}

#[test]
fn a_key_of_another_namespace_learns_nothing_and_no_key_gets_to_the_program() {
    let server = Server::with_keys();
    let (own, _) = keygen(&server, &["--namespace", "team"]);
    let (other, _) = keygen(&server, &["--namespace", "other"]);
    let (reader, _) = keygen(&server, &["--namespace", "team", "--scope", "read"]);
    let client = Client::new(server.url()).key(&own);
    client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201);
    let app = listen_in(&server, "team/box", APP);
    let path = format!("/p/team/box/{}/", app.port);
    let said = client.get(&path).expect(200);
    assert!(!said.text().contains("msb_"), "{}", said.text());
    // The other header for a key leaves `Authorization` to the program.
    let anybody = Client::new(server.url());
    let headers = [("x-api-key", &own[..]), ("authorization", "Basic dTpw")];
    let said = anybody.send("GET", &path, &headers, &[]).expect(200).json();
    assert_eq!(got(&said, "authorization"), ["Basic dTpw"]);
    assert!(got(&said, "x-api-key").is_empty());
    assert_eq!(anybody.get(&path).expect(401).code(), "unauthenticated");
    assert_eq!(anybody.get("/p/team/none/80/").expect(401).code(), "unauthenticated");
    assert_eq!(Client::new(server.url()).key(&reader).get(&path).expect(403).code(), "forbidden");
    let other = Client::new(server.url()).key(&other);
    let theirs = other.get(&path).expect(404);
    let none = other.get("/p/team/none/80/").expect(404);
    assert_eq!(theirs.text(), none.text());
}

#[test]
fn ports_of_a_public_namespace_are_for_everybody_and_of_others_are_not() {
    let server = Server::start(&["--set", "previews.public=show"]);
    let (all, _) = keygen(&server, &["--namespace", "*"]);
    let client = Client::new(server.url()).key(&all);
    for namespace in ["show", "team"] {
        client.post("/v1/sandboxes", &json!({ "name": "box", "namespace": namespace })).expect(201);
    }
    let app = listen_in(&server, "show/box", APP);
    let anybody = Client::new(server.url());
    anybody.get(&format!("/p/show/box/{}/", app.port)).expect(200);
    anybody.get("/p/show/box/1/").expect(502);
    anybody.get("/p/team/box/1/").expect(401);
    // It is no way into anything else.
    anybody.get("/v1/sandboxes/show/box").expect(401);
    anybody.post("/v1/sandboxes/show/box/exec", &json!({ "argv": ["true"] })).expect(401);
    anybody.post("/v1/sandboxes/show/box/previews", &json!({ "port": 80 })).expect(401);
}
