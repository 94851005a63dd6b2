//! The promise that a fault in one task does not end PID 1, which rests on panics that unwind. The
//! agent replaces some functions of the unwinder (`guest-agent/src/sys/backtrace.rs`).

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
    let output = Command::new(&path).env("RUST_BACKTRACE", "full").output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"survived\n");
    // One panic is printed, with no frame below its message.
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("panicked at").count(), 1, "{stderr}");
    assert!(stderr.contains("the first one") && stderr.lines().count() <= 4, "{stderr}");
}
