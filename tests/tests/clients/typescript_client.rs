//! The TypeScript client in `clients/typescript`: its own suites, run against a real bridge. What builds and
//! tests it comes from npm into a directory below `target/`, once; the client itself needs nothing.

use std::path::PathBuf;
use std::process::Command;

use crate::environment::{installed, suites, suites_in, workspace};

/// More than any test of it takes on a busy machine; one that hangs says where.
const MS_MAX: &str = "120000";

suites! {
    browser
    commands
    contexts
    errors
    events
    files
    package
    streams
}

fn run(suite: &str) {
    let home = match installed("typescript-client", &sources().join("tests/install")) {
        Ok(home) => home,
        Err(reason) => return tests::skip(&format!("nothing to test the client with: {reason}")),
    };
    let ran = Command::new("node")
        .args(["--test", "--test-reporter=spec", &format!("--test-timeout={MS_MAX}")])
        .arg(format!("tests/{suite}.test.mjs"))
        .current_dir(&home)
        .env("BURROW_TEST_BRIDGE", tests::bridge_path())
        .env("BURROW_AGENT", tests::agent_path())
        // Said to be empty, it is looked for nowhere else.
        .env("MSB_API_KEY", "")
        .output()
        .expect("Node runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let lines = |mark| said.lines().filter(move |line| line.starts_with(mark));
    lines('\u{fe63}').for_each(tests::skip);
    // That nothing was found to run is no success.
    assert!(lines('\u{2714}').chain(lines('\u{fe63}')).next().is_some(), "{said}");
}

fn sources() -> PathBuf {
    workspace().join("clients/typescript")
}

#[test]
fn every_suite_that_is_written_is_run() {
    assert_eq!(suites_in(&sources().join("tests"), "", ".test.mjs"), SUITES);
}
