//! The promise that a fault in one task does not end PID 1, of which panics that unwind are the
//! foundation: the agent brings its own unwinder (`guest-agent/src/sys/unwind`).

use std::process::Command;

use tests::{agent_path, skip};

/// `just build` leaves it beside the agent, with the agent's own flags.
#[test]
fn every_panic_ends_where_it_is_caught() {
    let path = agent_path().with_file_name("examples").join("panics");
    if !path.exists() {
        skip("examples/panics is not beside the agent: it was not built by `just build`");
        return;
    }
    let output = Command::new(&path).output().expect("examples/panics runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"survived\n");
    assert!(output.stderr.is_empty(), "{output:?}");
}
