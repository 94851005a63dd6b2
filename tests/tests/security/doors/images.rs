//! The list of images shows a namespace its own and those of the operator.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;

use serde_json::json;
use tests::Burrow;
use tests::http::Client;
use tests::server::Server;

/// Imports a directory with something that runs, and returns the digest.
fn import(burrow: &Burrow, name: &str) -> String {
    let root = burrow.scratch().join("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/word"), name).unwrap();
    burrow.ok(&["image", "import", root.to_str().unwrap(), "--name", name]).trim().to_owned()
}

fn client(server: &Server, options: &[&str]) -> Client {
    Client::new(server.url()).key(server.ok(&[&["keygen"], options].concat()).trim())
}

fn names(client: &Client) -> Vec<String> {
    let listed = client.get("/v1/images").expect(200).json();
    let all = listed["images"].as_array().unwrap().iter();
    let names = all.flat_map(|image| image["names"].as_array().unwrap().clone());
    let mut names: Vec<_> = names.map(|name| name.as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_namespace_sees_no_image_that_another_has_made() {
    let burrow = Burrow::new();
    let shared = import(&burrow, "operators/base:1");
    let server = Server::start_in(burrow, &[]);
    let [ours, theirs, admin, all] = [
        &["--scope", "run", "--namespace", "ours"][..],
        &["--scope", "run", "--namespace", "theirs"],
        &["--scope", "admin", "--namespace", "ours"],
        &["--scope", "read", "--namespace", "*"],
    ]
    .map(|options| client(&server, options));
    let base = "docker.io/operators/base:1".to_owned();
    assert_eq!(names(&ours), std::slice::from_ref(&base));
    ours.post("/v1/sandboxes", &json!({ "name": "x", "image": "operators/base:1" })).expect(201);
    let committed = admin
        .post("/v1/sandboxes/ours/x/commit", &json!({ "image": "team/plans-for-2031:1" }))
        .expect(201)
        .json();
    let made = "docker.io/team/plans-for-2031:1".to_owned();
    for seer in [&ours, &admin, &all] {
        assert_eq!(names(seer), [base.clone(), made.clone()]);
    }
    assert_eq!(names(&theirs), [base]);
    let one = format!("/v1/images/{}", committed["digest"].as_str().unwrap());
    ours.get(&one).expect(200);
    // A digest that is there looks like one that is not.
    let hidden = theirs.get(&one).expect(404).json();
    let absent = theirs.get(&one.replace(&one[one.len() - 6..], "000000")).expect(404).json();
    assert_eq!(hidden["code"], absent["code"]);
    theirs.get(&format!("/v1/images/{shared}")).expect(200);
    assert_eq!(theirs.get("/v1/images/pulls").expect(200).json(), json!({ "pulls": [] }));
}
