//! Snapshots that travel: exported by one bridge and imported by another, which starts from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tests::http::Client;
use tests::machines::{kit, machines_or_skip};
use tests::server::Server;
use tests::small_disk::SmallDisk;
use tests::{Burrow, buckets, deaths, eventually};

/// A machine with a disk of its own. The image has an interpreter.
const SOURCE: [&str; 11] = [
    "start",
    "--name",
    "source",
    "--machine",
    "qemu",
    "--image",
    "python",
    "--memory",
    "256",
    "--scratch",
    "200M",
];

/// A bridge with a snapshot `base`, of a machine whose interpreter has counted to 41 and whose disk has a word.
fn with_snapshot(burrow: &Burrow) {
    burrow.ok(&SOURCE);
    burrow.ok(&["exec", "source", "--", "sh", "-c", "echo kept > /var/kept"]);
    burrow.ok(&["repl", "source", "-c", "count = 41"]);
    burrow.ok(&["snapshot", "source", "base"]);
    burrow.ok(&["rm", "-f", "source"]);
}

fn export(burrow: &Burrow) -> PathBuf {
    let path = burrow.scratch().join("base.tar");
    burrow.ok(&["snapshot", "export", "base", path.to_str().expect("text")]);
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Starts from a snapshot; the counter in its interpreter goes on.
fn goes_on(burrow: &Burrow, snapshot: &str) {
    burrow.ok(&["start", "--snapshot", snapshot, "--name", "copy"]);
    let count = burrow.ok(&["repl", "copy", "-c", "count += 1; print(count)"]);
    assert_eq!(count.trim_end(), "42");
    assert_eq!(burrow.ok(&["exec", "copy", "--", "cat", "/var/kept"]), "kept\n");
    burrow.ok(&["rm", "-f", "copy"]);
}

/// The reason of a refusal, after which nothing is left of what was refused.
fn refused(burrow: &Burrow, output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{stderr}");
    let listed: Value =
        serde_json::from_str(&burrow.ok(&["snapshot", "ls", "--json"])).expect("JSON");
    assert_eq!(listed, json!([]), "{stderr}");
    assert_eq!(half_made(burrow), Vec::<PathBuf>::new(), "{stderr}");
    stderr
}

/// What has no name of a namespace in the directory of snapshots.
fn half_made(burrow: &Burrow) -> Vec<PathBuf> {
    let all = fs::read_dir(burrow.state().join("snapshots")).into_iter().flatten().flatten();
    let hidden = all.filter(|entry| entry.file_name().to_string_lossy().starts_with('.'));
    hidden.map(|entry| entry.path()).collect()
}

/// The memory and the disk of a snapshot.
fn content(burrow: &Burrow, name: &str) -> [Vec<u8>; 2] {
    let machine = burrow.state().join("snapshots/default").join(name).join("machine");
    ["memory", "scratch.img"].map(|file| fs::read(machine.join(file)).expect("a part"))
}

#[test]
fn a_snapshot_of_one_bridge_goes_on_in_another_and_what_is_wrong_is_refused() {
    if !machines_or_skip() {
        return;
    }
    let one = Burrow::serving();
    with_snapshot(&one);
    let path = export(&one);
    let archive = fs::read(&path).expect("an archive");
    // The same through a pipe.
    let piped = one.run(&["snapshot", "export", "base", "-"]).stdout;
    assert!(piped == archive, "{} and {} bytes", piped.len(), archive.len());
    let missing = one.run(&["snapshot", "export", "none", text(&one.scratch().join("none"))]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no snapshot none"));
    assert!(!one.scratch().join("none").exists());

    let two = Burrow::serving();
    let bytes = archive.len();
    let import = |archive: &[u8]| two.feed(&["snapshot", "import", "-"], archive);
    // One flipped bit in the memory, in the disk, in what describes them; and a cut.
    for at in [700, bytes / 3, bytes - 20_000] {
        let mut wrong = archive.clone();
        wrong[at] ^= 4;
        let why = refused(&two, &import(&wrong));
        assert!(why.contains("digest") || why.contains("manifest"), "{at}: {why}");
    }
    for cut in [0, 100, bytes / 2, bytes - 1025] {
        assert!(refused(&two, &import(&archive[..cut])).contains("cut off"), "{cut}");
    }
    let why = refused(&two, &two.run(&["snapshot", "import", "/nowhere/base.tar"]));
    assert!(why.contains("/nowhere/base.tar"), "{why}");
    let imported = two.ok(&["snapshot", "import", text(&path)]);
    assert_eq!(imported.trim_end(), "base");
    goes_on(&two, "base");
    let again = two.run(&["snapshot", "import", text(&path)]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("base already exists"));
    // Under another name, in another namespace, from a pipe.
    let other = two.feed(&["snapshot", "import", "-", "team/other"], &archive);
    assert_eq!(String::from_utf8_lossy(&other.stdout).trim_end(), "team/other");
    two.ok(&["start", "--snapshot", "other", "--name", "team/copy"]);
    let count = two.ok(&["repl", "team/copy", "-c", "count += 1; print(count)"]);
    assert_eq!(count.trim_end(), "42");
    two.ok(&["rm", "-f", "team/copy"]);
    let listed: Value = serde_json::from_str(&two.ok(&["snapshot", "ls", "--json"])).expect("JSON");
    let first = &listed[0];
    assert!(first["imported_at_ms"].as_u64() > first["created_at_ms"].as_u64(), "{first}");
    // It travels on.
    one.ok(&["snapshot", "import", text(&export(&two)), "again"]);
    assert!(content(&one, "again") == content(&one, "base"));
}

/// A kit with another initramfs is another machine: it is refused before the memory is read.
#[test]
fn a_snapshot_of_another_kit_is_refused_with_the_reason() {
    if !machines_or_skip() {
        return;
    }
    let one = Burrow::serving();
    with_snapshot(&one);
    let path = export(&one);
    let other = one.scratch().join("kit");
    fs::create_dir(&other).expect("a directory");
    for entry in fs::read_dir(kit()).expect("a kit").flatten() {
        let name = entry.file_name();
        if name == "initramfs.cpio" {
            let mut initramfs = fs::read(entry.path()).expect("an initramfs");
            initramfs.extend([0; 512]);
            fs::write(other.join(name), initramfs).expect("written");
        } else if entry.path().is_file() {
            std::os::unix::fs::symlink(entry.path(), other.join(name)).expect("a link");
        }
    }
    let mut two = Burrow::new().variable("BURROW_IMAGES", text(&other));
    two.serve();
    let import = two.run(&["snapshot", "import", text(&path)]);
    let why = refused(&two, &import);
    assert!(why.contains("does not fit this host: its initramfs is"), "{why}");
    // And one without the image.
    fs::remove_file(other.join("python.erofs")).expect("it is ours");
    let why = refused(&two, &two.run(&["snapshot", "import", text(&path)]));
    assert!(why.contains("\"python\" is no image"), "{why}");
}

#[test]
fn an_import_that_does_not_fit_the_disk_is_refused_before_it_is_read() {
    if !machines_or_skip() {
        return;
    }
    let one = Burrow::serving();
    with_snapshot(&one);
    let path = export(&one);
    let burrow = Burrow::new();
    let Some(_disk) = SmallDisk::mount_or_skip(&burrow.state().join("snapshots"), 2048) else {
        return;
    };
    let two = Server::start_in(burrow, &["--dev"]);
    let client = Client::new(two.url());
    let archive = fs::read(&path).expect("an archive");
    let url = "/v1/snapshots/default/base/archive";
    let answer = client.send("PUT", url, &[("content-type", "application/x-tar")], &archive);
    assert_eq!(
        (answer.status, &*answer.code()),
        (507, "insufficient_storage"),
        "{}",
        answer.text()
    );
    let why = refused(&two, &two.run(&["snapshot", "import", text(&path)]));
    assert!(why.contains("bytes, and"), "{why}");
}

/// The same over HTTP, with keys: who may, and who may not.
#[test]
fn the_api_exports_with_run_and_imports_with_admin_in_ones_own_namespace() {
    if !machines_or_skip() {
        return;
    }
    let one = Server::with_keys();
    with_snapshot(&one);
    let key = |server: &Server, scope: &str, namespace: &str| {
        let words = ["keygen", "--scope", scope, "--namespace", namespace];
        Client::new(server.url()).key(server.ok(&words).trim())
    };
    let url = "/v1/snapshots/default/base/archive";
    let archive = key(&one, "run", "default").get(url).expect(200).body;
    assert_eq!(key(&one, "read", "default").get(url).code(), "forbidden");
    assert_eq!(key(&one, "run", "team").get(url).code(), "forbidden");
    assert_eq!(key(&one, "run", "default").get("/v1/snapshots/default/no/archive").status, 404);

    let two = Server::with_keys();
    let kind = [("content-type", "application/x-tar")];
    for (scope, namespace) in [("run", "default"), ("read", "default"), ("admin", "team")] {
        let answer = key(&two, scope, namespace).send("PUT", url, &kind, &archive);
        assert_eq!(answer.code(), "forbidden", "{scope} {namespace}");
    }
    let admin = key(&two, "admin", "default");
    let mut wrong = archive.clone();
    wrong[archive.len() / 2] ^= 1;
    let answer = admin.send("PUT", url, &kind, &wrong);
    assert_eq!((answer.status, &*answer.code()), (400, "invalid"), "{}", answer.text());
    let cut = admin.send("PUT", url, &kind, &archive[..archive.len() / 2]);
    assert!(cut.text().contains("cut off"), "{}", cut.text());
    let made = admin.send("PUT", url, &kind, &archive).expect(201).json();
    assert_eq!((&made["name"], &made["sandbox"]), (&json!("base"), &json!("source")));
    assert_eq!(admin.send("PUT", url, &kind, &archive).status, 409);
    let listed = admin.get("/v1/snapshots").expect(200).json();
    assert_eq!(listed["snapshots"][0]["imported_at_ms"], made["imported_at_ms"]);
    goes_on(&two, "base");
}

#[test]
fn a_snapshot_travels_through_a_bucket() {
    if !machines_or_skip() || !buckets::is_here() {
        return;
    }
    let scene = buckets::Scene::usual();
    let one = &scene.server;
    with_snapshot(one);
    one.ok(&["snapshot", "export", "base", "s3://data/snapshots/base.tar"]);
    let object = fs::read(scene.store.path("snapshots/base.tar")).expect("an object");
    assert!(object == fs::read(export(one)).expect("an archive"));
    assert_eq!((scene.store.parts(), scene.store.uploads()), (0, 0));
    let error = |arguments: &[&str]| {
        let output = one.run(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let again = error(&["snapshot", "export", "base", "s3://data/snapshots/base.tar"]);
    assert!(again.contains("is not replaced"), "{again}");
    let unknown = error(&["snapshot", "export", "base", "s3://elsewhere/base.tar"]);
    assert!(unknown.contains("no workspace with the bucket"), "{unknown}");
    let tricky = error(&["snapshot", "export", "base", "s3://data/../base.tar"]);
    assert!(tricky.contains("s3://BUCKET/KEY"), "{tricky}");
    let none = error(&["snapshot", "import", "s3://data/none", "copy"]);
    assert!(none.contains("no object"), "{none}");
    let client = Client::new(one.url());
    let url = "/v1/snapshots/default/base";
    let ask = json!({ "to": "s3://data/snapshots/second.tar" });
    let exported = client.post(&format!("{url}/export"), &ask).expect(200).json();
    assert_eq!(exported["bytes"], object.len());
    // A namespace reaches the buckets that the configuration gives to it.
    let foreign = client.post("/v1/snapshots/team/base/import", &json!({ "from": ask["to"] }));
    assert_eq!(foreign.code(), "unknown_workspace");

    // Another bridge, with the same bucket and a state of its own.
    let burrow = Burrow::new();
    let config = buckets::Scene::configure(burrow.scratch(), scene.store.port(), "");
    let two = Server::start_in(burrow, &["--dev", "--config", text(&config)]);
    let url = "/v1/snapshots/default/moved/import";
    let made = Client::new(two.url()).post(url, &json!({ "from": ask["to"] })).expect(201).json();
    assert_eq!(made["name"], "moved");
    goes_on(&two, "moved");
    two.ok(&["snapshot", "import", "s3://data/snapshots/base.tar"]);
    assert!(two.ok(&["snapshot", "ls"]).contains("base"));
    // One that was changed in the bucket is no longer what it was.
    let mut wrong = object;
    let middle = wrong.len() / 2;
    wrong[middle] ^= 1;
    fs::write(scene.store.path("snapshots/wrong.tar"), wrong).expect("written");
    let refused = two.run(&["snapshot", "import", "s3://data/snapshots/wrong.tar", "wrong"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("digest"), "{refused:?}");
    assert_eq!(half_made(&two), Vec::<PathBuf>::new());
}

/// The steps at which a bridge dies here: the first, the last, and some between.
fn some(steps: u64) -> Vec<u64> {
    (0..5).map(|at| 1 + at * steps.saturating_sub(1) / 4).collect()
}

#[test]
fn a_bridge_that_dies_at_any_step_of_an_import_or_export_leaves_what_the_next_one_cleans() {
    if !machines_or_skip() {
        return;
    }
    if !deaths::can_watch() {
        return tests::skip("no process can be watched here");
    }
    nix::sys::prctl::set_child_subreaper(true).expect("a subreaper");
    let one = Burrow::serving();
    with_snapshot(&one);
    let path = export(&one);
    let dies = |operation: &[&str], prepare: &dyn Fn(&Burrow), step: u64| {
        let mut two = Burrow::serving();
        prepare(&two);
        let watched = deaths::Watched::begin_pid(two.daemon_pid(), two.scratch(), step);
        let answered = two.run(operation).status.success();
        let steps = watched.steps();
        two.kill_daemon();
        watched.end();
        two.serve();
        assert_eq!(half_made(&two), Vec::<PathBuf>::new(), "at step {step} of {steps}");
        (two, answered, steps)
    };
    let import = ["snapshot", "import", text(&path)];
    let (two, answered, steps) = dies(&import, &|_| {}, u64::MAX);
    assert!(answered && steps > 5, "{steps} steps were seen");
    goes_on(&two, "base");
    drop(two);
    for step in some(steps) {
        let (two, answered, _) = dies(&import, &|_| {}, step);
        // It is there as a whole, or not at all.
        let is_there = two.ok(&["snapshot", "ls"]).contains("base");
        assert!(is_there || !answered, "at step {step} of {steps}");
        if !is_there {
            two.ok(&import);
        }
        assert!(content(&two, "base") == content(&one, "base"), "at step {step}");
    }
    // An export to a file makes nothing in the bridge's own directories: the verb does, in one that has no name.
    let prepare = |two: &Burrow| drop(two.ok(&import));
    let mut two = Burrow::serving();
    prepare(&two);
    let target = two.scratch().join("out.tar");
    let mut command = two.command(&["snapshot", "export", "base", text(&target)]);
    let daemon = two.daemon_pid();
    nix::sys::signal::kill(daemon, nix::sys::signal::Signal::SIGSTOP).expect("it is ours");
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("it starts");
    two.kill_daemon();
    assert!(!child.wait().expect("it is ours").success() && !target.exists());
    two.serve();
    two.ok(&["snapshot", "export", "base", text(&target)]);
    eventually("it is whole", || target.exists());
}

#[test]
fn snapshots_are_kept_by_the_policy_of_the_configuration() {
    if !machines_or_skip() {
        return;
    }
    let one = Burrow::serving();
    with_snapshot(&one);
    let path = export(&one);
    let mut two = Burrow::new();
    let config = two.scratch().join("burrow.toml");
    let configure = |text: &str| fs::write(&config, text).expect("written");
    // The minute of a sweep does not pass in this test: only orders are tested here, and the start.
    configure("[snapshots]\ncount_max = 2\nage_max = \"7d\"\n");
    let options = ["--config", text(&config)];
    two.serve_with(&options);
    for name in ["first", "second", "third", "team/other"] {
        two.ok(&["snapshot", "import", text(&path), name]);
    }
    let listed = two.ok(&["snapshot", "ls"]);
    let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).expect("a line");
    assert!(line("first").ends_with("now (count_max)"), "{listed}");
    for name in ["second", "third", "team/other"] {
        assert!(line(name).contains("(age_max)"), "{listed}");
    }
    let names = |arguments: &[&str]| -> Vec<String> {
        let listed: Value = serde_json::from_str(&two.ok(arguments)).expect("JSON");
        let all = listed.as_array().expect("a list").iter();
        all.map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&["snapshot", "prune", "--dry-run", "--json"]), ["first"]);
    assert_eq!(names(&["snapshot", "ls", "--json"]).len(), 4);
    assert_eq!(names(&["snapshot", "prune", "--json"]), ["first"]);
    assert_eq!(names(&["snapshot", "prune", "--json"]), Vec::<String>::new());
    assert_eq!(names(&["snapshot", "ls", "--json"]), ["second", "third", "other"]);
    // A new bridge looks at once.
    assert_eq!(two.end_daemon(), Some(0));
    configure("[snapshots]\ntotal_count_max = 1\n");
    two.serve_with(&options);
    eventually("one is left", || {
        let listed: Value =
            serde_json::from_str(&two.ok(&["snapshot", "ls", "--json"])).expect("JSON");
        listed.as_array().is_some_and(|all| all.len() == 1 && all[0]["name"] == "other")
    });
    goes_on_in_team(&two);
}

fn goes_on_in_team(burrow: &Burrow) {
    burrow.ok(&["start", "--snapshot", "other", "--name", "team/copy"]);
    let count = burrow.ok(&["repl", "team/copy", "-c", "count += 1; print(count)"]);
    assert_eq!(count.trim_end(), "42");
    burrow.ok(&["rm", "-f", "team/copy"]);
}
