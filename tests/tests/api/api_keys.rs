//! Keys at the server's door: who is let in, how far, how often, and until when.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::http::{Answer, Client};
use tests::server::Server;
use tests::{Burrow, eventually, written};

/// Within which a change of keys acts.
const SOON: Duration = Duration::from_secs(2);
/// Within which a server answers that has nothing else to do, on a busy machine.
const USUAL: Duration = Duration::from_secs(3);

/// A key and what is known of it.
fn keygen(server: &Server, options: &[&str]) -> Value {
    let made = server.ok(&[&["keygen", "--json"], options].concat());
    serde_json::from_str(&made).unwrap()
}

fn client(server: &Server, options: &[&str]) -> Client {
    let made = keygen(server, options);
    Client::new(server.url()).key(made["key"].as_str().unwrap())
}

fn create(client: &Client, namespace: &str, name: &str) -> Answer {
    client.post("/v1/sandboxes", &json!({ "name": name, "namespace": namespace }))
}

/// How long it takes until a client is answered with this status.
fn until(client: &Client, status: u16) -> Duration {
    let began = Instant::now();
    eventually("the key is looked at anew", || client.get("/v1/sandboxes").status == status);
    began.elapsed()
}

#[test]
fn without_a_valid_key_only_the_servers_health_is_shown() {
    let server = Server::with_keys();
    let good = keygen(&server, &[])["key"].as_str().unwrap().to_owned();
    let mut forged = good.clone();
    let last = forged.pop().unwrap();
    forged.push(if last == 'A' { 'E' } else { 'A' });
    let bad =
        [None, Some(""), Some("x"), Some("msb_"), Some("msb_a.b.c"), Some(&forged[..]), Some("ü")];
    for key in bad {
        let client = Client::new(server.url());
        let client = if let Some(key) = key { client.key(key) } else { client };
        for (method, path) in [
            ("GET", "/v1/sandboxes"),
            ("POST", "/v1/sandboxes"),
            ("GET", "/v1/sandboxes/default/x"),
            ("DELETE", "/v1/sandboxes/default/x"),
            ("GET", "/metrics"),
        ] {
            let refused = client.send(method, path, &[], &[]).expect(401);
            assert_eq!(refused.code(), "unauthenticated");
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
            assert!(!refused.text().contains("msb_a"), "{}", refused.text());
        }
        for path in ["/livez", "/readyz", "/api/v1/health", "/openapi.json", "/docs"] {
            client.get(path).expect(200);
        }
    }
    let wrong_scheme = [("authorization", &format!("Basic {good}")[..])];
    Client::new(server.url()).send("GET", "/v1/sandboxes", &wrong_scheme, &[]).expect(401);
    let spelt_otherwise = [("authorization", &format!("bEaReR  {good} ")[..])];
    Client::new(server.url()).send("GET", "/v1/sandboxes", &spelt_otherwise, &[]).expect(200);
}

#[test]
fn a_key_reaches_its_own_namespace_alone() {
    let server = Server::with_keys();
    let all = client(&server, &["--namespace", "*"]);
    let team = client(&server, &["--namespace", "team"]);
    create(&all, "other", "theirs").expect(201);
    // The namespace of a key is what it means when it says none.
    let made = team.post("/v1/sandboxes", &json!({ "name": "ours" })).expect(201).json();
    assert_eq!(made["namespace"], "team");
    assert_eq!(create(&team, "other", "x").expect(403).code(), "forbidden");
    for (method, path) in [
        ("GET", "/v1/sandboxes/other/theirs"),
        ("GET", "/v1/sandboxes/other/no-such"),
        ("DELETE", "/v1/sandboxes/other/theirs?force=true"),
        ("POST", "/v1/sandboxes/other/theirs/kill"),
        ("GET", "/v1/sandboxes/other/theirs/metrics"),
        ("GET", "/v1/sandboxes/other/theirs/contexts"),
        ("GET", "/v1/sandboxes?namespace=other"),
    ] {
        let refused = team.send(method, path, &[], &[]).expect(403);
        assert_eq!(refused.code(), "forbidden", "{method} {path}");
    }
    let names = |client: &Client| {
        let listed = client.get("/v1/sandboxes").expect(200).json();
        let all = listed["sandboxes"].as_array().unwrap().clone();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&team), ["ours"]);
    assert_eq!(names(&all), ["theirs", "ours"]);
    let metrics = team.get("/metrics").expect(200).text();
    assert!(!metrics.contains("theirs"), "{metrics}");
}

#[test]
fn a_key_does_what_its_scope_allows() {
    let server = Server::with_keys();
    let reads = client(&server, &["--scope", "read"]);
    let runs = client(&server, &["--scope", "run"]);
    assert_eq!(create(&reads, "default", "x").expect(403).code(), "forbidden");
    create(&runs, "default", "x").expect(201);
    reads.get("/v1/sandboxes/default/x").expect(200);
    let run = "/v1/sandboxes/default/x/run";
    let code = json!({ "language": "bash", "code": "echo hello" });
    let refused = reads.post(run, &code).expect(403).json();
    assert!(refused["hint"].as_str().unwrap().contains("--scope"), "{refused}");
    assert_eq!(runs.post(run, &code).expect(200).json()["stdout"], "hello\n");
    reads.delete("/v1/sandboxes/default/x?force=true").expect(403);
    runs.delete("/v1/sandboxes/default/x?force=true").expect(200);
}

#[test]
fn keys_end_by_their_time_by_revocation_and_by_rotation_without_a_restart() {
    let server = Server::with_keys();
    let brief = client(&server, &["--expire", "1s"]);
    let made = keygen(&server, &[]);
    let session = client(&server, &[]);
    let doomed = Client::new(server.url()).key(made["key"].as_str().unwrap());
    // A new key is known at once or soon.
    assert!(until(&doomed, 200) < SOON && until(&session, 200) < SOON);
    let took = until(&brief, 401);
    assert!(took < Duration::from_secs(4), "{took:?}");

    server.ok(&["keys", "revoke", made["id"].as_str().unwrap()]);
    let took = until(&doomed, 401);
    assert!(took < SOON, "a revocation took {took:?}");
    session.get("/v1/sandboxes").expect(200);

    server.ok(&["keys", "rotate"]);
    let newer = client(&server, &[]);
    assert!(until(&newer, 200) < SOON);
    session.get("/v1/sandboxes").expect(200);
    server.ok(&["keys", "rotate", "--finish"]);
    let took = until(&session, 401);
    assert!(took < SOON, "a rotation took {took:?}");
    newer.get("/v1/sandboxes").expect(200);
}

#[test]
fn no_key_is_in_the_journal_or_on_disk() {
    let server = Server::start(&["--set", "log.level=trace"]);
    let keys: Vec<String> = [&[][..], &["--namespace", "*", "--scope", "admin"]]
        .iter()
        .map(|options| keygen(&server, options)["key"].as_str().unwrap().to_owned())
        .collect();
    for key in &keys {
        let client = Client::new(server.url()).key(key);
        client.get("/v1/sandboxes").expect(200);
        client.get("/v1/sandboxes/other/x");
        client.send("POST", "/v1/sandboxes", &[], key.as_bytes()).expect(415);
        let mut bad = key.clone();
        bad.pop();
        Client::new(server.url()).key(&bad).get("/v1/sandboxes").expect(401);
        // As a browser's WebSocket must say it.
        let protocol = format!("burrow, key.{key}");
        client.send("GET", "/v1/sandboxes", &[("sec-websocket-protocol", &protocol)], &[]);
    }
    create(&Client::new(server.url()).key(&keys[0]), "default", "box").expect(201);
    let signatures: Vec<&str> = keys.iter().map(|key| key.rsplit('.').next().unwrap()).collect();
    let mut looked_at = 0;
    search(server.scratch(), &mut |path, bytes| {
        looked_at += 1;
        for part in keys.iter().map(String::as_str).chain(signatures.iter().copied()) {
            let is_there = bytes.windows(part.len()).any(|window| window == part.as_bytes());
            assert!(!is_there, "a key is in {}", path.display());
        }
    });
    assert!(looked_at > 3, "{looked_at} files");
}

fn search(directory: &Path, look: &mut impl FnMut(&Path, &[u8])) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            search(&path, look);
        } else if kind.is_file() {
            look(&path, &written(&path).unwrap_or_default());
        }
    }
}

#[test]
fn a_flood_of_bad_keys_is_slowed_and_good_keys_from_the_same_place_are_not() {
    let server = Server::with_keys();
    let good = client(&server, &[]);
    good.get("/v1/sandboxes").expect(200);
    std::thread::scope(|scope| {
        let floods: Vec<_> = (0..4)
            .map(|thread| {
                let url = server.url();
                scope.spawn(move || {
                    let bad = Client::new(url).key(&format!("msb_a.b.{thread}"));
                    let answers: Vec<Answer> = (0..300).map(|_| bad.get("/v1/sandboxes")).collect();
                    answers
                })
            })
            .collect();
        for _ in 0..50 {
            let began = Instant::now();
            good.get("/v1/sandboxes").expect(200);
            assert!(began.elapsed() < USUAL, "a good key waited {:?}", began.elapsed());
        }
        let answers: Vec<Answer> = floods.into_iter().flat_map(|one| one.join().unwrap()).collect();
        let of = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
        assert!(of(401) >= 20 && of(429) >= 500, "{} and {}", of(401), of(429));
        assert_eq!(of(401) + of(429), answers.len());
        let slowed = answers.iter().find(|answer| answer.status == 429).unwrap();
        assert_eq!(slowed.code(), "rate_limited");
        assert!(slowed.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    });
    good.get("/v1/sandboxes").expect(200);
    // Sending no key is no guess, and is answered as usual.
    Client::new(server.url()).get("/v1/sandboxes").expect(401);
}

#[test]
fn a_key_that_is_used_too_often_waits_and_others_do_not() {
    let server = Server::start(&[
        "--set",
        "server.requests_per_second=5",
        "--set",
        "server.requests_burst=10",
    ]);
    let (busy, other) = (client(&server, &[]), client(&server, &[]));
    let answers: Vec<Answer> = (0..40).map(|_| busy.get("/v1/sandboxes")).collect();
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((10..35).contains(&served), "{served} were served");
    let slowed = answers.iter().find(|answer| answer.status != 200).unwrap().clone().expect(429);
    assert_eq!(slowed.code(), "rate_limited");
    let pause: u64 = slowed.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&pause), "{pause}");
    other.get("/v1/sandboxes").expect(200);
    // As long as the server said.
    std::thread::sleep(Duration::from_secs(pause));
    busy.get("/v1/sandboxes").expect(200);
}

#[test]
fn without_keys_it_serves_this_machine_alone() {
    let burrow = Burrow::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let output = burrow.run(&["serve", "--dev", "--listen", address]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{address}");
        assert!(stderr.contains("dev") && stderr.contains(address), "{stderr}");
    }
}

#[test]
fn an_idempotency_key_is_its_callers_own() {
    let server = Server::with_keys();
    let (one, two) = (client(&server, &[]), client(&server, &[]));
    let create = |client: &Client, name: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        let body = json!({ "name": name }).to_string();
        client.send("POST", "/v1/sandboxes", &headers, body.as_bytes())
    };
    create(&one, "a").expect(201);
    let other = create(&two, "b").expect(201);
    assert_eq!((other.header("idempotency-replayed"), &other.json()["name"]), (None, &json!("b")));
}

#[test]
fn a_key_issues_others_for_no_more_than_its_own_and_they_end_with_it() {
    let server = Server::with_keys();
    let all = client(&server, &["--namespace", "*", "--scope", "admin", "--expire", "1h"]);
    let issue = |client: &Client, asked: Value| client.post("/v1/keys", &asked);
    let made = issue(&all, json!({ "namespace": "a", "scope": "admin", "name": "lead" }));
    let made = made.expect(201).json();
    let lead = Client::new(server.url()).key(made["key"].as_str().unwrap());
    let lead_id = made["info"]["id"].as_str().unwrap().to_owned();
    // As long as the key that asked, which is less than usual.
    let expires = |info: &Value| info["expires_at"].as_str().unwrap().to_owned();
    let listed = all.get("/v1/keys").expect(200).json();
    let keys = listed["keys"].as_array().unwrap();
    assert_eq!(expires(&made["info"]), expires(&keys[0]), "{listed}");
    assert_eq!(keys[1]["issued_by"], keys[0]["id"], "{listed}");
    assert!(!listed.to_string().contains(made["key"].as_str().unwrap()), "no key is shown again");
    for (client, asked, status) in [
        (&lead, json!({ "namespace": "b" }), 403),
        (&lead, json!({ "namespace": "*" }), 403),
        (&lead, json!({ "never_expires": true }), 403),
        (&all, json!({ "ttl_ms": 7_200_000 }), 403),
        (&all, json!({ "ttl_ms": 5000, "never_expires": true }), 400),
        (&all, json!({ "namespace": "not a name" }), 400),
        (&all, json!({ "name": "\u{7}" }), 400),
        (&all, json!({ "scope": "root" }), 400),
    ] {
        assert_eq!(issue(client, asked.clone()).status, status, "{asked}");
    }
    let worker = issue(&lead, json!({ "ttl_ms": 60_000 })).expect(201).json();
    assert_eq!(
        (&worker["info"]["namespace"], &worker["info"]["scope"]),
        (&json!("a"), &json!("run"))
    );
    let worker = Client::new(server.url()).key(worker["key"].as_str().unwrap());
    worker.get("/v1/sandboxes").expect(200);
    for path in ["/v1/keys", "/v1/keys?all=true"] {
        worker.get(path).expect(403);
    }
    issue(&worker, json!({})).expect(403);
    // Its own namespace's, and those of no other.
    let seen = lead.get("/v1/keys").expect(200).json();
    assert_eq!(seen["keys"].as_array().unwrap().len(), 2, "{seen}");
    lead.get("/v1/keys?namespace=b").expect(403);
    let other = issue(&all, json!({ "namespace": "b" })).expect(201).json();
    let other = other["info"]["id"].as_str().unwrap().to_owned();
    lead.delete(&format!("/v1/keys/{other}")).expect(404);
    lead.delete("/v1/keys/0123456789ab").expect(404);
    all.delete(&format!("/v1/keys/{lead_id}")).expect(204);
    until(&lead, 401);
    until(&worker, 401);
    let state = |keys: &Value, id: &str| {
        let all = keys["keys"].as_array().unwrap().iter();
        all.filter(|key| key["id"] == id).map(|key| key["state"].clone()).collect::<Vec<_>>()
    };
    let listed = all.get("/v1/keys?all=true").expect(200).json();
    assert_eq!(state(&listed, &lead_id), ["revoked"]);
    assert_eq!(state(&listed, &other), ["valid"]);
    let audit = all.get("/v1/audit?operation=create_key").expect(200).text();
    assert!(audit.contains(&lead_id) && !audit.contains(made["key"].as_str().unwrap()), "{audit}");
    let dev = Server::dev();
    let refused = Client::new(dev.url()).get("/v1/keys").json();
    assert_eq!(refused["code"], "unsupported", "{refused}");
}
