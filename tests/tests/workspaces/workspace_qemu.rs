//! Workspaces that are mounted in machines of QEMU: the guest sees the directory itself, and the host decides
//! what it may do there, whatever its kernel does. Skipped without machines.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::machines::{kit, machines_or_skip, process_of};
use tests::workspaces::Scene;
use tests::{Burrow, agent_path, bridge_path, children, eventually, have_or_skip, skip};

const DAEMON: &str = "virtiofsd";
const IMAGE: &str = "python";
/// An ordinary user, who need not exist.
const USER: u32 = 1000;

/// Whether what these need is here; without, they say that they do nothing.
fn mounts_or_skip() -> bool {
    if !machines_or_skip() {
        return false;
    }
    let places = ["/usr/libexec", "/usr/lib/qemu", "/usr/bin", "/usr/local/bin"];
    let is_there = places.iter().any(|place| Path::new(place).join(DAEMON).is_file());
    if !is_there {
        skip("there is no virtiofsd here");
    }
    is_there
}

/// A machine with this workspace, and its supervisor.
fn start(scene: &Scene, name: &str, more: &[&str]) -> u32 {
    let words = ["start", "--json", "--name", name, "--machine", "qemu", "--image", IMAGE];
    let words = [&words[..], &["--memory", "192"], more].concat();
    let record: Value = serde_json::from_str(&scene.server.ok(&words)).unwrap();
    record["pid"].as_u64().unwrap() as u32
}

/// A script whose failure is looked at, and what it says to that.
fn fails(scene: &Scene, script: &str) -> String {
    let script = format!("cd /workspace; {script}");
    let output = scene.server.run(&["exec", "a", "--", "sh", "-ec", &script]);
    assert!(!output.status.success(), "{script}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Begins a command whose words are not looked at.
fn quiet(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The daemon, and the process that it has shut in.
fn daemons(supervisor: u32) -> Vec<Pid> {
    let daemon = process_of(supervisor, DAEMON);
    [vec![daemon], children(daemon)].concat()
}

/// Which of the two programs of that name it is.
fn is_later(supervisor: u32) -> bool {
    let words = fs::read(format!("/proc/{}/cmdline", process_of(supervisor, DAEMON))).unwrap();
    String::from_utf8_lossy(&words).contains("--shared-dir")
}

fn is_alive(pid: Pid) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|state| !state.contains(") Z "))
}

/// What is shown of the sandbox when it has stopped.
fn stopped(scene: &Scene) -> String {
    let mut shown = String::new();
    eventually("the sandbox has stopped", || {
        shown = scene.server.ok(&["inspect", "a"]);
        shown.contains("stopped")
    });
    shown
}

/// The sandbox says why it has stopped, and nothing is left of it once it is removed.
fn assert_ended_with_its_daemon(scene: &Scene, processes: &[Pid]) {
    let shown = stopped(scene);
    assert!(shown.contains("virtiofsd has ended"), "{shown}");
    scene.server.ok(&["rm", "a"]);
    assert_gone(scene, processes);
}

/// Nothing of it is left: no process, and nothing in the directory of its sockets.
fn assert_gone(scene: &Scene, processes: &[Pid]) {
    eventually("its processes are gone", || !processes.iter().copied().any(is_alive));
    let boxes = fs::read_dir(scene.server.runtime().join("boxes"));
    let left: Vec<_> = boxes.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(scene.server.scratch().to_str().unwrap()), "{mounts}");
}

#[test]
fn each_side_sees_the_others_writes_at_once() {
    if !mounts_or_skip() {
        return;
    }
    let mut scene = Scene::with("mount = true");
    let supervisor = start(&scene, "a", &["--workspace", "p"]);
    let seen = scene.sh("a", "cat readme src/deep/code; readlink link; ./src/tool; ls -A");
    assert_eq!(seen, "helloone\nreadme\ntool\nlink\nreadme\nsrc\n");
    scene.sh("a", "echo two >> src/deep/code; rm readme; mkdir out; echo o > out/o");
    assert_eq!(
        (scene.read("src/deep/code"), scene.read("out/o")),
        ("one\ntwo\n".into(), "o\n".into())
    );
    assert!(!scene.has("readme"));
    // What one side has looked at a moment ago is looked at again.
    for round in 0..5 {
        let text = format!("of the host {round}");
        fs::write(scene.project.join("fresh"), &text).unwrap();
        assert_eq!(
            scene.sh("a", "cat fresh; stat -c ' %s' fresh"),
            format!("{text} {}\n", text.len())
        );
        fs::remove_file(scene.project.join("fresh")).unwrap();
        assert_eq!(scene.sh("a", "test -e fresh || echo none"), "none\n");
    }
    let mounts = scene.sh("a", "grep ' /workspace ' /proc/self/mounts");
    for part in ["virtiofs", "nosuid", "nodev", "rw,"] {
        assert!(mounts.contains(part), "{mounts}");
    }
    // A large file, both ways, and a program that is run from it by a mapping.
    scene.sh("a", "dd if=/dev/urandom of=large bs=1M count=96 status=none; sha256sum large > sum");
    let sum = scene.read("sum").split(' ').next().unwrap().to_owned();
    fs::copy(scene.project.join("large"), scene.project.join("copy")).unwrap();
    assert!(scene.sh("a", "sha256sum copy; rm large copy").starts_with(&sum));
    let mapped = "import mmap; f = open('mapped', 'w+b'); f.truncate(8192); \
                  m = mmap.mmap(f.fileno(), 8192); m[:3] = b'abc'; m.flush()";
    let mapped = format!("python3 -c \"{mapped}\"");
    if is_later(supervisor) {
        // It keeps nothing of files in the guest, so that there is nothing to map.
        assert!(fails(&scene, &mapped).contains("No such device"));
    } else {
        scene.sh("a", &mapped);
        assert!(scene.read("mapped").starts_with("abc"));
    }
    // Files are whose they are by number, and have the mode that was asked for.
    let made = "umask 027; echo r > roots; python3 -c \"import os; os.setgid(1001); os.setuid(1000); \
                open('out/users', 'w')\"; chmod 640 out/users";
    scene.sh("a", &format!("chmod 777 out; {made}"));
    let looked = |path: &str| {
        let found = fs::metadata(scene.project.join(path)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    assert_eq!((looked("roots"), looked("out/users")), ((0, 0, 0o640), (1000, 1001, 0o640)));
    // There is nothing to bring back.
    assert_eq!(scene.sync("a")["written"], json!([]));
    assert!(scene.server.ok(&["inspect", "a"]).contains("mounted"));
    // The directory stays with the sandbox, whatever happens to the bridge.
    let processes = daemons(supervisor);
    assert_eq!(processes.len(), 2);
    scene.server.kill_and_serve_again();
    scene.sh("a", "echo later > later");
    assert_eq!(scene.read("later"), "later\n");
    assert!(!scene.warnings("a").contains("workspace"), "{}", scene.warnings("a"));
    assert_eq!(daemons(supervisor), processes);
    let before = scene.tree();
    scene.server.ok(&["stop", "a"]);
    scene.server.ok(&["rm", "a"]);
    assert_eq!(scene.tree(), before);
    assert_gone(&scene, &processes);
}

#[test]
fn only_what_may_be_written_can_be_written_also_by_a_root_that_mounts_again() {
    if !mounts_or_skip() {
        return;
    }
    let scene = Scene::with("mount = true\nwrite = [\"out/\", \"src/deep\"]");
    let body = json!({ "name": "a", "workspace": "p", "machine": "qemu", "image": IMAGE });
    scene.wants_its_directory(&body, "out");
    start(&scene, "a", &["--workspace", "p"]);
    // The guest's own mount is of no weight: its root changes it, and makes others.
    scene
        .sh("a", "mount -o remount,rw /workspace; mkdir /again; mount -t virtiofs virtiofs /again");
    scene.sh("a", "echo x > out/x; echo two >> src/deep/code; echo y > /again/out/y");
    assert_eq!(
        (scene.read("out/x"), scene.read("out/y"), scene.read("src/deep/code")),
        ("x\n".into(), "y\n".into(), "one\ntwo\n".into())
    );
    for script in [
        "echo x > readme",
        "echo x > /again/readme",
        "rm readme",
        "mkdir new",
        "mv out old",
        "echo x > src/tool",
        "chmod 777 readme",
        "touch readme",
        "ln readme out/readme",
        "mv src/tool out/tool",
        "python3 -c \"import os; os.truncate('readme', 0)\"",
    ] {
        let message = fails(&scene, script);
        let is_refused =
            ["ead-only", "busy", "cross-device"].iter().any(|word| message.contains(word));
        assert!(is_refused, "{script}: {message}");
    }
    assert_eq!(scene.read("readme"), "hello");

    let scene = Scene::with("mount = true\nread_only = true");
    start(&scene, "a", &["--workspace", "p"]);
    scene.sh("a", "mount -o remount,rw /workspace");
    assert!(fails(&scene, "echo x > readme").contains("ead-only"));
    assert_eq!(scene.sh("a", "cat readme"), "hello");
}

#[test]
fn nothing_leads_out_and_nothing_is_left_that_would_run_as_another() {
    if !mounts_or_skip() {
        return;
    }
    let scene = Scene::with("mount = true");
    fs::write(scene.server.scratch().join("outside"), "the host's").unwrap();
    // A program that the host has there already keeps its bits only as long as it is the host's.
    let own = scene.project.join("own");
    fs::write(&own, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&own, Permissions::from_mode(0o6755)).unwrap();
    let supervisor = start(&scene, "a", &["--workspace", "p"]);
    let lure = scene.server.scratch().join("outside").display().to_string();
    scene.sh("a", &format!("ln -s {lure} lure; ln -s ../../outside up; ln -s / way"));
    for script in ["cat lure", "cat up", "cat ../outside", &format!("cat way{lure}")] {
        assert!(fails(&scene, script).contains("No such file"), "{script}");
    }
    // Nor from the guest's kernel, which may ask for what it likes.
    scene.sh("a", "mkdir -p /over/x; mount --bind /workspace /over/x");
    assert_eq!(scene.sh("a", "cd /over/x; ls .. ; cat src/../../x/readme"), "x\nhello");
    // The daemon itself is shut in: the directory is its root.
    let shut_in = *daemons(supervisor).last().unwrap();
    let root = fs::read_dir(format!("/proc/{shut_in}/root")).unwrap().flatten();
    let mut names: Vec<_> = root.map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["link", "lure", "own", "readme", "src", "up", "way"]);
    let limits = fs::read_to_string(format!("/proc/{shut_in}/limits")).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files: u64 = files.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert!(files <= 262_144, "{limits}");

    scene.sh("a", "cp /bin/sh tool; cp tool /tmp/set; chmod 6755 /tmp/set; mkdir shared");
    for script in ["chmod 4755 tool", "chmod 2755 tool", "chmod u+s tool", "chmod g+s shared"] {
        assert!(fails(&scene, script).contains("not permitted"), "{script}");
    }
    for script in ["mknod null c 1 3", "mknod disk b 8 0", "cp -p /tmp/set set"] {
        assert!(fails(&scene, script).contains("not permitted"), "{script}");
    }
    let open = "import os; os.open('opened', os.O_CREAT | os.O_WRONLY, 0o4755)";
    assert!(fails(&scene, &format!("python3 -c \"{open}\"")).contains("not permitted"));
    // A file that is made, with the bits, by the call for devices.
    let node = "import os, stat; os.mknod('node', 0o4755 | stat.S_IFREG)";
    assert!(fails(&scene, &format!("python3 -c \"{node}\"")).contains("not permitted"));
    let capable = "import os; os.setxattr('tool', 'security.capability', bytes(20))";
    fails(&scene, &format!("python3 -c \"{capable}\""));
    scene.sh("a", "cat /bin/sh > own; mkfifo pipe; chmod 1777 shared");
    let mut stack = vec![scene.project.clone()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let (found, path) = (entry.metadata().unwrap(), entry.path());
            assert_eq!(found.mode() & 0o6000, 0, "{path:?}");
            assert_eq!(found.rdev(), 0, "{path:?}");
            stack.extend(found.is_dir().then_some(path));
        }
    }
}

#[test]
fn a_machine_whose_daemon_has_ended_ends_and_says_so_and_nobody_hangs() {
    if !mounts_or_skip() {
        return;
    }
    let mut scene = Scene::with("mount = true");
    // The one that was started, and the one that it has shut in.
    for victim in [0, 1] {
        let supervisor = start(&scene, "a", &["--workspace", "p"]);
        let processes = daemons(supervisor);
        let mut command = scene.server.command(&["exec", "a", "--", "sh", "-c"]);
        command.arg("cd /workspace; echo ready; while :; do echo x >> busy; cat busy > copy; done");
        let mut busy = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(busy.stdout.as_mut().unwrap(), &mut ready).unwrap();
        kill(processes[victim], Signal::SIGKILL).unwrap();
        eventually("the program ends", || busy.try_wait().unwrap().is_some());
        assert!(!busy.wait().unwrap().success());
        assert_ended_with_its_daemon(&scene, &processes);
    }
    // Nor where nobody was there to see it: the next bridge does.
    let supervisor = start(&scene, "a", &["--workspace", "p"]);
    let processes = daemons(supervisor);
    scene.server.kill_daemon_for_a_moment(|| {
        kill(processes[1], Signal::SIGKILL).unwrap();
        eventually("the daemon has ended", || !processes.iter().copied().any(is_alive));
    });
    assert_ended_with_its_daemon(&scene, &processes);
    // A machine that was switched off from within disconnects first, so no reason is reported for
    // it.
    for script in ["echo o > /proc/sysrq-trigger", "sync; kill 1"] {
        start(&scene, "a", &["--workspace", "p"]);
        let script = format!("echo x > /workspace/x; {script}; sleep 100");
        scene.server.run(&["exec", "a", "--", "sh", "-c", &script]);
        let shown = stopped(&scene);
        assert!(!shown.contains("virtiofsd"), "{shown}");
        scene.server.ok(&["rm", "a"]);
    }
    // A daemon that no longer answers, so that callers wait: the sandbox is ended anyway.
    for verb in ["kill", "rm"] {
        let supervisor = start(&scene, "a", &["--workspace", "p"]);
        let processes = daemons(supervisor);
        scene.server.ok(&["repl", "a", "-w", "/", "-c", "x = 1"]);
        kill(processes[1], Signal::SIGSTOP).unwrap();
        // They begin in the workspace, as by default, and are more than the agent has threads for.
        let hanging: [&[&str]; 4] = [
            &["exec", "a", "--", "true"],
            &["exec", "a", "--", "true"],
            &["exec", "a", "--", "true"],
            &["repl", "a", "--context", "other", "-c", "1"],
        ];
        let mut hanging = hanging.map(|words| quiet(scene.server.command(words)));
        let waiting = ["exec", "--detach", "-w", "/", "a", "--", "sh", "-c", "ls -R /workspace"];
        scene.server.ok(&waiting);
        // Everything else goes on meanwhile.
        eventually("the interpreter is being started", || {
            let listed: Value =
                serde_json::from_str(&scene.server.ok(&["context", "ls", "--json", "a"])).unwrap();
            listed.as_array().unwrap().iter().any(|context| context["state"] == "starting")
        });
        for word in ["one", "two", "three"] {
            let said = scene.server.ok(&["exec", "-w", "/", "a", "--", "echo", word]);
            assert_eq!(said.trim_end(), word);
        }
        assert_eq!(scene.server.ok(&["repl", "a", "-c", "print(x)"]), "1\n");
        scene.server.ok(&["context", "close", "a", "other"]);
        let ended = hanging.each_mut().map(|child| child.try_wait().unwrap().is_some());
        assert_eq!(ended[..3], [false; 3], "they wait");
        let force: &[&str] = if verb == "rm" { &["--force"] } else { &[] };
        scene.server.ok(&[&[verb], force, &["a"]].concat());
        if verb == "kill" {
            scene.server.ok(&["rm", "a"]);
        }
        // A process that was stopped from outside cannot follow the others until it goes on.
        let _ = kill(processes[1], Signal::SIGCONT);
        assert_gone(&scene, &processes);
        for mut child in hanging {
            assert!(!child.wait().unwrap().success(), "its sandbox was ended");
        }
    }
}

#[test]
fn impossible_mounts_are_refused_with_a_reason_and_the_pool_is_untouched() {
    if !mounts_or_skip() {
        return;
    }
    let ready = "entries = [\"python=1 machine=qemu memory_mib=192\"]";
    let scene = Scene::with(&format!("mount = true\n[pool]\n{ready}"));
    let shelf = || {
        let shelves: Value = serde_json::from_str(&scene.server.ok(&["pool", "--json"])).unwrap();
        shelves[0].clone()
    };
    eventually("a machine is ready", || shelf()["ready"] == 1);
    let path = scene.project.to_str().unwrap();
    start(&scene, "a", &["--workspace", path, "--mount"]);
    assert_eq!((&shelf()["ready"], &shelf()["claimed"]), (&json!(1), &json!(0)));
    scene.sh("a", "echo a > a");
    let refused = scene.server.run(&["snapshot", "a", "s"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("mounted"), "{stderr}");
    // It has lost nothing by that.
    assert_eq!(scene.sh("a", "cat a"), "a\n");
    let refused = scene.server.run(&["image", "commit", "a", "made:1"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("workspace"));
    scene.server.ok(&["rm", "--force", "a"]);
}

#[test]
fn a_paused_machine_goes_on_with_its_mount() {
    if !mounts_or_skip() {
        return;
    }
    let mut scene = Scene::with("mount = true");
    start(&scene, "a", &["--workspace", "p"]);
    let script = "cd /workspace; i=0; while [ ! -e enough ]; do i=$((i+1)); echo $i >> log; done; echo end >> log";
    for is_killed in [false, true] {
        fs::remove_file(scene.project.join("enough")).ok();
        scene.server.ok(&["exec", "--detach", "a", "--", "sh", "-c", script]);
        eventually("it writes", || scene.has("log"));
        scene.server.ok(&["pause", "a"]);
        let before = scene.read("log");
        if is_killed {
            scene.server.kill_and_serve_again();
        }
        File::options()
            .append(true)
            .open(scene.project.join("log"))
            .unwrap()
            .write_all(b"host\n")
            .unwrap();
        assert_eq!(scene.read("log"), before + "host\n");
        scene.server.ok(&["resume", "a"]);
        File::create(scene.project.join("enough")).unwrap();
        eventually("it goes on", || scene.read("log").ends_with("end\n"));
        fs::remove_file(scene.project.join("log")).unwrap();
    }
    scene.server.ok(&["kill", "a"]);
}

#[test]
fn every_board_has_it() {
    if !mounts_or_skip() {
        return;
    }
    for board in ["q35", "microvm"] {
        let scene =
            Scene::within(Burrow::new().variable("BURROW_QEMU_BOARD", board), "mount = true");
        start(&scene, "a", &["--workspace", "p"]);
        assert_eq!(scene.sh("a", "cat readme; echo x > x"), "hello", "{board}");
        assert_eq!(scene.read("x"), "x\n", "{board}");
        scene.server.ok(&["rm", "--force", "a"]);
    }
}

#[test]
fn one_command_has_it_and_its_end_is_that_of_the_daemon() {
    if !mounts_or_skip() {
        return;
    }
    let scene = Scene::usual();
    let path = scene.project.to_str().unwrap();
    let words =
        ["run", "--machine", "qemu", "--image", IMAGE, "--workspace", path, "--mount", "--"];
    let script = "cat /workspace/readme; echo ran > /workspace/ran";
    let output = scene.server.ok(&[&words[..], &["sh", "-c", script]].concat());
    assert_eq!((output, scene.read("ran")), ("hello".into(), "ran\n".into()));
    // Its bridge is killed.
    let mut command = scene.server.command(&words);
    command.args(["sh", "-c", "echo up; sleep 1000"]).stdout(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut up = [0; 3];
    std::io::Read::read_exact(running.stdout.as_mut().unwrap(), &mut up).unwrap();
    let supervisors = children(Pid::from_raw(running.id() as i32));
    let processes = daemons(supervisors[0].as_raw() as u32);
    running.kill().unwrap();
    running.wait().unwrap();
    assert_gone(&scene, &[supervisors, processes].concat());
}

#[test]
fn without_its_daemon_or_its_driver_nothing_is_started_and_the_reason_is_given() {
    if !mounts_or_skip() || !have_or_skip("unshare") {
        return;
    }
    let scene = Scene::usual();
    let path = scene.project.to_str().unwrap();
    let words =
        ["run", "--machine", "qemu", "--image", IMAGE, "--workspace", path, "--mount", "--"];
    let words = [&words[..], &["cat", "/workspace/readme"]].concat();
    let plain = scene.server.command(&words);
    let hide = "all=$PATH:/usr/libexec:/usr/lib/qemu:/usr/local/bin; IFS=:; for at in $all; do \
                [ ! -e $at/virtiofsd ] || mount --bind /dev/null $at/virtiofsd; done; exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec", hide, "sh"])
        .arg(plain.get_program())
        .args(plain.get_args());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let refused = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("virtiofsd is missing"), "{stderr}");
    assert!(stderr.contains("apt-get install"), "{stderr}");

    // A kernel without the driver: its list of modules names another device for that.
    let other = scene.server.scratch().join("kit");
    fs::create_dir(&other).unwrap();
    for entry in fs::read_dir(kit()).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        symlink(entry.path(), other.join(entry.file_name())).unwrap();
    }
    let mut initramfs = fs::read(kit().join("initramfs.cpio")).unwrap();
    let line = b"virtiofs.ko 1a\n";
    let at = initramfs.windows(line.len()).position(|window| window == line).expect("it is listed");
    initramfs[at + line.len() - 3..at + line.len() - 1].copy_from_slice(b"7f");
    fs::remove_file(other.join("initramfs.cpio")).unwrap();
    fs::write(other.join("initramfs.cpio"), initramfs).unwrap();
    let refused = scene.server.command(&words).env("BURROW_IMAGES", &other).output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("/workspace"), "{stderr}");
    assert!(!stderr.contains("hello"), "{stderr}");
}

#[test]
fn an_ordinary_users_machine_has_it_with_that_users_rights() {
    if !mounts_or_skip() || !have_or_skip("setpriv") {
        return;
    }
    if !nix::unistd::Uid::effective().is_root() {
        skip("the other tests are an ordinary user's already");
        return;
    }
    let home = tempfile::TempDir::with_prefix("burrow-").unwrap();
    fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    for name in ["kit", "run", "state", "home", "project"] {
        fs::create_dir(home.path().join(name)).unwrap();
        chown(home.path().join(name), Some(USER), Some(USER)).unwrap();
    }
    for name in ["vmlinux", "vmlinuz", "initramfs.cpio", "python.erofs"] {
        fs::copy(kit().join(name), home.path().join("kit").join(name)).unwrap();
    }
    for (from, name) in [(bridge_path(), "host-bridge"), (agent_path(), "guest-agent")] {
        fs::copy(from, home.path().join(name)).unwrap();
    }
    let project = home.path().join("project");
    fs::write(project.join("roots"), "root's").unwrap();
    fs::set_permissions(project.join("roots"), Permissions::from_mode(0o600)).unwrap();
    // With a group besides, which the user cannot give up.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--groups", "1000,100"]);
    command.arg(home.path().join("host-bridge"));
    command.args(["run", "--machine", "qemu", "--image", IMAGE, "--mount", "--workspace"]);
    command.arg(&project).args(["--", "sh", "-c"]);
    command.arg("cd /workspace; id -u; echo x > x; cat roots; chmod 4755 x; mknod n c 1 3");
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path().join("home"));
    command.env("BURROW_RUNTIME_DIR", home.path().join("run"));
    command.env("BURROW_STATE_DIR", home.path().join("state"));
    command.env("BURROW_IMAGES", home.path().join("kit"));
    let answer = command.current_dir("/").output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
    if err.contains("user namespace") {
        skip("ordinary users have no user namespaces here");
        return;
    }
    assert_eq!(out, "0\n", "{err}");
    assert!(err.contains("ermission denied"), "{err}");
    let made = fs::metadata(project.join("x")).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o7777), (USER, 0o644), "{err}");
    assert!(!project.join("n").exists());
}
