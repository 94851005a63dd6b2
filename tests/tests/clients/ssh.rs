//! OpenSSH's client at the door for SSH: programs, terminals, many at once, ports, and sandboxes that sleep.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;
use tests::own_port::OwnPort;
use tests::ssh::{Background, Ssh, digest};
use tests::tmux::Tmux;
use tests::{Burrow, eventually, have_or_skip, resident_bytes, skip};

const MIB: u64 = 1 << 20;

#[test]
fn a_command_has_its_outputs_apart_and_its_exit_code() {
    let Some(ssh) = Ssh::open() else { return };
    let output = ssh.run("echo out; echo err >&2; exit 3");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    for code in [0, 1, 127, 254] {
        assert_eq!(ssh.run(&format!("exit {code}")).status.code(), Some(code));
    }
    assert_eq!(ssh.run("no-such-program-here").status.code(), Some(127));
    // It has the words of its command as they are.
    assert_eq!(ssh.say(r#"printf '%s|' "a b" '$HOME' "ü""#), "a b|$HOME|ü|");
}

#[test]
fn a_death_by_a_signal_is_reported_as_ssh_does() {
    let Some(ssh) = Ssh::open() else { return };
    let output = ssh.ssh(&["-v"], "kill -TERM $$").output().expect("ssh runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{words}");
    assert!(words.contains("rtype exit-signal"), "{words}");
}

#[test]
fn variables_of_the_client_reach_the_program() {
    let Some(ssh) = Ssh::open() else { return };
    let mut command = ssh.ssh(&["-o", "SendEnv=LC_*"], "echo $LC_BURROW-$LC_OTHER-$HIDDEN");
    let command = command.env("LC_BURROW", "one two").env("LC_OTHER", "ü").env("HIDDEN", "x");
    let output = command.output().expect("ssh runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one two-ü-\n");
}

#[test]
fn programs_end_with_their_connection() {
    let Some(ssh) = Ssh::open() else { return };
    let mut child =
        ssh.ssh(&[], "echo on; exec sleep 4321").stdout(Stdio::piped()).spawn().expect("ssh");
    let mut said = [0; 3];
    child.stdout.as_mut().expect("piped").read_exact(&mut said).expect("its words");
    let running = || ssh.say("ps ax | grep -c '[s]leep 4321' || true").trim() != "0";
    assert!(running());
    child.kill().expect("it is ours");
    child.wait().expect("it was ours");
    eventually("the program is gone", || !running());
}

#[test]
fn megabytes_go_through_a_program_both_ways() {
    let Some(ssh) = Ssh::open() else { return };
    let (sent, back) = (ssh.big_file("sent", 64), ssh.path("back"));
    let status = ssh
        .ssh(&[], "cat")
        .stdin(File::open(&sent).expect("it is there"))
        .stdout(File::create(&back).expect("a file"))
        .status()
        .expect("ssh runs");
    assert!(status.success());
    assert_eq!(digest(&back), digest(&sent));
}

#[test]
fn a_client_that_takes_nothing_does_not_grow_the_bridge_and_goes_on_when_it_does() {
    let Some(ssh) = Ssh::open() else { return };
    ssh.say("true");
    let before = resident_bytes(ssh.daemon_pid()).expect("it runs");
    // Its stdout is full at once, so the program stops, and so does what is sent to it.
    let sent = ssh.big_file("sent", 96);
    let stdin = File::open(&sent).expect("it is there");
    let mut child = ssh.ssh(&[], "cat").stdin(stdin).stdout(Stdio::piped()).spawn().expect("ssh");
    let offset = |child: &std::process::Child| {
        let info = fs::read_to_string(format!("/proc/{}/fdinfo/0", child.id())).unwrap_or_default();
        info.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse::<u64>().ok())
    };
    let mut seen = (offset(&child), 0);
    eventually("it stops", || {
        let now = offset(&child);
        // Looks at ten of them, a hundredth of a second apart, find the same.
        seen = if now == seen.0 && now > Some(0) { (now, seen.1 + 1) } else { (now, 0) };
        seen.1 > 50
    });
    assert!(seen.0 < Some(64 * MIB), "{seen:?}");
    let grown = resident_bytes(ssh.daemon_pid()).expect("it runs").saturating_sub(before);
    assert!(grown < 48 * MIB, "{grown} bytes");
    // Others are served meanwhile.
    assert_eq!(ssh.say("echo other"), "other\n");
    let mut stdout = child.stdout.take().expect("piped");
    let back = ssh.path("back");
    std::io::copy(&mut stdout, &mut File::create(&back).expect("a file")).expect("all of it");
    assert!(child.wait().expect("ssh ends").success());
    assert_eq!(digest(&back), digest(&sent));
}

#[test]
fn many_sessions_share_one_connection_and_one_login() {
    let Some(ssh) = Ssh::open() else { return };
    let socket = ssh.path("master");
    let socket = socket.to_str().expect("UTF-8");
    let master =
        ssh.program("ssh", &["-M", "-N", "-S", socket, "box@burrow"]).spawn().expect("ssh");
    let _master = Background(master);
    eventually("the master listens", || fs::metadata(socket).is_ok());
    let shared = |command: &str| ssh.ssh(&["-S", socket], command);
    let slow: Vec<_> = (0..8)
        .map(|_| shared("read line; echo got $line"))
        .map(|mut command| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn())
        .map(|child| child.expect("ssh runs"))
        .collect();
    assert!(shared("exit 0").status().expect("ssh runs").success());
    for (number, mut child) in slow.into_iter().enumerate() {
        let mut stdin = child.stdin.take().expect("piped");
        writeln!(stdin, "{number}").expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("got {number}\n"));
    }
    let count = |operation| records(&ssh, operation).len();
    assert_eq!(count("ssh_login"), 1);
    eventually("all are recorded", || count("ssh_exec") == 9);
}

/// Of the audit log.
fn records(ssh: &Ssh, operation: &str) -> Vec<Value> {
    let text = ssh.ok(&["audit", "--operation", operation, "--json"]);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn what_is_done_over_ssh_is_in_the_audit_log() {
    let Some(ssh) = Ssh::open() else { return };
    ssh.say("true");
    eventually("it is recorded", || !records(&ssh, "ssh_exec").is_empty());
    let record = &records(&ssh, "ssh_exec")[0];
    assert_eq!(record["door"], "ssh");
    assert_eq!(record["who"]["id"], ssh.key());
    assert_eq!((&record["sandbox"], &record["program"]), (&"box".into(), &"sh".into()));
    assert!(record["remote"].as_str().is_some_and(|remote| remote.starts_with("127.0.0.1:")));
    assert_eq!(records(&ssh, "ssh_login")[0]["outcome"], "ok");
}

#[test]
fn a_terminal_follows_its_window() {
    let Some(ssh) = Ssh::open() else { return };
    let Some(tmux) = Tmux::of_size(&ssh, 100, 30) else { return };
    tmux.line(&format!("ssh -F {} box@burrow", ssh.config().display()));
    tmux.line("stty size; echo $TERM; tty | grep -c pts");
    tmux.wait_for("30 100\ntmux-256color\n1");
    tmux.resize(91, 21);
    tmux.line("stty size");
    tmux.wait_for("21 91");
    // A key that a terminal turns into a signal.
    tmux.line("echo begun; sleep 1000");
    tmux.wait_for("begun\n");
    tmux.keys(&["C-c"]);
    tmux.wait_until("the shell waits again", |screen| screen.contains("^C") && ends(screen, "#"));
    tmux.line("exit 7");
    tmux.wait_until("the connection has ended", |screen| ends(screen, "ready>"));
    tmux.line("echo ended $?");
    tmux.wait_for("ended 7");
}

fn ends(screen: &str, prompt: &str) -> bool {
    screen.trim_end().ends_with(prompt)
}

#[test]
fn a_terminal_can_be_had_without_one() {
    let Some(ssh) = Ssh::open() else { return };
    let output =
        ssh.ssh(&["-tt"], "test -t 0 && test -t 1 && echo a terminal").output().expect("ssh");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a terminal\r\n");
}

#[test]
fn a_port_of_the_sandbox_is_reached_and_no_other() {
    let Some(ssh) = Ssh::open() else { return };
    if !have_or_skip("python3") {
        return;
    }
    let inside = OwnPort::claim();
    let here = OwnPort::claim();
    let other = OwnPort::claim();
    let (near, far) = (here.number(), inside.number());
    let serve = format!(
        "mkdir -p /tmp/www; cd /tmp/www; echo hello > a; exec python3 -m http.server {far}"
    );
    let _server = Background(
        ssh.ssh(&[], &serve).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ssh"),
    );
    let lead = format!("127.0.0.1:{near}:localhost:{far}");
    let astray = format!("127.0.0.1:{}:192.0.2.1:80", other.number());
    let forward = ssh.program("ssh", &["-N", "-L", &lead, "-L", &astray, "box@burrow"]);
    let _forward = Background({ forward }.stderr(Stdio::null()).spawn().expect("ssh"));
    let ask = |port: u16| -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.write_all(b"GET /a HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    };
    let mut answer = None;
    eventually("the server inside answers", || {
        answer = ask(near).filter(|answer| !answer.is_empty());
        answer.is_some()
    });
    let answer = answer.expect("it answered");
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("\r\nhello\n"), "{answer}");
    assert!(ask(other.number()).is_none_or(|answer| answer.is_empty()));
}

#[test]
fn fifty_connections_are_served_at_once() {
    let Some(ssh) = Ssh::open() else { return };
    let children: Vec<_> = (0..50)
        .map(|number| ssh.ssh(&[], &format!("read line; echo {number}$line")))
        .map(|mut command| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn())
        .map(|child| child.expect("ssh runs"))
        .collect();
    for (number, mut child) in children.into_iter().enumerate() {
        child.stdin.take().expect("piped").write_all(b"!\n").expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{number}!\n"));
    }
}

#[test]
fn a_login_wakes_a_sandbox_that_sleeps() {
    let Some(ssh) = Ssh::open() else { return };
    let started =
        Burrow::run(&ssh, &["start", "--name", "lazy", "--idle", "500ms", "--on-idle", "pause"]);
    if !started.status.success() {
        let said = String::from_utf8_lossy(&started.stderr);
        assert!(said.contains("freez"), "{said}");
        return skip(&said);
    }
    eventually("it sleeps", || ssh.ok(&["ps"]).contains("paused (idle)"));
    assert_eq!(ssh.do_with("ssh", &["lazy@burrow", "echo awake"]), "awake\n");
    let woke = |record: &Value| record["sandbox"] == "lazy" && record["facts"]["woke_ms"].is_u64();
    eventually("it is recorded", || records(&ssh, "ssh_exec").iter().any(woke));
}

#[test]
fn a_sandbox_that_is_not_there_is_named() {
    let Some(ssh) = Ssh::open() else { return };
    let output = ssh.program("ssh", &["nobody@burrow", "true"]).output().expect("ssh runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(255));
    assert!(words.contains("host-bridge: there is no sandbox nobody"), "{words}");
}
