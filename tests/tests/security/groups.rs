//! Control groups of version 2, where the kernel has no others: what was granted is held, the bridge's own
//! group stays usable, and nothing stays behind. `tests/v2/run` boots a machine that has them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::{Burrow, eventually, is_v2_machine, skip};

fn is_here() -> bool {
    if !is_v2_machine() {
        skip("only the machine of tests/v2/run has control groups of version 2 alone");
    }
    is_v2_machine()
}

/// The group of this test and the bridge, and the delegated one above it.
fn own_groups() -> [PathBuf; 2] {
    let own = fs::read_to_string("/proc/self/cgroup").expect("a membership");
    let own = own.trim().strip_prefix("0::/").expect("version 2 alone");
    let own = Path::new("/sys/fs/cgroup").join(own);
    [own.clone(), own.parent().expect("it is a leaf").to_owned()]
}

fn start(burrow: &Burrow, options: &[&str]) -> Value {
    let words = [&["start", "--json", "--name", "held"], options].concat();
    serde_json::from_str(&burrow.ok(&words)).expect("JSON")
}

fn groups_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    directories.flat_map(|path| [vec![path.clone()], groups_below(&path)].concat()).collect()
}

fn of_sandboxes() -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("burrow-"))
    };
    groups_below(&own_groups()[1]).into_iter().filter(is_ours).collect()
}

#[test]
fn memory_processors_and_processes_are_held_without_a_warning() {
    if !is_here() {
        return;
    }
    let burrow = Burrow::serving();
    let record = start(&burrow, &["--memory", "96", "--cpus", "0.5"]);
    let warnings = record["warnings"].as_array().cloned().unwrap_or_default();
    let is_unheld =
        |warning: &Value| warning.as_str().is_some_and(|text| text.contains("enforced"));
    assert!(!warnings.iter().any(is_unheld), "{record}");
    let read = |file: &str| {
        // Whichever of its groups the controller's files are in.
        let id = record["id"].as_str().expect("an id").to_owned();
        let groups = groups_below(&own_groups()[1]);
        let own = groups.iter().filter(|path| path.to_string_lossy().contains(&id));
        let found: Vec<_> = own.flat_map(|path| fs::read_to_string(path.join(file))).collect();
        found.into_iter().find(|text| !text.starts_with("max")).unwrap_or_default()
    };
    assert_eq!(read("memory.max").trim(), (96 << 20).to_string());
    assert_eq!(read("memory.swap.max").trim(), "0");
    assert_eq!(read("cpu.max").trim(), "50000 100000");
    let pids: u64 = read("pids.max").trim().parse().expect("a bound on processes, always");
    assert!(pids < 100_000, "{pids}");
    // All of that for a sandbox whose root is nobody outside.
    let map = burrow.ok(&["exec", "held", "--", "cat", "/proc/self/uid_map"]);
    let outside: u64 = map.split_whitespace().nth(1).expect("a map").parse().expect("an id");
    assert!(outside > 0, "{map}");
}

#[test]
fn a_sandbox_that_takes_too_much_memory_loses_the_program_and_not_the_agent() {
    if !is_here() {
        return;
    }
    let burrow = Burrow::serving();
    start(&burrow, &["--memory", "96"]);
    let hungry = "x = bytearray(300 << 20); print('had it')";
    let ended = burrow.run(&["exec", "held", "--", "python3", "-c", hungry]);
    assert_ne!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stdout));
    assert_eq!(burrow.ok(&["exec", "held", "--", "echo", "alive"]), "alive\n");
}

#[test]
fn a_fork_bomb_is_bounded_and_its_sandbox_goes_on() {
    if !is_here() {
        return;
    }
    let burrow = Burrow::serving();
    start(&burrow, &[]);
    // Threads count as processes do, and cost this small machine less.
    let bomb = "import os, threading\nmade = 0\nstop = threading.Event()\nthreading.stack_size(65536)\n\
                try:\n  while made < 40000:\n    \
                threading.Thread(target=stop.wait, daemon=True).start()\n    made += 1\n\
                except RuntimeError:\n  print(made, flush=True)\nos._exit(0)\n";
    let stdout = burrow.run(&["exec", "held", "--", "python3", "-c", bomb]).stdout;
    let made: u32 = String::from_utf8_lossy(&stdout).trim().parse().expect("it was bounded");
    assert!((100..10_000).contains(&made), "{made}: the whole machine has some twenty thousand");
    burrow.ok(&["rm", "--force", "held"]);
}

#[test]
fn sessions_are_limited_below_their_sandbox() {
    if !is_here() {
        return;
    }
    let burrow = Burrow::serving();
    for options in [&["--memory", "128", "--cpus", "1"][..], &[]] {
        start(&burrow, options);
        let inspected: Value =
            serde_json::from_str(&burrow.ok(&["inspect", "--json", "held"])).expect("JSON");
        let controllers = inspected["agent"]["controllers"].as_array().expect("a list").clone();
        for wanted in ["cpu", "memory", "pids"] {
            assert!(controllers.iter().any(|one| one == wanted), "{options:?}: {inspected}");
        }
        burrow.ok(&["rm", "--force", "held"]);
    }
}

#[test]
fn the_bridge_leaves_its_own_groups_as_they_were_and_no_group_behind() {
    if !is_here() {
        return;
    }
    let burrow = Burrow::serving();
    let record = start(&burrow, &["--memory", "96", "--cpus", "0.5"]);
    burrow.ok(&["run", "--", "true"]);
    burrow.ok(&["run", "--memory", "64", "--cpus", "0.5", "--", "true"]);
    // The kernel turns a group with processes into a threaded one if cpu or pids are handed down from it, and
    // then no child of it is ever of use.
    for group in own_groups() {
        let kind = fs::read_to_string(group.join("cgroup.type")).expect("a type");
        assert_eq!(kind.trim(), "domain", "{}", group.display());
    }
    assert!(!of_sandboxes().is_empty());
    burrow.ok(&["rm", "--force", "held"]);
    // Other tests run beside this one, with sandboxes of their own.
    let id = record["id"].as_str().expect("an id");
    let is_gone = || !of_sandboxes().iter().any(|path| path.to_string_lossy().contains(id));
    eventually("its groups are gone", is_gone);
}

#[test]
fn no_file_of_a_group_can_be_written_in_a_sandbox_and_no_neighbour_is_seen() {
    if !is_here() {
        return;
    }
    let burrow = Burrow::serving();
    start(&burrow, &["--memory", "96"]);
    let writes = "for file in cgroup.procs cgroup.kill cgroup.freeze cgroup.subtree_control memory.max pids.max cpu.max; do \
                  for place in /sys/fs/cgroup /sys/fs/cgroup/* /sys/fs/cgroup/..; do \
                  [ -e $place/$file ] && (echo 1 > $place/$file) 2>/dev/null && echo wrote $place/$file; done; done; \
                  mkdir /sys/fs/cgroup/mine 2>/dev/null && echo made; \
                  ls -d /sys/fs/cgroup/burrow-* /sys/fs/cgroup/*.slice 2>/dev/null; true";
    assert_eq!(burrow.ok(&["exec", "held", "--", "sh", "-c", writes]), "");
    // A file system of one's own is no way round that.
    let mounted = "mkdir /tmp/g && (mount -t cgroup2 none /tmp/g || unshare -UrmC mount -t cgroup2 none /tmp/g) 2>/dev/null && echo mounted; true";
    assert_eq!(burrow.ok(&["exec", "held", "--", "sh", "-c", mounted]), "");
}
