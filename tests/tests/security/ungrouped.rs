//! Runs tests of this program again as root where the bridge sees no control groups of any version: what
//! they hold must not depend on them.

use std::process::Command;

use nix::unistd::Uid;
use tests::{agent_path, bridge_path, have_or_skip, skip};

/// Runs the test of this path with an empty directory where control groups are.
fn again(test: &str) {
    if !Uid::effective().is_root() {
        return skip("only root can hide control groups");
    }
    if !have_or_skip("unshare") {
        return;
    }
    let own = std::env::current_exe().expect("this program has a path");
    let hide = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    let ran = Command::new("unshare")
        .args(["-m", "sh", "-c", hide, "sh"])
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .env("BURROW_AGENT", agent_path())
        .env("BURROW_TEST_BRIDGE", bridge_path())
        .output()
        .expect("it starts");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{out}{stderr}");
    assert!(out.contains("1 passed"), "no test is called {test}: {out}");
}

#[test]
fn root_of_a_sandbox_is_nobody_without_control_groups_too() {
    again("boundary::root_of_a_sandbox_is_nobody_on_the_host");
}

#[test]
fn no_namespace_and_no_mount_can_be_made_without_control_groups_either() {
    again("boundary::no_namespace_and_no_mount_can_be_made");
    again("boundary::no_namespace_and_no_mount_can_be_made_where_root_is_the_host_s");
}

#[test]
fn devices_are_the_sandboxs_own_without_control_groups_too() {
    again("boundary::devices_are_the_sandbox_s_own");
    again("boundary::devices_are_its_own_where_root_is_the_host_s");
}

#[test]
fn nobody_comes_to_the_agent_without_control_groups_either() {
    again("boundary::nobody_comes_to_the_agent_or_to_its_file");
}

#[test]
fn a_fork_bomb_stops_at_its_bound_without_control_groups_too() {
    again("boundary::a_fork_bomb_stops_at_its_bound_and_the_sandbox_answers");
}

#[test]
fn no_path_leads_out_of_a_sandbox_without_control_groups_either() {
    again("paths::no_program_starts_in_a_directory_that_the_sandbox_has_no_path_to");
    again("races::a_working_directory_that_is_flipped_is_never_the_agents");
}
