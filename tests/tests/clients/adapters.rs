//! The adapters of the Python client in `burrow.adapters`: each framework runs over its own, with its own
//! checks of sandboxes where it has some, against a real bridge. The frameworks come from `PyPI` into an
//! environment below `target/`, once.

use crate::environment::installed;
use crate::python_client::{pytest, sources, succeeds};

/// One process for all of them: a framework takes seconds of processor time to import.
#[test]
fn each_framework_runs_over_its_adapter() {
    run("adapters");
}

/// Harbor and verifiers, which need a newer Python.
#[test]
fn the_frameworks_of_rollouts_run_over_their_adapters() {
    run("rollouts");
}

/// The suites in this directory of tests, with what its script installs.
fn run(suites: &str) {
    let tests = format!("tests/{suites}");
    let install = sources().join(&tests).join("install");
    let home = match installed(&format!("python-{suites}"), &install) {
        Ok(home) => home,
        Err(reason) => return tests::skip(&format!("nothing to test {suites} with: {reason}")),
    };
    let mut command = pytest(&home);
    // What was compiled for the first run is there for the next.
    command.env("PYTHONPYCACHEPREFIX", home.join("compiled"));
    command.args(["-o", "asyncio_mode=auto"]);
    command.args(["-o", "asyncio_default_fixture_loop_scope=function"]);
    succeeds(command.arg(tests));
}
