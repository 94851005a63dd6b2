//! The Python client in `clients/python`: its own suites, run against a real bridge, with the types
//! and the style of its sources. What they need comes from `PyPI` into an environment below `target/`,
//! once; the client itself needs nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::{installed, suites, suites_in, workspace};

/// More than any test of it takes on a busy machine; one that hangs says where.
const SECONDS_MAX: &str = "120";

suites! {
    commands
    contexts
    errors
    events
    files
    outside
    package
    streams
    surface
}

fn run(suite: &str) {
    let home = match installed("python-client", &sources().join("tests/install")) {
        Ok(home) => home,
        Err(reason) => return tests::skip(&format!("nothing to test the client with: {reason}")),
    };
    let mut command = pytest(&home);
    command.env("PYTHONDEVMODE", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    succeeds(command.arg(format!("tests/test_{suite}.py")));
}

/// The environment's pytest, for suites of the client.
pub fn pytest(home: &Path) -> Command {
    let mut command = Command::new(home.join("bin/python"));
    command
        .args(["-m", "pytest", "--quiet", "--tb=short"])
        .args(["-o", &format!("faulthandler_timeout={SECONDS_MAX}")])
        .args(["-o", "faulthandler_exit_on_timeout=true"])
        .current_dir(sources())
        .env("PYTHONPATH", sources().join("src"))
        .env("BURROW_TEST_BRIDGE", tests::bridge_path())
        .env("BURROW_AGENT", tests::agent_path())
        // Set but empty, it is looked for nowhere else.
        .env("MSB_API_KEY", "");
    command
}

pub fn succeeds(command: &mut Command) {
    let ran = command.output().expect("Python runs");
    let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{stdout}{}", String::from_utf8_lossy(&ran.stderr));
    // That nothing was found to run is no success.
    assert!(stdout.contains(" passed"), "{stdout}");
}

pub fn sources() -> PathBuf {
    workspace().join("clients/python")
}

#[test]
fn every_suite_that_is_written_is_run() {
    assert_eq!(suites_in(&sources().join("tests"), "test_", ".py"), SUITES);
}
