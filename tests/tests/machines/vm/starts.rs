//! How machines start: alone, together, and when it fails.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tests::Burrow;
use tests::machines::{kit, machines_or_skip};

use super::{MACHINE, leftovers, start};

/// How many processors' time the host lacks while a clock is measured on it.
const BUSY_THREADS: usize = 4;
/// How far off a guest's second may be.
const CLOCK_OFF_MAX: f64 = 0.1;

fn run(burrow: &Burrow, more: &[&str], command: &[&str]) -> std::process::Output {
    burrow.run(&[&["run"], &MACHINE[..], more, &["--"], command].concat())
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_command_runs_in_a_machine_of_its_own_and_nothing_is_left() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::new();
    let ran = run(&burrow, &[], &["python3", "-c", "import sys; print(1); sys.exit(7)"]);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "1\n", "{}", stderr(&ran));
    assert_eq!(ran.status.code(), Some(7));
    assert_eq!(leftovers(&burrow), Vec::<String>::new());
}

#[test]
fn ten_machines_at_once_work() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::new();
    std::thread::scope(|scope| {
        let burrow = &burrow;
        let runs: Vec<_> = (0..10)
            .map(|number: u32| {
                scope.spawn(move || {
                    let word = number.to_string();
                    let ran = run(burrow, &["--memory", "128"], &["echo", &word]);
                    assert_eq!(
                        String::from_utf8_lossy(&ran.stdout).trim_end(),
                        word,
                        "{}",
                        stderr(&ran)
                    );
                })
            })
            .collect();
        for run in runs {
            run.join().expect("it ran");
        }
    });
    assert_eq!(leftovers(&burrow), Vec::<String>::new());
}

/// One after the other, so many that what each might leave would show. `just soak-vm` does it.
#[test]
#[ignore = "minutes"]
fn a_hundred_boots_and_stops_in_a_row_leave_nothing_behind() {
    let burrow = Burrow::serving();
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", burrow.daemon_pid()))
            .expect("its descriptors")
            .count()
    };
    let mut before = 0;
    for number in 0..100 {
        let name = format!("box{number}");
        start(&burrow, &name, &["--memory", "128"]);
        assert_eq!(burrow.ok(&["exec", &name, "--", "echo", "here"]), "here\n");
        burrow.ok(&["stop", &name]);
        burrow.ok(&["rm", &name]);
        assert_eq!(leftovers(&burrow), Vec::<String>::new(), "after boot {number}");
        if number == 1 {
            before = descriptors();
        }
    }
    assert!(descriptors() <= before + 2, "{before} descriptors became {}", descriptors());
}

#[test]
fn a_machine_that_cannot_come_up_says_how_far_it_came_and_leaves_nothing() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::new();
    let image = burrow.scratch().join("no.image");
    std::fs::write(&image, vec![7; 1 << 20]).expect("a file");
    let path = image.to_str().expect("UTF-8");
    let ran = burrow.run(&["run", "--machine", "qemu", "--image", path, "--", "true"]);
    assert!(!ran.status.success());
    assert!(stderr(&ran).contains("mounting /dev/vda"), "{}", stderr(&ran));

    let ran = burrow.run(&["run", "--machine", "qemu", "--image", "pyton", "--", "true"]);
    assert!(stderr(&ran).contains("pyton") && stderr(&ran).contains("python"), "{}", stderr(&ran));
    let ran = run(&burrow, &["--memory", "20"], &["true"]);
    assert!(stderr(&ran).contains("memory"), "{}", stderr(&ran));

    // A kernel without an init dies, and is quoted.
    let broken = burrow.scratch().join("kit");
    std::fs::create_dir(&broken).expect("a directory");
    for file in ["vmlinuz", "vmlinux", "python.erofs"] {
        std::os::unix::fs::symlink(kit().join(file), broken.join(file)).expect("a link");
    }
    std::fs::write(broken.join("initramfs.cpio"), b"").expect("a file");
    let began = Instant::now();
    let mut command = burrow.command(&[&["run"], &MACHINE[..], &["--", "true"]].concat());
    let ran = command.env("BURROW_IMAGES", &broken).output().expect("it runs");
    assert!(!ran.status.success());
    assert!(stderr(&ran).contains("Kernel panic"), "{}", stderr(&ran));
    assert!(began.elapsed() < Duration::from_secs(35), "a panic ends the wait");

    let mut command = burrow.command(&[&["run"], &MACHINE[..], &["--", "true"]].concat());
    let ran = command.env("BURROW_IMAGES", burrow.scratch()).output().expect("it runs");
    assert!(stderr(&ran).contains("./do images"), "{}", stderr(&ran));
    assert_eq!(leftovers(&burrow), Vec::<String>::new());
}

#[test]
fn a_machine_runs_on_every_board_and_its_clock_is_right_on_a_busy_host() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::new();
    measure_clock(&burrow, "q35", Duration::from_secs(2));
    // This one has no timer beside its processor's, and interrupts that come late or never.
    let busy = Busy::host();
    measure_clock(&burrow, "microvm", Duration::from_secs(8));
    drop(busy);
    let words = [&["run"], &MACHINE[..], &["--", "true"]].concat();
    let refused =
        burrow.command(&words).env("BURROW_QEMU_BOARD", "virt").output().expect("it runs");
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("pc, q35 and microvm"), "{stderr}");
    assert_eq!(leftovers(&burrow), Vec::<String>::new());
}

/// More work than the host's processors can do, until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn host() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..BUSY_THREADS {
            let ended = ended.clone();
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(ended)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A second of the guest's beside one of the host's, as the guest counts it itself. A busy host is slow to pass lines
/// on, so each of the guest's two looks at its clock is held between two of the host's.
fn measure_clock(burrow: &Burrow, board: &str, lasting: Duration) {
    let script = "cat /sys/block/vda/ro /sys/block/vdb/ro | tr -d '\\n'; echo; \
                  for look in 1 2; do read -r _; read -r up _ < /proc/uptime; echo $up; done";
    let words =
        [&["run"], &MACHINE[..], &["--scratch", "400M", "-i", "--", "sh", "-c", script]].concat();
    let mut command = burrow.command(&words);
    command.env("BURROW_QEMU_BOARD", board).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut ran = command.spawn().expect("it starts");
    let mut lines = BufReader::new(ran.stdout.take().expect("piped")).lines();
    let mut line = || lines.next().expect("a line").expect("UTF-8");
    let mut input = ran.stdin.take().expect("piped");
    let read_only = line();
    let mut look = || {
        let asked = Instant::now();
        input.write_all(b"\n").expect("it reads");
        (asked, line().parse::<f64>().expect("seconds"), Instant::now())
    };
    let first = look();
    // The time that the guest's clock is compared with.
    std::thread::sleep(lasting);
    let second = look();
    assert!(ran.wait().expect("it is ours").success());
    assert_eq!(read_only, "10", "{board}: the image, and the disk that is written");
    let passed = second.1 - first.1;
    let least = second.0.duration_since(first.2).as_secs_f64() * (1.0 - CLOCK_OFF_MAX);
    let most = second.2.duration_since(first.0).as_secs_f64() * (1.0 + CLOCK_OFF_MAX);
    assert!((least..most).contains(&passed), "{board}: {passed} s, not {least} to {most}");
}
