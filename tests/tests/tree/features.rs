//! What tests run is what is shipped: cargo builds a dependency with all features that the selected packages ask for,
//! so a feature that only a test asks for could change what the bridge of the tests does. It would also build most of
//! the tree a second time.

use std::collections::BTreeSet;
use std::process::Command;

use super::documents::root;

/// Each package of a selection with its features, as cargo would build it.
fn packages(selection: &[&str]) -> BTreeSet<String> {
    let tree = Command::new("cargo")
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p} {f}"])
        .args(selection)
        .current_dir(root())
        .output()
        .expect("cargo is on the path");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let lines = String::from_utf8(tree.stdout).expect("names are UTF-8");
    lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn tests_run_the_bridge_with_the_features_that_it_is_shipped_with() {
    let tested = packages(&["--workspace", "--edges", "normal,build,dev"]);
    let shipped = packages(&["-p", "host-bridge", "-p", "rootfs", "--edges", "normal,build"]);
    assert!(shipped.len() > 100, "{shipped:?}");
    let others: Vec<_> = shipped.difference(&tested).collect();
    assert!(
        others.is_empty(),
        "tests have other features of these: ask for them in [workspace.dependencies], or in no test\n{others:#?}"
    );
}
