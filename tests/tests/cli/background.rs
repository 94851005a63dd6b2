//! The daemon that starts by itself, and the bridge as one copied file.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tests::own_port::OwnPort;
use tests::{Burrow, agent_path, bridge_path, eventually, skip};

/// Verbs that may start the daemon, which ends with this at the latest.
struct Alone {
    burrow: Burrow,
}

impl Alone {
    fn new() -> Self {
        Self { burrow: Burrow::new() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.burrow.command(arguments);
        command.env_remove("BURROW_NO_DAEMON");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the bridge runs")
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text_of(&output.stderr));
        text_of(&output.stdout)
    }

    fn status(&self) -> Value {
        let output = self.run(&["daemon", "status", "--json"]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.burrow.state().join("daemon.log")).unwrap_or_default()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.run(&["daemon", "stop", "--sandboxes"]);
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Gives a command the environment of another.
fn surround(command: &mut Command, other: &Command) {
    for (name, value) in other.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

#[test]
fn verbs_that_need_the_daemon_at_once_start_one() {
    let alone = Alone::new();
    assert_eq!(alone.status()["running"], false);
    let names: Vec<String> = (0..6).map(|number| format!("w{number}")).collect();
    let starting: Vec<_> = names
        .iter()
        .map(|name| {
            let mut command = alone.command(&["start", "--name", name]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        })
        .collect();
    for (child, name) in starting.into_iter().zip(&names) {
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(text_of(&output.stdout), format!("{name}\n"), "{}", text_of(&output.stderr));
        assert_eq!(text_of(&output.stderr), "", "a script's stderr stays its own");
    }
    let status = alone.status();
    assert_eq!((&status["unattended"], &status["sandboxes"]), (&true.into(), &6.into()));
    assert_eq!(alone.log().matches("listening on").count(), 1, "{}", alone.log());
    assert!(!alone.log().contains("http"), "it serves nobody else: {}", alone.log());

    assert!(alone.ok(&["daemon", "stop"]).contains("6 sandboxes keep running"));
    assert_eq!(alone.status()["running"], false);
    assert_eq!(alone.ok(&["exec", "w3", "--", "echo", "here"]), "here\n", "the next adopts them");
    alone.ok(&["daemon", "stop", "--sandboxes"]);
    assert!(alone.ok(&["ps"]).lines().count() == 1, "they were stopped");
}

#[test]
fn a_daemon_keeps_nothing_of_the_script_that_started_it() {
    let alone = Alone::new();
    let mut command = Command::new("bash");
    // Waiting for the end of this pipe would wait for the daemon.
    let script = "exec 7>&1; host-bridge() { \"$BRIDGE\" \"$@\"; }; host-bridge start --name work";
    command.args(["-c", script]).env("BRIDGE", bridge_path());
    surround(&mut command, &alone.command(&[]));
    let output = command.current_dir(alone.burrow.scratch()).output().expect("bash runs");
    assert_eq!(text_of(&output.stdout), "work\n", "{}", text_of(&output.stderr));
    let pid = alone.status()["pid"].as_u64().expect("a number");
    let place = fs::read_link(format!("/proc/{pid}/cwd")).expect("it lives");
    assert_eq!(place.to_str(), Some("/"));
}

#[test]
fn a_daemon_that_cannot_start_says_why_where_it_was_needed() {
    let alone = Alone::new();
    let output = alone.command(&["ps"]).env("BURROW_SERVER_IDLE_END", "soon").output();
    let output = output.expect("it runs");
    let stderr = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for word in ["could not start", "BURROW_SERVER_IDLE_END", "\"soon\"", "daemon.log"] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
    for refused in [&["--no-daemon", "ps"][..], &["ps", "--no-daemon"]] {
        let output = alone.run(refused);
        assert!(
            text_of(&output.stderr).contains("no bridge serves"),
            "{}",
            text_of(&output.stderr)
        );
    }
    assert_eq!(alone.status()["running"], false, "nothing of it is left");
}

#[test]
fn an_idle_daemon_ends_and_one_with_a_sandbox_stays() {
    let alone = Alone::new();
    let start = |arguments: &[&str]| {
        let mut command = alone.command(arguments);
        let output = command.env("BURROW_SERVER_IDLE_END", "300ms").output().expect("it runs");
        assert!(output.status.success(), "{}", text_of(&output.stderr));
    };
    // Asking keeps it alive, so its socket is checked instead.
    let socket = alone.burrow.runtime().join("control.sock");
    start(&["ps"]);
    eventually("it ends", || !socket.exists());
    eventually("it says so", || alone.log().contains("stopping"));
    start(&["start", "--name", "work"]);
    let pid = alone.status()["pid"].clone();
    // Longer than an idle one would stay.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(socket.exists());
    assert_eq!(alone.status()["pid"], pid);
}

#[test]
fn serve_takes_over_from_the_daemon_that_started_by_itself() {
    let alone = Alone::new();
    alone.ok(&["start", "--name", "work"]);
    let own = alone.status()["pid"].clone();
    let port = OwnPort::claim();
    let listen = format!("127.0.0.1:{}", port.number());
    let log = fs::File::create(alone.burrow.scratch().join("serve.log")).expect("a file");
    let mut serving = alone
        .command(&["serve", "--dev", "--listen", &listen])
        .stderr(log)
        .spawn()
        .expect("it starts");
    // Who asks while one daemon gives way to the other may be cut off.
    let status = || alone.run(&["daemon", "status", "--json"]).stdout;
    let parsed = || serde_json::from_slice::<Value>(&status()).unwrap_or_default();
    eventually("it serves", || parsed()["unattended"] == false);
    assert_ne!(alone.status()["pid"], own);
    assert_eq!(alone.ok(&["exec", "work", "--", "echo", "here"]), "here\n");
    let said_by_serve = fs::read_to_string(alone.burrow.scratch().join("serve.log"));
    assert!(said_by_serve.is_ok_and(|text| text.contains("takes over from the daemon")));
    let second = alone.run(&["serve", "--listen", "off"]);
    assert!(text_of(&second.stderr).contains("another bridge"), "{}", text_of(&second.stderr));
    alone.ok(&["daemon", "stop", "--sandboxes"]);
    assert_eq!(serving.wait().expect("it is ours").code(), Some(0));
}

#[test]
fn a_long_log_of_the_daemon_is_replaced_and_one_earlier_is_kept() {
    const BYTES_MAX: u64 = 4 * 1024 * 1024;
    let alone = Alone::new();
    let log = alone.burrow.state().join("daemon.log");
    let earlier = alone.burrow.state().join("daemon.log.1");
    let length = |path: &std::path::Path| fs::metadata(path).map_or(0, |found| found.len());
    alone.ok(&["ps"]);
    for round in ["first", "second"] {
        // It is as long as it may be, and the next line makes it too long.
        let mut file = fs::OpenOptions::new().append(true).open(&log).expect("the log");
        std::io::Write::write_all(&mut file, round.repeat(BYTES_MAX as usize / 5).as_bytes())
            .expect("there is room");
        alone.ok(&["start", "--name", round]);
        eventually("it is replaced", || length(&log) < BYTES_MAX && length(&earlier) > BYTES_MAX);
        let text = fs::read_to_string(&earlier).expect("text");
        assert!(text.contains(round) && text.len() < 2 * BYTES_MAX as usize, "{round}");
        // The daemon goes on in the new one, which is nobody else's to read.
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&log).expect("a log"));
        assert_eq!(mode & 0o777, 0o600);
        alone.ok(&["stop", round]);
        eventually("its lines are there", || alone.log().contains(round));
    }
    let all = fs::read_dir(alone.burrow.state()).expect("a directory").flatten();
    let logs = all.filter(|entry| entry.file_name().to_string_lossy().starts_with("daemon.log"));
    assert_eq!(logs.count(), 2);
    alone.ok(&["daemon", "stop", "--sandboxes"]);
}

#[test]
fn a_carried_agent_runs_where_no_program_in_memory_may() {
    let burrow = Burrow::new();
    let copy = burrow.scratch().join("host-bridge");
    fs::copy(bridge_path(), &copy).expect("a copy");
    // The setting is one of a PID namespace, and holds for all below it.
    let script = "echo 2 >/proc/sys/vm/memfd_noexec || exit 99; exec \"$0\" run -- echo alone";
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]).arg(&copy);
    surround(&mut command, &burrow.command(&[]));
    command.env_remove("BURROW_AGENT");
    let output = command.output().expect("unshare is there");
    if output.status.code() == Some(99) || text_of(&output.stderr).contains("unshare") {
        return skip("this kernel has no vm.memfd_noexec, or this user may not set it");
    }
    assert_eq!(text_of(&output.stdout), "alone\n", "{}", text_of(&output.stderr));
    let written = fs::read_dir(burrow.state()).expect("a directory").flatten();
    let written = written.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("guest-agent-") && !name.ends_with(".new")
    });
    assert_eq!(written.count(), 1, "the copy is a file of the state directory");
}

#[test]
fn one_copied_file_runs_sandboxes() {
    let burrow = Burrow::new();
    let copy = burrow.scratch().join("host-bridge");
    fs::copy(bridge_path(), &copy).expect("a copy");
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&copy);
        command.args(arguments);
        surround(&mut command, &burrow.command(&[]));
        command.env_remove("BURROW_AGENT");
        command
    };
    let run = |arguments: &[&str]| command(arguments).output().expect("it runs");
    assert!(agent_path().is_file(), "`just build` builds it before the bridge");
    let output = run(&["run", "--", "echo", "alone"]);
    assert_eq!(text_of(&output.stdout), "alone\n", "{}", text_of(&output.stderr));
    let doctor = text_of(&run(&["doctor"]).stdout);
    assert!(doctor.contains("carried by this program"), "{doctor}");
    let refused = command(&["run", "--", "true"]).env("BURROW_AGENT", "/no/such").output();
    let refused = refused.expect("it runs");
    assert!(text_of(&refused.stderr).contains("/no/such"), "a named one is the only one");
}
