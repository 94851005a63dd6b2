//! Templates: sandboxes are handed out when they are ready, nothing is left of those that are not, templates
//! outlive bridges that are killed, and warm sandboxes are claimed once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::deaths::{self, Watched};
use tests::http::Client;
use tests::server::Server;
use tests::{eventually, skip, slowed};

const TEMPLATES: &str = "/v1/templates/ci";
/// Writes when it is asked to be ready, and is ready after a while.
const SLOW: &str = "sleep 0.3; echo $COLOUR > /tmp/ready; echo up; exec sleep 1000";

fn put(client: &Client, name: &str, template: &Value) -> Value {
    client.send_json("PUT", &format!("{TEMPLATES}/{name}"), template).expect(200).json()
}

fn made(client: &Client, name: &str, template: &str) -> Value {
    let body = json!({ "namespace": "ci", "name": name, "template": template });
    client.post("/v1/sandboxes", &body).expect(201).json()
}

fn shell(client: &Client, name: &str, script: &str) -> String {
    let path = format!("/v1/sandboxes/ci/{name}/shell");
    let ran = client.post(&path, &json!({ "script": script })).expect(200).json();
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
}

fn sandboxes(client: &Client) -> usize {
    let page = client.get("/v1/sandboxes?namespace=ci").expect(200).json();
    page["sandboxes"].as_array().unwrap().len()
}

fn warm_ready(client: &Client, name: &str) -> u64 {
    client.get(&format!("{TEMPLATES}/{name}")).expect(200).json()["warm_ready"].as_u64().unwrap()
}

/// The directories of all machines.
fn machines(server: &Server) -> usize {
    fs::read_dir(server.state().join("boxes")).map_or(0, Iterator::count)
}

#[test]
fn a_sandbox_is_handed_out_when_its_ready_command_says_yes() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let template = put(
        &client,
        "app",
        &json!({ "start": SLOW, "ready": "test -s /tmp/ready", "env": { "COLOUR": "vermilion" },
            "labels": { "team": "a" }, "memory_mib": 256 }),
    );
    assert_eq!(template["env_names"], json!(["COLOUR"]));
    assert!(!template.to_string().contains("vermilion"), "{template}");
    let sandbox = made(&client, "one", "app");
    assert_eq!(sandbox["template"], "app");
    assert_eq!((&sandbox["memory_mib"], &sandbox["labels"]["team"]), (&json!(256), &json!("a")));
    assert_eq!(shell(&client, "one", "cat /tmp/ready"), "vermilion\n");
    // What a call gives takes precedence.
    let body =
        json!({ "namespace": "ci", "name": "two", "template": "app", "env": { "COLOUR": "blue" } });
    client.post("/v1/sandboxes", &body).expect(201);
    assert_eq!(shell(&client, "two", "cat /tmp/ready"), "blue\n");
    // The start command is a session that goes on, and is recorded.
    let sessions = client.get("/v1/sandboxes/ci/one/sessions").expect(200).json();
    assert!(sessions.to_string().contains("template-start"), "{sessions}");
    eventually("its output is in the log", || {
        let log = client.get("/v1/sandboxes/ci/one/logs?session=template-start").expect(200);
        log.text().contains("up\\n")
    });
    // Sandboxes stay when their template goes.
    client.delete(&format!("{TEMPLATES}/app")).expect(200);
    client.get(&format!("{TEMPLATES}/app")).expect(404);
    assert_eq!(shell(&client, "one", "echo here"), "here\n");
    let body = json!({ "namespace": "ci", "name": "three", "template": "app" });
    assert!(client.post("/v1/sandboxes", &body).expect(404).text().contains("no template ci/app"));
}

#[test]
fn what_does_not_become_ready_is_refused_with_its_output_and_leaves_nothing() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let cases = [
        (
            Some("echo loud >&2; exec sleep 1000"),
            "echo not yet; false",
            ["exit code 1", "loud", "not yet"],
        ),
        // One that never ends is ended with its sandbox.
        (None, "echo hangs; sleep 1000", ["within", "not ended", "hangs"]),
        (
            Some("echo broken; exit 3"),
            "sleep 0.2; false",
            ["ended with exit code 3", "broken", "ready"],
        ),
        (None, "/no/such/program", ["exit code 127", "not found", "start wrote: nothing"]),
    ];
    // All at once: each waits until its time is over.
    thread::scope(|scope| {
        for (number, (start, ready, words)) in cases.into_iter().enumerate() {
            let client = Client::new(server.url());
            scope.spawn(move || {
                let name = format!("bad{number}");
                let ready_ms = 5000 * tests::slowness();
                let template =
                    json!({ "start": start, "ready": ready, "ready_timeout_ms": ready_ms });
                put(&client, &name, &template);
                let body = json!({ "namespace": "ci", "name": name, "template": name });
                let refused = client.post("/v1/sandboxes", &body).expect(502);
                assert_eq!(refused.code(), "start_failed");
                for word in words {
                    assert!(refused.text().contains(word), "{word:?} is not in {}", refused.text());
                }
            });
        }
    });
    assert_eq!(sandboxes(&client), 0);
    eventually("their machines are gone", || machines(&server) == 0);
    // A start command that ends with 0 may have left what it started.
    put(&client, "bad", &json!({ "start": "touch /tmp/x", "ready": "sleep 0.3; test -e /tmp/x" }));
    made(&client, "bad", "bad");
}

#[test]
fn a_creation_that_waits_for_a_template_can_be_cancelled() {
    let server = Server::dev();
    let client = Client::new(server.url());
    put(&client, "never", &json!({ "ready": "false", "ready_timeout_ms": 600_000 }));
    thread::scope(|scope| {
        let creating = scope.spawn(|| {
            let body = json!({ "namespace": "ci", "name": "web", "template": "never" });
            Client::new(server.url()).post("/v1/sandboxes", &body).expect(409).code()
        });
        eventually("it is being made", || sandboxes(&client) == 1);
        client.delete("/v1/sandboxes/ci/web?force=true").expect(200);
        assert_eq!(creating.join().unwrap(), "conflict");
    });
    eventually("nothing is left", || machines(&server) == 0);
}

#[test]
fn templates_outlive_a_bridge_that_is_killed_and_half_ready_sandboxes_do_not() {
    let mut server = Server::dev();
    let client = Client::new(server.url());
    put(&client, "never", &json!({ "ready": "false", "ready_timeout_ms": 600_000 }));
    put(&client, "app:v1.0", &json!({ "start": SLOW, "ready": "test -s /tmp/ready", "warm": 2 }));
    eventually("two are warm", || warm_ready(&client, "app:v1.0") == 2);
    let url = server.url().to_owned();
    let body = json!({ "namespace": "ci", "name": "web", "template": "never" });
    let creating = thread::spawn(move || {
        // It is cut off.
        let _ = std::panic::catch_unwind(|| Client::new(&url).post("/v1/sandboxes", &body));
    });
    eventually("one waits", || sandboxes(&client) == 1);
    server.kill_and_serve_again();
    let _ = creating.join();
    let client = Client::new(server.url());
    assert_eq!(sandboxes(&client), 0);
    let listed = client.get("/v1/templates").expect(200).json();
    let names: Vec<_> =
        listed["templates"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["app:v1.0", "never"]);
    // Warm ones do not outlive their bridge, and there are as many again.
    eventually("two are warm again", || warm_ready(&client, "app:v1.0") == 2);
    eventually("and no others", || machines(&server) == 2);
    client.delete(&format!("{TEMPLATES}/app:v1.0")).expect(200);
    eventually("none is kept without its template", || machines(&server) == 0);
}

#[test]
fn fifty_claims_at_once_get_fifty_sandboxes_each_ready_once() {
    const CLAIMS: usize = 50;
    let server = Server::dev();
    let client = Client::new(server.url());
    let start = "cat /proc/sys/kernel/random/uuid > /tmp/me; exec sleep 1000";
    put(&client, "app", &json!({ "start": start, "ready": "test -s /tmp/me", "warm": 4 }));
    eventually("four are warm", || warm_ready(&client, "app") == 4);
    let seen: BTreeSet<String> = thread::scope(|scope| {
        let claims: Vec<_> = (0..CLAIMS)
            .map(|number| {
                let url = server.url();
                scope.spawn(move || {
                    let client = Client::new(url);
                    let name = format!("c{number}");
                    made(&client, &name, "app");
                    shell(&client, &name, "hostname; cat /tmp/me")
                })
            })
            .collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).collect()
    });
    assert_eq!(seen.len(), CLAIMS, "{seen:#?}");
    let shelves: Value = serde_json::from_str(&server.ok(&["pool", "--json"])).unwrap();
    assert!(shelves[0]["claimed"].as_u64().unwrap() >= 1, "{shelves}");
}

#[test]
fn a_warm_sandbox_whose_start_command_has_failed_is_not_handed_out() {
    // Nobody else notices its end.
    let server = Server::start(&["--dev", "--set", "pool.check_every=1h"]);
    let client = Client::new(server.url());
    let start = "touch /tmp/me; sleep 1; exit 9";
    put(&client, "app", &json!({ "start": start, "ready": "test -e /tmp/me", "warm": 1 }));
    eventually("one is warm", || warm_ready(&client, "app") == 1);
    let ready = Instant::now();
    eventually("its start command has failed", || ready.elapsed() > slowed(Duration::from_secs(2)));
    made(&client, "web", "app");
    let shelves: Value = serde_json::from_str(&server.ok(&["pool", "--json"])).unwrap();
    assert_eq!(
        (&shelves[0]["claimed"], &shelves[0]["replaced"]),
        (&json!(0), &json!(1)),
        "{shelves}"
    );
}

#[test]
fn what_is_wrong_with_a_template_is_refused_when_it_is_put() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let refused = |name: &str, template: Value| {
        client.send_json("PUT", &format!("{TEMPLATES}/{name}"), &template).expect(400).text()
    };
    for name in ["%3Cb%3E", "a%2Fb", "..", "a:b:c", "a:%3Cscript%3E"] {
        refused(name, json!({}));
    }
    for (field, template) in [
        ("start", json!({ "start": "" })),
        ("memory_mib", json!({ "memory_mib": 1 })),
        ("ready_timeout_ms", json!({ "ready_timeout_ms": 600_001 })),
        ("warm", json!({ "warm": 33 })),
        ("egress", json!({ "egress": ["no host"] })),
        ("reday", json!({ "reday": "true" })),
    ] {
        let words = refused("app", template);
        assert!(words.contains(field), "{field}: {words}");
    }
    client.get(&format!("{TEMPLATES}/app")).expect(404);
    put(&client, "app", &json!({}));
    let body = json!({ "namespace": "ci", "name": "a", "template": "app", "image": "/" });
    let words = client.post("/v1/sandboxes", &body).expect(400).text();
    assert!(words.contains("image is set by the template ci/app"), "{words}");
    // Markup in a command is text.
    let template = put(&client, "app", &json!({ "start": "<script>alert(1)</script>" }));
    assert_eq!(template["start"], "<script>alert(1)</script>");
}

/// A regression: the memory bounded the layer before it was known to be in memory.
#[test]
fn the_writable_layer_of_a_template_is_bounded_where_it_is() {
    let large = json!({ "memory_mib": 256, "scratch_bytes": 1_u64 << 30 });
    let server = Server::start(&["--dev", "--set", "process.scratch=memory"]);
    let client = Client::new(server.url());
    let put_large =
        |client: &Client| client.send_json("PUT", &format!("{TEMPLATES}/large"), &large);
    let refused = put_large(&client).expect(400).text();
    assert!(refused.contains("--scratch") && refused.contains("cannot be on disk"), "{refused}");
    let server = Server::dev();
    let client = Client::new(server.url());
    let body = json!({ "namespace": "ci", "name": "plain", "memory_mib": 256 });
    if client.post("/v1/sandboxes", &body).expect(201).json()["scratch_place"] != "disk" {
        return skip("this host has no writable layers on disk");
    }
    put_large(&client).expect(200);
    let one = made(&client, "one", "large");
    assert_eq!((&one["scratch_bytes"], &one["scratch_place"]), (&json!(1 << 30), &json!("disk")));
    for name in ["plain", "one"] {
        client.delete(&format!("/v1/sandboxes/ci/{name}?force=true")).expect(200);
    }
}

#[test]
fn a_key_makes_templates_of_its_own_namespace_and_none_that_are_kept_warm() {
    let server = Server::with_keys();
    let key = |scope: &str, namespace: &str| {
        server.ok(&["keygen", "--namespace", namespace, "--scope", scope]).trim().to_owned()
    };
    let client = |scope, namespace| Client::new(server.url()).key(&key(scope, namespace));
    let (run, other, read) = (client("run", "ci"), client("run", "other"), client("read", "ci"));
    let put = |client: &Client, template: &Value| {
        client.send_json("PUT", &format!("{TEMPLATES}/app"), template)
    };
    put(&run, &json!({ "ready": "true" })).expect(200);
    put(&read, &json!({})).expect(403);
    put(&other, &json!({})).expect(403);
    let words = put(&run, &json!({ "warm": 1 })).expect(403).text();
    assert!(words.contains("admin"), "{words}");
    let words = put(&run, &json!({ "image": "/etc" })).expect(403).text();
    assert!(words.contains("admin"), "{words}");
    assert_eq!(
        read.get("/v1/templates").expect(200).json()["templates"].as_array().unwrap().len(),
        1
    );
    assert_eq!(other.get("/v1/templates").expect(200).json()["templates"], json!([]));
    other.get(&format!("{TEMPLATES}/app")).expect(403);
    other.delete(&format!("{TEMPLATES}/app")).expect(403);
    let body = json!({ "namespace": "other", "name": "x", "template": "app" });
    other.post("/v1/sandboxes", &body).expect(404);
}

#[test]
fn the_verbs_keep_show_and_remove_templates_and_start_from_them() {
    let server = Server::dev();
    server.ok(&["template", "create", "shop:v2", "--ready", "test -n \"$A\"", "-e", "A=secret"]);
    assert!(server.ok(&["template", "ls"]).contains("shop:v2"));
    let shown = server.ok(&["template", "show", "shop:v2"]);
    assert!(shown.contains("\"A\"") && !shown.contains("secret"), "{shown}");
    assert_eq!(server.ok(&["start", "--name", "one", "--template", "shop:v2"]), "one\n");
    assert_eq!(server.ok(&["exec", "one", "--", "sh", "-c", "echo $A"]), "secret\n");
    // It has the values of its template again.
    server.ok(&["restart", "one"]);
    assert_eq!(server.ok(&["exec", "one", "--", "sh", "-c", "echo $A"]), "secret\n");
    server.ok(&["template", "rm", "shop:v2"]);
    let refused = server.run(&["start", "--template", "shop:v2"]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("template ls"), "{words}");
}

#[test]
fn the_configuration_has_templates_that_no_call_changes() {
    let burrow = tests::Burrow::new();
    let file = burrow.scratch().join("burrow.toml");
    let text = "[templates.app]\nnamespaces = [\"ci\"]\nstart = \"echo $A > /tmp/a; exec sleep 1000\"\n\
        ready = \"test -s /tmp/a\"\nenv = { A = \"configured\" }\nwarm = 1\n";
    fs::write(&file, text).unwrap();
    let server = Server::start_in(burrow, &["--dev", "--config", file.to_str().unwrap()]);
    let client = Client::new(server.url());
    eventually("one is warm", || warm_ready(&client, "app") == 1);
    made(&client, "web", "app");
    assert_eq!(shell(&client, "web", "cat /tmp/a; echo $A"), "configured\nconfigured\n");
    let refused =
        client.send_json("PUT", &format!("{TEMPLATES}/app"), &json!({})).expect(409).text();
    assert!(refused.contains("configuration"), "{refused}");
    client.delete(&format!("{TEMPLATES}/app")).expect(409);
}

/// The only template as `template ls` has it; nothing while there is no bridge.
fn shown(server: &Server) -> Value {
    let listed = server.run(&["template", "ls", "--json"]).stdout;
    let listed: Value = serde_json::from_slice(&listed).unwrap_or_default();
    listed[0].clone()
}

#[test]
fn a_bridge_that_dies_while_a_template_is_put_or_warmed_has_the_old_one_or_the_new() {
    /// How many of the steps are tried.
    const TRIED: u64 = 12;
    if !deaths::can_watch() {
        return skip("no process can be watched here");
    }
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let scene = || {
        let server = Server::dev();
        server.ok(&["template", "create", "app", "--ready", "true"]);
        server
    };
    let replace = |server: &Server| {
        server.run(&["template", "create", "app", "--ready", "test 1 = 1", "--warm", "1"])
    };
    let is_warm = |server: &Server| shown(server)["stock"]["ready"] == 1;
    let steps = {
        let mut server = scene();
        let watched = Watched::begin_pid(server.daemon_pid(), server.scratch(), u64::MAX);
        assert!(replace(&server).status.success());
        eventually("one is warm", || is_warm(&server));
        let steps = watched.steps();
        server.kill_daemon_for_a_moment(|| {
            watched.end();
        });
        steps
    };
    assert!(steps > 6, "{steps} steps were seen");
    for step in (1..=steps).step_by(usize::try_from((steps / TRIED).max(1)).unwrap()) {
        let mut server = scene();
        let watched = Watched::begin_pid(server.daemon_pid(), server.scratch(), step);
        let _ = replace(&server);
        eventually("it is dead, or has done all", || !watched.is_alive() || is_warm(&server));
        server.kill_daemon_for_a_moment(|| {
            watched.end();
        });
        let when = format!("dead at step {step} of about {steps}");
        let found = shown(&server);
        let warm = found["options"]["warm"].as_u64().unwrap_or_else(|| panic!("{when}: {found}"));
        let ready = if warm == 0 { "true" } else { "test 1 = 1" };
        assert_eq!(found["options"]["ready"], ready, "{when}");
        eventually("as many are warm as it says", || {
            shown(&server)["stock"]["ready"].as_u64().unwrap_or(0) == warm
        });
        eventually("no other machine is left", || machines(&server) as u64 == warm);
    }
}
