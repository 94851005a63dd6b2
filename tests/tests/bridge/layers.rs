//! Writable layers on the host's disk: more than the memory holds, a hard bound, and nothing that is left.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::small_disk::SmallDisk;
use tests::{Burrow, agent_path, bridge_path, eventually, have_or_skip, skip};

/// Layers that a bridge has ready for its next starts.
const SPARES: usize = 2;
/// An ordinary user, who need not exist.
const USER: u32 = 1000;

/// What a host needs for layers on disk, besides room.
fn disks_or_skip() -> bool {
    let control = File::options().read(true).write(true).open("/dev/loop-control");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let lacks = if !geteuid().is_root() {
        "only a bridge of root's can have layers on disk"
    } else if control.is_err() {
        "there are no loop devices here"
    } else if !mounts.lines().any(|line| line.starts_with("devtmpfs /dev devtmpfs")) {
        "/dev is not the kernel's here"
    } else {
        return have_or_skip("mkfs.ext4");
    };
    skip(lacks);
    false
}

/// The loop devices of a bridge's layers, by their directories in sysfs.
fn devices(burrow: &Burrow) -> Vec<PathBuf> {
    let state = burrow.state();
    let state = state.to_str().unwrap();
    let backed = |path: &PathBuf| fs::read_to_string(path.join("loop/backing_file"));
    let all = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| backed(path).is_ok_and(|file| file.contains(state))).collect()
}

/// Waits until so many sandboxes have a layer, and the next is ready.
fn await_layers(burrow: &Burrow, sandboxes: usize) {
    let expected = sandboxes + SPARES;
    eventually("so many layers are there", || devices(burrow).len() == expected);
}

fn assert_nothing_is_left(burrow: &Burrow) {
    eventually("every device of a layer is gone", || devices(burrow).is_empty());
    for entry in fs::read_dir(burrow.state().join("scratch")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(
            path.extension().unwrap_or_default(),
            "ext4",
            "{} is no template",
            path.display()
        );
    }
}

fn inspected(burrow: &Burrow, name: &str) -> Value {
    serde_json::from_str(&burrow.ok(&["inspect", "--json", name])).unwrap()
}

fn place(burrow: &Burrow, name: &str) -> (Value, u64) {
    let shown = inspected(burrow, name);
    (shown["scratch_place"].clone(), shown["scratch_bytes"].as_u64().unwrap())
}

fn shell(burrow: &Burrow, name: &str, script: &str) -> Output {
    burrow.run(&["exec", name, "--", "sh", "-c", script])
}

fn written(burrow: &Burrow, name: &str, script: &str) -> String {
    let output = shell(burrow, name, script);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// The sizes of layers without a size of their own: 4 GiB, or less where the disk has little room.
const USUAL_BYTES: [u64; 3] = [4 << 30, 2 << 30, 1 << 30];

/// Writes a gibibyte, or what a layer of a gibibyte holds beside its own tables.
fn large_file(layer_bytes: u64) -> (String, u64) {
    let mib = if layer_bytes > 1 << 30 { 1024 } else { 768 };
    let script =
        format!("dd if=/dev/zero of=/big bs=1M count={mib} status=none && stat -c %s /big");
    (script, mib << 20)
}

#[test]
fn a_sandbox_of_256_mib_of_memory_holds_a_gibibyte_of_files() {
    if !disks_or_skip() {
        return;
    }
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work", "--memory", "256M"]);
    let (at, bytes) = place(&burrow, "work");
    assert!(at == "disk" && USUAL_BYTES.contains(&bytes), "{bytes} bytes: {at}");
    let shown = format!("{}.0 GiB, on disk", bytes >> 30);
    assert!(burrow.ok(&["inspect", "work"]).contains(&shown), "{shown}");
    let (write, large) = large_file(bytes);
    assert_eq!(written(&burrow, "work", &write), format!("{large}\n"));
    eventually("the figures count the file", || {
        let used: Value = serde_json::from_str(&burrow.ok(&["stats", "--json", "work"])).unwrap();
        used[0]["disk_bytes"].as_u64().unwrap() >= large
    });
    burrow.ok(&["rm", "--force", "work"]);
    // Without a daemon, and without a name.
    let alone = burrow.ok(&["run", "--memory", "256M", "--", "sh", "-c", &write]);
    assert_eq!(alone, format!("{large}\n"));
    await_layers(&burrow, 0);
    burrow.end_daemon();
    assert_nothing_is_left(&burrow);
}

#[test]
fn a_full_layer_is_no_space_for_its_sandbox_and_nobody_else() {
    if !disks_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "small", "--memory", "256M", "--scratch", "64M"]);
    burrow.ok(&["start", "--name", "other", "--memory", "256M", "--scratch", "64M"]);
    let full = shell(&burrow, "small", "dd if=/dev/zero of=/big bs=1M count=100 && sync /big");
    let stderr = String::from_utf8_lossy(&full.stderr);
    assert!(!full.status.success() && stderr.contains("No space left on device"), "{stderr}");
    for name in ["small", "other"] {
        assert_eq!(written(&burrow, name, "echo lives"), "lives\n");
    }
    written(&burrow, "other", "echo x > /x && sync /x");
    // What is removed is there again, for the sandbox and for the host.
    written(&burrow, "small", "rm /big && dd if=/dev/zero of=/again bs=1M count=40 && sync /again");
}

#[test]
fn nothing_is_left_of_a_layer_however_its_sandbox_ends() {
    if !disks_or_skip() {
        return;
    }
    let mut burrow = Burrow::serving();
    let start = |burrow: &Burrow| {
        burrow.ok(&["start", "--name", "work", "--memory", "256M"]);
        await_layers(burrow, 1);
    };
    start(&burrow);
    burrow.ok(&["rm", "--force", "work"]);
    await_layers(&burrow, 0);
    start(&burrow);
    let pid = inspected(&burrow, "work")["pid"].as_i64().unwrap();
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    await_layers(&burrow, 0);
    burrow.ok(&["rm", "--force", "work"]);
    start(&burrow);
    burrow.kill_daemon();
    eventually("the layer that was ready goes with its bridge", || devices(&burrow).len() == 1);
    burrow.serve();
    written(&burrow, "work", "echo x > /x && sync /x");
    burrow.ok(&["rm", "--force", "work"]);
    assert_nothing_is_left(&burrow);
}

#[test]
fn a_sandbox_has_the_layer_that_was_ready_and_it_is_empty() {
    if !disks_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "first", "--memory", "256M"]);
    await_layers(&burrow, 1);
    // `/run` over the host's root is part of the layer; 7 is the number of loop devices.
    let device = |name: &str| {
        let words = "awk '$5 == \"/run\" { print $3 }' /proc/self/mountinfo";
        let number = written(&burrow, name, words).trim().to_owned();
        assert!(number.starts_with("7:"), "{number}");
        number
    };
    let numbers = devices(&burrow).into_iter().map(|path| fs::read_to_string(path.join("dev")));
    let numbers: Vec<_> = numbers.map(|number| number.unwrap().trim().to_owned()).collect();
    let first = device("first");
    written(&burrow, "first", "echo x > /mine && echo x > /run/mine");
    burrow.ok(&["start", "--name", "second", "--memory", "256M"]);
    let second = device("second");
    assert!(second != first && numbers.contains(&second), "{second} is none of {numbers:?}");
    written(&burrow, "second", "test ! -e /mine && test ! -e /run/mine && echo x > /mine");
}

#[test]
fn a_layer_of_another_size_is_made_when_it_is_needed() {
    if !disks_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    let size = |name: &str, size: &str| {
        burrow.ok(&["start", "--name", name, "--memory", "256M", "--scratch", size]);
        let kib = written(&burrow, name, "df -k --output=size / | tail -1");
        kib.trim().parse::<u64>().unwrap() >> 10
    };
    for (name, asked, mib) in [("a", "128M", 128), ("b", "64M", 64), ("c", "128M", 128)] {
        let found = size(name, asked);
        assert!((mib / 2..=mib).contains(&found), "{found} MiB of {mib}");
        eventually("the next is ready", || !devices(&burrow).is_empty());
    }
}

#[test]
fn fifty_sandboxes_at_once_each_have_a_layer_of_their_own() {
    const SANDBOXES: usize = 50;
    if !disks_or_skip() {
        return;
    }
    let mut server = Server::dev();
    let each = |work: &(dyn Fn(&Client, String) + Sync)| {
        thread::scope(|scope| {
            for number in 0..SANDBOXES {
                let url = server.url();
                scope.spawn(move || work(&Client::new(url), format!("s{number}")));
            }
        });
    };
    each(&|client, name| {
        client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
    });
    await_layers(&server, SANDBOXES);
    each(&|client, name| {
        let path = format!("/v1/sandboxes/default/{name}");
        let exec = json!({ "argv": ["sh", "-c", "test ! -e /mine && echo x > /mine"] });
        let ended = client.post(&format!("{path}/exec"), &exec).expect(200).json();
        assert_eq!(ended["exit_code"], 0, "{ended}");
        client.delete(&format!("{path}?force=true")).expect(200);
    });
    await_layers(&server, 0);
    server.end_and_serve_again();
    assert_nothing_is_left(&server);
}

#[test]
fn a_disk_that_fills_beneath_a_layer_is_an_error_of_its_writes_alone() {
    if !disks_or_skip() {
        return;
    }
    let mut burrow = Burrow::new();
    let Some(disk) = SmallDisk::mount_or_skip(&burrow.state(), 512 << 10) else { return };
    burrow.serve();
    let refused = burrow.run(&["start", "--name", "large", "--memory", "256M", "--scratch", "4G"]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(
        stderr.contains("it cannot be on disk: 5") && stderr.contains("are needed"),
        "{stderr}"
    );
    // There is no room for one of the usual size either, and it is not asked for.
    burrow.ok(&["start", "--name", "usual", "--memory", "256M"]);
    assert_eq!(place(&burrow, "usual"), (json!("memory"), 192 << 20));
    burrow.ok(&["start", "--name", "work", "--memory", "256M", "--scratch", "128M"]);
    assert_eq!(place(&burrow, "work").0, "disk");
    let filler = disk.fill();
    let failed = shell(&burrow, "work", "dd if=/dev/zero of=/big bs=1M count=64 && sync /big");
    assert!(!failed.status.success(), "nothing has taken it");
    for name in ["work", "usual"] {
        assert_eq!(written(&burrow, name, "echo lives"), "lives\n");
    }
    filler.remove();
    burrow.ok(&["rm", "--force", "work"]);
    burrow.ok(&["start", "--name", "work", "--memory", "256M", "--scratch", "128M"]);
    written(&burrow, "work", "echo x > /x && sync /x");
    burrow.ok(&["rm", "--force", "work", "usual"]);
    burrow.end_daemon();
    assert_nothing_is_left(&burrow);
}

#[test]
fn the_operator_says_where_layers_are() {
    if !disks_or_skip() {
        return;
    }
    let with = |value: &str, options: &[&str]| {
        let mut burrow = Burrow::new();
        let config = burrow.scratch().join("burrow.toml");
        fs::write(&config, format!("[process]\nscratch = \"{value}\"\n")).unwrap();
        burrow.serve_with(&["--config", config.to_str().unwrap()]);
        burrow.ok(&[&["start", "--name", "work"], options].concat());
        place(&burrow, "work")
    };
    assert_eq!(with("memory", &["--memory", "512M"]), (json!("memory"), 384 << 20));
    let (at, bytes) = with("disk", &[]);
    assert!(at == "disk" && USUAL_BYTES.contains(&bytes), "{bytes} bytes: {at}");
    assert_eq!(with("auto", &[]), (json!("memory"), 1 << 30));
    assert_eq!(with("auto", &["--scratch", "2G"]), (json!("disk"), 2 << 30));
}

#[test]
fn a_sandbox_sees_neither_the_device_of_its_layer_nor_a_way_to_make_one() {
    if !disks_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work", "--memory", "256M"]);
    let nodes = written(&burrow, "work", "ls -d /dev/loop* 2>/dev/null | wc -l; ls /dev | wc -l");
    assert!(nodes.starts_with("0\n") && nodes != "0\n0\n", "{nodes}");
    // A node of the same number opens nothing.
    let numbers = fs::read_to_string(devices(&burrow)[0].join("dev")).unwrap().replace(':', " ");
    let made = shell(&burrow, "work", &format!("mknod /node b {numbers} && cat /node > /dev/null"));
    assert!(!made.status.success());
}

#[test]
fn layers_of_an_ordinary_user_are_in_memory_and_a_larger_one_is_refused_with_the_reason() {
    if !geteuid().is_root() {
        return skip("the other tests are an ordinary user's already");
    }
    let burrow = Burrow::new();
    let home = burrow.scratch();
    fs::set_permissions(home, fs::Permissions::from_mode(0o755)).unwrap();
    for (from, name) in [(agent_path(), "guest-agent"), (bridge_path(), "host-bridge")] {
        fs::copy(from, home.join(name)).unwrap();
    }
    let own = home.join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(USER), Some(USER)).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(home.join("host-bridge"));
        command
            .args(arguments)
            .env("BURROW_AGENT", home.join("guest-agent"))
            .env("BURROW_RUNTIME_DIR", own.join("run"))
            .env("BURROW_STATE_DIR", own.join("state"))
            .env("HOME", &own)
            .uid(USER)
            .gid(USER)
            .current_dir("/");
        command.output().unwrap()
    };
    let refused = run(&["run", "--memory", "256M", "--scratch", "1G", "--", "true"]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(
        stderr.contains("scratch_bytes (--scratch) must be at most 192.0 MiB, not 1.0 GiB"),
        "{stderr}"
    );
    assert!(stderr.contains("the bridge is an ordinary user's"), "{stderr}");
    let ran = run(&["run", "--memory", "256M", "--", "df", "-B1", "--output=size", "/"]);
    let (out, stderr) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if stderr.contains("namespace") {
        return skip("ordinary users have no user namespaces here");
    }
    assert_eq!(out.lines().last().map(str::trim), Some("201326592"), "{stderr}");
}
