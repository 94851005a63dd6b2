//! A virtual machine that is lost with its node, and goes on at another one from what was exported of it last.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::fleet::{Member, Nats, at};
use tests::machines::machines_or_skip;
use tests::{Burrow, buckets, eventually};

#[test]
fn a_lost_machine_goes_on_at_another_node_from_its_last_export() {
    if !machines_or_skip() || !buckets::is_here() {
        return;
    }
    let Some(nats) = Nats::start() else { return };
    let store = buckets::Store::start();
    let join = |name: &str| {
        let burrow = Burrow::new();
        let config = buckets::Scene::configure(burrow.scratch(), store.port(), "");
        let config = config.to_str().expect("text").to_owned();
        Member::join_in(burrow, &nats, name, &["--dev", "--config", &config])
    };
    let members = [join("n1"), join("n2")];
    for member in &members {
        member.knows(2);
    }
    let first = at(&members, 1, |node| {
        let body = json!({
            "name": "counter", "machine": "qemu", "image": "python", "memory_mib": 256, "on_lost": "restore",
        });
        node.client.post("/v1/sandboxes", &body).expect(201).json()
    });
    let python = |member: &Member, code: &str| member.server.ok(&["repl", "counter", "-c", code]);
    python(&members[1], "count = 41");
    members[1].server.ok(&["exec", "counter", "--", "sh", "-c", "echo kept > /var/kept"]);
    members[1].server.ok(&["snapshot", "counter", "base"]);
    members[1].server.ok(&["snapshot", "export", "base", "s3://data/base.tar"]);
    // What comes later is lost.
    python(&members[1], "count = 1000");
    members[1].signal(Signal::SIGKILL);
    let mut second = Value::Null;
    eventually("it is restored", || {
        let answer = members[0].client.get("/v1/sandboxes/default/counter");
        second = if answer.status == 200 { answer.json() } else { Value::Null };
        second["state"] == "running" && second["id"] != first["id"]
    });
    assert_eq!(second["follows"]["exported"], "s3://data/base.tar", "{second}");
    assert_eq!(second["on_lost"], "restore");
    assert_eq!(python(&members[0], "count += 1; print(count)").trim_end(), "42");
    assert_eq!(members[0].server.ok(&["exec", "counter", "--", "cat", "/var/kept"]), "kept\n");
    // The snapshot that it came from is not left here.
    assert_eq!(members[0].server.ok(&["snapshot", "ls", "--json"]).trim(), "[]");
}
