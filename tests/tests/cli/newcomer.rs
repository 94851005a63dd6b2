//! What a newcomer meets first: everything that can be wrong with a host, an installation or a
//! command line gives one message that says what to do, and the right code.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::unistd::{Uid, chown};
use portable_pty::{CommandBuilder, PtyPair, PtySize, native_pty_system};
use serde_json::Value;
use tests::small_disk::SmallDisk;
use tests::{Burrow, agent_path, bridge_path, eventually, have, skip};

/// An ordinary user, who need not exist.
const USER: u32 = 1000;

fn is_root() -> bool {
    Uid::effective().is_root()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// One line for people, with what they need to know, and the code of our own failures.
fn assert_reported(output: &Output, words: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
    assert!(stderr.starts_with("host-bridge: "), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_eq!(text(&output.stdout), "", "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in {stderr:?}");
    }
}

/// The same for a command line that is wrong in itself; clap adds a line on help.
fn assert_usage(output: &Output, words: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in {stderr:?}");
    }
}

/// A place where an ordinary user finds both programs and may keep things.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::TempDir::with_prefix("burrow-").expect("a directory");
        for (from, name) in [(bridge_path(), "host-bridge"), (agent_path(), "guest-agent")] {
            fs::copy(from, dir.path().join(name)).expect("a copy");
        }
        for name in ["run", "state", "home"] {
            let path = dir.path().join(name);
            fs::create_dir(&path).expect("a directory");
            if is_root() {
                chown(&path, Some(USER.into()), Some(USER.into())).expect("root may");
            }
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn bridge(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("host-bridge"));
        command.args(arguments).stdin(Stdio::null()).current_dir("/");
        self.surround(&mut command);
        if is_root() {
            command.uid(USER).gid(USER);
        }
        command
    }

    fn surround(&self, command: &mut Command) {
        command
            .env_remove("BURROW_AGENT")
            .env("HOME", self.path("home"))
            .env("BURROW_NO_DAEMON", "1")
            .env("BURROW_RUNTIME_DIR", self.path("run"))
            .env("BURROW_STATE_DIR", self.path("state"));
    }
}

#[test]
fn an_ordinary_user_needs_no_rights_to_run_a_command() {
    let home = Home::new();
    let script = "id -u; echo mine > /file && cat /file; test -w / && echo writable";
    let output = home.bridge(&["run", "--", "sh", "-c", script]).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).ends_with("mine\nwritable\n"), "{}", text(&output.stdout));

    let mut daemon = home.bridge(&["serve"]).stderr(Stdio::null()).spawn().expect("it starts");
    let run = |arguments: &[&str]| home.bridge(arguments).output().expect("it runs");
    eventually("the daemon answers", || run(&["ps"]).status.success());
    assert_eq!(text(&run(&["start", "--name", "work"]).stdout), "work\n");
    assert_eq!(text(&run(&["exec", "work", "--", "echo", "hello"]).stdout), "hello\n");
    assert!(run(&["rm", "-f", "work"]).status.success());
    daemon.kill().expect("it is ours");
    daemon.wait().expect("it was ours");
}

#[test]
fn without_user_namespaces_an_ordinary_user_learns_what_to_change() {
    if !is_root() || !have("unshare") || !have("chroot") {
        return skip("only root, with unshare and chroot, can take user namespaces away");
    }
    let home = Home::new();
    let view = home.path("view");
    fs::create_dir(&view).expect("a directory");
    // In a root that is not the mount namespace's, the kernel makes no user namespaces.
    let script =
        format!("mount --rbind / \"$1\" && shift && exec chroot --userspec={USER}:{USER} \"$@\"");
    for arguments in [&["run", "--", "true"][..], &["doctor"]] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]).arg(&view).arg(&view);
        command.arg(home.path("host-bridge")).args(arguments).stdin(Stdio::null());
        home.surround(&mut command);
        let output = command.output().expect("it runs");
        if arguments[0] == "run" {
            assert_reported(&output, &["user namespace", "root", "kernel."]);
        } else {
            assert_eq!(output.status.code(), Some(1));
            let answer = text(&output.stdout);
            assert!(answer.contains("FAIL  user namespaces"), "{answer}");
            assert!(answer.contains("cannot run sandboxes"), "{answer}");
        }
    }
}

#[test]
fn a_directory_that_cannot_be_a_root_is_refused_with_the_reason() {
    let burrow = Burrow::new();
    let file = burrow.scratch().join("image.img");
    fs::write(&file, "").expect("it is ours");
    let file = file.to_str().expect("UTF-8");
    for (image, words) in [
        ("/no/such/directory", &["/no/such/directory", "No such file"][..]),
        (file, &[file, "not a directory"]),
        // No overlay can be made over it.
        ("/proc/sys", &["overlay", "/proc/sys", "use a directory on"]),
    ] {
        assert_reported(&burrow.run(&["run", "--image", image, "--", "true"]), words);
    }
    let empty = burrow.scratch().join("empty");
    fs::create_dir(&empty).expect("a directory");
    let output = burrow.run(&["run", "--image", empty.to_str().expect("UTF-8"), "--", "true"]);
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
}

#[test]
fn a_missing_or_unusable_agent_is_reported_as_such() {
    let burrow = Burrow::new();
    let garbage = burrow.scratch().join("garbage");
    fs::write(&garbage, "#!/bin/sh\necho no frame at all >&0\nexec sleep 60\n")
        .expect("it is ours");
    fs::set_permissions(&garbage, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let garbage = garbage.to_str().expect("UTF-8");
    let data = burrow.scratch().join("data");
    fs::write(&data, "no program").expect("it is ours");
    let data = data.to_str().expect("UTF-8");
    let run = |agent: &str, arguments: &[&str]| {
        burrow.command(arguments).env("BURROW_AGENT", agent).output().expect("it runs")
    };
    for (agent, words) in [
        (
            "/no/such/agent",
            &["guest-agent was not found", "/no/such/agent", "./do build", "BURROW_AGENT"][..],
        ),
        ("/etc", &["guest-agent was not found", "/etc: not a file"]),
        (data, &[data, "not executable"]),
        ("/bin/true", &["exited with 0", "host-bridge doctor"]),
        ("/bin/cat", &["exited with 1", "launch", "host-bridge doctor"]),
        (garbage, &["frame", "host-bridge doctor"]),
    ] {
        assert_reported(&run(agent, &["run", "--", "true"]), words);
    }
    let doctor = run("/no/such/agent", &["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(text(&doctor.stdout).contains("FAIL  agent"), "{}", text(&doctor.stdout));
}

#[test]
fn a_daemon_whose_agent_is_none_says_so_and_keeps_nothing_of_the_attempt() {
    let burrow = Burrow::new();
    let mut daemon = burrow
        .command(&["serve"])
        .env("BURROW_AGENT", "/bin/cat")
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    eventually("the daemon answers", || burrow.run(&["ps"]).status.success());
    assert_reported(&burrow.run(&["start", "--name", "work"]), &["launch", "host-bridge doctor"]);
    assert_eq!(burrow.ok(&["ps", "--all", "--quiet"]), "");
    for parent in [burrow.runtime(), burrow.state()] {
        let left = fs::read_dir(parent.join("boxes")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "in {}", parent.display());
    }
    daemon.kill().expect("it is ours");
    daemon.wait().expect("it was ours");
}

#[test]
fn every_verb_that_may_not_start_the_daemon_it_needs_says_how_it_starts() {
    let burrow = Burrow::new();
    for arguments in [
        &["ps"][..],
        &["start", "--name", "work"],
        &["exec", "work", "--", "true"],
        &["attach", "work", "--session", "x"],
        &["inspect", "work"],
        &["stop", "work"],
        &["kill", "work"],
        &["update", "work", "--ttl", "1h"],
        &["rm", "work"],
        &["cp", "work:/etc/hostname", "-"],
        &["port-forward", "work", "0:80"],
    ] {
        assert_reported(&burrow.run(arguments), &["no bridge serves", "omit --no-daemon"]);
    }
    assert_reported(&burrow.run(&["logs", "work"]), &["there is no sandbox work"]);
    assert!(burrow.ok(&["version"]).contains("no daemon"));
    assert_eq!(burrow.ok(&["run", "--", "echo", "hello"]), "hello\n", "this one needs none");
}

#[test]
fn a_place_that_cannot_be_used_is_named_with_the_variable_that_moves_it() {
    let home = Home::new();
    let locked = home.path("locked");
    fs::create_dir(&locked).expect("a directory");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).expect("it is ours");
    let below = locked.join("run");
    let file = home.path("file");
    fs::write(&file, "").expect("it is ours");
    let long = home.path("home").join("x".repeat(90));
    for (variable, value, words) in [
        ("BURROW_RUNTIME_DIR", below.as_path(), &["Permission denied"][..]),
        ("BURROW_STATE_DIR", below.as_path(), &["Permission denied"]),
        ("BURROW_RUNTIME_DIR", file.as_path(), &["not a directory"]),
        ("BURROW_RUNTIME_DIR", long.as_path(), &["bytes", "shorter"]),
        ("BURROW_RUNTIME_DIR", Path::new("relative/path"), &["not an absolute path"]),
    ] {
        let output = home.bridge(&["serve"]).env(variable, value).output().expect("it runs");
        assert_reported(&output, &[&[variable], words].concat());
    }
    let mut command = home.bridge(&["serve"]);
    command.env_remove("BURROW_STATE_DIR").env_remove("HOME").env_remove("XDG_STATE_HOME");
    if is_root() {
        assert_reported(&command.output().expect("it runs"), &["BURROW_STATE_DIR", "HOME"]);
        let root = home.path("roots");
        fs::create_dir(&root).expect("a directory");
        let output = home.bridge(&["serve"]).env("BURROW_STATE_DIR", &root).output();
        assert_reported(&output.expect("it runs"), &["belongs to user 0", "BURROW_STATE_DIR"]);
    }
}

#[test]
fn a_full_disk_refuses_a_start_with_its_reason_and_keeps_no_part_of_it() {
    let mut burrow = Burrow::new();
    let Some(disk) = SmallDisk::mount_or_skip(&burrow.state(), 1024) else { return };
    burrow.serve();
    let filler = disk.fill();
    let output = burrow.run(&["start", "--name", "work"]);
    assert_reported(&output, &["No space left on device", burrow.state().to_str().expect("UTF-8")]);
    assert_eq!(burrow.ok(&["ps", "--all", "--quiet"]), "");
    assert_eq!(burrow.ok(&["run", "--", "echo", "hello"]), "hello\n", "it needs no disk");
    filler.remove();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["rm", "-f", "work"]);
    burrow.end_daemon();
}

#[test]
fn a_disk_that_fills_stops_no_program_and_the_log_names_what_is_missing() {
    let mut burrow = Burrow::new();
    let Some(disk) = SmallDisk::mount_or_skip(&burrow.state(), 2048) else { return };
    burrow.serve();
    burrow.ok(&["start", "--name", "work"]);
    let filler = disk.fill();
    let script = ["exec", "--session", "big", "work", "--", "seq", "1", "300000"];
    let whole = burrow.run(&script);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    assert!(whole.stdout.ends_with(b"300000\n"));
    let log = || fs::read_to_string(burrow.scratch().join("serve.log")).expect("a log");
    eventually("the daemon says so", || log().contains("No space left on device"));
    filler.remove();
    // The end of the session was waiting for room.
    let entries = || burrow.ok(&["logs", "--json", "work"]);
    eventually("the end is recorded", || entries().contains("\"exited\""));
    let gaps = entries().lines().filter(|line| line.contains("\"event\":\"gap\"")).count();
    assert!(gaps <= 2, "one for the disk, and one for what came while it had little room: {gaps}");
    let counted: u64 = entries()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .map(|entry| match entry["event"].as_str() {
            Some("output") => entry["text"].as_str().expect("text").len() as u64,
            Some("gap") => {
                entry["to"].as_u64().expect("a number") - entry["from"].as_u64().expect("a number")
            }
            _ => 0,
        })
        .sum();
    assert_eq!(counted, whole.stdout.len() as u64, "recorded or named as missing");
    let plain = burrow.run(&["logs", "work"]);
    assert!(text(&plain.stderr).contains("were not recorded"), "{}", text(&plain.stderr));
    burrow.ok(&["rm", "-f", "work"]);
    burrow.end_daemon();
}

#[test]
fn a_closed_stdout_is_no_failure_and_a_missing_terminal_is_reported() {
    let burrow = Burrow::new();
    for arguments in ["version", "run -- echo hello", "doctor", "completions bash"] {
        let script = format!("{} {arguments} >&-", bridge_path().display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("BURROW_AGENT", agent_path());
        command.env("BURROW_RUNTIME_DIR", burrow.runtime()).env("BURROW_STATE_DIR", burrow.state());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{arguments}");
    }
    assert_reported(&burrow.run(&["run", "-it", "--", "sh"]), &["terminal", "omit -t"]);
    assert_reported(&burrow.run(&["attach", "work"]), &["a shell needs a terminal", "exec -i"]);
}

#[test]
fn a_terminal_that_is_closed_ends_the_program_on_it() {
    let burrow = Burrow::new();
    let size = PtySize { rows: 24, cols: 80, ..PtySize::default() };
    let PtyPair { slave, master } = native_pty_system().openpty(size).expect("a terminal");
    let mut command = CommandBuilder::new(bridge_path());
    command.args(["run", "-it", "--name", "closing", "--"]);
    // Printed in two parts, so that no echo of the command line looks like it.
    command.args(["sh", "-c", "echo rea''dy; trap '' HUP; sleep 1000"]);
    command.env("BURROW_AGENT", agent_path());
    command.env("BURROW_RUNTIME_DIR", burrow.runtime());
    command.env("BURROW_STATE_DIR", burrow.state());
    let mut child = slave.spawn_command(command).expect("it starts");
    drop(slave);
    let mut screen = master.try_clone_reader().expect("the terminal can be read");
    let (mut seen, mut piece) = (Vec::new(), [0; 1024]);
    while !seen.windows(5).any(|seen| seen == b"ready") {
        let count = screen.read(&mut piece).expect("the terminal is there");
        assert!(count > 0, "it ended at once: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..count]);
    }
    drop((screen, master));
    let mut ended = None;
    eventually("the bridge ends with its terminal", || {
        ended = child.try_wait().expect("it is ours");
        ended.is_some()
    });
    // It sees the hang-up, or a failing write: either comes first.
    let ended = ended.expect("it has ended");
    assert!(ended.signal().is_none() && [129, 141].contains(&ended.exit_code()), "{ended}");
}

#[test]
fn mistyped_commands_get_a_suggestion() {
    let burrow = Burrow::new();
    for (arguments, words) in [
        (&["start", "--name", "../etc"][..], &["is not a name", "letters, digits"][..]),
        (&["run", "--name", "a b", "--", "true"], &["\"a b\" is not a name"]),
        (&["inspect", "a/b/c"], &["is not a name"]),
        (&["run", "--timeout", "soon", "--", "true"], &["is not a duration", "90s"]),
        (&["run", "--timeout", "1m30", "--", "true"], &["is not a duration"]),
        (&["run", "--scratch", "5Q", "--", "true"], &["is not a size", "512M"]),
        (&["run", "--scratch", "1K", "--", "true"], &["--scratch", "from 1.0 MiB", "not 1.0 KiB"]),
        (&["run", "--machine", "toaster", "--", "true"], &["process", "external"]),
        (&["run", "-e", "=x", "--", "true"], &["is not a variable", "NAME=VALUE"]),
        (&["logs", "--since", "whenever", "work"], &["is not a point in time", "10m"]),
        (&["kill", "-s", "NOPE", "work"], &["is not a signal", "TERM"]),
        (&["port-forward", "work", "http"], &["is not a port forwarding", "8080:80"]),
        (&["cp", "here", "there"], &["neither end", "SANDBOX:/path"]),
        (&["run"], &["COMMAND"]),
        (&["frobnicate"], &["unknown verb frobnicate", "`host-bridge --help`"]),
        (&["buidl"], &["unknown verb buidl", "did you mean image build?"]),
        (&["rnu", "--", "true"], &["unknown verb rnu", "did you mean run?"]),
        (&["image", "sl"], &["unknown verb image sl", "did you mean image ls?"]),
        (&["image", "ls", "--jsn"], &["unknown option --jsn", "did you mean --json?"]),
        (&["--no-deamon", "ps"], &["unknown option --no-deamon", "did you mean --no-daemon?"]),
        (&["run", "--env-file", "/no/such", "--", "true"], &["/no/such"]),
    ] {
        let output = burrow.run(arguments);
        assert_usage(&output, words);
        let stderr = text(&output.stderr);
        assert!(!stderr.contains("\n\n\n"), "two blank lines: {stderr:?}");
    }
}

#[test]
fn json_is_json_whatever_is_asked() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    // No text in any encoding.
    let bytes = burrow.run(&["exec", "work", "--", "printf", "\\377\\000\"\\n"]);
    assert_eq!(bytes.stdout, b"\xff\0\"\n");
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let started = parse(&burrow.ok(&["start", "--name", "json", "--json"]));
    assert_eq!(started["name"], "json");
    assert_eq!(parse(&burrow.ok(&["ps", "--json"])).as_array().map(Vec::len), Some(2));
    assert_eq!(parse(&burrow.ok(&["inspect", "--json", "work"]))["state"], "running");
    let version = parse(&burrow.ok(&["version", "--json"]));
    assert_eq!(version["daemon"]["pid"], burrow.daemon_pid().as_raw());
    let doctor = parse(&burrow.ok(&["doctor", "--json"]));
    assert_eq!(doctor["process_machine_works"], true);
    let checks = doctor["checks"].as_array().expect("a list");
    let check = |name: &str| checks.iter().find(|check| check["name"] == name).expect("a check");
    assert_eq!(check("daemon")["verdict"], "works");
    // It says what sandboxes have, not what the host could have.
    let agent = &parse(&burrow.ok(&["inspect", "--json", "work"]))["agent"];
    let has_groups = agent["cgroup_missing"].is_null()
        && ["cpu", "memory", "pids"].iter().all(|wanted| {
            agent["controllers"].as_array().is_some_and(|there| there.iter().any(|c| c == wanted))
        });
    let verdict = if has_groups { "works" } else { "lacks" };
    assert_eq!(check("control groups")["verdict"], verdict);
    // Whole sandboxes may be held to what they were granted where sessions in them are not.
    let bounded = ["start", "--name", "bounded", "--memory", "64", "--cpus", "0.5", "--json"];
    let bounded = parse(&burrow.ok(&bounded));
    if !has_groups && bounded["warnings"].as_array().is_none_or(Vec::is_empty) {
        let output = check("control groups")["fix"].as_str().expect("what to do");
        assert!(output.contains("limits on memory and cpu apply to whole sandboxes"), "{output}");
    }
    eventually("the output is recorded", || {
        burrow.ok(&["logs", "--json", "work"]).lines().any(|line| {
            let entry = parse(line);
            entry["event"] == "output" && entry["lossy"] == true
        })
    });
}

#[test]
fn help_teaches_with_examples_and_completions_are_there() {
    let burrow = Burrow::new();
    let help = burrow.ok(&["--help"]);
    let verbs: Vec<&str> = help
        .split("\nOptions:")
        .next()
        .expect("a list")
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(verbs.len() >= 35, "{verbs:?}");
    for verb in verbs {
        let help = burrow.ok(&[verb, "--help"]);
        let examples = help.split("Examples:").nth(1).unwrap_or_default();
        assert!(examples.contains(&format!("host-bridge {verb}")), "{verb}: {help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = burrow.ok(&["completions", shell]);
        assert!(script.contains("HOST_BRIDGE_COMPLETE"), "{shell}: {script}");
    }
    let output = burrow.run(&["completions", "tcsh-of-old"]);
    assert_usage(&output, &["bash", "zsh", "fish"]);
}
