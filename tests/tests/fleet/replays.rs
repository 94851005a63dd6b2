//! What a sandbox did, played, compared and signed from a node that does not have it: the same as at its own. Of one that is
//! gone with its node, what was durable.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::eventually;
use tests::fleet::{Member, Nats, open};

/// Two nodes, the second of which has `work`, in which two programs have run.
fn with_programs_there(nats: &Nats) -> Vec<Member> {
    let members = open(nats, 2);
    let own = &members[1].server;
    members[1].start(&["--name", "work"]);
    for (session, script) in [
        ("build-1", "echo one; seq 1 400000; echo last"),
        ("check-1", "echo fine; echo wrong >&2; exit 3"),
    ] {
        own.ok(&["exec", "-d", "--session", session, "work", "--", "sh", "-c", script]);
    }
    eventually("both sessions are recorded", || {
        let log = own.ok(&["logs", "--json", "work"]);
        log.matches("\"event\":\"exited\"").count() == 2
    });
    members
}

/// What a verb prints through a node, on stdout and stderr, and its exit code.
fn run(member: &Member, verb: &[&str]) -> (String, String, Option<i32>) {
    let output = member.server.run(verb);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn a_replay_a_comparison_and_a_receipt_are_the_same_at_every_node() {
    let Some(nats) = Nats::start() else { return };
    let members = with_programs_there(&nats);
    let verbs: &[&[&str]] = &[
        &["replay", "--speed", "0", "work"],
        &["replay", "--speed", "0", "work", "build"],
        &["replay", "--speed", "0", "--no-events", "work", "check-1"],
        &["replay", "--speed", "0", "--events", "--from", "@2", "work", "check"],
        &["replay", "--speed", "0", "--errors", "work"],
        &["replay", "--speed", "0", "--errors=2", "work"],
        &["replay", "work", "check", "--export", "asciicast", "-"],
        &["replay", "work", "check", "--export", "html", "-"],
        &["replay", "work", "--export", "html", "-"],
        &["replay", "work", "nothing"],
        &["verify", "work"],
        &["verify", "--json", "work", "build"],
        &["verify", "work", "nothing"],
        &["receipt", "work", "build"],
        &["receipt", "work", "check-1"],
        &["receipt", "work", "c-1"],
        &["receipt", "work", "--context", "none"],
    ];
    for verb in verbs {
        let [there, here] = [1, 0].map(|at| run(&members[at], verb));
        assert_eq!(here, there, "{verb:?}");
    }
    let (output, _, code) = run(&members[0], verbs[1]);
    assert!(output.starts_with("one\n") && output.ends_with("400000\nlast\n"), "{}", output.len());
    assert_eq!((output.len(), code), (2_688_904, Some(0)));
    let (output, notes, _) = run(&members[0], verbs[0]);
    assert!(output.contains("fine\n") && notes.contains("wrong\n"), "{notes}");
    assert!(notes.contains("session check-1 ended with code 3"), "{notes}");
    assert_eq!(run(&members[0], verbs[10]).2, Some(0));
    // Signed by the node of the sandbox.
    let receipt = members[0].server.ok(&["receipt", "work", "check"]);
    let file = members[0].server.scratch().join("check.receipt");
    fs::write(&file, receipt).expect("a file");
    let key = members[1].server.ok(&["receipt", "key"]);
    let file = file.to_str().expect("UTF-8");
    let checked = members[0].server.ok(&["receipt", "verify", file, "--key", key.trim()]);
    assert!(checked.contains("valid"), "{checked}");
    // Over HTTP, too.
    let work = "/v1/sandboxes/default/work";
    for path in ["verify", "timeline?kind=started&kind=exited", "sessions/check-1/receipt"] {
        let [there, here] =
            [1, 0].map(|at| members[at].client.get(&format!("{work}/{path}")).expect(200).json());
        assert_eq!(here, there, "{path}");
    }
    // A session that runs has none, and what nobody has is not found.
    let sleeps = ["exec", "-d", "--session", "runs", "work", "--", "sleep", "1000"];
    members[1].server.ok(&sleeps);
    for verb in [&["receipt", "work", "runs"][..], &["replay", "none"], &["verify", "none"]] {
        let (_, words, code) = run(&members[0], verb);
        assert!(code != Some(0), "{verb:?}");
        let wanted = if verb[1] == "none" { "there is no sandbox none" } else { "has not ended" };
        eventually("it is refused in these words", || {
            run(&members[0], verb).1.contains(wanted) || words.contains(wanted)
        });
    }
}

/// What a client of another node does at the agent is recorded nowhere, and a receipt says that there was one.
#[test]
fn a_receipt_says_that_a_client_at_another_node_has_reached_the_agent() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    members[1].start(&["--name", "work"]);
    let inputs = |session: &str| {
        let path = format!("/v1/sandboxes/default/work/sessions/{session}/receipt");
        eventually("its end is recorded", || members[1].client.get(&path).status == 200);
        members[1].client.get(&path).json()["statement"]["inputs"].clone()
    };
    members[1].server.ok(&["exec", "--session", "before", "work", "--", "true"]);
    assert_eq!(inputs("before")["has_unrecorded"], Value::Null);
    fs::write(members[0].server.scratch().join("file"), "1").expect("written");
    let file = members[0].server.scratch().join("file");
    members[0].server.ok(&["cp", file.to_str().expect("UTF-8"), "work:/tmp/file"]);
    members[1].server.ok(&["exec", "--session", "after", "work", "--", "cat", "/tmp/file"]);
    let inputs = inputs("after");
    assert_eq!(
        (&inputs["has_unrecorded"], &inputs["listed"]),
        (&true.into(), &Value::Array(vec![]))
    );
}

#[test]
fn a_replay_of_a_lost_sandbox_is_what_was_durable_and_says_where_that_ends() {
    let Some(nats) = Nats::start() else { return };
    // A log of the usual size needs more disk than a small machine has.
    let options = ["--dev", "--set", "fleet.log_size=64MiB"];
    let members = ["n1", "n2"].map(|name| Member::join(&nats, name, &options));
    members[1].knows(2);
    for (name, durability) in [("kept", "sync"), ("bare", "off")] {
        members[1].start(&["--name", name, "--durability", durability]);
        let script = "echo out; echo err >&2; sleep 1000";
        let exec = ["exec", "-d", "--session", "one", name, "--", "sh", "-c", script];
        members[1].server.ok(&exec);
    }
    eventually("it is durable", || run(&members[1], &["logs", "kept"]).0 == "out\n");
    members[1].signal(Signal::SIGKILL);
    eventually("it is lost", || members[0].client.get("/v1/sandboxes/default/kept").status == 410);
    for verb in [&["replay", "--speed", "0", "kept"][..], &["replay", "--speed", "0", "kept", "o"]]
    {
        let (output, words, code) = run(&members[0], verb);
        assert_eq!(output, "out\n", "{words}");
        assert!(words.contains("err\n") && words.contains("lost with its node n2"), "{words}");
        assert!(words.contains("one stdout 4"), "{words}");
        assert!(code != Some(0), "{words}");
    }
    let (cast, words, _) = run(&members[0], &["replay", "kept", "--export", "asciicast", "-"]);
    let lines: Vec<Value> =
        cast.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().any(|line| line[2] == "out\r\n"), "{cast} {words}");
    // Nothing of the other one is left, and of neither a log that could be compared.
    let verbs = [&["replay", "bare"][..], &["verify", "bare"], &["verify", "kept"]];
    for verb in verbs.into_iter().chain([&["receipt", "kept", "one"][..]]) {
        let (output, words, code) = run(&members[0], verb);
        assert!(output.is_empty() && code != Some(0), "{verb:?} {output}");
        assert!(words.contains(&format!("{} was lost with its node n2", verb[1])), "{words}");
    }
}
