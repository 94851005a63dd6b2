//! The bridge dies at each step of what it does with images and sandboxes, and the next one finds
//! either the old or the new: nothing half-made is left, and the same can be done again.
//!
//! `BURROW_CRASH_SEEDS` says at how many steps of each operation; by default at some, spread over all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use serde_json::Value;
use tests::deaths::{self, Watched};
use tests::{Burrow, PATIENCE, buckets, eventually, images, registry, skip};

/// Steps of an operation at which it dies, unless somebody wants more.
const SEEDS_DEFAULT: u64 = 8;
/// What is half-made is called so.
const NEW: &str = ".new";

/// Programs that need nothing else, where this can be tested at all.
fn busybox() -> Option<PathBuf> {
    if !cfg!(target_arch = "x86_64") || !deaths::can_watch() {
        skip("no process can be watched here");
        return None;
    }
    images::busybox()
}

/// The directory of a root, with a file that says which.
fn write_root(place: &Path, busybox: &Path, word: &str) -> String {
    let root = place.join(word);
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::create_dir_all(root.join("etc/deep/er")).unwrap();
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for name in ["cat", "sleep"] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    fs::write(root.join("etc/motd"), word).unwrap();
    root.to_str().unwrap().to_owned()
}

/// The steps at which an operation of so many dies: its first, its last, and some between.
fn seeds(steps: u64) -> Vec<u64> {
    let wanted = std::env::var("BURROW_CRASH_SEEDS").ok();
    let wanted = wanted.and_then(|text| text.parse().ok()).unwrap_or(SEEDS_DEFAULT);
    let count = steps.min(wanted).max(1);
    let seeds: BTreeSet<u64> =
        (0..count).map(|n| 1 + n * steps.saturating_sub(1) / (count - 1).max(1)).collect();
    seeds.into_iter().collect()
}

/// The names of all that is below a directory, as far as it is the bridge's own.
fn names_below(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![place.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            // What is in an image is nobody's to judge.
            let is_tree = entry.file_name() == "tree";
            if !is_tree && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}

fn half_made(burrow: &Burrow) -> Vec<PathBuf> {
    let all = [names_below(&burrow.state()), names_below(&burrow.runtime())].concat();
    all.into_iter().filter(|path| path.to_str().is_some_and(|path| path.ends_with(NEW))).collect()
}

fn file_names(directory: &Path) -> BTreeSet<String> {
    let listed = fs::read_dir(directory).into_iter().flatten().flatten();
    listed.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn digits(value: &Value) -> String {
    value.as_str().unwrap().trim_start_matches("sha256:").to_owned()
}

/// What the store says it has is there and is right; what nobody wants goes.
fn look_at_store(burrow: &Burrow, when: &str) -> BTreeMap<String, String> {
    let store = burrow.state().join("images");
    let listed: Value = serde_json::from_str(&burrow.ok(&["image", "ls", "--json"])).unwrap();
    // A record may be written at this moment; what was left stays.
    eventually(&format!("nothing half-made is left ({when})"), || half_made(burrow).is_empty());
    for name in file_names(&store.join("sha256")) {
        let output = Command::new("sha256sum").arg(store.join("sha256").join(&name)).output();
        let output = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(output.starts_with(&name), "{when}: {name} is not what it is called");
    }
    let (mut names, mut known) = (BTreeMap::new(), BTreeSet::new());
    let mut wanted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for image in listed.as_array().unwrap() {
        let digest = digits(&image["digest"]);
        assert!(store.join("roots").join(&digest).join("tree").is_dir(), "{when}: no root");
        let blobs = wanted.entry("sha256").or_default();
        blobs.extend([digest.clone(), digits(&image["config"])]);
        blobs.extend(image["layers"].as_array().unwrap().iter().map(|one| digits(&one["digest"])));
        let layers = image["layers"].as_array().unwrap().iter().map(|one| digits(&one["diff_id"]));
        wanted.entry("layers").or_default().extend(layers);
        wanted.entry("roots").or_default().insert(digest.clone());
        for name in image["names"].as_array().unwrap() {
            names.insert(name["name"].as_str().unwrap().to_owned(), digest.clone());
        }
        known.insert(digest);
    }
    for kind in ["sha256", "layers", "roots"] {
        let there = file_names(&store.join(kind));
        let missing: Vec<_> = wanted.entry(kind).or_default().difference(&there).collect();
        assert!(missing.is_empty(), "{when}: {missing:?} of {kind} is missing");
    }
    let table = fs::read(store.join("names.json")).unwrap_or_else(|_| b"[]".to_vec());
    let table: Value = serde_json::from_slice(&table).unwrap();
    for named in table.as_array().unwrap() {
        assert!(known.contains(&digits(&named["digest"])), "{when}: {named} leads nowhere");
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(burrow.scratch().to_str().unwrap()), "{when}: something is mounted");
    names
}

/// All that a store has, without what differs from one time to the next.
fn content(burrow: &Burrow) -> BTreeMap<&'static str, BTreeSet<String>> {
    let store = burrow.state().join("images");
    let kinds = ["sha256", "layers", "roots", "known", "erofs", "imports", "steps"];
    kinds.into_iter().map(|kind| (kind, file_names(&store.join(kind)))).collect()
}

/// Lets an operation of the store die at its steps, each time from the same beginning.
fn die_in_store(what: &str, prepare: &dyn Fn(&Burrow), operation: &[&str]) {
    let begin = || {
        let burrow = Burrow::new();
        prepare(&burrow);
        burrow
    };
    let whole = begin();
    let (output, steps) = deaths::run_until(&whole.command(operation), whole.scratch(), u64::MAX);
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(steps > 1, "{what}: {steps} steps were seen");
    let names = look_at_store(&whole, what);
    whole.ok(&["image", "prune"]);
    let content_whole = content(&whole);
    for step in seeds(steps) {
        let burrow = begin();
        let when = format!("{what}, dead at step {step} of {steps}");
        let (output, _) = deaths::run_until(&burrow.command(operation), burrow.scratch(), step);
        assert_eq!(output.status.code(), None, "{when}");
        look_at_store(&burrow, &when);
        // It may have done all that there was to do; then there is nothing to do it to.
        let again = burrow.run(operation);
        let stderr = String::from_utf8_lossy(&again.stderr);
        assert!(again.status.success() || stderr.contains("there is no image"), "{when}: {stderr}");
        assert_eq!(look_at_store(&burrow, &when), names, "{when}");
        burrow.ok(&["image", "prune"]);
        assert_eq!(content(&burrow), content_whole, "{when}");
    }
}

#[test]
fn an_import_that_dies_leaves_the_old_or_the_new() {
    let Some(busybox) = busybox() else { return };
    let place = tempfile::TempDir::new().unwrap();
    let root = write_root(place.path(), &busybox, "one");
    die_in_store("import", &|_| {}, &["image", "import", &root, "--name", "small:1"]);
}

#[test]
fn a_name_that_is_moved_by_an_import_that_dies_means_one_of_both() {
    let Some(busybox) = busybox() else { return };
    let place = tempfile::TempDir::new().unwrap();
    let [one, two] = ["one", "two"].map(|word| write_root(place.path(), &busybox, word));
    let prepare =
        |burrow: &Burrow| drop(burrow.ok(&["image", "import", &one, "--name", "small:1"]));
    die_in_store("import again", &prepare, &["image", "import", &two, "--name", "small:1"]);
}

#[test]
fn a_removal_that_dies_is_done_by_the_next() {
    let Some(busybox) = busybox() else { return };
    let place = tempfile::TempDir::new().unwrap();
    let [one, two] = ["one", "two"].map(|word| write_root(place.path(), &busybox, word));
    let prepare = |burrow: &Burrow| {
        burrow.ok(&["image", "import", &one, "--name", "small:1"]);
        burrow.ok(&["image", "import", &two, "--name", "small:2"]);
    };
    die_in_store("rm", &prepare, &["image", "rm", "small:1"]);
}

#[test]
fn a_prune_that_dies_is_done_by_the_next() {
    let Some(busybox) = busybox() else { return };
    let place = tempfile::TempDir::new().unwrap();
    let [one, two] = ["one", "two"].map(|word| write_root(place.path(), &busybox, word));
    let prepare = |burrow: &Burrow| {
        burrow.ok(&["image", "import", &one, "--name", "small:1"]);
        burrow.ok(&["image", "import", &two, "--name", "small:1"]);
    };
    die_in_store("prune", &prepare, &["image", "prune"]);
}

#[test]
fn a_pull_that_dies_leaves_the_old_or_the_new() {
    if busybox().is_none() || !registry::is_here() {
        return;
    }
    let registry = registry::Registry::start("");
    let layout = registry::Layout::image(&[40_000, 70_000]);
    registry.push(&layout, "team/app", &[]);
    let name = format!("{}/team/app:latest", registry.host());
    die_in_store("pull", &|_| {}, &["image", "pull", "--quiet", &name]);
}

#[test]
fn a_build_that_dies_is_gone_on_with_by_the_next() {
    let Some(busybox) = busybox() else { return };
    let place = tempfile::TempDir::new().unwrap();
    let root = write_root(place.path(), &busybox, "one");
    let context = place.path().join("context");
    fs::create_dir(&context).unwrap();
    fs::write(context.join("a"), "copied").unwrap();
    // No command: what one has changed has the time of that in it, and is another layer each time.
    let recipe = "FROM small:1\nCOPY a /there/\nWORKDIR /work\nCOPY --chmod=700 a b\nENV X=1\n";
    fs::write(context.join("Dockerfile"), recipe).unwrap();
    let prepare =
        |burrow: &Burrow| drop(burrow.ok(&["image", "import", &root, "--name", "small:1"]));
    let context = context.to_str().unwrap();
    die_in_store("build", &prepare, &["image", "build", "-q", "-t", "made:1", context]);
}

/// What of a bridge's sandboxes is left on this host besides their records. One that was ending goes on
/// with that under the next bridge, so this waits until nothing is on its way.
fn look_at_boxes(burrow: &Burrow, seen: &BTreeSet<String>, when: &str) -> BTreeMap<String, Value> {
    let mut unsettled = String::new();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match settled_boxes(burrow, seen) {
            Ok(found) => return found,
            Err(why) => unsettled = why,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{when}: {unsettled}");
}

/// The records, or what does not agree with them now.
fn settled_boxes(
    burrow: &Burrow,
    seen: &BTreeSet<String>,
) -> Result<BTreeMap<String, Value>, String> {
    let agree = |holds: bool, why: &dyn Fn() -> String| if holds { Ok(()) } else { Err(why()) };
    let listed = burrow.ok(&["ps", "--all", "--quiet"]);
    let mut records = BTreeMap::new();
    for name in listed.lines() {
        let shown = burrow.run(&["inspect", "--json", name]);
        agree(shown.status.success(), &|| format!("{name} is listed and cannot be shown"))?;
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        agree(shown["state"] != "creating", &|| format!("{name} is being made"))?;
        records.insert(shown["id"].as_str().unwrap().to_owned(), shown);
    }
    let ids: BTreeSet<_> = records.keys().cloned().collect();
    let half_made = half_made(burrow);
    agree(half_made.is_empty(), &|| format!("{half_made:?} is left"))?;
    let files = file_names(&burrow.state().join("boxes"));
    agree(files == ids, &|| format!("records of {ids:?}, directories of {files:?}"))?;
    let living: BTreeSet<_> =
        records.iter().filter(|(_, one)| !one["pid"].is_null()).map(|(id, _)| id.clone()).collect();
    let running = file_names(&burrow.runtime().join("boxes"));
    agree(running == living, &|| format!("{living:?} live, runtime directories of {running:?}"))?;
    let pids: BTreeSet<_> = records.values().filter_map(|one| one["pid"].as_i64()).collect();
    // What has lost its parent is this process's.
    reap();
    let is_known = |pid: &Pid| *pid == burrow.daemon_pid() || pids.contains(&pid.as_raw().into());
    let mut own = tests::children(Pid::this());
    own.retain(|pid| !is_known(pid));
    agree(own.is_empty(), &|| format!("processes are left: {own:?}"))?;
    for id in seen.difference(&ids) {
        let left = groups(id);
        agree(left.is_empty(), &|| format!("groups are left: {left:?}"))?;
    }
    Ok(records)
}

/// The sandboxes of which there is anything.
fn boxes(burrow: &Burrow) -> BTreeSet<String> {
    let there = [burrow.state(), burrow.runtime()].map(|place| file_names(&place.join("boxes")));
    there.into_iter().flatten().collect()
}

/// Takes leave of the dead that nobody else waits for.
#[allow(clippy::disallowed_methods, reason = "they have become this process's")]
fn reap() {
    for pid in tests::children(Pid::this()) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_agent = stat.contains("(guest-agent)");
        if is_agent && stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) {
            let _ = nix::sys::wait::waitpid(pid, None);
        }
    }
}

/// The control groups of a sandbox below the one of this test.
fn groups(id: &str) -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in own.lines() {
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (words.next(), words.next()) else { continue };
        let place = Path::new("/sys/fs/cgroup").join(kinds).join(path.trim_start_matches('/'));
        found.push(place.join(format!("burrow-{id}")));
    }
    found.retain(|path| path.exists());
    found
}

/// Lets the daemon die at the steps of what it is asked for.
fn die_in_daemon(what: &str, prepare: &dyn Fn(&Burrow), operation: &[&str], is_done: &str) {
    let Some(busybox) = busybox() else { return };
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let place = tempfile::TempDir::new().unwrap();
    let root = write_root(place.path(), &busybox, "one");
    let begin = || {
        let mut burrow = Burrow::new();
        burrow.ok(&["image", "import", &root, "--name", "small:1"]);
        burrow.serve();
        prepare(&burrow);
        burrow
    };
    let steps = {
        let mut burrow = begin();
        let watched = Watched::begin_pid(burrow.daemon_pid(), burrow.scratch(), u64::MAX);
        burrow.ok(operation);
        let steps = watched.steps();
        burrow.kill_daemon();
        watched.end();
        burrow.serve();
        look_at_boxes(&burrow, &boxes(&burrow), what);
        steps
    };
    assert!(steps > 1, "{what}: {steps} steps were seen");
    for step in seeds(steps) {
        let mut burrow = begin();
        let when = format!("{what}, dead at step {step} of about {steps}");
        let watched = Watched::begin_pid(burrow.daemon_pid(), burrow.scratch(), step);
        // How many steps it takes differs a little; one that has done it all dies now.
        let answered = burrow.run(operation).status.success();
        burrow.kill_daemon();
        watched.end();
        let seen = boxes(&burrow);
        burrow.serve();
        let records = look_at_boxes(&burrow, &seen, &when);
        look_at_store(&burrow, &when);
        let states: Vec<_> = records.values().map(|record| record["state"].to_string()).collect();
        let has = states.iter().any(|state| state.contains("running"));
        match is_done {
            "running" if has || answered => {
                assert_eq!(burrow.ok(&["exec", "web", "--", "cat", "/etc/motd"]), "one", "{when}");
            }
            "gone" if answered => assert!(states.is_empty(), "{when}: {states:?}"),
            "gone" if states.is_empty() => {}
            _ => drop(burrow.ok(operation)),
        }
        if is_done == "running" {
            assert_eq!(burrow.ok(&["exec", "web", "--", "cat", "/etc/motd"]), "one", "{when}");
            burrow.ok(&["rm", "--force", "web"]);
        }
        if is_done == "stopped" {
            burrow.ok(&["rm", "web"]);
        }
        assert!(look_at_boxes(&burrow, &seen, &when).is_empty(), "{when}");
        // Nothing holds the image any more.
        burrow.ok(&["image", "rm", "small:1"]);
        assert!(file_names(&burrow.state().join("images/layers")).is_empty(), "{when}");
    }
}

const START: [&str; 5] = ["start", "--name", "web", "--image", "small:1"];

#[test]
fn a_creation_that_dies_leaves_a_sandbox_or_nothing() {
    die_in_daemon("create", &|_| {}, &START, "running");
}

#[test]
fn a_stop_that_dies_is_finished_or_can_be_asked_for_again() {
    let prepare = |burrow: &Burrow| drop(burrow.ok(&START));
    die_in_daemon("stop", &prepare, &["stop", "web"], "stopped");
}

#[test]
fn a_removal_of_a_sandbox_that_dies_is_finished_or_can_be_asked_for_again() {
    let prepare = |burrow: &Burrow| drop(burrow.ok(&START));
    die_in_daemon("remove", &prepare, &["rm", "--force", "web"], "gone");
}

#[test]
fn a_fork_that_dies_leaves_forks_that_are_whole() {
    let prepare = |burrow: &Burrow| {
        burrow.ok(&["start", "--name", "origin", "--image", "small:1"]);
    };
    die_in_fork(&prepare);
}

/// Lets the daemon die at the steps of a fork.
fn die_in_fork(prepare: &dyn Fn(&Burrow)) {
    let Some(busybox) = busybox() else { return };
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let place = tempfile::TempDir::new().unwrap();
    let root = write_root(place.path(), &busybox, "one");
    let operation = ["fork", "origin", "--count", "2"];
    let begin = || {
        let mut burrow = Burrow::new();
        burrow.ok(&["image", "import", &root, "--name", "small:1"]);
        burrow.serve();
        prepare(&burrow);
        burrow
    };
    let steps = {
        let mut burrow = begin();
        let watched = Watched::begin_pid(burrow.daemon_pid(), burrow.scratch(), u64::MAX);
        burrow.ok(&operation);
        let steps = watched.steps();
        burrow.kill_daemon();
        watched.end();
        steps
    };
    assert!(steps > 1, "{steps} steps were seen");
    for step in seeds(steps) {
        let mut burrow = begin();
        let when = format!("fork, dead at step {step} of about {steps}");
        let watched = Watched::begin_pid(burrow.daemon_pid(), burrow.scratch(), step);
        let answered = burrow.run(&operation).status.success();
        burrow.kill_daemon();
        watched.end();
        let seen = boxes(&burrow);
        burrow.serve();
        let records = look_at_boxes(&burrow, &seen, &when);
        look_at_store(&burrow, &when);
        let forks: Vec<_> = records
            .values()
            .map(|record| record["name"].as_str().unwrap().to_owned())
            .filter(|name| name != "origin")
            .collect();
        assert!(!answered || forks.len() == 2, "{when}: {forks:?}");
        assert!(file_names(&burrow.state().join("snapshots")).is_empty(), "{when}");
        for name in forks.iter().map(String::as_str).chain(["origin"]) {
            assert_eq!(burrow.ok(&["exec", name, "--", "cat", "/etc/motd"]), "one", "{when}");
        }
        // The original can be forked again: nobody has frozen it for good.
        burrow.ok(&["fork", "origin", "again"]);
        for name in forks.iter().map(String::as_str).chain(["origin", "again"]) {
            burrow.ok(&["rm", "--force", name]);
        }
        assert!(look_at_boxes(&burrow, &seen, &when).is_empty(), "{when}");
    }
}

/// What is at a workspace: files with their contents, links with what they say.
fn tree(project: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in names_below(project) {
        let name = path.strip_prefix(project).unwrap().to_str().unwrap().to_owned();
        let content = match fs::read_link(&path) {
            Ok(target) => format!("-> {}", target.display()),
            Err(_) if path.is_dir() => "a directory".to_owned(),
            Err(_) => fs::read_to_string(&path).unwrap(),
        };
        found.insert(name, content);
    }
    found
}

/// A sandbox that has changed its workspace in every way, of which the host knows nothing yet.
fn changed_workspace() -> (Burrow, PathBuf) {
    let mut burrow = Burrow::new();
    let project = burrow.scratch().join("project");
    fs::create_dir_all(project.join("was")).unwrap();
    for name in ["changed", "gone", "moved", "was/in"] {
        fs::write(project.join(name), format!("old {name}")).unwrap();
    }
    burrow.serve();
    burrow.ok(&["start", "--name", "web", "--workspace", project.to_str().unwrap()]);
    let script = "cd /workspace; printf 'new text' > changed; rm gone; mkdir deep; mv moved deep/er; \
                  rm -r was; printf 'no directory' > was; ln -s changed link; \
                  head -c 300000 /dev/zero | tr '\\0' x > large";
    burrow.ok(&["exec", "web", "--", "sh", "-ec", script]);
    (burrow, project)
}

#[test]
fn a_write_back_that_dies_leaves_whole_files_and_is_done_by_the_next() {
    if !deaths::can_watch() {
        return skip("no process can be watched here");
    }
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let wanted: BTreeMap<String, String> = [
        ("changed", "new text"),
        ("deep", "a directory"),
        ("deep/er", "old moved"),
        ("large", &"x".repeat(300_000)),
        ("link", "-> changed"),
        ("was", "no directory"),
    ]
    .map(|(name, content)| (name.to_owned(), content.to_owned()))
    .into();
    let steps = {
        let (mut burrow, project) = changed_workspace();
        let watched = Watched::begin_pid(burrow.daemon_pid(), burrow.scratch(), u64::MAX);
        burrow.ok(&["sync", "web"]);
        let steps = watched.steps();
        burrow.kill_daemon();
        watched.end();
        assert_eq!(tree(&project), wanted);
        steps
    };
    // Six things are made, each of them in several steps, and three are removed.
    assert!(steps > 12, "{steps} steps were seen");
    for step in seeds(steps) {
        let (mut burrow, project) = changed_workspace();
        let old = ["changed", "gone", "moved", "was/in"].map(|name| (name, format!("old {name}")));
        let watched = Watched::begin_pid(burrow.daemon_pid(), burrow.scratch(), step);
        let _ = burrow.run(&["sync", "web"]);
        burrow.kill_daemon();
        watched.end();
        let when = format!("dead at step {step} of about {steps}");
        let found = tree(&project);
        for (name, content) in found.iter().filter(|(name, _)| !name.contains(".part")) {
            let was = old.iter().any(|(other, text)| other == name && text == content);
            let is_directory = content == "a directory" && (name == "was" || name == "deep");
            assert!(was || is_directory || wanted.get(name) == Some(content), "{when}: {name}");
        }
        assert!(found.contains_key("changed"), "{when}: what is changed is never away");
        assert!(found.contains_key("moved") || found.contains_key("deep/er"), "{when}: {found:?}");
        burrow.serve();
        burrow.ok(&["sync", "web"]);
        assert_eq!(tree(&project), wanted, "{when}");
        burrow.ok(&["rm", "--force", "web"]);
    }
}

/// A sandbox that has changed what it has of a bucket in every way, of which the bucket knows nothing yet.
fn changed_bucket() -> buckets::Scene {
    let store = buckets::Store::start();
    for key in ["changed", "gone", "moved", "was/in"] {
        store.put(key, &format!("old {key}"));
    }
    let scene = buckets::Scene::with(store, "");
    scene.start("web");
    scene.sh(
        "web",
        "printf 'new text' > changed; rm gone; mkdir deep; mv moved deep/er; rm -r was; \
         printf x > fresh; head -c 300000 /dev/zero | tr '\\0' x > large",
    );
    scene
}

fn objects(store: &buckets::Store) -> BTreeMap<String, String> {
    let content = |key: String| store.read(&key).map(|content| (key, content));
    store.keys().into_iter().filter_map(content).collect()
}

#[test]
fn a_push_to_a_bucket_that_dies_leaves_whole_objects_and_is_done_by_the_next() {
    if !deaths::can_watch() {
        return skip("no process can be watched here");
    }
    if !buckets::is_here() {
        return;
    }
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let wanted: BTreeMap<String, String> = [
        ("changed", "new text"),
        ("deep/er", "old moved"),
        ("fresh", "x"),
        ("large", &"x".repeat(300_000)),
    ]
    .map(|(key, content)| (key.to_owned(), content.to_owned()))
    .into();
    let steps = {
        let mut scene = changed_bucket();
        let server = &mut scene.server;
        let watched = Watched::begin_pid(server.daemon_pid(), server.scratch(), u64::MAX);
        server.ok(&["sync", "web"]);
        let steps = watched.steps();
        server.kill_daemon_for_a_moment(|| {
            watched.end();
        });
        assert_eq!(objects(&scene.store), wanted);
        steps
    };
    // Each file is made in the bridge's directory first, and the ledger is written twice.
    assert!(steps > 12, "{steps} steps were seen");
    for step in seeds(steps) {
        let mut scene = changed_bucket();
        let server = &mut scene.server;
        let watched = Watched::begin_pid(server.daemon_pid(), server.scratch(), step);
        let _ = server.run(&["sync", "web"]);
        let when = format!("dead at step {step} of about {steps}");
        let store = &scene.store;
        server.kill_daemon_for_a_moment(|| {
            watched.end();
            let found = objects(store);
            for (key, content) in &found {
                let was = *content == format!("old {key}");
                assert!(was || wanted.get(key) == Some(content), "{when}: {key}");
            }
            assert!(found.contains_key("changed"), "{when}: what is changed is never away");
            assert!(found.contains_key("moved") || found.contains_key("deep/er"), "{when}");
        });
        scene.server.ok(&["sync", "web"]);
        assert_eq!(objects(&scene.store), wanted, "{when}");
        scene.server.ok(&["rm", "--force", "web"]);
    }
}
