//! Who is refused at the door for SSH, and what it costs the bridge.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::ssh::Ssh;
use tests::{PATIENCE, eventually, resident_bytes};

/// `ssh` with another key.
fn with_key(ssh: &Ssh, key: &str, user: &str) -> Output {
    let key = format!("IdentityFile={}", ssh.path(key).display());
    // What is given first counts.
    let options = ["-o", &key, "-o", "PasswordAuthentication=no", user, "echo in"];
    let config = std::fs::read_to_string(ssh.config()).expect("a configuration");
    let lines = config.split_inclusive('\n');
    let other: String = lines.filter(|line| !line.contains("IdentityFile")).collect();
    let path = ssh.path("other-config");
    std::fs::write(&path, other).expect("written");
    let mut command = std::process::Command::new("ssh");
    command.arg("-F").arg(path).args(options).env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
    command.output().expect("ssh runs")
}

fn is_refused(output: &Output) {
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{words}");
    assert!(words.contains("Permission denied (publickey)"), "{words}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_key_opens_only_what_it_covers_and_the_others_are_all_refused_alike() {
    let Some(ssh) = Ssh::open() else { return };
    ssh.draw_key("unknown");
    ssh.add_key("theirs", &["--namespace", "team"]);
    ssh.add_key("reader", &["--scope", "read"]);
    ssh.add_key("operator", &["--namespace", "*", "--scope", "admin"]);
    for (key, user) in [
        ("unknown", "box@burrow"),
        ("theirs", "default.box@burrow"),
        ("reader", "box@burrow"),
        ("id", "team.box@burrow"),
        ("id", "no/name@burrow"),
        ("operator", "a.b.c@burrow"),
    ] {
        is_refused(&with_key(&ssh, key, user));
    }
    for (key, user) in
        [("id", "box@burrow"), ("id", "default.box@burrow"), ("operator", "box@burrow")]
    {
        assert_eq!(with_key(&ssh, key, user).stdout, b"in\n", "{key} {user}");
    }
    // The same name in the namespace of another key is another sandbox.
    let other = with_key(&ssh, "theirs", "box@burrow");
    let words = String::from_utf8_lossy(&other.stderr);
    assert!(words.contains("there is no sandbox team/box"), "{words}");
    let text = ssh.ok(&["audit", "--operation", "ssh_login", "--outcome", "refused", "--json"]);
    let record: Value = serde_json::from_str(text.lines().next().expect("a record")).expect("JSON");
    assert_eq!((&record["who"]["kind"], &record["door"]), (&"anybody".into(), &"ssh".into()));
}

#[test]
fn a_revoked_key_ends_its_connections_within_seconds() {
    let Some(ssh) = Ssh::open() else { return };
    let mut child = ssh
        .ssh(&[], "echo on; exec sleep 1000")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ssh runs");
    let mut said = [0; 3];
    child.stdout.as_mut().expect("piped").read_exact(&mut said).expect("its words");
    ssh.ok(&["keys", "revoke", ssh.key()]);
    let since = Instant::now();
    eventually("the connection ends", || child.try_wait().expect("it is ours").is_some());
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let output = child.wait_with_output().expect("it has ended");
    assert_eq!(output.status.code(), Some(255));
    is_refused(&ssh.run("true"));
    // It can be given to another key now, and taken from that.
    let issued: Value = serde_json::from_str(&ssh.ok(&["keygen", "--json"])).expect("JSON");
    let id = issued["id"].as_str().expect("an id");
    let public = ssh.path("id.pub");
    ssh.ok(&["keys", "add-ssh", id, public.to_str().expect("UTF-8")]);
    assert_eq!(ssh.say("echo back"), "back\n");
    ssh.ok(&["keys", "rm-ssh", id]);
    eventually("it is refused again", || !ssh.run("true").status.success());
}

#[test]
fn who_tries_too_many_keys_is_cut_off() {
    let Some(ssh) = Ssh::open() else { return };
    let mut options = Vec::new();
    for number in 0..9 {
        let key = ssh.draw_key(&format!("wrong{number}"));
        options.push("-i".to_owned());
        options.push(key.to_str().expect("UTF-8").to_owned());
    }
    let mut arguments: Vec<_> = options.iter().map(String::as_str).collect();
    // The good one is tried last, and too late.
    let config = ssh.config();
    arguments.extend(["-v", "-o", "IdentityFile=none", "box@burrow", "true"]);
    let _ = config;
    let output = ssh.program("ssh", &arguments).output().expect("ssh runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{words}");
    assert!(words.contains("Too many authentication attempts"), "{words}");
    assert_eq!(ssh.say("echo on"), "on\n");
}

#[test]
fn bytes_that_are_no_ssh_cost_a_closed_connection() {
    let Some(ssh) = Ssh::open() else { return };
    ssh.say("true");
    let before = resident_bytes(ssh.daemon_pid()).expect("it runs");
    let packet = [b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x14".as_slice(), &[0xff; 64]].concat();
    let endless = [b"SSH-2.0-x\r\n".to_vec(), vec![0xff; 65536]].concat();
    let letters = vec![b'x'; 65536];
    let cases: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0", &packet, &endless, &letters];
    for bytes in cases.iter().cycle().take(50) {
        let mut stream = TcpStream::connect(ssh.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // It may be closed before it has taken all.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"SSH-2.0-Burrow"), "{answer:?}");
    }
    let grown = resident_bytes(ssh.daemon_pid()).expect("it runs").saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    assert_eq!(ssh.say("echo on"), "on\n");
}

#[test]
fn what_else_ssh_can_ask_for_is_refused() {
    let Some(ssh) = Ssh::open() else { return };
    let backwards = ["-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:1", "box@burrow", "true"];
    assert_eq!(ssh.program("ssh", &backwards).status().expect("ssh runs").code(), Some(255));
    let other = ssh.program("ssh", &["-s", "box@burrow", "netconf"]).output().expect("ssh runs");
    assert!(!other.status.success());
    let elsewhere =
        ssh.program("ssh", &["-o", "LogLevel=INFO", "-W", "192.0.2.1:80", "box@burrow"]).output();
    let elsewhere = elsewhere.expect("ssh runs");
    let words = String::from_utf8_lossy(&elsewhere.stderr);
    assert!(words.contains("administratively prohibited"), "{words}");
}
