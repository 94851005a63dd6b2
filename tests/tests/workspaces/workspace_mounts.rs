//! Workspaces that are mounted: the directory itself is at `/workspace`, what may be written is what was
//! said, and nothing in it leads out of the sandbox, or the bridge out of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::json;
use tests::http::Client;
use tests::workspaces::Scene;
use tests::{agent_path, bridge_path, skip};

/// An ordinary user, who need not exist.
const USER: u32 = 1000;

/// A script whose failure is looked at, and what it says to that.
fn fails(scene: &Scene, script: &str) -> String {
    let script = format!("cd /workspace; {script}");
    let output = scene.server.run(&["exec", "a", "--", "sh", "-ec", &script]);
    assert!(!output.status.success(), "{script}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn each_side_sees_the_others_writes_at_once() {
    let mut scene = Scene::with("mount = true");
    scene.start("a", "p");
    let seen = scene.sh("a", "cat readme src/deep/code; readlink link; ./src/tool; ls -A");
    assert_eq!(seen, "helloone\nreadme\ntool\nlink\nreadme\nsrc\n");
    scene.sh("a", "echo two >> src/deep/code; rm readme; mkdir out; echo o > out/o");
    assert_eq!(
        (scene.read("src/deep/code"), scene.read("out/o")),
        ("one\ntwo\n".into(), "o\n".into())
    );
    assert!(!scene.has("readme"));
    fs::write(scene.project.join("fresh"), "of the host").unwrap();
    assert_eq!(scene.sh("a", "cat fresh"), "of the host");
    let mounts = scene.sh("a", "grep ' /workspace ' /proc/self/mounts");
    for flag in ["nosuid", "nodev", "rw,"] {
        assert!(mounts.contains(flag), "{mounts}");
    }
    // There is nothing to bring back.
    assert_eq!(scene.sync("a")["written"], json!([]));
    assert!(scene.server.ok(&["inspect", "a"]).contains("mounted"));
    // The directory stays with the sandbox, whatever happens to the bridge.
    scene.server.kill_and_serve_again();
    scene.sh("a", "echo later > later");
    assert_eq!((scene.read("later"), scene.warnings("a")), ("later\n".into(), "[]".into()));
    let before = scene.tree();
    scene.server.ok(&["stop", "a"]);
    scene.server.ok(&["rm", "a"]);
    assert_eq!(scene.tree(), before);
    // One that is killed loses nothing of it, and another gets it as it is.
    scene.start("a", "p");
    assert_eq!(scene.sh("a", "cat later; echo last > last"), "later\n");
    scene.server.ok(&["kill", "a"]);
    assert_eq!(scene.read("last"), "last\n");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(scene.project.to_str().unwrap()), "the host has a mount of it left");
}

#[test]
fn only_what_may_be_written_can_be_written() {
    let scene = Scene::with("mount = true\nwrite = [\"out/\", \"src/deep\"]");
    let body = json!({ "name": "a", "workspace": "p" });
    scene.wants_its_directory(&body, "out");
    scene.start("a", "p");
    scene.sh("a", "echo x > out/x; echo two >> src/deep/code");
    assert_eq!(
        (scene.read("out/x"), scene.read("src/deep/code")),
        ("x\n".into(), "one\ntwo\n".into())
    );
    for script in ["echo x > readme", "rm readme", "mkdir new", "mv out old", "echo x > src/tool"] {
        let message = fails(&scene, script);
        assert!(message.contains("ead-only") || message.contains("busy"), "{script}: {message}");
    }
    for script in ["mount -o remount,rw /workspace", "umount /workspace/out", "umount /workspace"] {
        fails(&scene, script);
    }
    assert_eq!(scene.read("readme"), "hello");

    let scene = Scene::with("mount = true\nread_only = true");
    scene.start("a", "p");
    assert!(fails(&scene, "echo x > readme").contains("ead-only"));
    assert_eq!(scene.sh("a", "cat readme"), "hello");
}

#[test]
fn links_in_it_lead_nobody_out_of_the_sandbox() {
    let scene = Scene::with("mount = true");
    let outside = scene.server.scratch().join("outside");
    fs::write(&outside, "the host's").unwrap();
    scene.start("a", "p");
    let lure = outside.display();
    scene.sh(
        "a",
        &format!("ln -s {lure} lure; ln -s / way; echo own > /tmp/own; ln -s /tmp/own own"),
    );
    // The guest follows them, in its own root.
    assert!(fails(&scene, "cat lure").contains("No such file"));
    assert_eq!(scene.sh("a", "cat own; cat way/tmp/own"), "own\nown\n");
    let copied = scene.server.scratch().join("copied");
    let copy = |from: &str| {
        fs::remove_file(&copied).ok();
        scene.server.run(&["cp", from, copied.to_str().unwrap()]);
        fs::read_to_string(&copied).unwrap_or_default()
    };
    assert_ne!(copy("a:/workspace/lure"), "the host's");
    assert_ne!(copy("a:/workspace/way/../../outside"), "the host's");
    // An image would have the host's files in it.
    let refused = scene.server.run(&["image", "commit", "a", "made:1"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("workspace"), "{stderr}");
    // Device nodes on it are void.
    fails(&scene, "mknod null c 1 3 && echo x > null");
}

#[test]
fn nothing_is_started_if_nothing_can_be_mounted() {
    let scene = Scene::with("mount = true");
    let client = Client::new(scene.server.url());
    for machine in ["firecracker", "cloud-hypervisor"] {
        let body = json!({ "name": "a", "workspace": "p", "machine": machine });
        let refused = client.post("/v1/sandboxes", &body);
        assert!((400..500).contains(&refused.status), "{}", refused.text());
        assert!(refused.text().contains("virtiofs"), "{machine}: {}", refused.text());
    }
    // Nobody may see the files that control the sandboxes.
    for own in [scene.server.state(), scene.server.state().parent().unwrap().to_owned()] {
        let own = own.to_str().unwrap();
        let refused = scene.server.run(&["start", "--name", "a", "--workspace", own, "--mount"]);
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && stderr.contains("this bridge's"), "{stderr}");
    }
    let refused = scene.server.run(&["start", "--name", "a", "--workspace", "closed", "--mount"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("configuration"));
    assert_eq!(scene.server.ok(&["ps", "--all", "--quiet"]), "");
    // A limit that nobody enforces is no limit.
    let config = scene.server.scratch().join("limits.toml");
    let text =
        "[workspaces.p]\npath = \"/srv\"\nnamespaces = \"*\"\nmount = true\nentries_max = 5\n";
    fs::write(&config, text).unwrap();
    let refused = scene.server.run(&["serve", "--config", config.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("entries_max"), "{stderr}");
}

#[test]
fn a_directory_that_is_exchanged_while_it_is_mounted_is_not_mounted() {
    const STARTS: usize = 40;
    let scene = Scene::with("mount = true\nwrite = [\"outputs/\"]");
    let (real, link) = (scene.project.join("outputs"), scene.project.join("lure"));
    fs::create_dir(&real).unwrap();
    symlink("/proc/sys", &link).unwrap();
    let ended = AtomicBool::new(false);
    let mut started = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let flags = RenameFlags::RENAME_EXCHANGE;
                renameat2(AT_FDCWD, &real, AT_FDCWD, &link, flags).unwrap();
            }
        });
        let guard = Ending(&ended);
        for _ in 0..STARTS {
            let begun = scene.server.run(&["start", "--name", "a", "--workspace", "p"]);
            if !begun.status.success() {
                let stderr = String::from_utf8_lossy(&begun.stderr).into_owned();
                assert!(
                    stderr.contains("outputs"),
                    "{stderr}{}",
                    fs::read_to_string(scene.server.log()).unwrap()
                );
                continue;
            }
            started += 1;
            let mounts = scene.sh("a", "grep -E ' /(workspace|proc/sys)' /proc/self/mounts");
            for mount in mounts.lines() {
                let flags = mount.split(' ').nth(3).unwrap();
                let is_sealed = ["nosuid", "nodev"].iter().all(|flag| flags.contains(flag));
                let is_sys = mount.contains(" /proc/sys ");
                assert!(is_sealed || (is_sys && flags.starts_with("ro")), "{mounts}");
            }
            scene.server.ok(&["kill", "a"]);
            scene.server.ok(&["rm", "a"]);
        }
        drop(guard);
    });
    assert!(started > 0, "not one of them got through");
}

/// Says that it is over, however that comes.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn links_on_the_way_and_the_kernels_own_files_are_refused() {
    let scene = Scene::with("mount = true");
    scene.start("a", "p");
    scene.sh("a", "ln -s /etc sub; mkdir real");
    let start = |path: &str, more: &[&str]| {
        let words = [&["start", "--name", "b", "--workspace", path][..], more].concat();
        let refused = scene.server.run(&words);
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{path}");
        stderr
    };
    let below = |name: &str| scene.project.join(name).display().to_string();
    for more in [&[][..], &["--mount"]] {
        for path in ["sub", "sub/default", "real/../sub"] {
            let stderr = start(&below(path), more);
            assert!(stderr.contains("symbolic link"), "{stderr}");
        }
        for path in ["/proc", "/proc/sys", "/sys", "/dev"] {
            let stderr = start(path, more);
            assert!(stderr.contains("kernel file system"), "{stderr}");
        }
    }
    // Another name of the configuration that leads the same way, as it does when it is asked for.
    let run = |script: &str| {
        let path = below("real");
        scene.server.ok(&["run", "--workspace", &path, "--mount", "--", "sh", "-c", script])
    };
    assert_eq!(run("echo x > /workspace/x; ls /workspace"), "x\n");
    // Nor what commands the bridge, though it is in none of its directories.
    let config = scene.server.scratch().join("burrow.toml");
    assert!(config.exists());
    for path in [config.parent().unwrap(), bridge_path().parent().unwrap()] {
        let stderr = start(path.to_str().unwrap(), &["--mount"]);
        assert!(stderr.contains("this bridge's"), "{stderr}");
    }
}

#[test]
fn a_directory_of_ones_own_is_mounted_for_a_sandbox_and_for_one_command() {
    let scene = Scene::usual();
    let path = scene.project.to_str().unwrap();
    scene.server.ok(&["start", "--name", "a", "--workspace", path, "--mount"]);
    scene.sh("a", "echo a > a");
    assert_eq!(scene.read("a"), "a\n");
    let script = "cat /workspace/readme; echo ran > /workspace/ran; kill -9 $$";
    scene.server.run(&["run", "--workspace", path, "--mount", "--", "sh", "-c", script]);
    assert_eq!(scene.read("ran"), "ran\n");
}

#[test]
fn an_ordinary_users_sandbox_has_it_with_that_users_rights() {
    if !nix::unistd::Uid::effective().is_root() {
        skip("the other tests are an ordinary user's already");
        return;
    }
    let home = tempfile::TempDir::with_prefix("burrow-").unwrap();
    fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    for (from, name) in [(bridge_path(), "host-bridge"), (agent_path(), "guest-agent")] {
        fs::copy(from, home.path().join(name)).unwrap();
    }
    for name in ["run", "state", "home", "project"] {
        fs::create_dir(home.path().join(name)).unwrap();
        chown(home.path().join(name), Some(USER), Some(USER)).unwrap();
    }
    let project = home.path().join("project");
    fs::write(project.join("roots"), "root's").unwrap();
    fs::set_permissions(project.join("roots"), Permissions::from_mode(0o600)).unwrap();
    let run = |script: &str| {
        let mut command = Command::new(home.path().join("host-bridge"));
        command.args(["run", "--mount", "--workspace"]).arg(&project);
        command.args(["--", "sh", "-c", script]);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path().join("home"));
        command.env("BURROW_RUNTIME_DIR", home.path().join("run"));
        command.env("BURROW_STATE_DIR", home.path().join("state"));
        command.uid(USER).gid(USER).current_dir("/").output().unwrap()
    };
    let result = run("id -u; echo x > /workspace/x; cat /workspace/roots");
    let (out, err) =
        (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    if err.contains("user namespace") {
        skip("ordinary users have no user namespaces here");
        return;
    }
    assert_eq!(out, "0\n", "{err}");
    assert!(err.contains("ermission denied"), "{err}");
    let made = fs::metadata(project.join("x")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), USER);
}
