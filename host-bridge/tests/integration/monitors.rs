//! The machines of Firecracker and Cloud Hypervisor, from the command line to a command in them. A stand-in
//! for each program (`monitors/fake_monitor.py`) serves its published API and runs a real agent behind the
//! real handshake. They test the bridge's half, not the programs, nor a kernel on them.
//!
//! Skipped, with the reason, where there is no agent binary or no Python.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

mod scene;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use machine::MachineError;
use machine::cloud_hypervisor::CloudHypervisor;
use machine::firecracker::Firecracker;
use machine::vmm::Halt;

use self::scene::{KINDS, Scene, text};

const FIRECRACKER: &str = "firecracker";
const CLOUD_HYPERVISOR: &str = "cloud-hypervisor";

/// Skips a test, with the reason, where it cannot be played.
macro_rules! scene {
    ($name:literal, $kind:expr) => {
        match Scene::set($name, $kind) {
            Ok(scene) => scene,
            Err(reason) => {
                println!("skipped: {reason}");
                return;
            }
        }
    };
}

#[test]
fn a_command_runs_and_every_request_is_one_that_the_monitor_knows() {
    for kind in KINDS {
        let scene = scene!("runs", kind);
        let ran = scene.run_with(&["--scratch", "300M"], &["sh", "-c", "echo $((6*7)); exit 7"]);
        assert_eq!(
            (text(&ran.stdout).trim(), ran.status.code()),
            ("42", Some(7)),
            "{}",
            text(&ran.stderr)
        );
        let requests: Vec<_> = scene.requests();
        let wanted: &[&str] = if kind == FIRECRACKER {
            &[
                "PUT /machine-config 204",
                "PUT /boot-source 204",
                "PUT /drives/disk0 204",
                "PUT /drives/disk1 204",
                "PUT /vsock 204",
                "PUT /actions 204",
            ]
        } else {
            &["PUT /api/v1/vm.create 204", "PUT /api/v1/vm.boot 204"]
        };
        assert_eq!(requests, wanted);
        assert_eq!(scene.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_kept_machine_outlives_the_bridge_and_stops_in_order() {
    for kind in KINDS {
        let scene = scene!("kept", kind);
        let daemon = scene.serve();
        scene.start("box");
        scene.ok(&["exec", "box", "--", "sh", "-c", "echo here > /kept"]);
        daemon.kill_hard();
        let _daemon = scene.serve();
        // The agent is reached by the handshake now; its call was taken by the bridge that is gone.
        assert_eq!(scene.ok(&["exec", "box", "--", "cat", "/kept"]), "here\n");
        let began = Instant::now();
        scene.ok(&["stop", "box"]);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let record = scene.ok(&["inspect", "--json", "box"]);
        assert!(record.contains("\"stopped\""), "{record}");
        scene.ok(&["rm", "box"]);
        assert_eq!(scene.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn kinds_of_machine_ends_are_distinguished() {
    for kind in KINDS {
        let scene = scene!("ends", kind);
        let _daemon = scene.serve();
        for name in ["asked", "killed", "itself"] {
            scene.start(name);
        }
        scene.ok(&["stop", "asked"]);
        assert!(scene.ok(&["inspect", "--json", "asked"]).contains("\"asked\""));
        let began = Instant::now();
        scene.ok(&["kill", "killed"]);
        let record = |name: &str| scene.ok(&["inspect", "--json", name]);
        scene.eventually("it is gone", || record("killed").contains("stopped"));
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        // Its init stops in order on request, and the machine with it.
        let _ = scene.command(&["exec", "itself", "--", "sh", "-c", "kill -TERM 1"]).output();
        scene.eventually("it is off", || record("itself").contains("switched off from within"));
    }
}

#[test]
fn a_paused_machine_stays_so_for_the_next_bridge_and_takes_new_connections_when_it_goes_on() {
    for kind in KINDS {
        let scene = scene!("paused", kind);
        let daemon = scene.serve();
        scene.start("box");
        scene.ok(&["pause", "box"]);
        let assert_is_paused = || {
            let record = scene.ok(&["inspect", "--json", "box"]);
            assert!(record.contains("\"paused\""), "{record}");
        };
        assert_is_paused();
        let refused = scene.command(&["exec", "box", "--", "true"]).output().unwrap();
        assert!(text(&refused.stderr).contains("paused"), "{}", text(&refused.stderr));
        // Firecracker's is taken for its vsock's sake, and nothing of it is left.
        assert!(!scene.runtime().join("halted").exists());
        daemon.kill_hard();
        let _daemon = scene.serve();
        assert_is_paused();
        scene.ok(&["resume", "box"]);
        assert_eq!(scene.ok(&["exec", "box", "--", "echo", "awake"]), "awake\n");
        for _ in 0..2 {
            scene.ok(&["pause", "box"]);
            scene.ok(&["resume", "box"]);
        }
        assert_eq!(scene.ok(&["exec", "box", "--", "echo", "again"]), "again\n");
        let requests = scene.requests();
        assert!(
            requests.iter().all(|request| request.ends_with("204") || request.starts_with("GET"))
        );
        scene.ok(&["rm", "--force", "box"]);
        assert_eq!(scene.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_snapshot_becomes_sandboxes_with_names_and_disks_of_their_own() {
    for kind in KINDS {
        let scene = scene!("cloned", kind);
        let _daemon = scene.serve();
        scene.start_with("source", "300M");
        scene.ok(&["snapshot", "source", "base"]);
        // The source goes on.
        assert_eq!(scene.ok(&["exec", "source", "--", "echo", "on"]), "on\n");
        scene.ok(&["start", "--snapshot", "base", "--name", "clone"]);
        scene.ok(&["fork", "source", "--count", "2"]);
        for name in ["clone", "source-1", "source-2"] {
            assert_eq!(scene.ok(&["exec", name, "--", "hostname"]).trim(), name);
        }
        assert_eq!(scene.disks().len(), 4, "each has a disk of its own: {:?}", scene.disks());
        for name in ["source", "clone", "source-1", "source-2"] {
            scene.ok(&["rm", "--force", name]);
        }
        assert_eq!(scene.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_snapshot_that_the_monitor_refuses_leaves_a_machine_that_goes_on() {
    for kind in KINDS {
        let scene = scene!("unsaved", kind);
        let _daemon = scene.serve();
        scene.start("box");
        scene.forbid_snapshots();
        let refused = scene.command(&["snapshot", "box", "base"]).output().unwrap();
        let words = text(&refused.stderr);
        assert!(!refused.status.success() && words.contains("refused PUT"), "{words}");
        assert_eq!(scene.ok(&["exec", "box", "--", "echo", "on"]), "on\n");
        let paused = scene.command(&["pause", "box"]).output().unwrap();
        // A pause of Firecracker needs a snapshot.
        assert_eq!(paused.status.success(), kind != FIRECRACKER, "{}", text(&paused.stderr));
        if kind == FIRECRACKER {
            assert!(text(&paused.stderr).contains("was not paused"), "{}", text(&paused.stderr));
        }
    }
}

#[test]
fn refusals_show_the_monitors_own_message() {
    for kind in KINDS {
        let scene = scene!("refused", kind);
        let ran = scene.run_with(&["--memory", "128G"], &["true"]);
        assert!(!ran.status.success());
        let words = text(&ran.stderr);
        assert!(words.contains("128.0 GiB of memory does not fit this host"), "{words}");
        assert_eq!(scene.requests(), Vec::<String>::new(), "nothing was started");
        fs::write(scene.kit().join("vmlinux"), "no kernel").unwrap();
        let ran = scene.run(&["true"]);
        let words =
            if kind == FIRECRACKER { "Unable to read elf header" } else { "Invalid bzImage" };
        assert!(text(&ran.stderr).contains(words), "{}", text(&ran.stderr));
        fs::remove_file(scene.kit().join("vmlinux")).unwrap();
        let ran = scene.run(&["true"]);
        assert!(text(&ran.stderr).contains("./do images"), "{}", text(&ran.stderr));
        assert_eq!(scene.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_monitor_that_never_answers_is_given_up() {
    let mut scenes = Vec::new();
    for kind in KINDS {
        let scene = scene!("mute", kind);
        scene.fault("mute");
        scenes.push(scene);
    }
    std::thread::scope(|scope| {
        for scene in &scenes {
            scope.spawn(|| {
                let began = Instant::now();
                let ran = scene.run(&["true"]);
                assert!(text(&ran.stderr).contains("did not answer PUT"), "{}", text(&ran.stderr));
                assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
                assert_eq!(scene.leftovers(), Vec::<String>::new());
            });
        }
    });
}

#[test]
fn a_monitor_that_dies_is_noticed_at_once_with_its_last_words() {
    for kind in KINDS {
        for (fault, words) in [
            ("dies-at-once", "the fake was told to fail"),
            ("dies-at-start", "about to fail"),
            ("panic", "Kernel panic - not syncing: Attempted to kill init!"),
        ] {
            let scene = scene!("dies", kind);
            scene.fault(fault);
            let began = Instant::now();
            let ran = scene.run(&["true"]);
            assert!(!ran.status.success());
            assert!(began.elapsed() < Duration::from_secs(8), "{fault}: {:?}", began.elapsed());
            // A socket ends with its process, and so does unread data; a pipe stays.
            if fault == "dies-at-start" {
                assert!(text(&ran.stderr).contains("died of signal 11"), "{}", text(&ran.stderr));
            }
            if kind == FIRECRACKER || fault == "dies-at-once" {
                assert!(text(&ran.stderr).contains(words), "{fault}: {}", text(&ran.stderr));
            }
            assert_eq!(scene.leftovers(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_monitor_that_is_killed_ends_its_machine_for_everybody() {
    for kind in KINDS {
        let scene = scene!("murdered", kind);
        let mut command = scene.command(&["run", "--machine", kind, "--image", "base"]);
        command.args(["--scratch", "64M", "--", "sh", "-c", "echo up; exec sleep 60"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut up = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        let began = Instant::now();
        scene.kill_monitor();
        let ended = child.wait_with_output().unwrap();
        assert!(!ended.status.success() && !ended.stderr.is_empty());
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(scene.leftovers(), Vec::<String>::new());

        let _daemon = scene.serve();
        scene.start("box");
        let began = Instant::now();
        scene.kill_monitor();
        scene.eventually("it is told", || {
            scene.ok(&["inspect", "--json", "box"]).contains("died of signal 9")
        });
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}

#[test]
fn a_chattering_console_stops_nobody_and_stays_bounded() {
    for kind in KINDS {
        let scene = scene!("flood", kind);
        scene.fault("flood");
        let _daemon = scene.serve();
        scene.start("box");
        assert_eq!(scene.ok(&["exec", "box", "--", "echo", "fine"]), "fine\n");
        let bytes = scene.console_bytes();
        assert!(bytes > 0 && bytes <= 2 * 256 * 1024 + 64 * 1024, "{bytes} bytes of console");
    }
}

#[test]
fn missing_programs_are_named_with_a_remedy() {
    for kind in KINDS {
        let scene = scene!("missing", kind);
        let mut command =
            scene.command(&["run", "--machine", kind, "--image", "base", "--", "true"]);
        let message = text(&command.env_remove("BURROW_TRUST_KVM").output().unwrap().stderr);
        assert!(
            message.contains("a hypervisor that runs guests") && message.contains("/dev/kvm"),
            "{message}"
        );
        let mut command =
            scene.command(&["run", "--machine", kind, "--image", "base", "--", "true"]);
        let message = text(&command.env("PATH", "/usr/bin:/bin").output().unwrap().stderr);
        assert!(
            message.contains(&format!("{kind} is missing")) && message.contains("PATH"),
            "{message}"
        );
        assert_eq!(scene.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_socket_without_a_monitor_is_no_machine_to_pause() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let nowhere = Path::new("/no/such/monitor");
    let resumed = runtime.block_on(Firecracker::default().resume(nowhere)).unwrap_err();
    assert!(matches!(resumed, MachineError::Api(_)), "{resumed}");
    let ended = runtime.block_on(CloudHypervisor.shut_down(nowhere)).unwrap_err().to_string();
    assert!(ended.contains("Cloud Hypervisor cannot be reached"), "{ended}");
}

#[test]
fn doctor_tells_of_each_machine_what_it_lacks() {
    let scene = scene!("doctor", CLOUD_HYPERVISOR);
    let findings = scene.ok(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&findings).unwrap();
    let check = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {findings}"))
            .clone()
    };
    for (name, version) in [(FIRECRACKER, "v1.16.1"), (CLOUD_HYPERVISOR, "v53.0.0")] {
        assert_eq!(check(name)["verdict"], "works", "{findings}");
        assert!(check(name)["detail"].as_str().unwrap().contains(version), "{findings}");
    }
    assert!(check("KVM")["detail"].as_str().unwrap().contains("BURROW_TRUST_KVM"), "{findings}");
    assert!(check("kit")["detail"].as_str().unwrap().contains("base"), "{findings}");
    let mut command = scene.command(&["doctor", "--json"]);
    command
        .env("PATH", "/no/such/directory")
        .env("HOME", "/no/such/home")
        .env("BURROW_IMAGES", "/no/kit");
    let bare: serde_json::Value =
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let lacking = |name: &str| {
        let checks = bare["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name).unwrap();
        assert!(check["fix"].is_string(), "{check}");
        check["verdict"] == "lacks"
    };
    assert!(["kit", FIRECRACKER, CLOUD_HYPERVISOR].into_iter().all(lacking), "{bare}");
}
