//! Daytona's published clients, unmodified, against the server: the suites in `tests/daytona/`. The packages come
//! from `PyPI` and npm into a directory below `target/`, once. Each suite has a server of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::{assert_succeeded, installed_or_skip, workspace};

use tests::server::Server;

/// More than any suite takes on a busy machine; one that hangs says where.
const SECONDS_MAX: &str = "240";
/// A key for a server that wants none; the clients want one.
const ANY_KEY: &str = "any";

#[test]
fn asynchronous() {
    python("asynchronous", Server::dev);
}

#[test]
fn files() {
    python("files", Server::dev);
}

#[test]
fn interpreter() {
    python("interpreter", Server::dev);
}

#[test]
fn keys() {
    python("keys", Server::with_keys);
}

#[test]
fn process() {
    python("process", Server::dev);
}

#[test]
fn repositories() {
    python("repositories", Server::dev);
}

#[test]
fn sandboxes() {
    python("sandboxes", Server::dev);
}

/// The newest package of each of the two names.
#[test]
fn typescript() {
    node("@daytona/sdk");
}

#[test]
fn typescript_by_its_older_name() {
    node("@daytonaio/sdk");
}

/// The page says of each method of the clients what becomes of it, and which suite shows that.
#[test]
fn every_public_method_is_on_the_page_with_its_test() {
    let Some(home) = home() else { return };
    let ran = Command::new(home.join("bin/python"))
        .arg(sources().join("methods.py"))
        .arg(workspace().join("docs/reference/daytona.md"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

fn node(package: &str) {
    let Some(home) = home() else { return };
    let server = Server::dev();
    // A module finds its packages beside itself.
    let suite = server.scratch().join("typescript.mjs");
    fs::copy(sources().join("typescript.mjs"), &suite).expect("a copy");
    std::os::unix::fs::symlink(home.join("js/node_modules"), server.scratch().join("node_modules"))
        .expect("a link");
    let ran = in_server(Command::new("node"), &server)
        .args(["--test", "--test-reporter=spec", "--test-timeout=120000"])
        .arg(&suite)
        .env("BURROW_TEST_DAYTONA_PACKAGE", package)
        .output()
        .expect("Node runs");
    assert_succeeded(&ran, &server);
}

fn python(module: &str, start: fn() -> Server) {
    let Some(home) = home() else { return };
    let server = start();
    let ran = in_server(Command::new(home.join("bin/python")), &server)
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
        .env("DAYTONA_API_URL", format!("{}/daytona", server.url()))
        .env("DAYTONA_API_KEY", ANY_KEY)
        .env("BURROW_TEST_DAYTONA_SOURCES", workspace().join("crates/api/src/daytona"))
        .env("BURROW_TEST_SECONDS_MAX", SECONDS_MAX)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn home() -> Option<PathBuf> {
    installed_or_skip("daytona", &sources().join("install"), "clients of Daytona")
}

fn sources() -> PathBuf {
    Path::new(workspace()).join("tests/daytona")
}
