//! Tags that an operator has pinned: they mean one content, and nothing once they mean another here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;

use serde_json::json;
use tests::Burrow;
use tests::http::{Answer, Client};
use tests::server::Server;

/// Makes an image of a directory with this word in it, and returns its digest.
fn import(burrow: &Burrow, word: &str, name: &str) -> String {
    let root = burrow.scratch().join("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/word"), word).unwrap();
    burrow.ok(&["image", "import", root.to_str().unwrap(), "--name", name]).trim().to_owned()
}

#[test]
fn a_pinned_tag_is_refused_once_it_means_another_image() {
    let burrow = Burrow::new();
    let pinned = import(&burrow, "first", "team/app:1");
    import(&burrow, "first", "team/app:2");
    let pin = format!("image_policy.pins=team/app:1@{pinned}");
    let options = ["--dev", "--set", "image_policy.require_digest=true", "--set", &pin];
    let server = Server::start_in(burrow, &options);
    let create = |name: &str, image: &str| -> Answer {
        Client::new(server.url()).post("/v1/sandboxes", &json!({ "name": name, "image": image }))
    };
    // The pin is the digest that is required.
    let made = create("a", "team/app:1").expect(201).json();
    assert_eq!(made["image_digest"], pinned);
    assert!(create("b", "team/app:2").expect(422).text().contains("named by its digest"));
    let moved = import(&server, "second", "team/app:1");
    assert_ne!(moved, pinned);
    for image in ["team/app:1", "docker.io/team/app:1"] {
        let refused = create("b", image).expect(422);
        assert!(refused.text().contains("image_policy.pins names another digest"), "{image}");
    }
    // A content that is requested by its digest is returned.
    create("c", &pinned).expect(201);
    create("d", &format!("team/app:1@{moved}")).expect(201);
}

#[test]
fn a_pin_without_a_digest_is_no_configuration() {
    let burrow = Burrow::new();
    let ran = burrow.run(&["serve", "--dev", "--set", "image_policy.pins=team/app:1"]);
    let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && stderr.contains("with its tag and its digest"), "{stderr}");
}
