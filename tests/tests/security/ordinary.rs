//! Runs a test of this program again as an ordinary user, whose sandboxes have a user namespace of one user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::Uid;
use tests::{agent_path, bridge_path, skip};

/// An ordinary user, who need not exist.
const USER: u32 = 1000;

/// Runs the test of this path, as `paths::a_test`.
pub fn again(test: &str) {
    if !Uid::effective().is_root() {
        return skip("the other tests are an ordinary user's already");
    }
    let home = tempfile::TempDir::with_prefix("burrow-").expect("a directory");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let own = std::env::current_exe().expect("this program has a path");
    let copies = [(own, "security"), (agent_path(), "guest-agent"), (bridge_path(), "host-bridge")];
    for (from, name) in copies {
        fs::copy(from, home.path().join(name)).expect("a copy");
    }
    let scratch = home.path().join("scratch");
    fs::create_dir(&scratch).expect("a directory");
    chown(&scratch, Some(USER), Some(USER)).expect("root may");
    if !namespaces_are_here() {
        return skip("ordinary users have no user namespaces here");
    }
    let ran = Command::new(home.path().join("security"))
        .args(["--exact", test, "--nocapture"])
        .env("BURROW_AGENT", home.path().join("guest-agent"))
        .env("BURROW_TEST_BRIDGE", home.path().join("host-bridge"))
        // No group was delegated to this user.
        .env_remove("BURROW_TEST_V2")
        .env("BURROW_TEST_SKIPS", scratch.join("skips"))
        .env("TMPDIR", &scratch)
        .env("HOME", &scratch)
        .uid(USER)
        .gid(USER)
        .current_dir("/")
        .output()
        .expect("it starts");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{out}{stderr}");
    assert!(out.contains("1 passed"), "no test is called {test}: {out}");
    if let Ok(skipped) = fs::read_to_string(scratch.join("skips")) {
        skip(&format!("as an ordinary user: {}", skipped.trim()));
    }
}

/// Whether an ordinary user may make a user namespace on this host, as found by making one.
pub fn namespaces_are_here() -> bool {
    let mut made = Command::new("unshare");
    made.args(["--user", "true"]).uid(USER).gid(USER).current_dir("/");
    made.output().expect("util-linux is on every host").status.success()
}
