//! What records of the audit log are about: images that the command line changes, sandboxes that can be distinguished
//! from others of their name, and what a sandbox was granted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;

use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::{Burrow, eventually};

use crate::audit::{record, record_that};

/// The records of a query.
fn records(burrow: &Burrow, query: &[&str]) -> Vec<Value> {
    let output = burrow.ok(&[&["audit", "--json", "-n", "100000"], query].concat());
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The records of this operation, in their order.
fn of(burrow: &Burrow, operation: &str) -> Vec<Value> {
    let mut all = records(burrow, &[]);
    all.retain(|record| record["operation"] == operation);
    all
}

#[test]
fn image_commands_are_recorded_with_digests() {
    let burrow = Burrow::new();
    let me = json!(nix::unistd::geteuid().as_raw());
    let is_ours = |record: &Value, outcome: &str| {
        assert_eq!((&record["door"], &record["who"]["uid"]), (&json!("cli"), &me), "{record}");
        assert_eq!(record["outcome"], outcome, "{record}");
        assert!(record["duration_us"].is_u64(), "{record}");
    };
    let root = burrow.scratch().join("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/motd"), "hello\n").unwrap();
    let path = root.to_str().unwrap();
    let digest = burrow.ok(&["image", "import", path, "--name", "base:1"]).trim().to_owned();
    let imported = record(&burrow, "import_image");
    is_ours(&imported, "ok");
    assert_eq!(imported["digest"], digest, "{imported}");
    assert!(imported["image"].as_str().unwrap().contains("base:1"), "{imported}");
    assert_eq!(imported["facts"]["path"], path, "{imported}");

    let context = burrow.scratch().join("context");
    fs::create_dir_all(&context).unwrap();
    fs::write(context.join("Dockerfile"), "FROM base:1\nCOPY more /more\n").unwrap();
    fs::write(context.join("more"), "more\n").unwrap();
    let context = context.to_str().unwrap();
    let built = burrow.ok(&["image", "build", "-q", "-t", "made:1", context]).trim().to_owned();
    let recorded = record(&burrow, "build_image");
    is_ours(&recorded, "ok");
    assert_eq!(recorded["digest"], built, "{recorded}");

    let archive = burrow.scratch().join("made.tar");
    let archive = archive.to_str().unwrap();
    burrow.ok(&["image", "save", "-q", "made:1", "base:1", "-o", archive]);
    let saved = of(&burrow, "save_image");
    let digests: Vec<_> = saved.iter().map(|record| record["digest"].clone()).collect();
    assert_eq!(digests, [json!(built), json!(digest)]);
    is_ours(&saved[0], "ok");
    assert_eq!(saved[0]["facts"]["to"], archive);

    burrow.ok(&["image", "rm", "base:1"]);
    let removed = record(&burrow, "remove_image");
    is_ours(&removed, "ok");
    assert_eq!((&removed["digest"], &removed["image"]), (&json!(digest), &json!("base:1")));
    burrow.ok(&["image", "prune"]);
    let pruned = record(&burrow, "prune_images");
    is_ours(&pruned, "ok");
    assert!(pruned["facts"]["images"].is_u64() && pruned["facts"]["bytes"].is_u64(), "{pruned}");

    // What is not there cannot be removed, and a registry that is not there gives nothing.
    assert!(!burrow.run(&["image", "rm", "none:1"]).status.success());
    is_ours(&record(&burrow, "remove_image"), "refused");
    assert!(!burrow.run(&["image", "save", "none:1", "-o", archive]).status.success());
    is_ours(&record(&burrow, "save_image"), "refused");
    assert!(!burrow.run(&["image", "import", "/nowhere/at/all"]).status.success());
    is_ours(&record(&burrow, "import_image"), "failed");
    assert!(!burrow.run(&["image", "pull", "-q", "127.0.0.1:1/none:1"]).status.success());
    let pulled = record(&burrow, "pull_image");
    is_ours(&pulled, "failed");
    assert!(pulled["image"].as_str().unwrap().contains("none:1"), "{pulled}");
    assert!(pulled["facts"]["why"].is_string(), "{pulled}");
}

#[test]
fn nothing_is_done_to_images_that_could_not_be_recorded_where_that_is_wanted() {
    let burrow = Burrow::new();
    let root = burrow.scratch().join("root");
    fs::create_dir_all(&root).unwrap();
    let path = root.to_str().unwrap();
    burrow.ok(&["image", "import", path, "--name", "base:1"]);
    let lock = fs::File::open(burrow.state().join("audit/lock")).unwrap();
    let held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap();
    let refusing = |arguments: &[&str]| {
        let mut command = burrow.command(arguments);
        command.env("BURROW_AUDIT_ON_FAILURE", "refuse").output().unwrap()
    };
    assert!(!refusing(&["image", "rm", "base:1"]).status.success());
    // To look is still allowed.
    let listed = refusing(&["image", "ls"]);
    assert!(listed.status.success());
    assert!(String::from_utf8(listed.stdout).unwrap().contains("base:1"));
    drop(held);
}

#[test]
fn automatic_actions_are_recorded_by_id_and_reused_names_are_distinguished() {
    let server = Server::start(&[]);
    let made: Value =
        serde_json::from_str(&server.ok(&["keygen", "--json", "--name", "ci"])).unwrap();
    let client = Client::new(server.url()).key(made["key"].as_str().unwrap());
    let project = server.scratch().join("project");
    fs::create_dir_all(&project).unwrap();
    let mut ids = Vec::new();
    for job in ["1", "2"] {
        let body = json!({ "name": "a", "labels": { "job": job } });
        let made = client.post("/v1/sandboxes", &body).expect(201);
        ids.push(made.json()["id"].as_str().unwrap().to_owned());
        server.ok(&["kill", "a"]);
        client.delete("/v1/sandboxes/default/a").expect(200);
    }
    for (id, job) in ids.iter().zip(["1", "2"]) {
        eventually("the ends of the sandbox are found by its id", || {
            let found = records(&server, &["--sandbox", id]);
            ["sandbox.stopped", "sandbox.removed"].iter().all(|operation| {
                found.iter().filter(|record| record["operation"] == *operation).count() == 1
            })
        });
        for record in records(&server, &["--sandbox", id]) {
            assert_eq!((&record["id"], &record["sandbox"]), (&json!(id), &json!("a")), "{record}");
            assert_eq!(record["labels"], json!({ "job": job }), "{record}");
            if record["door"] == "bridge" {
                assert_eq!(record["facts"]["key"], made["id"], "{record}");
            }
        }
    }

    let path = project.to_str().unwrap();
    server.ok(&["start", "--name", "w", "--workspace", path]);
    server.ok(&["exec", "w", "--", "sh", "-c", "echo 1 > /workspace/new"]);
    server.ok(&["stop", "w"]);
    let created = record(&server, "create_sandbox");
    assert_eq!(created["facts"]["workspace"], path, "{created}");
    let synced = record(&server, "workspace.sync");
    assert_eq!(synced["id"], created["id"], "{synced}");
}

#[test]
fn the_record_of_a_sandbox_that_was_made_says_what_it_was_granted() {
    let server = Server::start(&["--set", "defaults.memory_mib=300"]);
    let made: Value = serde_json::from_str(&server.ok(&["keygen", "--json"])).unwrap();
    let client = Client::new(server.url()).key(made["key"].as_str().unwrap());
    let rules: Vec<_> = (0..40).map(|number| format!("host-{number}.example.org")).collect();
    let body = json!({ "name": "a", "egress": rules, "user": "7:8", "cpus": 0.5,
        "env": { "TOKEN": "hunter2" }, "labels": { "job": "7" } });
    client.post("/v1/sandboxes", &body).expect(201);
    let made = record(&server, "create_sandbox");
    let facts = &made["facts"];
    // What was asked for, and what the operator has set for those who do not say.
    for (name, expected) in [
        ("machine", json!("process")),
        ("memory_mib", json!(300)),
        ("cpu_millis", json!(500)),
        ("user", json!("7:8")),
        ("egress", json!(rules[..32])),
        ("more_egress", json!(8)),
    ] {
        assert_eq!(facts[name], expected, "{name}: {made}");
    }
    assert!(facts["scratch_bytes"].as_u64().unwrap() > 0, "{made}");
    assert_eq!(made["labels"], json!({ "job": "7" }), "{made}");
    assert!(!json!(records(&server, &[])).to_string().contains("hunter2"));

    let arguments =
        ["start", "--name", "b", "--memory", "256", "--egress", "example.org", "--ttl", "1h"];
    server.ok(&arguments);
    let made = record_that(&server, "create_sandbox", |record| record["sandbox"] == "b");
    let facts = &made["facts"];
    assert_eq!((&made["door"], &facts["memory_mib"]), (&json!("cli"), &json!(256)), "{made}");
    assert_eq!(facts["egress"], json!(["example.org"]), "{made}");
    assert_eq!(facts["ttl_ms"], json!(3_600_000), "{made}");
    // One that was refused is recorded with what was asked for.
    client.post("/v1/sandboxes", &json!({ "name": "a", "egress": ["other.org"] })).expect(409);
    let refused = record_that(&server, "create_sandbox", |record| record["outcome"] == "refused");
    assert_eq!(refused["facts"]["egress"], json!(["other.org"]), "{refused}");
}
