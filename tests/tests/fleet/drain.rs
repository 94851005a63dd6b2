//! Taking a node out: it is waited for, what is left is named, and ended only where that was asked for.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::eventually;
use tests::fleet::{Member, Nats, open};

fn text(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

fn readiness(member: &Member, name: &str) -> Value {
    let nodes = member.nodes();
    let node = nodes.iter().find(|node| node["name"] == name).expect("it is known");
    node["readiness"].clone()
}

#[test]
fn a_drain_waits_until_the_last_sandbox_of_the_node_is_removed() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    members[1].start(&["--name", "one"]);
    members[1].start(&["--name", "two"]);
    members[0].start(&["--name", "elsewhere"]);
    // Any node's bridge is asked.
    let mut command = members[0].server.command(&["node", "drain", "n2", "--wait"]);
    let mut draining = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("it drains", || readiness(&members[0], "n2") == "draining");
    members[1].server.ok(&["rm", "--force", "one"]);
    // One that has stopped is one of the node's: its log goes with it.
    members[1].server.ok(&["stop", "two"]);
    // Time passes in which it could give up.
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(draining.try_wait().unwrap(), None, "it ended while the node had a sandbox");
    members[0].server.ok(&["rm", "two"]);
    let ended = text(&draining.wait_with_output().unwrap());
    assert_eq!(ended, (String::new(), String::new(), Some(0)));
    // The others stay.
    assert!(members[1].server.ok(&["ps", "--all-nodes"]).contains("elsewhere"));
}

#[test]
fn what_is_left_at_the_deadline_is_named_and_stays() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    for name in ["one", "team/two"] {
        members[1].start(&["--name", name]);
    }
    let began = Instant::now();
    let (stdout, words, code) =
        text(&members[0].server.run(&["node", "drain", "n2", "--deadline", "1500ms"]));
    assert!(began.elapsed() >= Duration::from_millis(1_500));
    assert_eq!(code, Some(124), "{stdout}{words}");
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one  running", "team/two  running"]);
    assert!(words.contains("n2 has 2 sandboxes left"), "{words}");
    assert_eq!(readiness(&members[0], "n2"), "draining");
    for name in ["one", "team/two"] {
        assert_eq!(members[0].server.ok(&["exec", name, "--", "echo", "on"]), "on\n");
    }
    let (_, words, code) = text(&members[0].server.run(&["node", "drain", "n9", "--wait"]));
    assert!(code == Some(125) && words.contains("n9"), "{words}");
    let (_, words, code) = text(&members[0].server.run(&["node", "drain", "n2", "--end"]));
    assert!(code != Some(0) && words.contains("--deadline"), "{words}");
}

#[test]
fn with_end_what_is_left_is_stopped_in_order_and_removed() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    for name in ["one", "halted"] {
        members[1].start(&["--name", name]);
    }
    members[0].start(&["--name", "elsewhere"]);
    members[1].server.ok(&["stop", "halted"]);
    let ended = members[0].server.run(&["node", "drain", "n2", "--deadline", "100ms", "--end"]);
    let (stdout, words, code) = text(&ended);
    assert_eq!((code, words.as_str()), (Some(0), ""), "{stdout}");
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["halted  removed", "one  stopped and removed"]);
    let shown = members[1].server.ok(&["ps", "-a", "--all-nodes"]);
    assert!(!shown.contains("one") && !shown.contains("halted"), "{shown}");
    assert!(shown.contains("elsewhere"), "{shown}");
    // Their names are free.
    eventually("its name is free", || {
        members[0].server.run(&["start", "--name", "one"]).status.success()
    });
}

#[test]
fn with_end_what_is_made_again_when_it_is_lost_moves_to_another_node() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    tests::fleet::at(&members, 1, |node| {
        node.server.ok(&["start", "--name", "nomad", "--on-lost", "restart", "-e", "A=1"]);
        node.server.ok(&["start", "--name", "local"]);
    });
    let id = |member: &Member| -> Value {
        let shown = member.server.run(&["inspect", "--json", "nomad"]).stdout;
        serde_json::from_slice::<Value>(&shown).map_or(Value::Null, |record| record["id"].clone())
    };
    let first = id(&members[0]);
    let ended = members[0].server.run(&["node", "drain", "n2", "--deadline", "100ms", "--end"]);
    let (stdout, words, code) = text(&ended);
    assert_eq!((code, words.as_str()), (Some(0), ""), "{stdout}");
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort_unstable();
    let moved = "nomad  removed, and made again at another node";
    assert_eq!(lines, ["local  stopped and removed", moved]);
    eventually("it is at the other node", || {
        let other = id(&members[0]);
        other.is_string() && other != first
    });
    assert!(members[0].server.ok(&["ps"]).contains("nomad"));
    eventually("it runs", || {
        let ran = members[1].server.run(&["exec", "nomad", "--", "sh", "-c", "echo $A"]);
        ran.stdout == b"1\n"
    });
    // What its user removes does not come back, wherever it is.
    members[1].server.ok(&["rm", "--force", "nomad"]);
    // Time passes in which it could be made again.
    std::thread::sleep(Duration::from_secs(2));
    let listed = members[0].server.ok(&["ps", "-a", "--all-nodes"]);
    assert!(!listed.contains("nomad"), "{listed}");
}
