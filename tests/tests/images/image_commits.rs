//! Images of sandboxes' files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use tests::http::Client;
use tests::images::busybox;
use tests::machines::process_of;
use tests::server::Server;
use tests::{Burrow, eventually};

const TOOLS: [&str; 11] =
    ["sh", "cat", "ls", "rm", "mkdir", "ln", "chmod", "chown", "stat", "sleep", "touch"];

/// The image `base`, with some files to change.
fn import_base(burrow: &Burrow, busybox: &Path) -> String {
    let root = burrow.scratch().join("base");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for tool in TOOLS {
        symlink("busybox", root.join("bin").join(tool)).unwrap();
    }
    for directory in ["etc", "data/deep/er", "data/whole", "proc"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for file in ["changed", "removed", "kept", "deep/er/kept", "whole/a", "same-size"] {
        fs::write(root.join("data").join(file), format!("old {file}\n")).unwrap();
    }
    fs::write(root.join("etc/resolv.conf"), "nameserver 192.0.2.1\n").unwrap();
    burrow.ok(&["image", "import", root.to_str().unwrap(), "--name", "base"]).trim().to_owned()
}

/// Everything that a program may do to files.
const CHANGES: &str = "cd /data && echo new > changed && rm removed && rm -r whole && \
    mkdir -p added/below && echo more > added/below/file && ln added/below/file added/twin && \
    ln -s ../kept added/link && chmod 751 deep && echo x > /tmp/kept-too && \
    echo 'nameserver 198.51.100.1' > /etc/resolv.conf; \
    touch -r same-size /tmp/when; echo 'new same-size' > same-size; touch -r /tmp/when same-size";

const SHOWN: &str = "cd /data; cat changed kept deep/er/kept added/below/file added/link same-size; \
    ls; stat -c '%a' deep; test added/twin -ef added/below/file && echo twins; \
    ls /tmp";

const EXPECTED: &str = "new\nold kept\nold deep/er/kept\nmore\nold kept\nnew same-size\n\
    added\nchanged\ndeep\nkept\nsame-size\n751\ntwins\nkept-too\nwhen\n";

fn run(burrow: &Burrow, image: &str, script: &str) -> String {
    burrow.ok(&["run", "--image", image, "--", "sh", "-c", script])
}

#[test]
fn a_commit_makes_an_image_with_one_more_layer() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::serving();
    let base = import_base(&burrow, &busybox);
    burrow.ok(&["start", "--name", "work", "--image", "base"]);
    burrow.ok(&["exec", "work", "--", "sh", "-c", CHANGES]);
    let digest = burrow.ok(&["image", "commit", "work", "team/ready:1"]).trim().to_owned();
    assert_ne!(digest, base);
    assert_eq!(run(&burrow, "team/ready:1", SHOWN), EXPECTED);
    assert_eq!(run(&burrow, "base", "cat /data/changed"), "old changed\n");
    let listed: Value = serde_json::from_str(&burrow.ok(&["image", "ls", "--json"])).unwrap();
    let layers = |digest: &str| {
        let found = listed.as_array().unwrap().iter().find(|one| one["digest"] == digest).unwrap();
        found["layers"].as_array().unwrap().clone()
    };
    let (below, own) = (layers(&base), layers(&digest));
    assert_eq!((own.len(), &own[..1]), (2, &below[..]));
    // Only the difference is in it.
    let hex = own[1]["digest"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
    let blob = burrow.state().join("images/sha256").join(hex);
    let inside = Command::new("tar").arg("-tf").arg(blob).output().unwrap();
    let inside = String::from_utf8(inside.stdout).unwrap();
    assert!(inside.contains("data/.wh.removed") && !inside.contains("busybox"), "{inside}");
    assert!(!inside.contains("resolv.conf") && !inside.contains("not-kept"), "{inside}");
    // It continues, and a second commit has the second moment.
    burrow.ok(&["exec", "work", "--", "sh", "-c", "echo newer > /data/changed"]);
    burrow.ok(&["image", "commit", "work", "team/ready:2"]);
    assert_eq!(run(&burrow, "team/ready:2", "cat /data/changed"), "newer\n");
    // An image of an image of an image.
    burrow.ok(&["start", "--name", "again", "--image", "team/ready:2"]);
    burrow.ok(&["exec", "again", "--", "rm", "/data/changed"]);
    burrow.ok(&["image", "commit", "again", "team/ready:3"]);
    assert_eq!(run(&burrow, "team/ready:3", "ls /data"), "added\ndeep\nkept\nsame-size\n");
}

#[test]
fn programs_go_on_when_their_sandbox_has_become_an_image() {
    let Some(busybox) = busybox() else { return };
    let server = Server::dev();
    import_base(&server, &busybox);
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "name": "web", "image": "base" })).expect(201);
    let count = "n=0; while true; do n=$((n+1)); echo $n > /data/n; sleep 0.01; done";
    server.ok(&["exec", "--detach", "web", "--", "sh", "-c", count]);
    let read = || server.ok(&["exec", "web", "--", "sh", "-c", "cat /data/n || true"]);
    eventually("it counts", || !read().trim().is_empty());
    let path = "/v1/sandboxes/default/web/commit";
    let made = client.post(path, &json!({ "image": "ready" })).expect(201).json();
    assert_eq!(made["names"][0], "docker.io/library/ready:latest");
    let before = read();
    eventually("it counts again", || read() != before);
    assert_eq!(client.post(path, &json!({ "image": "No" })).expect(400).code(), "invalid");
    client.post("/v1/sandboxes", &json!({ "name": "bare" })).expect(201);
    let refused = client.post("/v1/sandboxes/default/bare/commit", &json!({ "image": "x" }));
    assert_eq!(refused.expect(422).code(), "unsupported");
    server.ok(&["stop", "web"]);
    assert_eq!(client.post(path, &json!({ "image": "x" })).expect(409).code(), "conflict");
}

#[test]
fn a_sandbox_cannot_have_the_hosts_files_touched_or_taken_by_becoming_an_image() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::serving();
    import_base(&burrow, &busybox);
    let place = burrow.scratch().join("host");
    fs::create_dir(&place).unwrap();
    for name in ["hosts", "hostname", "resolv.conf", "kept"] {
        fs::write(place.join(name), "the host's\n").unwrap();
    }
    burrow.ok(&["start", "--name", "evil", "--image", "base"]);
    let host = place.to_str().unwrap();
    // Directories of the image and of the machine become links to the host.
    let script = format!(
        "cd / && rm -r data && ln -s {host} data && rm -r etc && ln -s {host} etc && \
         ln -s {host}/kept leak"
    );
    burrow.ok(&["exec", "evil", "--", "sh", "-c", &script]);
    burrow.ok(&["image", "commit", "evil", "evil"]);
    for name in ["hosts", "hostname", "resolv.conf", "kept"] {
        assert_eq!(fs::read_to_string(place.join(name)).unwrap(), "the host's\n", "{name}");
    }
    let output = burrow.run(&["run", "--image", "evil", "--", "cat", "/leak"]);
    assert!(!output.status.success(), "{output:?}");
    // A name that would take something away cannot be in an image, and nothing is left of the attempt.
    burrow.ok(&["start", "--name", "odd", "--image", "base"]);
    burrow.ok(&["exec", "odd", "--", "touch", "/data/.wh.kept"]);
    let refused = || {
        let output = burrow.run(&["image", "commit", "odd", "odd"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(".wh."), "{stderr}");
    };
    refused();
    // Nor can one that union file systems once had for themselves, and not only what is empty.
    let script = "cd /data && rm .wh.kept && echo x > .wh..wh.mine";
    burrow.ok(&["exec", "odd", "--", "sh", "-c", script]);
    refused();
    let imports = burrow.state().join("images/imports");
    assert_eq!(fs::read_dir(imports).unwrap().count(), 0);
    assert_eq!(burrow.ok(&["exec", "odd", "--", "cat", "/data/kept"]), "old kept\n");
}

#[test]
fn one_sandbox_becomes_one_image_at_a_time() {
    let Some(busybox) = busybox() else { return };
    let burrow = Burrow::serving();
    import_base(&burrow, &busybox);
    burrow.ok(&["start", "--name", "work", "--image", "base"]);
    // The table of names is changed under a lock: the first commit waits for it while this test
    // holds it.
    let names = fs::File::open(burrow.state().join("images/locks/names")).unwrap();
    names.lock().unwrap();
    let commit = |name: &str| {
        let mut command = burrow.command(&["image", "commit", "work", name]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let running = [commit("one"), commit("two")];
    // The second commit is refused at once, and the first continues when it may.
    let mut running: Vec<_> = running.into_iter().map(|child| (child, false)).collect();
    eventually("one of both is refused", || {
        running.iter_mut().any(|(child, refused)| {
            *refused = child.try_wait().unwrap().is_some();
            *refused
        })
    });
    drop(names);
    for (child, refused) in running {
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), !refused, "{stderr}");
        assert!(
            !refused
                || stderr.contains("is already being paused, resumed, snapshotted or committed"),
            "{stderr}"
        );
    }
}

#[test]
fn a_virtual_machine_becomes_an_image_too() {
    let Some(busybox) = busybox() else { return };
    if !tests::machines::machines_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    import_base(&burrow, &busybox);
    burrow.ok(&["start", "--name", "vm", "--machine", "qemu", "--image", "library/base"]);
    burrow.ok(&["exec", "vm", "--", "sh", "-c", CHANGES]);
    burrow.ok(&["image", "commit", "vm", "ready"]);
    assert_eq!(run(&burrow, "ready", SHOWN), EXPECTED);
}

/// Counts while it is not paused.
const COUNT: &str = "n=0; while true; do n=$((n+1)); echo $n > /data/n; sleep 0.01; done";

/// A machine of the base that counts, and the process id of its supervisor.
fn counting_machine(burrow: &Burrow) -> u32 {
    let start = ["start", "--name", "vm", "--machine", "qemu", "--image", "library/base", "--json"];
    let record: Value = serde_json::from_str(&burrow.ok(&start)).unwrap();
    burrow.ok(&["exec", "--detach", "vm", "--", "sh", "-c", COUNT]);
    counts_on(burrow);
    u32::try_from(record["pid"].as_u64().unwrap()).unwrap()
}

fn counts_on(burrow: &Burrow) {
    let read = || burrow.run(&["exec", "vm", "--", "cat", "/data/n"]).stdout;
    let before = read();
    eventually("it counts on", || !read().is_empty() && read() != before);
}

#[track_caller]
fn is_refused(burrow: &Burrow, arguments: &[&str], why: &str) {
    let ran = burrow.run(arguments);
    let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && stderr.contains(why), "{arguments:?}: {stderr}");
}

#[test]
fn a_machine_that_becomes_an_image_is_neither_paused_nor_snapshotted_meanwhile() {
    let Some(busybox) = busybox() else { return };
    if !tests::machines::machines_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    let base = import_base(&burrow, &busybox);
    counting_machine(&burrow);
    // The base of a commit has to be made again under a lock: reading does not begin, and the machine stays
    // paused, while this test holds that lock.
    let image = base.strip_prefix("sha256:").unwrap();
    let lock = fs::File::open(burrow.state().join("images/locks").join(image)).unwrap();
    lock.lock().unwrap();
    fs::remove_dir_all(burrow.state().join("images/roots").join(image)).unwrap();
    let mut command = burrow.command(&["image", "commit", "vm", "ready"]);
    let commit = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stands_still = || {
        let ran = burrow.run(&["exec", "vm", "--", "true"]);
        String::from_utf8_lossy(&ran.stderr).contains("frozen")
    };
    eventually("it is stopped", stands_still);
    for other in
        [&["pause", "vm"][..], &["snapshot", "vm", "kept"], &["image", "commit", "vm", "two"]]
    {
        is_refused(&burrow, other, "is already being paused, resumed, snapshotted or committed");
        assert!(stands_still(), "{other:?} has let it go on");
    }
    // It is not paused, so that there is nothing to resume.
    burrow.ok(&["resume", "vm"]);
    assert!(stands_still(), "a resumption has let it go on");
    drop(lock);
    let output = commit.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    counts_on(&burrow);
    assert!(!burrow.ok(&["snapshot", "ls"]).contains("kept"));
    burrow.ok(&["rm", "-f", "vm"]);
}

#[test]
fn a_machine_that_is_paused_or_snapshotted_does_not_become_an_image_meanwhile() {
    let Some(busybox) = busybox() else { return };
    if !tests::machines::machines_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    import_base(&burrow, &busybox);
    let supervisor = counting_machine(&burrow);
    burrow.ok(&["pause", "vm"]);
    for other in [&["image", "commit", "vm", "ready"][..], &["snapshot", "vm", "kept"]] {
        is_refused(&burrow, other, "is paused");
        assert!(burrow.ok(&["ps"]).contains("paused"), "{other:?} has let it go on");
    }
    burrow.ok(&["resume", "vm"]);
    counts_on(&burrow);
    // Nobody passes orders to the agent, so whichever comes first does not proceed.
    let relay = process_of(supervisor, "vhost-device-vsock");
    kill(relay, Signal::SIGSTOP).unwrap();
    let begin = |arguments: &[&str]| {
        let mut command = burrow.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut snapshot = begin(&["snapshot", "vm", "kept"]);
    let mut commit = begin(&["image", "commit", "vm", "ready"]);
    eventually("one of both is refused", || {
        let over = [&mut snapshot, &mut commit].map(|child| child.try_wait().unwrap());
        over.iter().any(Option::is_some)
    });
    kill(relay, Signal::SIGCONT).unwrap();
    let ended = [snapshot, commit].map(|child| child.wait_with_output().unwrap());
    let refused: Vec<_> = ended.iter().filter(|output| !output.status.success()).collect();
    let stderr = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(refused.len(), 1, "{:?}", ended.each_ref().map(stderr));
    assert!(
        stderr(refused[0]).contains("is already being paused, resumed, snapshotted or committed"),
        "{}",
        stderr(refused[0])
    );
    counts_on(&burrow);
    burrow.ok(&["rm", "-f", "vm"]);
}
