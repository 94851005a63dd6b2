//! What writes a notebook's variables down, by itself: the keepers' own tests, in the languages that
//! they are written in.

use std::path::Path;
use std::process::Command;

use tests::have_or_skip;

/// # Panics
/// When one of the tests fails.
fn hold(test: &str, arguments: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("keeper").join(test);
    let ran = Command::new("python3").arg(path).args(arguments).output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn python_s_keeper_keeps_what_it_says_and_says_what_it_does_not() {
    if have_or_skip("python3") {
        hold("test_python.py", &[]);
    }
}

#[test]
fn node_s_keeper_keeps_what_it_says_and_says_what_it_does_not() {
    if have_or_skip("python3") && have_or_skip("node") {
        hold("test_node.py", &[]);
    }
}
