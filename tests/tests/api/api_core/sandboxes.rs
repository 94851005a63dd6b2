//! Sandboxes: their life, their lists, and what is refused of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;

use super::{create, path_of};

fn names(page: &Value) -> Vec<String> {
    let all = page["sandboxes"].as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_sandbox_is_made_looked_at_stopped_and_removed() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let spec = json!({ "name": "web", "env": { "TOKEN": "s3cret-value" }, "labels": { "a": "b" } });
    let made = client.post("/v1/sandboxes", &spec).expect(201);
    assert!(!made.text().contains("s3cret"), "{}", made.text());
    let made = made.json();
    assert_eq!((&made["state"], &made["namespace"]), (&json!("running"), &json!("default")));
    assert_eq!(made["env_names"], json!(["TOKEN"]));

    let got = client.get(&path_of("web")).expect(200).json();
    assert_eq!((&got["id"], &got["labels"]), (&made["id"], &json!({ "a": "b" })));
    assert_eq!(
        client.post("/v1/sandboxes", &json!({ "name": "web" })).expect(409).code(),
        "conflict"
    );
    let running = client.delete(&path_of("web")).expect(409).json();
    assert!(running["hint"].is_string(), "{running}");

    let stop = format!("{}/stop", path_of("web"));
    let stopped = client.post(&stop, &json!({ "grace_ms": 1000 })).expect(200).json();
    assert_eq!(stopped["state"], "stopped");
    assert!(stopped["stopped_at_ms"].as_u64() >= made["created_at_ms"].as_u64());
    // Without a body, and once more.
    assert_eq!(client.send("POST", &stop, &[], &[]).expect(200).json()["state"], "stopped");
    client.delete(&path_of("web")).expect(200);
    for (method, path) in [("GET", path_of("web")), ("DELETE", path_of("web")), ("POST", stop)] {
        assert_eq!(client.send(method, &path, &[], &[]).expect(404).code(), "not_found");
    }
}

#[test]
fn a_sandbox_that_runs_is_removed_by_force_and_killed_at_once() {
    let server = Server::dev();
    let client = Client::new(server.url());
    create(&client, "one");
    create(&client, "two");
    let began = Instant::now();
    let killed = client.send("POST", &format!("{}/kill", path_of("one")), &[], &[]).expect(200);
    assert_eq!(killed.json()["state"], "stopped");
    client.delete(&format!("{}?force=true", path_of("two"))).expect(200);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(names(&client.get("/v1/sandboxes").json()), ["one"]);
}

#[test]
fn lists_are_filtered_by_label_state_and_namespace_and_come_in_pages() {
    let server = Server::dev();
    let client = Client::new(server.url());
    for (name, tier) in [("a", "web"), ("b", "web"), ("c", "db")] {
        let spec = json!({ "name": name, "labels": { "tier": tier, "shop": "x" } });
        client.post("/v1/sandboxes", &spec).expect(201);
    }
    let other = json!({ "name": "d", "namespace": "other" });
    client.post("/v1/sandboxes", &other).expect(201);
    client.send("POST", &format!("{}/kill", path_of("b")), &[], &[]).expect(200);

    let list =
        |query: &str| names(&client.get(&format!("/v1/sandboxes?{query}")).expect(200).json());
    assert_eq!(list(""), ["a", "b", "c", "d"]);
    assert_eq!(list("label=tier%3Dweb"), ["a", "b"]);
    assert_eq!(list("label=tier=web&label=shop"), ["a", "b"]);
    assert_eq!(list("label=tier=web&state=running"), ["a"]);
    assert_eq!(list("state=stopped&state=running&namespace=default"), ["a", "b", "c"]);
    assert_eq!(list("namespace=other"), ["d"]);
    assert!(list("namespace=nobody").is_empty());

    let mut seen = Vec::new();
    let mut next = None;
    loop {
        let after = next.map(|next: String| format!("&after={next}")).unwrap_or_default();
        let page = client.get(&format!("/v1/sandboxes?limit=3{after}")).expect(200).json();
        seen.extend(names(&page));
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["a", "b", "c", "d"]);

    for query in
        ["limit=0", "limit=x", "state=sleeping", "label=%3Dx", "after=a/b/c", "colour=blue"]
    {
        let refused = client.get(&format!("/v1/sandboxes?{query}")).expect(400);
        assert_eq!(refused.code(), "invalid", "{query}");
    }
}

#[test]
fn unsupported_options_are_refused_with_a_hint() {
    let server = Server::dev();
    let client = Client::new(server.url());
    for (field, value, code, word) in [
        ("workspace", json!("project"), "unknown_workspace", "project"),
        ("secrets", json!(["GITHUB_TOKEN"]), "unknown_secret", "GITHUB_TOKEN"),
        ("machine", json!("external"), "unsupported", "machine"),
    ] {
        let refused =
            client.post("/v1/sandboxes", &json!({ "name": "x", field: value })).expect(422);
        let refused = refused.json();
        assert_eq!(refused["code"], code, "{refused}");
        assert!(refused["message"].as_str().unwrap().contains(word), "{refused}");
        assert!(refused["hint"].as_str().is_some_and(|hint| hint.len() > 10), "{refused}");
    }
    for (field, value) in [
        ("egress", json!(["127.0.0.1"])),
        ("memory_mib", json!(0)),
        ("memory_mib", json!(-1)),
        ("cpus", json!(2000)),
        ("ttl_ms", json!(0)),
        ("hostname", json!("a b")),
        ("workdir", json!("relative")),
        ("env", json!({ "A=B": "x" })),
        ("labels", json!({ "": "x" })),
        ("image", json!("/no/such/directory")),
    ] {
        let refused = client.post("/v1/sandboxes", &json!({ "name": "x", field: value }));
        assert!(
            (400..500).contains(&refused.status),
            "{field}: {} {}",
            refused.status,
            refused.text()
        );
        assert!(refused.json()["message"].is_string());
    }
    assert_eq!(client.get("/v1/sandboxes").json()["sandboxes"], json!([]));
}

#[test]
fn omitted_options_get_the_servers_defaults() {
    let server = Server::start(
        &[
            "--dev",
            "--set",
            "defaults.memory_mib=256",
            "--set",
            "defaults.cpus=0.5",
            "--set",
            "defaults.idle_ttl=1h",
            "--set",
            "images.\"team/base\"=/",
        ]
        .map(|word| word),
    );
    let client = Client::new(server.url());
    let made = create(&client, "plain");
    assert_eq!((&made["memory_mib"], &made["cpus"]), (&json!(256), &json!(0.5)));
    assert_eq!(made["idle_ttl_ms"], 3_600_000);
    assert!(made["idle_expires_at_ms"].is_u64(), "{made}");
    let own = json!({ "name": "own", "memory_mib": 128, "cpus": 1, "image": "python:3.11-slim" });
    let made = client.post("/v1/sandboxes", &own).expect(201).json();
    assert_eq!((&made["memory_mib"], &made["cpus"]), (&json!(128), &json!(1.0)));
}

#[test]
fn times_to_live_are_seen_changed_and_kept() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let spec = json!({ "name": "brief", "ttl_ms": 3_600_000, "idle_ttl_ms": 1_800_000 });
    let made = client.post("/v1/sandboxes", &spec).expect(201).json();
    let created_at = made["created_at_ms"].as_u64().unwrap();
    let expires_at = made["expires_at_ms"].as_u64().unwrap();
    assert!((3_599_000..3_605_000).contains(&(expires_at - created_at)), "{made}");

    let path = path_of("brief");
    let extended = client.send_json("PATCH", &path, &json!({ "ttl_ms": 0 })).expect(200).json();
    assert!(extended.get("expires_at_ms").is_none(), "{extended}");
    assert_eq!(extended["idle_ttl_ms"], 1_800_000);
    client.send_json("PATCH", &path, &json!({ "ttl_ms": 300, "idle_ttl_ms": 0 })).expect(200);
    let ended = client.get(&format!("{path}/wait?timeout_ms=20000")).expect(200).json();
    assert_eq!(ended["state"], "stopped", "{ended}");
    assert!(ended["reason"].as_str().unwrap().contains("expired"), "{ended}");
    let late = client.send_json("PATCH", &path, &json!({ "ttl_ms": 1000 })).expect(409);
    assert_eq!(late.code(), "conflict");
}

#[test]
fn a_wait_ends_with_its_state_with_a_removal_and_with_its_time() {
    let server = Server::dev();
    let client = Client::new(server.url());
    create(&client, "box");
    let path = path_of("box");
    let created = client.get(&format!("{path}/wait?until=created")).expect(200).json();
    assert_eq!(created["state"], "running");
    let began = Instant::now();
    let waited = client.get(&format!("{path}/wait?timeout_ms=200")).expect(200).json();
    assert_eq!(waited["state"], "running");
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| client.get(&format!("{path}/wait")).expect(200).json());
        let removed = scope.spawn(|| client.get(&format!("{path}/wait?until=removed")).expect(200));
        // The server reads both calls; no figure says which calls wait.
        std::thread::sleep(Duration::from_millis(100));
        let third = Client::new(server.url());
        third.send("POST", &format!("{path}/stop"), &[], &[]).expect(200);
        assert_eq!(stopped.join().unwrap()["state"], "stopped");
        third.delete(&path).expect(200);
        removed.join().unwrap();
    });
    client.get(&format!("{path}/wait")).expect(404);
}
