//! The Python client in `clients/python`: its own suites, run against a real bridge, with the types
//! and the style of its sources. What they need comes from `PyPI` into an environment below `target/`,
//! once; the client itself needs nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// More than any test of it takes on a busy machine; one that hangs says where.
const SECONDS_MAX: &str = "120";

/// Makes of each name a test that runs the suite of that name.
macro_rules! suites {
    ($($suite:ident)*) => {
        $(#[test]
        fn $suite() {
            run(stringify!($suite));
        })*

        const SUITES: &[&str] = &[$(stringify!($suite)),*];
    };
}

suites! {
    commands
    contexts
    errors
    files
    outside
    package
    streams
    surface
}

fn run(suite: &str) {
    let python = match installed() {
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
        // Said to be empty, it is looked for nowhere else.
        .env("MSB_API_KEY", "")
        .output()
        .expect("Python runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    // That nothing was found to run is no success.
    assert!(said.contains(" passed"), "{said}");
}

/// The environment with what the suites need; why there is none, when it cannot be had.
fn installed() -> Result<PathBuf, String> {
    let home = workspace().join("target/python-client");
    let made = Command::new(sources().join("tests/install")).arg(&home).output().expect("sh runs");
    if made.status.success() {
        return Ok(home);
    }
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    Err(said.lines().last().unwrap_or("it is not said why").to_owned())
}

fn sources() -> PathBuf {
    workspace().join("clients/python")
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of a workspace")
}

#[test]
fn every_suite_that_is_written_is_run() {
    let entries = fs::read_dir(sources().join("tests")).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("UTF-8"));
    let mut written: Vec<_> = names
        .filter_map(|name| Some(name.strip_prefix("test_")?.strip_suffix(".py")?.to_owned()))
        .collect();
    written.sort();
    assert_eq!(written, SUITES);
}
