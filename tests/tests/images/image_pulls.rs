//! Images that are pulled because somebody asks for a sandbox of them, and what may be asked for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};
use tests::http::Client;
use tests::images::busybox;
use tests::registry::{self, Registry};
use tests::server::Server;
use tests::{Burrow, eventually};

/// A registry with `team/app:1`, an image with a shell that says `pulled`.
fn registry_with_app() -> Option<(Registry, String)> {
    let busybox = busybox()?;
    if !registry::is_here() {
        return None;
    }
    let burrow = Burrow::new();
    let root = burrow.scratch().join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    for name in ["sh", "echo", "cat"] {
        fs::copy(&busybox, root.join("bin").join(name)).unwrap();
    }
    fs::write(root.join("word"), "pulled").unwrap();
    burrow.ok(&["image", "import", root.to_str().unwrap(), "--name", "app"]);
    let listed: Value = serde_json::from_str(&burrow.ok(&["image", "ls", "--json"])).unwrap();
    let registry = Registry::start("");
    // The store's contents are those of a layout.
    let layout = burrow.scratch().join("layout");
    fs::create_dir_all(layout.join("blobs")).unwrap();
    let store = burrow.state().join("images/sha256");
    let copied = Command::new("cp").arg("-r").arg(store).arg(layout.join("blobs/sha256")).status();
    assert!(copied.unwrap().success());
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let digest = listed[0]["digest"].as_str().unwrap();
    let manifest = layout.join("blobs/sha256").join(digest.trim_start_matches("sha256:"));
    let index = json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": digest, "size": fs::metadata(manifest).unwrap().len(),
        "annotations": { "org.opencontainers.image.ref.name": "latest" },
    }] });
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    let pushed = Command::new("skopeo")
        .args(["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"])
        .arg(format!("oci:{}:latest", layout.display()))
        .arg(format!("docker://{}/team/app:1", registry.host()))
        .output()
        .unwrap();
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    let name = format!("{}/team/app:1", registry.host());
    Some((registry, name))
}

fn pulling(policy: &str) -> Server {
    Server::start(&["--dev", "--set", &format!("image_policy.pull={policy}")])
}

#[test]
fn a_sandbox_has_its_image_pulled_where_the_operator_lets_it() {
    let Some((registry, name)) = registry_with_app() else { return };
    let server = pulling("missing");
    let client = Client::new(server.url());
    let made = client.post("/v1/sandboxes", &json!({ "name": "a", "image": name })).expect(201);
    let digest = made.json()["image_digest"].as_str().unwrap().to_owned();
    assert_eq!(server.ok(&["exec", "a", "--", "cat", "/word"]), "pulled");
    let audited = server.ok(&["audit", "--json"]);
    let created = audited.lines().find(|line| line.contains("create_sandbox")).unwrap();
    assert!(created.contains(&digest), "{created}");
    let absent = json!({ "name": "b", "image": format!("{name}0") });
    let refused = client.post("/v1/sandboxes", &absent).expect(502);
    assert_eq!(refused.code(), "pull_failed");
    // What is here is not asked for again, and the name of the failed one is free.
    drop(registry);
    client.post("/v1/sandboxes", &json!({ "name": "b", "image": name })).expect(201);
    let body = json!({ "name": "c", "image": name, "pull": "always" });
    assert_eq!(client.post("/v1/sandboxes", &body).expect(502).code(), "pull_failed");
}

#[test]
fn nothing_is_pulled_for_sandboxes_unless_somebody_says_so() {
    let Some((_registry, name)) = registry_with_app() else { return };
    let server = pulling("never");
    let client = Client::new(server.url());
    let body = json!({ "name": "a", "image": name });
    assert_eq!(client.post("/v1/sandboxes", &body).expect(422).code(), "unsupported");
    // An administrator may ask for it, and so may the person at the command line.
    let request = json!({ "name": "a", "image": name, "pull": "missing" });
    client.post("/v1/sandboxes", &request).expect(201);
    let burrow = Burrow::new();
    let run = ["run", "--pull", "missing", "--image", &name, "--", "cat", "/word"];
    assert_eq!(burrow.ok(&run), "pulled");
    let other = Server::dev();
    other.ok(&["start", "--name", "x", "--pull", "always", "--image", &name]);
    assert_eq!(other.ok(&["exec", "x", "--", "cat", "/word"]), "pulled");
}

#[test]
fn only_what_the_policy_lets_through_is_pulled() {
    let Some((registry, name)) = registry_with_app() else { return };
    let allow = format!("image_policy.allow={}/team/other:*", registry.host());
    let alias = format!("images.microsandbox/python={name}");
    let options = ["--set", "image_policy.pull=missing", "--set", &allow, "--set", &alias];
    let server = Server::start(&[&["--dev"], &options[..]].concat());
    let client = Client::new(server.url());
    let also = format!("{}/team/app", registry.host());
    let refused = client.post("/v1/sandboxes", &json!({ "name": "a", "image": also }));
    assert_eq!(refused.expect(422).code(), "unsupported");
    assert_eq!(client.get("/v1/images").json(), json!({ "images": [] }));
    // What the operator has given a name is theirs to give.
    let body = json!({ "name": "a", "image": "microsandbox/python" });
    client.post("/v1/sandboxes", &body).expect(201);
    assert_eq!(server.ok(&["exec", "a", "--", "cat", "/word"]), "pulled");
}

#[test]
fn several_sandboxes_of_one_image_have_it_pulled_once() {
    let Some((registry, name)) = registry_with_app() else { return };
    let line = registry::Line::to(registry.port());
    let own = format!("localhost:{}/team/app:1", line.port);
    let server = pulling("missing");
    let names = ["a", "b", "c", "d"];
    thread::scope(|scope| {
        for each in names {
            let body = json!({ "name": each, "image": own });
            let url = server.url();
            scope.spawn(move || Client::new(url).post("/v1/sandboxes", &body).expect(201));
        }
    });
    let size = Client::new(server.url()).get("/v1/images").json()["images"][0]["size_bytes"]
        .as_u64()
        .unwrap();
    assert!(line.came() < 2 * size, "{} bytes came for {size}", line.came());
    assert!(!name.is_empty());
}

#[test]
fn a_creation_that_waits_for_its_image_can_be_ended() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let image = format!("localhost:{}/team/app:1", silent.local_addr().unwrap().port());
    let server = pulling("missing");
    for end in [&["kill", "a"][..], &["stop", "a"], &["rm", "--force", "a"]] {
        let (body, url) = (json!({ "name": "a", "image": image }), server.url().to_owned());
        let creating = thread::spawn(move || Client::new(&url).post("/v1/sandboxes", &body));
        let client = Client::new(server.url());
        eventually("it is being pulled", || {
            let pulls = client.get("/v1/images/pulls").expect(200).json();
            pulls["pulls"][0]["image"] == image
        });
        let shown = client.get("/v1/sandboxes/default/a").expect(200).json();
        assert_eq!(shown["state"], "creating");
        server.ok(end);
        assert_eq!(creating.join().unwrap().expect(409).code(), "conflict");
        assert_eq!(client.get("/v1/sandboxes/default/a").expect(404).code(), "not_found");
        eventually("nothing is pulled any more", || {
            client.get("/v1/images/pulls").json() == json!({ "pulls": [] })
        });
    }
}

#[test]
fn an_admin_pulls_images_over_the_api() {
    let Some((_registry, name)) = registry_with_app() else { return };
    // Clients with keys have registries asked on this host only where the operator names them.
    let host = name.split('/').next().unwrap();
    let named = format!("registries.{host}.insecure=true");
    let server = Server::start(&["--set", &named]);
    let key = |scopes: &str| server.ok(&["keygen", "--scope", scopes]).trim().to_owned();
    let (admin, run) = (key("admin"), key("run"));
    let body = json!({ "image": name });
    let refused = Client::new(server.url()).key(&run).post("/v1/images/pull", &body);
    assert_eq!(refused.expect(403).code(), "forbidden");
    let client = Client::new(server.url()).key(&admin);
    let pulled = client.post("/v1/images/pull", &body).expect(200).json();
    assert_eq!(pulled["names"][0], name.as_str());
    let absent = json!({ "image": format!("{name}0") });
    assert_eq!(client.post("/v1/images/pull", &absent).expect(502).code(), "pull_failed");
    let bad = client.post("/v1/images/pull", &json!({ "image": "NO:such:name" }));
    assert_eq!(bad.expect(400).code(), "invalid");
    let request = json!({ "name": "a", "image": format!("{name}0"), "pull": "missing" });
    let forbidden = Client::new(server.url()).key(&run).post("/v1/sandboxes", &request);
    assert_eq!(forbidden.expect(403).code(), "forbidden");
}
