//! The Python client in `clients/python`: its own suites, run against a real bridge, with the types
//! and the style of its sources. What they need comes from `PyPI` into an environment below `target/`,
//! once; the client itself needs nothing.

use std::path::PathBuf;
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
    let python = match installed("python-client", &sources().join("tests/install")) {
        Ok(home) => home.join("bin/python"),
        Err(reason) => return tests::skip(&format!("nothing to test the client with: {reason}")),
    };
    let ran = Command::new(python)
        .args(["-X", "dev", "-m", "pytest", "--quiet", "--tb=short"])
        .args(["-o", &format!("faulthandler_timeout={SECONDS_MAX}")])
        .args(["-o", "faulthandler_exit_on_timeout=true"])
        .arg(sources().join("tests").join(format!("test_{suite}.py")))
        .current_dir(sources())
        .env("PYTHONPATH", sources().join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BURROW_TEST_BRIDGE", tests::bridge_path())
        .env("BURROW_AGENT", tests::agent_path())
        // Set but empty, it is looked for nowhere else.
        .env("MSB_API_KEY", "")
        .output()
        .expect("Python runs");
    let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{stdout}{}", String::from_utf8_lossy(&ran.stderr));
    // That nothing was found to run is no success.
    assert!(stdout.contains(" passed"), "{stdout}");
}

fn sources() -> PathBuf {
    workspace().join("clients/python")
}

#[test]
fn every_suite_that_is_written_is_run() {
    assert_eq!(suites_in(&sources().join("tests"), "test_", ".py"), SUITES);
}
