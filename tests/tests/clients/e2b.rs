//! E2B's published clients, unmodified, against the server: the suites in `tests/e2b/`. The packages come from
//! `PyPI` and npm into a directory below `target/`, once. Each suite has a server of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::{assert_succeeded, installed_or_skip, workspace};

use tests::images::{busybox, write_root};
use tests::libraries::SCIENCE;
use tests::server::Server;

/// More than any suite takes on a busy machine; one that hangs says where.
const SECONDS_MAX: &str = "240";
/// A key of E2B's form, for a server that wants none.
const ANY_KEY: &str = "e2b_00000000";

#[test]
fn asynchronous() {
    python("asynchronous", Server::dev);
}

/// With the libraries that draw, in an environment that sandboxes see.
#[test]
fn charts() {
    let Some(libraries) = tests::libraries::python_with("displays", &SCIENCE) else { return };
    python_with("charts", Server::dev, |command| {
        command.env("BURROW_TEST_LIBRARIES", &libraries);
    });
}

#[test]
fn javascript_charts() {
    let Some(libraries) = tests::libraries::python_with("displays", &SCIENCE) else { return };
    node_with("charts.mjs", Server::dev, |command| {
        command.env("BURROW_TEST_LIBRARIES", &libraries);
    });
}

#[test]
fn code() {
    python("code", Server::dev);
}

#[test]
fn commands() {
    python("commands", Server::dev);
}

#[test]
fn files() {
    python("files", Server::dev);
}

#[test]
fn keys() {
    python("keys", Server::with_keys);
}

/// `just test-vm` runs this one with machines that can copy their memory.
#[test]
fn machines() {
    python("machines", Server::dev);
}

#[test]
fn sandboxes() {
    python("sandboxes", Server::dev);
}

#[test]
fn templates() {
    if busybox().is_some() {
        python("templates", with_small_image);
    }
}

#[test]
fn volumes() {
    python("volumes", Server::dev);
}

#[test]
fn javascript_volumes() {
    node("volumes.mjs", Server::dev);
}

#[test]
fn javascript() {
    node("javascript.mjs", Server::dev);
}

#[test]
fn javascript_templates() {
    if busybox().is_some() {
        node("templates.mjs", with_small_image);
    }
}

/// A server whose store has the image `small`: busybox, a user, and nothing else.
fn with_small_image() -> Server {
    let server = Server::dev();
    let root = server.scratch().join("small");
    let busybox = busybox().expect("who calls this has looked");
    let tools = [
        "sh", "cat", "echo", "id", "ls", "pwd", "sleep", "test", "true", "false", "mkdir", "chmod",
    ];
    write_root(&root, &busybox, &tools);
    fs::create_dir_all(root.join("etc")).expect("a directory");
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\napp:x:7:8::/:/bin/sh\n")
        .expect("a file");
    fs::write(root.join("etc/group"), "root:x:0:\napp:x:8:\n").expect("a file");
    server.ok(&["image", "import", root.to_str().expect("a path of text"), "--name", "small"]);
    server
}

fn node(module: &str, start: fn() -> Server) {
    node_with(module, start, |_| {});
}

fn node_with(module: &str, start: fn() -> Server, prepare: impl FnOnce(&mut Command)) {
    let Some(home) = home() else { return };
    let server = start();
    // A module finds its packages beside itself.
    for module in [module, "calls.mjs"] {
        fs::copy(sources().join(module), server.scratch().join(module)).expect("a copy");
    }
    std::os::unix::fs::symlink(home.join("js/node_modules"), server.scratch().join("node_modules"))
        .expect("a link");
    let mut command = in_server(Command::new("node"), &server);
    prepare(&mut command);
    let ran = command
        .args(["--test", "--test-reporter=spec", "--test-timeout=120000"])
        .arg(module)
        .env("BURROW_TEST_PAGE", page())
        .output()
        .expect("Node runs");
    assert_succeeded(&ran, &server);
}

/// The page says of each method of the clients what becomes of it, and which suite shows that.
#[test]
fn every_public_method_is_on_the_page_with_its_test() {
    let Some(home) = home() else { return };
    let ran = Command::new(home.join("bin/python"))
        .arg(sources().join("methods.py"))
        .arg(page())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

fn python(module: &str, start: fn() -> Server) {
    python_with(module, start, |_| {});
}

fn python_with(module: &str, start: fn() -> Server, prepare: impl FnOnce(&mut Command)) {
    let Some(home) = home() else { return };
    let server = start();
    let mut command = in_server(Command::new(home.join("bin/python")), &server);
    prepare(&mut command);
    let ran = command
        .arg(workspace().join("tests/suite.py"))
        .arg(sources())
        .arg(module)
        .output()
        .expect("Python runs");
    assert_succeeded(&ran, &server);
}

fn in_server(mut command: Command, server: &Server) -> Command {
    command
        .current_dir(server.scratch())
        .envs(server.environment())
        .env("E2B_API_URL", server.url())
        .env("E2B_SANDBOX_URL", server.url())
        .env("E2B_VOLUME_API_URL", server.url())
        .env("E2B_API_KEY", ANY_KEY)
        .env("BURROW_TEST_SECONDS_MAX", SECONDS_MAX)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn home() -> Option<PathBuf> {
    installed_or_skip("e2b", &sources().join("install"), "clients of E2B")
}

fn page() -> PathBuf {
    workspace().join("docs/reference/e2b.md")
}

fn sources() -> PathBuf {
    Path::new(workspace()).join("tests/e2b")
}
