//! Ending a sandbox waits for no workspace: neither for one that is being filled, nor for changes that are
//! being copied back. And what comes back stays within the limits, whatever its name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::thread::{self, ScopedJoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tests::http::{Answer, Client};
use tests::workspaces::Scene;
use tests::{children, eventually};

/// Files with which a workspace is not filled before somebody has looked; more, if it was.
const FILES_AT_FIRST: usize = 1000;
const FILES_AT_LAST: usize = 64_000;

/// Creates a sandbox whose agent is stopped while its workspace is filled, and then runs an action. Returns
/// the result of its creation.
fn in_the_midst_of_filling(scene: &Scene, act: impl Fn(&Client)) -> Answer {
    let client = Client::new(scene.server.url());
    let mut files = FILES_AT_FIRST;
    while files <= FILES_AT_LAST {
        fs::create_dir_all(scene.project.join("many")).unwrap();
        for number in 0..files {
            fs::write(scene.project.join(format!("many/{number}")), "x").unwrap();
        }
        let body = json!({ "name": "a", "workspace": "p" });
        let create = || Client::new(scene.server.url()).post("/v1/sandboxes", &body);
        let answer = thread::scope(|scope| {
            let creating = scope.spawn(create);
            let agent = freeze(scene, files, &creating)?;
            act(&client);
            let answer = creating.join().unwrap();
            eventually("nothing is left of its agent", || kill(agent, None).is_err());
            Some(answer)
        });
        if let Some(answer) = answer {
            return answer;
        }
        scene.server.run(&["rm", "--force", "a"]);
        files *= 2;
    }
    panic!("the workspace was always full before it was looked at");
}

/// Stops the agent of the one sandbox that is being made, if its workspace is not full then.
fn freeze(scene: &Scene, files: usize, creating: &ScopedJoinHandle<'_, Answer>) -> Option<Pid> {
    let many = |agent: Pid| format!("/proc/{agent}/root/workspace/many");
    let mut agent = None;
    eventually("there is something in the workspace", || {
        let inits = children(scene.server.daemon_pid()).into_iter().flat_map(children);
        agent = inits.into_iter().find(|init| fs::exists(many(*init)).unwrap_or(false));
        agent.is_some() || creating.is_finished()
    });
    let agent = agent?;
    kill(agent, Signal::SIGSTOP).ok()?;
    let stat = || fs::read_to_string(format!("/proc/{agent}/stat")).unwrap_or_default();
    eventually("it is stopped", || stat().contains(") T"));
    let is_full = fs::read_dir(many(agent)).ok()?.count() >= files;
    if is_full {
        kill(agent, Signal::SIGCONT).ok()?;
    }
    (!is_full).then_some(agent)
}

/// A way to ask for the end of a sandbox.
type End<'a> = &'a dyn Fn(&Client) -> Answer;

#[test]
fn a_workspace_that_is_being_filled_keeps_nobody_from_ending_its_sandbox() {
    let scene = Scene::usual();
    let path = "/v1/sandboxes/default/a";
    let ends: [(&str, End); 3] = [
        ("stop", &|client| client.post(&format!("{path}/stop"), &json!({}))),
        ("kill", &|client| client.post(&format!("{path}/kill"), &json!({}))),
        ("remove", &|client| client.delete(&format!("{path}?force=true"))),
    ];
    for (name, end) in ends {
        let refused = in_the_midst_of_filling(&scene, |client| {
            let ended = end(client);
            assert!(ended.status < 300, "{name}: {}", ended.text());
        });
        let refused = refused.expect(409);
        assert!(refused.text().contains("being filled"), "{name}: {}", refused.text());
        assert_eq!(scene.server.ok(&["ps", "--all", "--quiet"]), "", "{name}");
    }
}

#[test]
fn the_time_of_filling_counts_for_the_cap_of_a_day_and_ends_with_it() {
    let scene = Scene::with("[caps.per_namespace]\nrun_time_per_day = \"2s\"");
    let refused = in_the_midst_of_filling(&scene, |_| {}).expect(429);
    assert_eq!(refused.code(), "cap_exceeded");
    let caps = scene.server.ok(&["caps", "--json"]);
    assert!(caps.contains("run_ms_per_day"), "{caps}");
    assert_eq!(scene.server.ok(&["ps", "--all", "--quiet"]), "");
}

#[test]
fn recent_writes_are_on_the_host_when_a_sandbox_is_removed() {
    let scene = Scene::usual();
    let client = Client::new(scene.server.url());
    let one = "/v1/sandboxes/default/a";
    let ways: [(&str, &dyn Fn()); 3] = [
        ("rm", &|| drop(scene.server.ok(&["rm", "--force", "a"]))),
        ("delete", &|| drop(client.delete(&format!("{one}?force=true")).expect(200))),
        ("a2a", &|| drop(client.delete("/a2a/v1/sandboxes/a").expect(204))),
    ];
    for (way, remove) in ways {
        scene.start("a", "p");
        let body =
            json!({ "script": format!("echo {way} > /workspace/{way}; rm -f /workspace/link") });
        client.post(&format!("{one}/shell"), &body).expect(200);
        remove();
        assert_eq!(scene.read(way), format!("{way}\n"));
        assert!(!scene.has("link"), "{way}");
    }
    // A sandbox that is gone with its only answer, too.
    let script = "echo x > /workspace/fleeting";
    let body = json!({ "script": script, "bucket": "p" });
    let ran = client.post("/a2a/v1/run_shell", &body).expect(200).json();
    assert_eq!((&ran["exit_code"], scene.read("fleeting").as_str()), (&json!(0), "x\n"));
}

#[test]
fn changes_of_an_ended_program_come_back_while_others_run() {
    let scene = Scene::usual();
    scene.start("a", "p");
    scene.server.ok(&["exec", "-d", "a", "--", "sleep", "1000"]);
    for name in ["one", "two"] {
        scene.sh("a", &format!("echo {name} > {name}"));
        eventually("it is on the host", || scene.has(name));
    }
}

#[test]
fn nothing_comes_back_behind_the_answer_to_a_kill() {
    for seed in [1, 20, 90] {
        let scene = Scene::usual();
        scene.start("a", "p");
        scene.sh("a", "for i in $(seq 200); do head -c 30000 /dev/zero > new$i; done; rm readme");
        let count = || scene.tree().keys().filter(|name| name.starts_with("new")).count();
        eventually("some have come", || count() >= seed);
        scene.server.ok(&["kill", "a"]);
        let after = scene.tree();
        assert!(!after.keys().any(|name| name.contains(".part")), "{:?}", after.keys());
        // As long as another sandbox needs for everything.
        scene.start("b", "p");
        scene.sh("b", "echo b > src/tool");
        scene.sync("b");
        scene.server.ok(&["kill", "b"]);
        let mut later = scene.tree();
        later.insert("src/tool".to_owned(), after["src/tool"].clone());
        assert!(after == later, "seed {seed}: {} and then {}", after.len(), later.len());
    }
}

#[test]
fn names_are_bounded_by_their_bytes_on_the_way_in_and_back() {
    // With a hundred entries, paths may have 25,600 bytes together.
    let scene = Scene::with("entries_max = 100");
    let long = "d".repeat(250);
    scene.start("a", "p");
    scene.sh("a", "echo kept > src/tool");
    scene.sync("a");
    let deep =
        format!("p=.; for i in 1 2 3 4; do p=$p/{long}; mkdir $p; done; cd $p; touch $(seq 30)");
    scene.sh("a", &format!("{deep}; echo lost > /workspace/src/tool"));
    let refused = scene.server.run(&["sync", "a"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("25600 bytes"), "{stderr}");
    // Of a tree that is not known nothing is carried.
    assert_eq!(scene.read("src/tool"), "kept\n");
    scene.server.ok(&["kill", "a"]);

    let deep = scene.project.join([&*long; 4].join("/"));
    fs::create_dir_all(&deep).unwrap();
    for number in 0..30 {
        fs::write(deep.join(number.to_string()), "").unwrap();
    }
    let client = Client::new(scene.server.url());
    let refused =
        client.post("/v1/sandboxes", &json!({ "name": "b", "workspace": "p" })).expect(422);
    assert_eq!(refused.code(), "workspace_failed");
    assert!(refused.text().contains("25600 bytes"), "{}", refused.text());
}

#[test]
fn copies_of_conflicts_count_for_the_limits_and_what_is_not_kept_is_reported() {
    // Beside what is there: room for two copies, of which the third would be one too many.
    let scene = Scene::with("total_bytes_max = \"64KiB\"\nentries_max = 20");
    scene.start("a", "p");
    let copies = |name: &str| {
        let begins = format!("{name}.conflict-");
        scene.tree().into_keys().filter(|path| path.starts_with(&begins)).collect::<Vec<_>>()
    };
    let change = |bytes: u32, mark: &str| {
        fs::write(scene.project.join("readme"), format!("of the host {mark}")).unwrap();
        scene.sh("a", &format!("{{ echo {mark}; head -c {bytes} /dev/zero; }} > readme"));
        scene.sync("a");
    };
    change(25_000, "1");
    change(25_000, "2");
    change(25_000, "3");
    assert_eq!(copies("readme").len(), 2);
    let warnings = scene.warnings("a");
    assert!(warnings.contains("not copied") && warnings.contains("65536 bytes"), "{warnings}");
    // What the host removes makes room again, and a new file has only what the copies leave.
    scene.sh("a", "head -c 25000 /dev/zero > more");
    scene.sync("a");
    assert!(!scene.has("more"), "{}", scene.warnings("a"));
    for copy in copies("readme") {
        fs::remove_file(scene.project.join(copy)).unwrap();
    }
    change(25_000, "4");
    assert_eq!(copies("readme").len(), 1);
    // Entries are bounded just so: eight are there, and one copy.
    scene.sh("a", "rm more; for i in $(seq 11); do : > e$i; done");
    scene.sync("a");
    change(10, "5");
    assert_eq!(copies("readme").len(), 2, "{}", scene.warnings("a"));
    for number in 6..12 {
        change(10, &number.to_string());
    }
    assert!(scene.tree().len() <= 20, "{:?}", scene.tree().keys());
    assert!(scene.warnings("a").contains("20 entries"), "{}", scene.warnings("a"));
    // The next bridge knows of them.
    let before = copies("readme");
    let mut scene = scene;
    scene.server.kill_and_serve_again();
    fs::write(scene.project.join("readme"), "of the host again").unwrap();
    scene.sh("a", "echo again > readme");
    scene.sync("a");
    let after: Vec<_> =
        scene.tree().into_keys().filter(|path| path.starts_with("readme.conflict-")).collect();
    assert_eq!(after, before);
}
