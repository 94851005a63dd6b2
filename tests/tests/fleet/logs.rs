//! `logs` of a living sandbox from a node that does not have it: the same as at its own.

use std::io::Read;
use std::process::{Child, Output, Stdio};
use std::thread;

use nix::sys::signal::Signal;
use tests::eventually;
use tests::fleet::{Member, Nats, open};

/// Two nodes, the second of which has `work`.
fn with_a_sandbox_there(nats: &Nats) -> Vec<Member> {
    let members = open(nats, 2);
    members[1].start(&["--name", "work"]);
    members
}

fn run_there(members: &[Member], session: &str, script: &str) {
    let argv = ["exec", "-d", "--session", session, "work", "--", "sh", "-c", script];
    members[1].server.ok(&argv);
}

fn text(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// A follower, and what it has printed so far.
struct Follower {
    child: Child,
    printed: std::sync::Arc<std::sync::Mutex<String>>,
    reading: thread::JoinHandle<()>,
}

impl Follower {
    fn begin(member: &Member, more: &[&str]) -> Self {
        let arguments = [&["logs", "-f"], more, &["work"]].concat();
        let mut command = member.server.command(&arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        let printed = std::sync::Arc::<std::sync::Mutex<String>>::default();
        let kept = std::sync::Arc::clone(&printed);
        let reading = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stdout.read(&mut buffer) {
                kept.lock().expect("no panic").push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Self { child, printed, reading }
    }

    fn until(&self, wanted: &str) {
        eventually(wanted, || *self.printed.lock().expect("no panic") == wanted);
    }

    /// Its end, which something else has caused.
    fn end(self) -> (String, Option<i32>) {
        let ended = self.child.wait_with_output().expect("it ends");
        self.reading.join().expect("it ends");
        let (_, words, code) = text(&ended);
        (words, code)
    }
}

#[test]
fn the_log_of_a_sandbox_at_another_node_is_printed_as_at_its_own() {
    let Some(nats) = Nats::start() else { return };
    let members = with_a_sandbox_there(&nats);
    run_there(&members, "build-1", "seq 1 200000; echo last");
    run_there(&members, "check-1", "echo fine; echo wrong >&2; exit 3");
    let all = |options: &[&str]| {
        let arguments = [&["logs"], options, &["work"]].concat();
        [1, 0].map(|at| text(&members[at].server.run(&arguments)))
    };
    eventually("both sessions are recorded", || {
        members[1].server.ok(&["logs", "--json", "work"]).matches("\"event\":\"exited\"").count()
            == 2
    });
    let options: &[&[&str]] = &[
        &[],
        &["--tail", "2"],
        &["--stdout", "--tail", "1"],
        &["--stderr"],
        &["--session", "check"],
        &["--session", "build", "--tail", "3"],
        &["--since", "1h", "--stderr"],
        &["--since", "2999-01-01"],
        &["--json", "--session", "check-1"],
        &["--json", "--tail", "0"],
    ];
    for options in options {
        let [there, here] = all(options);
        assert_eq!(here, there, "{options:?}");
        assert_eq!(here.2, Some(0), "{here:?}");
    }
    // More than one part of what is read at once.
    let [(whole, ..), _] = all(&["--session", "build"]);
    assert!(whole.len() > 1_200_000 && whole.ends_with("200000\nlast\n"), "{}", whole.len());
    for options in [["--session", "nothing"], ["--session", ""]] {
        let [there, here] = all(&options);
        assert_eq!(here, there, "{options:?}");
        assert_ne!(here.2, Some(0), "{here:?}");
    }
    // By its id, and after it has stopped.
    let shown = members[1].server.ok(&["inspect", "--json", "work"]);
    let record: serde_json::Value = serde_json::from_str(&shown).expect("a record");
    let id = record["id"].as_str().expect("an id");
    assert_eq!(members[0].server.ok(&["logs", "--stderr", id]), "");
    members[0].server.ok(&["stop", "work"]);
    let [there, here] = all(&["--tail", "2"]);
    assert_eq!(here, there);
    let (_, words, code) = text(&members[0].server.run(&["logs", "none"]));
    assert!(code != Some(0) && words.contains("none"), "{words}");
}

#[test]
fn a_log_is_followed_at_another_node_until_the_sandbox_stops() {
    let Some(nats) = Nats::start() else { return };
    let members = with_a_sandbox_there(&nats);
    // Before anything is recorded: the first line is not missed.
    let follower = Follower::begin(&members[0], &["--tail", "5"]);
    run_there(&members, "one", "echo one");
    follower.until("one\n");
    let late = Follower::begin(&members[0], &["--tail", "0", "--stdout"]);
    run_there(
        &members,
        "two",
        "echo two; echo not this >&2; while ! [ -e /tmp/go ]; do sleep 0.05; done; echo three",
    );
    follower.until("one\ntwo\n");
    members[0].server.ok(&["exec", "work", "--", "touch", "/tmp/go"]);
    follower.until("one\ntwo\nthree\n");
    eventually("what came after it began is there", || {
        late.printed.lock().unwrap().ends_with("three\n")
    });
    assert!(!late.printed.lock().unwrap().contains("one"));
    members[1].server.ok(&["stop", "work"]);
    let (words, code) = follower.end();
    assert_eq!((words.as_str(), code), ("not this\n", Some(0)));
    assert_eq!(late.end(), (String::new(), Some(0)));
}

#[test]
fn a_follower_at_another_node_says_that_the_sandbox_was_lost_with_its_node() {
    let Some(nats) = Nats::start() else { return };
    let members = with_a_sandbox_there(&nats);
    run_there(&members, "one", "echo one");
    let follower = Follower::begin(&members[0], &[]);
    follower.until("one\n");
    members[1].signal(Signal::SIGKILL);
    let (words, code) = follower.end();
    assert!(words.contains("work was lost with its node n2"), "{words}");
    assert!(code.is_some_and(|code| code != 0), "{words}");
}
