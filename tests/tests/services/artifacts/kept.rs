//! How long artifacts are kept, for whom, and where.

use serde_json::{Value, json};
use tests::http::Client;
use tests::mcp::Lines;
use tests::server::Server;
use tests::{Burrow, skip};

use super::scene::{by_name, captured, content, left_out, listed, names, open};

/// The contents that are on disk.
fn contents(burrow: &Burrow) -> usize {
    let directories = std::fs::read_dir(burrow.state().join("artifacts")).unwrap().flatten();
    directories.map(|one| std::fs::read_dir(one.path()).unwrap().count()).sum()
}

#[test]
fn equal_bytes_are_on_disk_once_and_go_with_the_last_artifact() {
    let (server, client) = open();
    let run = captured(&client, "echo same > a.txt; echo same > b.txt; echo other > c.txt");
    assert_eq!(names(&run), ["a.txt", "b.txt", "c.txt"]);
    assert_eq!(contents(&server), 2);
    let artifacts = by_name(&run);
    let path = |name: &str| format!("/v1/artifacts/{}", artifacts[name]["id"].as_str().unwrap());
    assert_eq!(client.delete(&path("a.txt")).expect(200).json()["name"], "a.txt");
    assert_eq!(client.get(&path("a.txt")).expect(404).code(), "not_found");
    let _ = client.delete(&path("a.txt")).expect(404);
    assert_eq!(content(&client, &artifacts["b.txt"]), b"same\n");
    let _ = client.delete(&path("b.txt")).expect(200);
    assert_eq!(contents(&server), 1);
}

#[test]
fn artifacts_are_listed_by_what_is_asked_and_cleaned_up_by_it() {
    let (server, client) = open();
    let _ = captured(&client, "echo a > a.txt; echo b > b.csv; printf '%s' '%PDF-' > c.pdf");
    assert_eq!(listed(&client, "?category=data"), ["b.csv"]);
    assert_eq!(listed(&client, "?sandbox=other"), Vec::<String>::new());
    assert_eq!(listed(&client, "?namespace=default&sandbox=box").len(), 3);
    assert!(listed(&client, "?since_ms=9999999999999").is_empty());
    let page = client.get("/v1/artifacts?limit=2").expect(200).json();
    let next = page["next"].as_u64().expect("another page");
    assert_eq!(listed(&client, &format!("?limit=2&after={next}")).len(), 1);
    for wrong in ["?limit=0", "?limit=5000", "?category=nice", "?colour=red", "?run=-1"] {
        let _ = client.get(&format!("/v1/artifacts{wrong}")).expect(400);
    }
    let remove = |query: &str| client.delete(&format!("/v1/artifacts{query}"));
    assert_eq!(remove("").expect(400).code(), "invalid");
    assert_eq!(remove("?all=false").expect(400).code(), "invalid");
    assert_eq!(remove("?namespace=default").expect(400).code(), "invalid");
    assert_eq!(remove("?older_than_ms=3600000").expect(200).json()["removed"], 0);
    assert_eq!(remove("?category=data").expect(200).json(), json!({ "removed": 1, "bytes": 2 }));
    assert_eq!(remove("?notebook=none").expect(200).json()["removed"], 0);
    assert_eq!(remove("?all=true").expect(200).json()["removed"], 2);
    assert!(listed(&client, "").is_empty());
    assert_eq!(contents(&server), 0);
    for wrong in ["x", "0123456789abcde", "0123456789ABCDEF"] {
        let _ = client.get(&format!("/v1/artifacts/{wrong}")).expect(400);
    }
}

#[test]
fn artifacts_outlive_their_sandbox_and_their_bridge() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "box"]);
    let mut lines = Lines::open(&burrow, &[]);
    let command = json!({ "command": "echo lasting > a.txt", "sandbox": "box" });
    let ran = lines.ok("shell_execute", &command);
    let id = ran["artifacts"][0]["id"].as_str().expect("an id").to_owned();
    lines.close();
    burrow.ok(&["rm", "--force", "box"]);
    // A killed bridge has stored everything before it reported it.
    burrow.kill_daemon();
    assert_eq!(burrow.ok(&["artifact", "get", &id]), "lasting\n");
    let listed = burrow.ok(&["artifact", "ls", "--sandbox", "box", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["name"], listed.as_array().unwrap().len()), (&json!("a.txt"), 1));
    assert!(burrow.ok(&["artifact", "ls", "--category", "text"]).contains(&id));
    assert!(!burrow.run(&["artifact", "rm", &id]).status.success(), "it takes the daemon");

    burrow.serve();
    let file = burrow.scratch().join("copy.txt");
    burrow.ok(&["artifact", "get", &id, "-o", file.to_str().unwrap()]);
    assert_eq!(std::fs::read(file).unwrap(), b"lasting\n");
    let mut lines = Lines::open(&burrow, &[]);
    let listed = lines.ok("list_artifacts", &json!({ "sandbox": "box" }));
    assert_eq!(listed["artifacts"][0]["id"], id);
    lines.close();
    assert_eq!(burrow.ok(&["artifact", "rm", &id]).trim(), id);
    let again = burrow.run(&["artifact", "rm", &id]);
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("artifact ls"));
    assert_eq!(contents(&burrow), 0);
}

#[test]
fn a_key_reaches_the_artifacts_of_its_own_namespace_alone() {
    let server = Server::with_keys();
    let client = |namespace: &str, scope: &str| {
        let made = server.ok(&["keygen", "--json", "--namespace", namespace, "--scope", scope]);
        let made: Value = serde_json::from_str(&made).unwrap();
        Client::new(server.url()).key(made["key"].as_str().unwrap())
    };
    let (all, team, reads) = (client("*", "run"), client("team", "run"), client("team", "read"));
    for (namespace, client) in [("other", &all), ("team", &team)] {
        let spec = json!({ "name": "box", "namespace": namespace });
        let _ = client.post("/v1/sandboxes", &spec).expect(201);
        let shell =
            json!({ "script": format!("echo {namespace} > {namespace}.txt"), "artifacts": true });
        let path = format!("/v1/sandboxes/{namespace}/box/shell");
        let answer = client.post(&path, &shell).expect(200).json();
        assert_eq!(names(&answer["captured"]), [format!("{namespace}.txt")], "{answer}");
    }
    assert_eq!(listed(&team, ""), ["team.txt"]);
    assert_eq!(listed(&all, ""), ["team.txt", "other.txt"]);
    assert_eq!(team.get("/v1/artifacts?namespace=other").expect(403).code(), "forbidden");
    let page = all.get("/v1/artifacts?namespace=other").expect(200).json();
    let theirs = format!("/v1/artifacts/{}", page["artifacts"][0]["id"].as_str().unwrap());
    for (method, path) in
        [("GET", theirs.clone()), ("GET", format!("{theirs}/content")), ("DELETE", theirs.clone())]
    {
        assert_eq!(team.send(method, &path, &[], &[]).expect(404).code(), "not_found");
    }
    let _ = reads.get("/v1/artifacts").expect(200);
    assert_eq!(reads.delete("/v1/artifacts?all=true").expect(403).code(), "forbidden");
    assert_eq!(
        team.delete("/v1/artifacts?namespace=other&all=true").expect(403).code(),
        "forbidden"
    );
    // Everything that a key can reach, and nothing else.
    assert_eq!(team.delete("/v1/artifacts?all=true").expect(200).json()["removed"], 1);
    let _ = all.get(&theirs).expect(200);
}

/// A small disk, for as long as this is held.
struct SmallDisk(std::path::PathBuf);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_is_reported_and_the_run_succeeds() {
    let mut burrow = Burrow::new();
    let artifacts = burrow.state().join("artifacts");
    std::fs::create_dir_all(&artifacts).unwrap();
    let mounted = nix::mount::mount(
        Some("tmpfs"),
        &artifacts,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        Some("size=1m,mode=700"),
    );
    if let Err(error) = mounted {
        return skip(&format!("no small disk can be had here: {error}"));
    }
    let _disk = SmallDisk(artifacts);
    burrow.serve();
    burrow.ok(&["start", "--name", "box"]);
    let mut lines = Lines::open(&burrow, &[]);
    let command = json!({
        "command": "head -c 3000000 /dev/zero > large.bin; echo x > small.txt", "sandbox": "box"
    });
    let ran = lines.ok("shell_execute", &command);
    let captured = json!({ "artifacts": ran["artifacts"], "left_out": ran["artifacts_left_out"] });
    assert_eq!(names(&captured), ["small.txt"], "{ran}");
    assert!(left_out(&captured)["/sandbox/large.bin"].contains("No space left"), "{ran}");
    lines.close();
    burrow.ok(&["rm", "--force", "box"]);
    burrow.end_daemon();
}
