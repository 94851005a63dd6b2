//! SSH at a node that does not have the sandbox.

use std::io::Read as _;
use std::process::Stdio;

use nix::sys::signal::Signal;
use tests::fleet::{GRACE, Member, Nats};
use tests::ssh::Ssh;
use tests::{eventually, have_or_skip};

/// A node `n1` with the sandbox `there`, and another one with a door for SSH.
fn open(nats: &Nats) -> Option<(Member, Ssh)> {
    let owner = Member::open(nats, "n1");
    let url = nats.url();
    let ssh = Ssh::without_sandbox(&["--fleet", &url, "--set", "fleet.node=n2", "--set", GRACE])?;
    owner.knows(2);
    eventually("it knows the other", || {
        ssh.ok(&["node", "ls", "--json"]).matches("\"name\"").count() == 2
    });
    owner.start(&["--name", "there"]);
    Some((owner, ssh))
}

fn run(ssh: &Ssh, command: &str) -> (Option<i32>, String, String) {
    let output = ssh.program("ssh", &["there@burrow", command]).output().expect("ssh runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_program_runs_in_a_sandbox_of_another_node() {
    let Some(nats) = Nats::start() else { return };
    let Some((owner, ssh)) = open(&nats) else { return };
    let ran = run(&ssh, "echo out; echo err >&2; exit 7");
    assert_eq!(ran, (Some(7), "out\n".to_owned(), "err\n".to_owned()));
    // The same files as at its own node, both ways.
    owner.server.ok(&["exec", "there", "--", "sh", "-c", "echo home >/tmp/home"]);
    assert_eq!(run(&ssh, "cat /tmp/home").1, "home\n");
    if have_or_skip("scp") {
        let file = ssh.big_file("sent", 2);
        ssh.do_with("scp", &["-q", file.to_str().expect("UTF-8"), "there@burrow:/tmp/sent"]);
        let there = run(&ssh, "sha256sum /tmp/sent").1;
        assert!(there.starts_with(&tests::ssh::digest(&file)), "{there}");
    }
    // Both nodes record it, with the key.
    let own = ssh.ok(&["audit", "--json"]);
    let is_it = |line: &str| line.contains("ssh_exec") && line.contains("\"node\":\"n1\"");
    assert!(own.lines().any(is_it), "{own}");
    let key = ssh.key();
    let is_it = |line: &str| {
        line.contains("fleet_agent") && line.contains(key) && line.contains("\"gateway\":\"n2\"")
    };
    eventually("the owner records who came", || {
        owner.server.ok(&["audit", "--json"]).lines().any(is_it)
    });
}

#[test]
fn a_program_of_another_node_ends_with_its_connection() {
    let Some(nats) = Nats::start() else { return };
    let Some((owner, ssh)) = open(&nats) else { return };
    let mut command = ssh.program("ssh", &["there@burrow", "echo on; exec sleep 4321"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("ssh");
    let mut said = [0; 3];
    child.stdout.as_mut().expect("piped").read_exact(&mut said).expect("its words");
    let running = || {
        let script = "ps ax | grep -c '[s]leep 4321' || true";
        owner.server.ok(&["exec", "there", "--", "sh", "-c", script]).trim() != "0"
    };
    assert!(running());
    child.kill().expect("it is ours");
    child.wait().expect("it was ours");
    eventually("the program is gone", || !running());
}

#[test]
fn a_key_of_another_namespace_learns_what_it_would_of_no_sandbox() {
    let Some(nats) = Nats::start() else { return };
    let Some((_owner, ssh)) = open(&nats) else { return };
    ssh.add_key("other", &["--namespace", "other", "--scope", "run"]);
    let identity = format!("IdentityFile={}", ssh.path("other").display());
    let refused = |user: &str| {
        // Options of the command line go before those of the file.
        let to = format!("{user}@burrow");
        let options = ["-o", "IdentityAgent=none", "-o", &identity, "-i"];
        let path = ssh.path("other");
        let arguments = [&options[..], &[path.to_str().expect("UTF-8"), &to, "true"]].concat();
        let mut command = std::process::Command::new("ssh");
        command.args(["-F", "/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes"]);
        command.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes"]);
        let (host, port) = ssh.address().rsplit_once(':').expect("an address");
        command.args(["-o", &format!("HostName={host}"), "-p", port]).args(&arguments);
        command.env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
        let output = command.output().expect("ssh runs");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), words.contains("Permission denied"))
    };
    assert_eq!(refused("default.there"), (Some(255), true));
    assert_eq!(refused("default.none"), (Some(255), true));
    // In its own namespace no node has that name.
    assert_eq!(refused("there"), (Some(255), false));
}

#[test]
fn a_sandbox_whose_node_is_away_is_refused_with_the_reason() {
    let Some(nats) = Nats::start() else { return };
    let Some((owner, ssh)) = open(&nats) else { return };
    assert_eq!(run(&ssh, "true").0, Some(0));
    owner.signal(Signal::SIGKILL);
    let (code, _, words) = run(&ssh, "true");
    assert!(code == Some(255) && words.contains("n1"), "{words}");
    eventually("it is said to be lost", || run(&ssh, "true").2.contains("lost"));
}
