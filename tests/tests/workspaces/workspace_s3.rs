//! Buckets as workspaces, against a real S3 server: a bucket's files are at `/workspace`, changes there are
//! pushed, and nothing is lost or written twice when a server or a bridge dies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::buckets::{SECRET_KEY, Scene, Store, is_here};
use tests::machines::machines_or_skip;
use tests::registry::Line;
use tests::server::Server;
use tests::{Burrow, eventually, slowed, written};

/// Files that a sandbox makes while its bridge is killed.
const FILES: usize = 60;

/// Ends the test where there is no server of S3's.
macro_rules! or_skip {
    () => {
        if !is_here() {
            return;
        }
    };
}

#[test]
fn a_buckets_files_are_there_and_changes_are_pushed_automatically() {
    or_skip!();
    let store = Store::start();
    store.put("readme", "hello");
    store.put("src/deep/code", "one\n");
    store.put("src/old%20name%2B", "odd");
    let scene = Scene::with(store, "");
    scene.start("a");
    let seen = scene.sh("a", "cat readme src/deep/code 'src/old name+'; find . -type f | sort");
    assert_eq!(seen, "helloone\nodd./readme\n./src/deep/code\n./src/old name+\n");
    scene.sh(
        "a",
        "echo two >> src/deep/code; mkdir -p out; echo new > 'out/ü &+%'; rm readme; \
         mv 'src/old name+' src/moved; echo tool > out/tool; chmod 755 out/tool; : > out/empty",
    );
    eventually("what has ended is looked at", || scene.store.read("readme").is_none());
    scene.sync("a");
    assert_eq!(
        scene.store.keys(),
        ["out/empty", "out/tool", "out/ü &+%", "src/deep/code", "src/moved"]
    );
    assert_eq!(scene.store.read("src/deep/code").unwrap(), "one\ntwo\n");
    assert_eq!(scene.store.read("src/moved").unwrap(), "odd");
    assert_eq!(scene.warnings("a"), "[]");
    assert_eq!(scene.sync("a")["written"], json!([]));
    // A file that became a directory: this server has no room for both.
    scene.sh("a", "rm out/empty; mkdir out/empty; echo in > out/empty/in");
    scene.sync("a");
    assert_eq!(scene.store.read("out/empty/in").unwrap(), "in\n", "{}", scene.warnings("a"));
    // Another sandbox has what the first has left, permissions included.
    scene.start("b");
    assert_eq!(
        scene.sh("b", "stat -c %a out/tool; cat 'out/ü &+%'; cat out/empty/in"),
        "755\nnew\nin\n"
    );
    assert!(scene.server.ok(&["audit"]).contains("workspace.sync"));
}

#[test]
fn large_files_go_up_in_parts_and_come_back_as_they_were() {
    or_skip!();
    let scene = Scene::usual();
    scene.start("a");
    let digest = scene.sh("a", "head -c 45000001 /dev/urandom > big; sha256sum < big");
    let report = scene.sync("a");
    assert!(scene.store.read("big").is_some(), "{report}");
    assert_eq!((scene.store.uploads(), scene.store.parts()), (0, 0));
    scene.start("b");
    assert_eq!(scene.sh("b", "sha256sum < big"), digest);
    // The same again, smaller: what was in parts is one piece, and no conflict.
    scene.sh("a", "echo small > big");
    scene.sync("a");
    assert_eq!(scene.store.read("big").unwrap(), "small\n");
    assert_eq!(scene.warnings("a"), "[]");
}

#[test]
fn a_prefix_is_all_that_a_sandbox_knows_of_a_bucket() {
    or_skip!();
    let store = Store::start();
    store.put("team/a/in", "mine");
    store.put("team/ab", "another's");
    store.put("other", "another's");
    let scene = Scene::with(store, "prefix = \"team/a\"");
    scene.start("a");
    assert_eq!(scene.sh("a", "find . -type f; rm in; echo x > out"), "./in\n");
    scene.sync("a");
    assert_eq!(scene.store.keys(), ["other", "team/a/out", "team/ab"]);
}

#[test]
fn only_what_may_be_written_goes_up_and_the_rest_is_reported() {
    or_skip!();
    let store = Store::start();
    store.put("readme", "hello");
    let scene = Scene::with(store, "write = [\"outputs/\"]\nfile_bytes_max = \"64KiB\"");
    scene.start("a");
    scene.sh(
        "a",
        "echo x > readme; mkdir outputs; echo z > outputs/z; ln -s z outputs/link; \
         head -c 70000 /dev/zero > outputs/big",
    );
    scene.sync("a");
    assert_eq!(scene.store.keys(), ["outputs/z", "readme"]);
    assert_eq!(scene.store.read("readme").unwrap(), "hello");
    let warnings = scene.warnings("a");
    for word in ["readme", "outputs/big", "65536 bytes", "outputs/link", "cannot hold links"] {
        assert!(warnings.contains(word), "{word}: {warnings}");
    }
}

#[test]
fn an_oversized_bucket_is_not_fetched_and_no_sandbox_is_made() {
    or_skip!();
    let store = Store::start();
    store.put("one", &"x".repeat(40_000));
    store.put("two", &"x".repeat(40_000));
    let scene = Scene::with(store, "total_bytes_max = \"64KiB\"");
    let refused = scene.server.run(&["start", "--name", "a", "--workspace", "b"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("65536 bytes"), "{stderr}");
    assert_eq!(scene.server.ok(&["ps", "--all", "--quiet"]), "");
}

#[test]
fn others_changes_in_the_bucket_are_never_overwritten_or_removed() {
    or_skip!();
    let store = Store::start();
    for key in ["both", "removed", "same", "gone"] {
        store.put(key, "before");
    }
    let scene = Scene::with(store, "");
    scene.start("a");
    scene.store.put("both", "another's");
    scene.store.put("removed", "another's");
    scene.store.put("fresh", "another's");
    scene.store.put("same", "alike");
    scene.store.delete("gone");
    scene.sh(
        "a",
        "echo guest > both; rm removed; echo other > fresh; printf alike > same; echo on > gone",
    );
    scene.sync("a");
    for key in ["both", "removed", "fresh"] {
        assert_eq!(scene.store.read(key).unwrap(), "another's", "{key}");
    }
    let keys = scene.store.keys();
    let copies: Vec<_> = keys.iter().filter(|key| key.contains(".conflict-")).collect();
    let contents: Vec<_> = copies.iter().map(|key| scene.store.read(key).unwrap()).collect();
    assert_eq!(contents, ["guest\n", "other\n"], "{keys:?}");
    // Nobody has anything there any more: what the sandbox writes is new.
    assert_eq!(scene.store.read("gone").unwrap(), "on\n");
    let warnings = scene.warnings("a");
    for word in ["both.conflict-", "fresh.conflict-", "removed"] {
        assert!(warnings.contains(word), "{warnings}");
    }
    assert!(!warnings.contains("same"), "{warnings}");
}

#[test]
fn keys_that_do_not_fit_and_buckets_that_are_not_there_make_no_sandbox() {
    or_skip!();
    let mut scene = Scene::usual();
    let refused = |scene: &Scene, workspace: &str| {
        let refused = scene.server.run(&["start", "--name", "a", "--workspace", workspace]);
        assert!(!refused.status.success());
        assert_eq!(scene.server.ok(&["ps", "--all", "--quiet"]), "", "{workspace}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let message = refused(&scene, "wrong");
    assert!(message.contains("SignatureDoesNotMatch"), "{message}");
    let message = refused(&scene, "none");
    assert!(message.contains("NoSuchBucket"), "{message}");
    scene.store.kill();
    let message = refused(&scene, "b");
    assert!(message.contains("cannot reach the bucket's server"), "{message}");
    assert!(!message.contains(&scene.store.port().to_string()), "{message}");
    // The name of the bucket's own secret is no name for sandboxes.
    let refused = scene.server.run(&["start", "--name", "a", "--secret", "key"]);
    assert!(!refused.status.success());
    let boxes = fs::read_dir(scene.server.state().join("boxes")).into_iter().flatten();
    assert_eq!(boxes.count(), 0, "nothing is left of what was begun");
}

#[test]
fn a_server_that_dies_in_the_midst_of_an_upload_gets_all_of_it_when_it_is_back() {
    or_skip!();
    let mut scene = Scene::usual();
    scene.start("a");
    let digest =
        scene.sh("a", "head -c 80000000 /dev/urandom > big; echo s > small; sha256sum < big");
    eventually("parts are on their way", || {
        scene.store.parts() > 2 || scene.store.read("big").is_some()
    });
    scene.store.kill();
    // A caller meanwhile gets the reason.
    let report = scene.sync("a");
    let was_whole = scene.store.read("big").is_some();
    let refused = report["refused"].to_string();
    assert!(was_whole || refused.contains("the bucket did not accept it"), "{report}");
    scene.store.start_again();
    eventually("it is tried again by itself", || {
        scene.store.read("big").is_some() && scene.store.read("small").is_some()
    });
    scene.sync("a");
    assert_eq!(scene.store.uploads(), 0, "what was given up is removed");
    scene.start("b");
    assert_eq!(scene.sh("b", "sha256sum < big; cat small"), format!("{digest}s\n"));
    assert!(!scene.store.keys().iter().any(|key| key.contains(".conflict-")));
}

#[test]
fn an_object_that_breaks_off_on_its_way_is_gone_on_with() {
    or_skip!();
    let store = Store::start();
    let content = tests::lines("a line of some length of the number ", 0..200_000);
    store.put("big", &content);
    let line = Line::to(store.port());
    let burrow = Burrow::new();
    let config = Scene::configure(burrow.scratch(), line.port, "");
    let options = ["--dev", "--config", config.to_str().unwrap()];
    let server = Server::start_in(burrow, &options);
    line.cut_after(content.len() as u64 / 2);
    let mended = thread::scope(|scope| {
        let starting = scope.spawn(|| server.ok(&["start", "--name", "a", "--workspace", "b"]));
        eventually("it is cut", || line.came() >= content.len() as u64 / 2);
        line.mend();
        starting.join().unwrap();
        line.came()
    });
    // Files that had arrived were not fetched again.
    assert!(mended < content.len() as u64 * 5 / 4, "{mended} bytes for {}", content.len());
    let counted = server.ok(&["exec", "a", "--", "sh", "-c", "wc -c < /workspace/big"]);
    assert_eq!(counted.trim(), content.len().to_string());
}

#[test]
fn a_stopped_sandboxs_changes_are_pushed_when_the_bucket_is_back() {
    or_skip!();
    let mut scene = Scene::usual();
    for name in ["a", "b"] {
        scene.start(name);
    }
    scene.store.kill();
    scene.sh("a", "echo by-itself > a");
    scene.sh("b", "echo next-bridge > b");
    for name in ["a", "b"] {
        scene.server.ok(&["stop", name]);
        let warnings = scene.warnings(name);
        assert!(warnings.contains("the bucket did not accept it"), "{warnings}");
    }
    // On request, automatically, and by a bridge that has known neither sandbox.
    let refused = scene.sync("a")["refused"].to_string();
    assert!(refused.contains("cannot reach the bucket's server"), "{refused}");
    scene.server.kill_and_serve_again();
    scene.store.start_again();
    let written = scene.sync("a")["written"].to_string();
    assert!(written.contains("\"a\"") || scene.store.read("a").is_some(), "{written}");
    eventually("it comes by itself", || scene.store.read("b").is_some());
    assert_eq!(scene.store.read("a").unwrap(), "by-itself\n");
    assert_eq!(scene.store.keys(), ["a", "b"]);
    // A sandbox that is removed meanwhile takes what it had with it.
    scene.store.kill();
    scene.server.ok(&["rm", "a"]);
    scene.server.ok(&["rm", "b"]);
    assert_eq!(scene.server.ok(&["ps", "--all", "--quiet"]), "");
}

#[test]
fn a_bridge_that_is_killed_in_the_midst_of_it_writes_nothing_twice() {
    or_skip!();
    for seed in [0, 1, 20, 59] {
        let mut scene = Scene::usual();
        scene.start("a");
        let script = format!(
            "for i in $(seq {FILES}); do echo $i > new$i; done; head -c 20000000 /dev/zero > big"
        );
        scene.sh("a", &script);
        let count = |scene: &Scene| scene.store.keys().len();
        eventually("some have come", || count(&scene) >= seed);
        scene.server.kill_and_serve_again();
        // Changed again by the sandbox alone, so that what the first bridge wrote is no conflict.
        scene.sh("a", "for i in 1 2 3; do echo again > new$i; done; rm new5");
        scene.sync("a");
        let keys = scene.store.keys();
        assert_eq!(keys.len(), FILES, "seed {seed}: {keys:?} {}", scene.warnings("a"));
        assert_eq!(scene.store.read("new2").unwrap(), "again\n");
        assert_eq!(scene.store.read("new60").unwrap(), "60\n");
        assert_eq!(scene.store.read("big").unwrap().len(), 20_000_000);
        assert!(!keys.iter().any(|key| key.contains(".conflict-")), "seed {seed}: {keys:?}");
    }
}

#[test]
fn the_next_bridge_aborts_uploads_of_a_killed_bridge() {
    or_skip!();
    let mut scene = Scene::usual();
    scene.start("a");
    scene.sh("a", "head -c 80000000 /dev/zero > big");
    // Its id is recorded before the first part.
    eventually("a part is there", || scene.store.parts() > 0 || scene.store.read("big").is_some());
    scene.server.kill_and_serve_again();
    scene.sync("a");
    assert_eq!(scene.store.read("big").unwrap().len(), 80_000_000);
    assert_eq!((scene.store.uploads(), scene.store.keys()), (0, vec!["big".to_owned()]));
}

#[test]
fn a_machine_that_died_with_its_bridge_has_left_what_it_had_brought_back() {
    or_skip!();
    let mut scene = Scene::usual();
    scene.start("a");
    scene.store.kill();
    scene.sh("a", "echo kept > kept");
    let refused = scene.sync("a")["refused"].to_string();
    assert!(refused.contains("kept"), "{refused}");
    let agents = tests::children(scene.server.daemon_pid());
    scene.server.kill_daemon_for_a_moment(|| {
        for agent in &agents {
            let _ = nix::sys::signal::kill(*agent, nix::sys::signal::Signal::SIGKILL);
        }
        scene.store.start_again();
    });
    eventually("the next bridge brings it", || scene.store.read("kept").is_some());
}

#[test]
fn a_kill_waits_for_no_server() {
    or_skip!();
    let scene = Scene::usual();
    scene.start("a");
    scene.store.freeze();
    scene.sh("a", "echo x > x");
    // It is asked for, so it is under way.
    let mut syncing = scene.server.command(&["sync", "a"]).spawn().unwrap();
    let connected = || scene.store.has_unanswered();
    eventually("the bridge waits for the server", connected);
    let began = Instant::now();
    scene.server.ok(&["kill", "a"]);
    // An answer of the server would be waited for half a minute, and an exchange that takes no word ten seconds.
    assert!(began.elapsed() < slowed(Duration::from_secs(5)));
    assert!(!syncing.wait().unwrap().success());
    scene.server.ok(&["rm", "a"]);
    scene.store.thaw();
}

#[test]
fn a_command_of_its_own_works_on_a_bucket_and_keeps_what_that_does_not_take() {
    or_skip!();
    let mut scene = Scene::usual();
    scene.store.put("in", "hello");
    let place = scene.server.scratch().to_owned();
    let config = place.join("burrow.toml");
    let temp = place.join("temp");
    fs::create_dir(&temp).unwrap();
    let run = |scene: &Scene, script: &str| {
        let mut command =
            scene.server.command(&["run", "--workspace", "b", "--", "sh", "-c", script]);
        command.env("BURROW_CONFIG", &config).env("TMPDIR", &temp).output().unwrap()
    };
    let output = run(&scene, "cat /workspace/in; echo ran > /workspace/ran; exit 3");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"hello"[..]), "{stderr}");
    assert_eq!(scene.store.read("ran").unwrap(), "ran\n");
    let left =
        || fs::read_dir(&temp).unwrap().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    assert_eq!(left(), Vec::<std::path::PathBuf>::new());
    // The server goes away while it runs.
    let script = "echo unsent > /workspace/unsent; echo begun; read line";
    let mut command =
        scene.server.command(&["run", "-i", "--workspace", "b", "--", "sh", "-c", script]);
    command.env("BURROW_CONFIG", &config).env("TMPDIR", &temp);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut stderr).unwrap();
    scene.store.kill();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("its content is saved as"), "{stderr}");
    let stored =
        stderr.split("its content is saved as ").nth(1).unwrap().lines().next().unwrap().trim();
    assert_eq!(fs::read_to_string(stored).unwrap(), "unsent\n");
}

#[test]
fn the_keys_of_a_bucket_are_nowhere_but_in_the_bridge() {
    or_skip!();
    let scene = Scene::usual();
    scene.start("a");
    scene.sh("a", "echo x > x");
    scene.sync("a");
    let seen = scene.sh("a", "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'");
    assert!(!seen.contains(SECRET_KEY));
    let mut waiting = vec![scene.server.state(), scene.server.runtime(), scene.server.log()];
    let mut looked = 0;
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        } else if path.is_file() {
            let bytes = written(&path).unwrap();
            looked += 1;
            let holds = bytes.windows(SECRET_KEY.len()).any(|part| part == SECRET_KEY.as_bytes());
            assert!(!holds, "{} has it", path.display());
        }
    }
    assert!(looked > 3, "there was something to look at");
    let inspected = scene.server.ok(&["inspect", "a"]);
    assert!(!inspected.contains(SECRET_KEY) && !inspected.contains("127.0.0.1"), "{inspected}");
}

/// A server that lists keys which lead out of a workspace, and gives each of them.
fn hostile() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let keys = [
        "../../../../../../escaped",
        "a/../../b",
        "/etc/x",
        "x//y",
        "both",
        "both/in",
        "good",
        "n\u{1}",
    ];
    let contents: Vec<_> = keys
        .iter()
        .map(|key| key.replace('\u{1}', "&#x0;"))
        .map(|key| format!("<Contents><Key>{key}</Key><Size>4</Size></Contents>"))
        .collect();
    let contents = contents.concat();
    let list =
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let list = list.clone();
            thread::spawn(move || {
                let mut request = vec![0; 16 * 1024];
                let count = stream.read(&mut request).unwrap_or(0);
                let is_list = String::from_utf8_lossy(&request[..count]).contains("list-type=2");
                let body = if is_list { list.as_str() } else { "evil" };
                let head = format!(
                    "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + body).as_bytes());
            });
        }
    });
    port
}

#[test]
fn keys_that_lead_out_of_a_workspace_lead_nowhere() {
    let burrow = Burrow::new();
    let config = Scene::configure(burrow.scratch(), hostile(), "");
    let options = ["--dev", "--config", config.to_str().unwrap()];
    let server = Server::start_in(burrow, &options);
    server.ok(&["start", "--name", "a", "--workspace", "b"]);
    let seen = server.ok(&["exec", "a", "--", "sh", "-c", "cd /workspace; find . -type f | sort"]);
    assert_eq!(seen, "./both/in\n./good\n");
    let record = tests::http::Client::new(server.url()).get("/v1/sandboxes/default/a").expect(200);
    let warnings = record.json()["warnings"].to_string();
    for word in
        ["escaped", "a/../../b", "/etc/x", "x//y", "not a valid file path", "also a directory's"]
    {
        assert!(warnings.contains(word), "{word}: {warnings}");
    }
    let mut above = server.state();
    while above.pop() {
        assert!(!above.join("escaped").exists());
    }
}

#[test]
fn a_virtual_machine_has_a_bucket_too() {
    or_skip!();
    if !machines_or_skip() {
        return;
    }
    let scene = Scene::usual();
    scene.store.put("in", "hello");
    scene.server.ok(&[
        "start",
        "--name",
        "vm",
        "--machine",
        "qemu",
        "--image",
        "full",
        "--workspace",
        "b",
    ]);
    assert_eq!(scene.sh("vm", "cat in; rm in; echo o > out"), "hello");
    scene.server.ok(&["stop", "vm"]);
    assert_eq!(scene.store.keys(), ["out"]);
}
