//! How machines end, by order and by accident, and what is left of what was written in them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::machines::{machines_or_skip, process_of};
use tests::{Burrow, eventually, have_or_skip};

use super::{MACHINE, leftovers, start};

fn supervisor(record: &serde_json::Value) -> u32 {
    record["pid"].as_u64().expect("a supervisor") as u32
}

/// How the daemon shows it.
fn shown(burrow: &Burrow, name: &str) -> String {
    burrow.ok(&["inspect", name])
}

#[test]
fn writes_before_an_orderly_stop_are_on_the_disk() {
    if !machines_or_skip() || !have_or_skip("debugfs") {
        return;
    }
    let burrow = Burrow::serving();
    let record = start(&burrow, "writer", &["--scratch", "400M"]);
    // Programs are informed, and what they write then counts.
    let script = "trap 'echo last > /var/last; exit' TERM; echo first > /var/first; sync; echo ready; \
                  while :; do sleep 0.1; done";
    let mut answer = burrow
        .command(&["exec", "writer", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut ready = [0; 6];
    std::io::Read::read_exact(answer.stdout.as_mut().expect("piped"), &mut ready)
        .expect("it is ready");
    burrow.ok(&["exec", "writer", "--", "sh", "-c", "echo unsynced > /var/unsynced"]);
    burrow.ok(&["stop", "writer"]);
    answer.wait().expect("it ended");
    assert!(shown(&burrow, "writer").contains("stopped"), "{}", shown(&burrow, "writer"));

    let id = record["id"].as_str().expect("an id");
    let disk = burrow.state().join("boxes").join(id).join("scratch.img");
    for (file, content) in [("first", "first\n"), ("last", "last\n"), ("unsynced", "unsynced\n")] {
        let read = Command::new("debugfs")
            .args(["-R", &format!("cat /upper/var/{file}")])
            .arg(&disk)
            .stderr(Stdio::null())
            .output()
            .expect("debugfs runs");
        assert_eq!(String::from_utf8_lossy(&read.stdout), content, "{file}");
    }
    let checked =
        Command::new("e2fsck").args(["-n", "-f"]).arg(&disk).output().expect("e2fsck runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    burrow.ok(&["rm", "writer"]);
    assert_eq!(leftovers(&burrow), Vec::<String>::new());
}

#[test]
fn an_idle_machine_stops_at_once_however_long_its_grace() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    start(&burrow, "idle", &["--memory", "128"]);
    burrow.ok(&["exec", "idle", "--", "true"]);
    let began = Instant::now();
    burrow.ok(&["stop", "--grace", "20s", "idle"]);
    let took = began.elapsed();
    // Fractions of a second, but where ten other machines are emulated beside it.
    assert!(took < Duration::from_secs(8), "{took:?}");
    burrow.ok(&["rm", "idle"]);
    assert_eq!(leftovers(&burrow), Vec::<String>::new());
}

#[test]
fn every_session_of_a_machine_that_dies_ends_within_a_second_and_says_why() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    for (name, victim) in [("one", "qemu-system-x86_64"), ("two", "vhost-device-vsock")] {
        let record = start(&burrow, name, &["--memory", "128"]);
        let mut sessions: Vec<_> = (0..3)
            .map(|_| {
                let mut command = burrow.command(&["exec", name, "--", "sleep", "1000"]);
                command.stderr(Stdio::piped()).spawn().expect("it starts")
            })
            .collect();
        eventually("the sessions run", || {
            let listed = burrow.ok(&[
                "exec",
                name,
                "--",
                "sh",
                "-c",
                "ps -e -o args= | grep -c '^sleep 1000' || true",
            ]);
            listed.trim() == "3"
        });
        kill(process_of(supervisor(&record), victim), Signal::SIGKILL).expect("it is ours");
        let died = Instant::now();
        for session in &mut sessions {
            eventually("the session ends", || session.try_wait().expect("it is ours").is_some());
        }
        let took = died.elapsed();
        assert!(took < Duration::from_secs(1), "{victim}: {took:?}");
        for session in sessions {
            let ended = session.wait_with_output().expect("it was ours");
            let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(!ended.status.success() && !stderr.is_empty(), "{victim}: {stderr}");
        }
        eventually("the sandbox has stopped", || shown(&burrow, name).contains("stopped"));
        burrow.ok(&["rm", name]);
    }
    assert_eq!(leftovers(&burrow), Vec::<String>::new());
}

#[test]
fn a_new_bridge_finds_the_machine_and_nothing_is_lost_meanwhile() {
    if !machines_or_skip() {
        return;
    }
    let mut burrow = Burrow::serving();
    start(&burrow, "kept", &[]);
    let script = "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); sleep 0.02; done";
    burrow.ok(&["exec", "--detach", "kept", "--", "sh", "-c", script]);
    burrow.kill_daemon();
    burrow.serve();
    assert_eq!(burrow.ok(&["exec", "kept", "--", "echo", "again"]), "again\n");
    let whole = tests::lines("line ", 0..100);
    eventually("all lines are logged", || burrow.ok(&["logs", "kept"]).contains("line 99\n"));
    let logged = burrow.ok(&["logs", "kept"]);
    let ours = logged.lines().filter(|line| line.starts_with("line "));
    let lines = ours.fold(String::new(), |text, line| text + line + "\n");
    assert_eq!(lines, whole);
    burrow.ok(&["rm", "--force", "kept"]);
    assert_eq!(leftovers(&burrow), Vec::<String>::new());
}

#[test]
fn the_machine_of_a_killed_run_goes_with_it() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::new();
    let command = [&["run"], &MACHINE[..], &["--", "sh", "-c", "echo up; sleep 1000"]].concat();
    let mut running = burrow.command(&command).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut up = [0; 3];
    std::io::Read::read_exact(running.stdout.as_mut().expect("piped"), &mut up).expect("it is up");
    let supervisors = tests::children(Pid::from_raw(running.id() as i32));
    assert_eq!(supervisors.len(), 1);
    let below = tests::children(supervisors[0]);
    assert!(below.len() >= 2, "a machine and its relay: {below:?}");
    running.kill().expect("it is ours");
    running.wait().expect("it was ours");
    eventually("its processes are gone", || {
        let mut all = supervisors.iter().chain(&below);
        all.all(|pid| kill(*pid, None).is_err())
    });
}

#[test]
fn a_machine_that_is_switched_off_from_within_has_stopped() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    start(&burrow, "off", &["--memory", "128"]);
    // The kernel's own switch, past the agent.
    burrow.run(&["exec", "off", "--", "sh", "-c", "echo o > /proc/sysrq-trigger; sleep 100"]);
    eventually("it has stopped", || shown(&burrow, "off").contains("switched off from within"));
    start(&burrow, "panic", &["--memory", "128"]);
    burrow.run(&["exec", "panic", "--", "sh", "-c", "echo c > /proc/sysrq-trigger; sleep 100"]);
    eventually("it has died", || shown(&burrow, "panic").contains("Kernel panic"));
}

#[test]
fn a_machine_whose_shell_is_killed_goes_with_it() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    let record = start(&burrow, "shell", &["--memory", "128"]);
    let shell = Pid::from_raw(supervisor(&record) as i32);
    let below = tests::children(shell);
    assert!(below.len() >= 2, "a machine and its relay: {below:?}");
    kill(shell, Signal::SIGKILL).expect("it is ours");
    eventually("the sandbox has stopped", || shown(&burrow, "shell").contains("stopped"));
    eventually("its processes are gone", || below.iter().all(|pid| kill(*pid, None).is_err()));
    burrow.ok(&["rm", "shell"]);
    assert_eq!(leftovers(&burrow), Vec::<String>::new());
}

#[test]
fn a_bridge_that_is_killed_while_a_machine_comes_up_leaves_nothing() {
    if !machines_or_skip() {
        return;
    }
    let mut burrow = Burrow::serving();
    // The moments are those of its shell, of its relay, of its monitor, and of its kernel.
    for wait_ms in [0, 30, 100, 700] {
        let command = [&["start", "--name", "cut"], &MACHINE[..]].concat();
        let mut starting =
            burrow.command(&command).stderr(Stdio::null()).spawn().expect("it starts");
        let boxes = burrow.runtime().join("boxes");
        eventually("it is being started", || {
            std::fs::read_dir(&boxes).is_ok_and(|mut boxes| boxes.next().is_some())
        });
        // The moment of death, which differs in each round.
        std::thread::sleep(Duration::from_millis(wait_ms));
        burrow.kill_daemon();
        starting.wait().expect("it is ours");
        burrow.serve();
        eventually("it is gone", || leftovers(&burrow).is_empty());
        assert_eq!(burrow.ok(&["ps", "--all", "--quiet"]), "");
    }
}
