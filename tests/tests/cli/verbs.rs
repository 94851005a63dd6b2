//! `wait`, `restart`, `stats`, `man`, and hints for words that other programs use.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use tests::{Burrow, children, have, skip, slowed};

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn begin(burrow: &Burrow, arguments: &[&str]) -> Child {
    let mut command = burrow.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

#[test]
fn wait_ends_with_the_sandbox_or_with_the_sessions_code() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let script = "read line; exit 7";
    let mut typed =
        burrow.command(&["exec", "-i", "--session", "build", "work", "--", "sh", "-c", script]);
    let mut typed = typed.stdin(Stdio::piped()).spawn().expect("it starts");
    tests::eventually("the session is there", || burrow.ok(&["inspect", "work"]).contains("build"));
    let session = begin(&burrow, &["wait", "work", "--session", "bui"]);
    let sandbox = begin(&burrow, &["wait", "work"]);
    let early = burrow.run(&["wait", "--timeout", "100ms", "work"]);
    assert_eq!(early.status.code(), Some(124), "{}", text_of(&early.stderr));
    assert!(text_of(&early.stderr).contains("gave up waiting after 100ms"));
    drop(typed.stdin.take());
    let ended = session.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(7), "{}", text_of(&ended.stderr));
    typed.wait().expect("it is ours");
    burrow.ok(&["stop", "work"]);
    let ended = sandbox.wait_with_output().expect("it ends");
    assert!(text_of(&ended.stdout).starts_with("work  stopped"), "{}", text_of(&ended.stdout));
    let unknown = burrow.run(&["wait", "wrk"]);
    assert_eq!(unknown.status.code(), Some(125));
    assert!(
        text_of(&unknown.stderr).contains("there is no sandbox wrk"),
        "{}",
        text_of(&unknown.stderr)
    );
    burrow.ok(&["rm", "work"]);
}

/// A regression: a session that had ended before `wait` asked was unknown to it, so quick ones lost their code.
#[test]
fn wait_ends_at_once_with_the_code_of_a_session_that_has_ended() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let session = burrow.ok(&["exec", "-d", "work", "--", "sh", "-c", "echo said; exit 3"]);
    let code = |wanted: &str| burrow.run(&["wait", "work", "--session", wanted]).status.code();
    assert_eq!(code(session.trim()), Some(3));
    tests::eventually("the agent has forgotten it", || {
        !burrow.ok(&["inspect", "work"]).contains(session.trim())
    });
    assert_eq!(code(session.trim()), Some(3));
    burrow.ok(&["stop", "work"]);
    assert_eq!(code(session.trim()), Some(3));
    assert_eq!(code("nope"), Some(125));
}

/// A regression: `history` of an unknown notebook was an empty table, and `logs` named a session twice.
#[test]
fn a_name_that_nothing_has_is_refused_by_every_verb_that_takes_one() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["exec", "-d", "--session", "long", "work", "--", "sleep", "1000"]);
    let lines = [
        "history nope",
        "context restart work nope",
        "context interrupt work nope",
        "context close work nope",
        "context ls nope",
        "logs nope",
        "logs work --session nope",
        "kill nope",
        "kill work nope",
        "wait nope",
        "wait work --session nope",
        "inspect nope",
        "stats nope",
        "stop nope",
        "restart nope",
        "rm nope",
        "pause nope",
        "update nope --ttl 1h",
        "fork nope",
        "try nope -- true",
        "resume nope",
        "sync nope",
        "snapshot nope name",
        "snapshot rm nope",
        "start --snapshot nope",
        "port-forward nope 80",
        "app ls nope",
        "app stop work nope",
        "app logs work nope",
        "artifact get 0123456789abcdef",
        "artifact rm 0123456789abcdef",
        "image rm nope",
        "image inspect nope",
        "image save nope -o x",
        "image commit nope name",
        "keys revoke 0123456789ab",
        "run --image nope -- true",
        "exec nope -- true",
        "repl nope -c 1",
        "cp nope:/x y",
    ];
    for line in lines {
        let output = burrow.run(&line.split(' ').collect::<Vec<_>>());
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{line}: {said}");
        assert!(said.contains("no ") || said.contains("nope"), "{line}: {said}");
        assert!(text_of(&output.stdout).is_empty(), "{line}: {}", text_of(&output.stdout));
        assert!(!said.contains("long, long"), "{line}: {said}");
        if ["run --image", "image rm", "image inspect"].iter().any(|verb| line.starts_with(verb)) {
            assert!(said.contains("`host-bridge image ls`"), "{line}: {said}");
        }
    }
    burrow.ok(&["rm", "--force", "work"]);
}

#[test]
fn a_directory_that_is_named_like_a_workspace_is_hinted_at() {
    let burrow = Burrow::serving();
    std::fs::create_dir(burrow.scratch().join("project")).expect("a directory");
    for verb in
        [&["run", "--workspace", "project", "--", "true"][..], &["start", "--workspace", "project"]]
    {
        let output = burrow.command(verb).current_dir(burrow.scratch()).output().expect("it runs");
        let message = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{message}");
        assert!(message.contains("write ./project for a directory"), "{message}");
    }
}

#[test]
fn inspect_counts_viewers_without_the_recorder_and_tells_whose_memory_it_is() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work", "--memory", "256"]);
    burrow.ok(&["exec", "-d", "--session", "long", "work", "--", "sleep", "1000"]);
    let shown = burrow.ok(&["inspect", "work"]);
    let table: Vec<_> = shown.lines().skip_while(|line| !line.starts_with("SESSION")).collect();
    let column = |line: &str| line.split_whitespace().nth(4).map(str::to_owned);
    assert_eq!(
        table.iter().map(|line| column(line)).collect::<Vec<_>>(),
        ["VIEWERS", "0"].map(|one| Some(one.to_owned()))
    );
    let fact = |name: &str| shown.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    assert_eq!(fact("memory limit"), Some("256.0 MiB"), "{shown}");
    // The sandbox sees the host's, which no line may take for its own.
    assert!(fact("memory of host").is_some() && fact("memory  ").is_none(), "{shown}");
    burrow.ok(&["rm", "--force", "work"]);
}

/// A regression: it waited as long as the agent did not answer, which one that is paused just then never does.
#[test]
fn inspect_shows_the_record_of_a_sandbox_whose_agent_does_not_answer() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let below = children(burrow.daemon_pid());
    let agents: Vec<_> = below.iter().flat_map(|pid| children(*pid)).collect();
    assert!(!agents.is_empty(), "no agent is to be seen below {below:?}");
    let all = |signal| {
        for pid in below.iter().chain(&agents) {
            kill(*pid, signal).expect("it is ours");
        }
    };
    all(Signal::SIGSTOP);
    let begun = Instant::now();
    let output = burrow.run(&["inspect", "--json", "work"]);
    let took = begun.elapsed();
    all(Signal::SIGCONT);
    let said = text_of(&output.stderr);
    assert!(output.status.success() && said.contains("answer"), "{said}");
    assert!(took < slowed(Duration::from_secs(8)), "{took:?}: {said}");
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&shown["name"], shown.get("agent")), (&json!("work"), None), "{shown}");
    burrow.ok(&["rm", "--force", "work"]);
}

#[test]
fn the_state_of_a_key_is_in_a_column_of_that_name() {
    let burrow = Burrow::new();
    burrow.ok(&["keygen"]);
    let listed = burrow.ok(&["keys", "ls"]);
    let rows: Vec<Vec<_>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0].last(), rows[1].last()), (Some(&"STATE"), Some(&"valid")), "{listed}");
}

#[test]
fn a_notebooks_file_is_not_given_to_python_and_the_way_is_named() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    for verb in
        [&["run", "--", "python3", "x.ipynb"][..], &["exec", "work", "--", "python3.11", "x.ipynb"]]
    {
        let refused = burrow.run(verb);
        let message = text_of(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{verb:?}: {message}");
        assert!(message.contains("`host-bridge repl [SANDBOX] x.ipynb`"), "{verb:?}: {message}");
    }
    burrow.ok(&["rm", "--force", "work"]);
}

#[test]
fn restart_makes_the_sandbox_again_with_the_same_options() {
    let burrow = Burrow::serving();
    burrow.ok(&[
        "start",
        "--name",
        "work",
        "--label",
        "team=a",
        "--hostname",
        "other",
        "-e",
        "A=1",
    ]);
    burrow.ok(&["exec", "work", "--", "sh", "-c", "echo x > /srv/x"]);
    let record = |burrow: &Burrow| -> Value {
        serde_json::from_str(&burrow.ok(&["inspect", "--json", "work"])).expect("JSON")
    };
    let before = record(&burrow);
    let refused = burrow.run(&["restart", "work"]);
    assert_eq!(refused.status.code(), Some(125));
    let stderr = text_of(&refused.stderr);
    assert!(stderr.contains("the values of A are not kept") && stderr.contains("-e A"), "{stderr}");
    assert_eq!(record(&burrow)["id"], before["id"], "it was not touched");
    assert_eq!(burrow.ok(&["restart", "-e", "A=2", "work"]), "work\n");
    let after = record(&burrow);
    assert_ne!(after["id"], before["id"]);
    for same in ["labels", "hostname", "machine", "scratch_bytes", "image", "env_names"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    let found = burrow.ok(&["exec", "work", "--", "sh", "-c", "echo $A; ls /srv/x 2>&1 || true"]);
    assert!(found.starts_with("2\n") && found.contains("No such file"), "{found}");
    burrow.ok(&["stop", "work"]);
    burrow.ok(&["restart", "-e", "A=3", "work"]);
    assert_eq!(record(&burrow)["state"], "running", "one that has stopped too");
    burrow.ok(&["rm", "-f", "work"]);
}

#[test]
fn update_changes_what_is_named_and_nothing_else() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work", "--ttl", "8h", "--idle", "2h"]);
    let record = || -> Value {
        serde_json::from_str(&burrow.ok(&["inspect", "--json", "work"])).expect("JSON")
    };
    let before = record();
    assert_eq!(burrow.ok(&["update", "work", "--ttl", "1h"]), "work\n");
    let after = record();
    // It counts from now on, and the record's time from the creation.
    let at_ms = |record: &Value| record["expires_at_ms"].as_u64().expect("it expires");
    assert!(at_ms(&after) < at_ms(&before), "{after}");
    for same in ["idle_ttl_ms", "egress", "id"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    burrow.ok(&["update", "work", "--ttl", "none", "--idle-ttl", "30m", "--egress", "example.org"]);
    let after = record();
    assert!(after.get("expires_at_ms").is_none_or(Value::is_null), "{after}");
    assert_eq!(
        (&after["idle_ttl_ms"], &after["egress"]),
        (&json!(1_800_000), &json!(["example.org"]))
    );
    // It holds in the sandbox at once.
    let server = burrow.ok(&["exec", "work", "--", "cat", "/etc/resolv.conf"]);
    assert!(server.contains("nameserver 198.18.0.1"), "{server}");
    burrow.ok(&["update", "work", "--no-egress"]);
    let after = record();
    assert!(after.get("egress").is_none_or(|rules| rules == &json!([])), "{after}");
    assert_eq!(after["idle_ttl_ms"], 1_800_000);
    let refused = burrow.run(&["update", "work", "--egress", "http://x"]);
    assert_eq!(refused.status.code(), Some(125), "{}", text_of(&refused.stdout));
    assert!(text_of(&refused.stderr).contains("http://x"), "{}", text_of(&refused.stderr));
    let events = burrow.ok(&["events", "--kind", "changed", "--json"]);
    assert_eq!(events.lines().count(), 3, "{events}");
    let audit = burrow.ok(&["audit", "--json", "--operation", "extend_sandbox"]);
    assert!(audit.contains("\"ttl_ms\":3600000") && audit.contains("example.org"), "{audit}");
    burrow.ok(&["stop", "work"]);
    let refused = burrow.run(&["update", "work", "--ttl", "1h"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(text_of(&refused.stderr).contains("stopped"), "{}", text_of(&refused.stderr));
    burrow.ok(&["rm", "work"]);
}

/// A regression: it asked an index that it could not reach six times, for eight seconds.
#[test]
fn pip_gives_up_at_once_where_nothing_can_be_reached() {
    let burrow = Burrow::serving();
    let retries = ["--", "sh", "-c", "echo $PIP_RETRIES"];
    assert_eq!(burrow.ok(&[&["run"][..], &retries].concat()), "0\n");
    assert_eq!(burrow.ok(&[&["run", "--egress", "example.org"][..], &retries].concat()), "\n");
    assert_eq!(burrow.ok(&[&["run", "-e", "PIP_RETRIES=3"][..], &retries].concat()), "3\n");
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["start", "--name", "wide", "--egress", "example.org"]);
    assert_eq!(burrow.ok(&[&["exec", "work"][..], &retries].concat()), "0\n");
    assert_eq!(burrow.ok(&[&["exec", "wide"][..], &retries].concat()), "\n");
    if burrow.run(&["exec", "work", "--", "python3", "-m", "pip", "--version"]).status.success() {
        for line in [
            &["repl", "work", "-c", "%pip install no-such-thing"][..],
            &["repl", "-c", "%pip install no-such-thing"],
        ] {
            let output = burrow.run(line);
            let said = text_of(&output.stdout) + &text_of(&output.stderr);
            assert!(!said.contains("Retrying"), "{said}");
            assert!(said.contains("--egress @pypi"), "{said}");
        }
    } else {
        skip("the host's Python has no pip");
    }
    burrow.ok(&["rm", "--force", "work", "wide"]);
}

#[test]
fn stats_shows_what_runs() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["start", "--name", "still"]);
    burrow.ok(&["stop", "still"]);
    let table = burrow.ok(&["stats"]);
    assert!(
        table.starts_with("NAME") && table.contains("work") && !table.contains("still"),
        "{table}"
    );
    let rows: Value = serde_json::from_str(&burrow.ok(&["stats", "--json", "work"])).expect("JSON");
    assert_eq!(rows[0]["sandbox"], "work");
    assert!(rows[0]["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{rows}");
    let refused = burrow.run(&["stats", "still"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(text_of(&refused.stderr).contains("not running"), "{}", text_of(&refused.stderr));
    burrow.ok(&["rm", "-f", "work", "still"]);
}

#[test]
fn manual_pages_are_written_and_read() {
    let burrow = Burrow::new();
    let directory = burrow.scratch().join("man/man1");
    burrow.ok(&["man", directory.to_str().expect("UTF-8")]);
    for name in ["host-bridge", "host-bridge-run", "host-bridge-image-build"] {
        assert!(directory.join(format!("{name}.1")).is_file(), "{name}");
    }
    if !have("man") {
        return skip("there is no man here");
    }
    let page = directory.join("host-bridge-run.1");
    let mut man = std::process::Command::new("man");
    let read = man.args(["--warnings", "-l"]).arg(&page).env("MANPAGER", "cat").output();
    let read = read.expect("man runs");
    assert!(text_of(&read.stdout).contains("--timeout"), "{}", text_of(&read.stdout));
    assert_eq!(text_of(&read.stderr), "");
}

#[test]
fn words_of_other_programs_are_understood_and_hidden_verbs_are_not_offered() {
    let burrow = Burrow::new();
    for (word, meant) in [("build", "image build"), ("images", "image ls"), ("psx", "ps")] {
        let output = burrow.run(&[word]);
        let stderr = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(&format!("did you mean {meant}?")), "{word}: {stderr}");
        assert!(!stderr.contains("__"), "{word}: {stderr}");
    }
    let stderr = text_of(&burrow.run(&["bindd"]).stderr);
    assert!(!stderr.contains("__"), "{stderr}");
}

/// A regression: each `inspect` began the idle time again, because the agent's list of sessions is new when
/// a client leaves.
#[test]
fn a_sandbox_that_is_only_looked_at_still_becomes_idle() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "short", "--idle", "2s"]);
    tests::eventually("it has ended", || {
        let seen = burrow.ok(&["inspect", "short", "--json"]);
        let seen: Value = serde_json::from_str(&seen).expect("a record");
        seen["state"] == "stopped" && seen["why"]["expired"]["kind"] == "idle"
    });
}
