//! Workspaces: a directory of the host is at `/workspace`, changes there come back, and nothing that a
//! sandbox does makes the host lose or write anything else.
//!
//! Changes come back automatically some time after a program has ended, so tests check the host's files and
//! the record, and not which of the exchanges it was.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;
use tests::eventually;
use tests::http::Client;
use tests::machines::machines_or_skip;
use tests::workspaces::Scene;

#[test]
fn a_directory_of_the_host_is_there_and_changes_come_back_by_themselves() {
    let scene = Scene::usual();
    scene.start("a", "p");
    let seen = scene.sh("a", "cat readme src/deep/code; readlink link; ./src/tool; ls -A");
    assert_eq!(seen, "helloone\nreadme\ntool\nlink\nreadme\nsrc\n");
    scene.sh(
        "a",
        "echo two >> src/deep/code; mkdir -p out/x; echo new > out/x/y; chmod 700 out/x/y; \
         ln -s ../nowhere out/dangling; rm readme; mv src/tool src/renamed",
    );
    eventually("what has ended is looked at", || {
        scene.has("out/dangling") && !scene.has("src/tool")
    });
    scene.sync("a");
    assert_eq!(scene.read("src/deep/code"), "one\ntwo\n");
    assert_eq!(scene.read("out/x/y"), "new\n");
    let mode = fs::metadata(scene.project.join("out/x/y")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(fs::read_link(scene.project.join("out/dangling")).unwrap(), Path::new("../nowhere"));
    assert!(!scene.has("readme") && scene.has("link") && scene.has("src/renamed"));
    assert_eq!(scene.warnings("a"), "[]");
    let again = scene.sync("a");
    assert_eq!(again["written"], json!([]), "{again}");
    // A directory that became a file, and the other way round.
    scene.sh(
        "a",
        "rm -r out; echo file > out; rm src/renamed; mkdir src/renamed; echo 1 > src/renamed/f",
    );
    scene.sync("a");
    assert_eq!((scene.read("out"), scene.read("src/renamed/f")), ("file\n".into(), "1\n".into()));
    let record = scene.server.ok(&["inspect", "a"]);
    assert!(record.contains("workspace"), "{record}");
    assert!(scene.server.ok(&["audit"]).contains("workspace.sync"));
}

#[test]
fn conflicts_keep_the_hosts_file_and_put_the_sandboxs_beside_it() {
    let scene = Scene::usual();
    scene.start("a", "p");
    fs::write(scene.project.join("readme"), "the host's").unwrap();
    fs::write(scene.project.join("src/deep/code"), "the host's too").unwrap();
    fs::write(scene.project.join("fresh"), "of the host").unwrap();
    fs::write(scene.project.join("same"), "alike").unwrap();
    scene.sh(
        "a",
        "echo guest > readme; rm src/deep/code; echo other > fresh; printf alike > same; echo x > src/tool",
    );
    scene.sync("a");
    assert_eq!(scene.read("readme"), "the host's");
    assert_eq!(scene.read("src/deep/code"), "the host's too");
    assert_eq!(scene.read("fresh"), "of the host");
    assert_eq!(scene.read("src/tool"), "x\n");
    let tree = scene.tree();
    let copies: Vec<_> = tree.iter().filter(|(name, _)| name.contains(".conflict-")).collect();
    let contents: Vec<_> = copies.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    assert_eq!(contents, [&b"other\n"[..], b"guest\n"], "{copies:?}");
    let warnings = scene.warnings("a");
    for word in ["readme.conflict-", "fresh.conflict-", "src/deep/code", "changed on the host"] {
        assert!(warnings.contains(word), "{warnings}");
    }
    assert!(!warnings.contains("same"), "{warnings}");
    // The sandbox keeps its own version, and does not overwrite the host's either.
    scene.sh("a", "echo again > readme");
    scene.sync("a");
    assert_eq!(scene.read("readme"), "the host's");
    let copies = scene.tree().keys().filter(|name| name.starts_with("readme.conflict-")).count();
    assert_eq!(copies, 2);
}

#[test]
fn only_what_may_be_written_comes_back_and_the_rest_is_reported() {
    let scene = Scene::with(
        "write = [\"outputs/\"]\nfile_bytes_max = \"64KiB\"\ntotal_bytes_max = \"128KiB\"\nentries_max = 40",
    );
    let before = scene.tree();
    scene.start("a", "p");
    scene.sh(
        "a",
        "echo x > readme; rm src/tool; mkdir outputs outputs2; echo y > outputs2/y; echo z > outputs/z; \
         head -c 70000 /dev/zero > outputs/big",
    );
    scene.sync("a");
    let mut after = scene.tree();
    assert_eq!(after.remove("outputs/"), Some(Vec::new()));
    assert_eq!(after.remove("outputs/z"), Some(b"z\n".to_vec()));
    assert_eq!(after, before);
    let warnings = scene.warnings("a");
    for word in ["readme", "src/tool", "outputs2", "outputs/big", "65536 bytes", "outside"] {
        assert!(warnings.contains(word), "{word}: {warnings}");
    }
    scene.sh("a", "rm outputs/big; for i in 1 2 3; do head -c 60000 /dev/zero > outputs/$i; done");
    scene.sync("a");
    assert!(scene.has("outputs/1") && scene.has("outputs/2") && !scene.has("outputs/3"));
    assert!(scene.warnings("a").contains("131072 bytes"));
    // With more entries than the limit nothing is known, so nothing is changed.
    scene.sh("a", "for i in $(seq 60); do : > outputs/e$i; done; rm outputs/z");
    let refused = scene.server.run(&["sync", "a"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("40 entries"), "{stderr}");
    assert!(scene.has("outputs/z"));

    let before = scene.tree();
    scene.start("b", "closed");
    scene.sh("b", "echo x > readme; rm -r src; echo new > new");
    scene.sync("b");
    assert_eq!(scene.tree(), before);
    assert!(scene.warnings("b").contains("read-only"));
}

#[test]
fn a_directory_that_is_larger_than_its_limits_starts_nothing() {
    for (keys, word) in [
        ("file_bytes_max = 4", "readme"),
        ("total_bytes_max = 10", "10 bytes"),
        ("entries_max = 3", "3 entries"),
    ] {
        let scene = Scene::with(keys);
        let client = Client::new(scene.server.url());
        let body = json!({ "name": "a", "workspace": "p" });
        let refused = client.post("/v1/sandboxes", &body).expect(422);
        assert_eq!(refused.code(), "workspace_failed");
        assert!(refused.text().contains(word), "{}", refused.text());
        assert_eq!(scene.server.ok(&["ps", "--all", "--quiet"]), "");
    }
}

#[test]
fn forbidden_workspaces_are_refused_and_nothing_is_started() {
    let scene = Scene::usual();
    let client = Client::new(scene.server.url());
    let create = |namespace: &str, workspace: &str| {
        let body = json!({ "name": "a", "namespace": namespace, "workspace": workspace });
        client.post("/v1/sandboxes", &body).expect(422)
    };
    let unknown = create("default", "nonesuch");
    assert_eq!(unknown.code(), "unknown_workspace");
    // The caller learns nothing about others' workspaces.
    let others = create("other", "p");
    let alike = |text: String, name: &str| text.replace(&format!("\\\"{name}\\\""), "_");
    assert_eq!(others.code(), "unknown_workspace");
    assert_eq!(
        alike(others.json()["message"].to_string(), "p"),
        alike(unknown.json()["message"].to_string(), "nonesuch").replace("default", "other")
    );
    let gone = create("default", "gone");
    assert_eq!(gone.code(), "workspace_failed");
    assert!(!gone.text().contains(scene.project.to_str().unwrap()), "{}", gone.text());
    assert_eq!(scene.server.ok(&["ps", "--all", "--quiet"]), "");
    scene.server.ok(&["start", "--name", "plain"]);
    let none = client.post("/v1/sandboxes/default/plain/workspace/sync", &json!({})).expect(409);
    assert!(none.text().contains("no workspace"), "{}", none.text());
}

#[test]
fn a_hostile_tree_writes_nothing_outside_and_nothing_that_is_no_file() {
    let scene = Scene::usual();
    let outside = scene.server.scratch().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "safe").unwrap();
    scene.start("a", "p");
    // On the host a directory becomes a link, in the sandbox what was in it changes.
    fs::rename(scene.project.join("src/deep"), scene.project.join("moved")).unwrap();
    symlink(&outside, scene.project.join("src/deep")).unwrap();
    symlink(outside.join("victim"), scene.project.join("lure")).unwrap();
    scene.sh(
        "a",
        &format!(
            "echo evil > src/deep/code; echo evil > src/deep/victim; rm src/deep/code; \
             echo evil > lure; ln -s {0} way; ln -sf /etc/passwd link; mkfifo pipe; \
             echo x > .burrow-123-1.part; mkdir -p .burrow-9-9.part/in; chmod 4777 src/tool; \
             printf x > \"$(printf 'bad\\377name')\"; printf y > 'new\nline'",
            outside.display()
        ),
    );
    let report = scene.sync("a");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{report}");
    assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "safe");
    assert_eq!(fs::read_link(scene.project.join("way")).unwrap(), outside);
    assert_eq!(fs::read_link(scene.project.join("link")).unwrap(), Path::new("/etc/passwd"));
    let tree = scene.tree();
    assert!(!scene.has("pipe") && !tree.keys().any(|name| name.contains(".part")), "{tree:?}");
    let mode = fs::metadata(scene.project.join("src/tool")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o777);
    let odd = std::ffi::OsString::from_vec(b"bad\xffname".to_vec());
    assert_eq!(fs::read(scene.project.join(odd)).unwrap(), b"x");
    assert_eq!(scene.read("new\nline"), "y");
    let warnings = scene.warnings("a");
    for word in ["pipe", "src/deep", "lure.conflict-", ".part"] {
        assert!(warnings.contains(word), "{word}: {warnings}");
    }
    // A tree without an end ends here.
    scene.sh("a", "p=deep; for i in $(seq 80); do p=$p/d; done; mkdir -p $p");
    assert!(!scene.server.run(&["sync", "a"]).status.success());
    scene.sh("a", "rm -r deep");
    // Without its directory a workspace has lost nothing.
    let before = scene.tree();
    scene.server.ok(&["exec", "a", "--", "mv", "/workspace", "/elsewhere"]);
    let refused = scene.server.run(&["sync", "a"]);
    assert!(!refused.status.success());
    assert_eq!(scene.tree(), before);
}

#[test]
fn a_stop_brings_back_what_a_kill_does_not() {
    let scene = Scene::usual();
    scene.start("a", "p");
    // It runs on, so nothing that has ended gives a reason to look.
    scene.server.ok(&[
        "exec",
        "-d",
        "a",
        "--",
        "sh",
        "-c",
        "echo late > /workspace/late; sleep 1000",
    ]);
    let written = || !scene.sh("a", "cat late 2>/dev/null || true").is_empty();
    eventually("it is written", written);
    scene.server.ok(&["stop", "a"]);
    assert_eq!(scene.read("late"), "late\n");
    scene.start("b", "p");
    scene.server.ok(&["kill", "b"]);
    assert!(!scene.tree().keys().any(|name| name.contains(".part")));
}

#[test]
fn a_bridge_that_is_killed_in_the_midst_of_it_leaves_whole_files_and_the_next_goes_on() {
    const FILES: usize = 120;
    for seed in [0, 1, 7, 40, 119] {
        let mut scene = Scene::usual();
        scene.start("a", "p");
        let script = format!(
            "for i in $(seq {FILES}); do head -c 20000 /dev/zero | tr '\\0' x > new$i; done; \
             echo changed > src/deep/code; rm readme"
        );
        scene.sh("a", &script);
        // As many are there, or all: then it was quicker than we are, and must be complete anyway.
        let count =
            |scene: &Scene| scene.tree().keys().filter(|name| name.starts_with("new")).count();
        eventually("some have come", || count(&scene) >= seed);
        let project = scene.project.clone();
        scene.server.kill_daemon_for_a_moment(|| {
            for entry in fs::read_dir(&project).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap();
                if name.starts_with("new") {
                    assert_eq!(entry.metadata().unwrap().len(), 20000, "{name} is half of it");
                }
            }
        });
        // Changed again by the sandbox alone, so that what the first bridge wrote is no conflict.
        scene.sh("a", "for i in 1 2 3; do echo again > new$i; done; rm new5");
        scene.sync("a");
        assert_eq!(count(&scene), FILES - 1);
        assert_eq!(
            (scene.read("new2"), scene.read("src/deep/code")),
            ("again\n".into(), "changed\n".into())
        );
        assert!(!scene.has("readme"));
        let tree = scene.tree();
        let odd = tree.keys().find(|name| name.contains(".part") || name.contains(".conflict"));
        assert_eq!(odd, None, "seed {seed}: {}", scene.warnings("a"));
    }
}

#[test]
fn a_command_of_its_own_works_on_a_directory_of_its_persons() {
    let scene = Scene::usual();
    let path = scene.project.to_str().unwrap();
    let script = "cat /workspace/readme; echo ran > /workspace/ran";
    assert_eq!(scene.server.ok(&["run", "--workspace", path, "--", "sh", "-c", script]), "hello");
    assert_eq!(scene.read("ran"), "ran\n");
    let failed = scene.server.run(&[
        "run",
        "--workspace",
        path,
        "--",
        "sh",
        "-c",
        "echo 3 > /workspace/3; exit 3",
    ]);
    assert_eq!(failed.status.code(), Some(3));
    assert_eq!(scene.read("3"), "3\n");
}

#[test]
fn a_virtual_machine_has_a_workspace_too() {
    if !machines_or_skip() {
        return;
    }
    let scene = Scene::usual();
    scene.server.ok(&[
        "start",
        "--name",
        "vm",
        "--machine",
        "qemu",
        "--image",
        "full",
        "--workspace",
        "p",
    ]);
    assert_eq!(scene.sh("vm", "cat readme src/deep/code; readlink link"), "helloone\nreadme\n");
    scene.sh("vm", "echo vm > src/deep/code; rm readme; mkdir out; echo o > out/o");
    scene.server.ok(&["stop", "vm"]);
    assert_eq!((scene.read("src/deep/code"), scene.read("out/o")), ("vm\n".into(), "o\n".into()));
    assert!(!scene.has("readme"));
}

#[test]
fn transfers_are_counted_in_both_directions() {
    let scene = Scene::usual();
    let carried = |way: &str| -> u64 {
        let text = Client::new(scene.server.url()).get("/metrics").expect(200).text();
        let begins = format!("burrow_workspace_bytes_total{{way=\"{way}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&begins)).expect("the figure");
        line.parse().expect("a number")
    };
    assert_eq!((carried("in"), carried("back")), (0, 0));
    scene.start("work", "p");
    let there: usize =
        ["readme", "src/deep/code", "src/tool"].map(|file| scene.read(file).len()).iter().sum();
    assert_eq!((carried("in"), carried("back")), (there as u64, 0));
    scene.sh("work", "printf 1234567 > new; mkdir empty; ln -s new alias; rm readme");
    scene.sync("work");
    assert_eq!((carried("in"), carried("back")), (there as u64, 7));
    // A mount is no copy, and nothing of it is carried.
    let project = scene.project.to_str().expect("text");
    scene.server.ok(&["start", "--name", "other", "--workspace", project, "--mount"]);
    assert_eq!(carried("in"), there as u64);
}
