//! microsandbox's published clients with their cloud backend, unmodified, against the server: the suites in
//! `tests/msb/`. The packages come from `PyPI` into a directory below `target/`, once. Each suite has a server
//! of its own, and runs with each release.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::{assert_succeeded, installed_or_skip, workspace};

use tests::server::Server;

/// More than any suite takes on a busy machine; one that hangs says where.
const SECONDS_MAX: &str = "240";
/// A key for a server that wants none; the clients want one.
const ANY_KEY: &str = "any";
const NEWEST: &str = "0.7.11";
/// The newest of those that write a creation and an exec in the older way.
const OLDER: &str = "0.6.14";

#[test]
fn attached() {
    each_release("attached");
}

#[test]
fn files() {
    each_release("files");
}

#[test]
fn logs() {
    each_release("logs");
}

#[test]
fn programs() {
    each_release("programs");
}

#[test]
fn receipts() {
    each_release("receipts");
}

#[test]
fn sandboxes() {
    each_release("sandboxes");
}

#[test]
fn keys() {
    python("keys", NEWEST, Server::with_keys);
}

#[test]
fn hostile() {
    python("hostile", NEWEST, Server::dev);
}

/// The page says of each method of the packages what becomes of it, and which suite shows that.
#[test]
fn every_public_method_is_on_the_page_with_its_test() {
    let Some(home) = home() else { return };
    for release in [NEWEST, OLDER] {
        let ran = Command::new(home.join(release).join("bin/python"))
            .arg(sources().join("methods.py"))
            .arg(workspace().join("docs/reference/microsandbox.md"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .expect("Python runs");
        assert!(ran.status.success(), "{release}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

fn each_release(module: &str) {
    for release in [NEWEST, OLDER] {
        python(module, release, Server::dev);
    }
}

fn python(module: &str, release: &str, start: fn() -> Server) {
    let Some(home) = home() else { return };
    let server = start();
    let ran = Command::new(home.join(release).join("bin/python"))
        .arg(workspace().join("tests/suite.py"))
        .arg(sources())
        .arg(module)
        .current_dir(server.scratch())
        .envs(server.environment())
        .env("HOME", server.scratch())
        .env("MSB_BACKEND", "cloud")
        .env("MSB_API_URL", format!("{}/msb", server.url()))
        .env("MSB_API_KEY", ANY_KEY)
        .env("BURROW_TEST_MSB_SOURCES", workspace().join("crates/api/src/msb"))
        .env("BURROW_TEST_SECONDS_MAX", SECONDS_MAX)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    assert_succeeded(&ran, &server);
}

fn home() -> Option<PathBuf> {
    installed_or_skip("msb", &sources().join("install"), "clients of microsandbox")
}

fn sources() -> PathBuf {
    Path::new(workspace()).join("tests/msb")
}
