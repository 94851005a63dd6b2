//! Files over SSH, with OpenSSH's `sftp` and `scp`, and with `rsync`.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tests::have_or_skip;
use tests::ssh::{Ssh, digest};

/// Runs the lines of a batch, and returns both outputs.
fn batch(ssh: &Ssh, lines: &str) -> Output {
    fs::write(ssh.path("batch"), lines).expect("written");
    ssh.program("sftp", &["-b", "batch", "box@burrow"]).output().expect("sftp runs")
}

fn did(ssh: &Ssh, lines: &str) -> String {
    let output = batch(ssh, lines);
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words).into_owned();
    assert!(output.status.success(), "{words}");
    words
}

#[test]
fn every_verb_of_sftp_does_what_it_says() {
    let Some(ssh) = Ssh::open() else { return };
    fs::write(ssh.path("note"), "one\n").expect("written");
    let words = did(
        &ssh,
        "mkdir /tmp/a\ncd /tmp/a\npwd\nput note\nput note copy\nln -s note link\nls -l\n\
         rename copy moved\nrename moved note2\nchmod 640 note2\nchown 1 note2\nchgrp 1 note2\n\
         get note2 back\nrm note2\nmkdir sub\nput -p note sub/deep\nrm sub/deep\nrmdir sub\n\
         get link through\nls -a\n",
    );
    assert!(words.contains("/tmp/a\n"), "{words}");
    let listed = |line: &str| line.starts_with("-rw-r--r--") && line.ends_with(" note");
    assert!(words.lines().any(listed), "{words}");
    for name in ["back", "through"] {
        assert_eq!(fs::read_to_string(ssh.path(name)).expect("it came"), "one\n");
    }
    assert_eq!(ssh.say("cd /tmp/a; ls; readlink link; cat link"), "link\nnote\nnote\none\n");
    let refusals = [
        ("get /tmp/a/none", "not found"),
        ("rmdir /tmp/a", "Failure"),
        ("rm /tmp", "Failure"),
        ("rmdir /tmp/a/note", "Failure"),
        ("ln -s x /tmp/a/note", "Failure"),
        ("mkdir /tmp/a", "Failure"),
        ("chmod 600 /tmp/a/none", "No such file"),
        ("cd /tmp/a/note", "not a directory"),
        ("put note /proc/none", ""),
    ];
    for (line, why) in refusals {
        let output = batch(&ssh, line);
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8_lossy(&words).to_lowercase();
        assert!(!output.status.success() && words.contains(&why.to_lowercase()), "{line}: {words}");
    }
}

#[test]
fn attributes_arrive_and_stay() {
    let Some(ssh) = Ssh::open() else { return };
    let own = ssh.path("tool");
    fs::write(&own, "#!/bin/sh\n").expect("written");
    fs::set_permissions(&own, PermissionsExt::from_mode(0o750)).expect("it is ours");
    let touched = Command::new("touch").args(["-d", "@1000000000"]).arg(&own).status();
    assert!(touched.expect("touch runs").success());
    ssh.do_with("scp", &["-p", "tool", "box@burrow:/tmp/tool"]);
    assert_eq!(ssh.say("stat -c '%a %Y' /tmp/tool"), "750 1000000000\n");
    ssh.do_with("scp", &["-p", "box@burrow:/tmp/tool", "back"]);
    let back = fs::metadata(ssh.path("back")).expect("it came");
    assert_eq!((back.mode() & 0o777, back.mtime()), (0o750, 1_000_000_000));
}

#[test]
fn a_small_file_that_could_not_be_written_is_a_failure() {
    let Some(ssh) = Ssh::open() else { return };
    fs::write(ssh.path("note"), "one\n").expect("written");
    // The refusal may come before the first bytes do, or behind them with the answer to what `scp` asks next.
    for _ in 0..8 {
        let scp = ssh.program("scp", &["note", "box@burrow:/proc/1/fd/4/../note"]).output();
        let scp = scp.expect("scp runs");
        assert!(!scp.status.success(), "{}", String::from_utf8_lossy(&scp.stderr));
    }
}

#[test]
fn a_broken_upload_is_taken_up_again() {
    let Some(ssh) = Ssh::open() else { return };
    let sent = ssh.big_file("sent", 4);
    ssh.do_with("scp", &["sent", "box@burrow:/tmp/sent"]);
    ssh.say("truncate -s 1234567 /tmp/sent");
    did(&ssh, "reput sent /tmp/sent\nreget /tmp/sent back\n");
    assert_eq!(digest(&ssh.path("back")), digest(&sent));
    assert_eq!(ssh.say("sha256sum < /tmp/sent").split_whitespace().next(), Some(&*digest(&sent)));
}

#[test]
fn megabytes_are_copied_up_and_down() {
    let Some(ssh) = Ssh::open() else { return };
    let sent = ssh.big_file("sent", 64);
    ssh.do_with("scp", &["sent", "box@burrow:/tmp/sent"]);
    ssh.do_with("scp", &["box@burrow:/tmp/sent", "back"]);
    assert_eq!(digest(&ssh.path("back")), digest(&sent));
}

/// A tree with names that clients like to break.
fn plant(ssh: &Ssh) {
    let tree = ssh.path("tree");
    for name in ["a", "a/deep/er", "empty", "sp ace"] {
        fs::create_dir_all(tree.join(name)).expect("made");
    }
    for number in 0..150 {
        fs::write(tree.join(format!("a/{number}")), format!("{number}\n")).expect("written");
    }
    for name in ["a/deep/er/x", "sp ace/ü", "-dash", "new\nline", "nothing"] {
        fs::write(tree.join(name), if name == "nothing" { "" } else { name }).expect("written");
    }
}

fn same(one: &Path, other: &Path) {
    let diff = Command::new("diff").arg("-r").args([one, other]).output().expect("diff runs");
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}

#[test]
fn trees_are_copied_up_and_down() {
    let Some(ssh) = Ssh::open() else { return };
    plant(&ssh);
    ssh.do_with("scp", &["-r", "tree", "box@burrow:/tmp/tree"]);
    ssh.do_with("scp", &["-r", "box@burrow:/tmp/tree", "back"]);
    same(&ssh.path("tree"), &ssh.path("back"));
}

#[test]
fn rsync_keeps_a_tree_the_same() {
    let Some(ssh) = Ssh::open() else { return };
    if !have_or_skip("rsync") {
        return;
    }
    plant(&ssh);
    let rsync = |from: &str, to: &str| {
        let shell = format!("ssh -F {}", ssh.config().display());
        let output = Command::new("rsync")
            .args(["-a", "--delete", "-e", &shell, from, to])
            .current_dir(ssh.scratch())
            .stdin(Stdio::null())
            .output()
            .expect("rsync runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    rsync("tree/", "box@burrow:/tmp/tree/");
    fs::remove_dir_all(ssh.path("tree/a")).expect("it was there");
    rsync("tree/", "box@burrow:/tmp/tree/");
    rsync("box@burrow:/tmp/tree/", "back/");
    same(&ssh.path("tree"), &ssh.path("back"));
}

#[test]
fn what_is_no_sftp_ends_the_session_and_nothing_else() {
    let Some(ssh) = Ssh::open() else { return };
    let packets: [&[u8]; 4] =
        [b"\xff\xff\xff\xff", b"\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x02\x01"];
    for bytes in packets {
        fs::write(ssh.path("packet"), bytes).expect("written");
        let output = ssh
            .program("ssh", &["-s", "box@burrow", "sftp"])
            .stdin(fs::File::open(ssh.path("packet")).expect("it is there"))
            .output()
            .expect("ssh runs");
        assert!(output.stdout.is_empty(), "{bytes:?}: {:?}", output.stdout);
    }
    assert_eq!(ssh.say("echo on"), "on\n");
}
