//! What a program and the agent find in a machine.

use agent_client::program::Ended;
use protocol::Cause;
use protocol::requests::GroupLimits;
use tests::machines::machines_or_skip;
use tests::sandbox::{Ran, Sandbox};

use super::{block_on, machine};

fn text(ran: &Ran) -> String {
    String::from_utf8_lossy(&ran.stdout).trim_end().to_owned()
}

fn code(finished: &Ended) -> i32 {
    finished.record.cause.shell_code()
}

#[test]
fn the_agent_is_the_init_of_a_kernel_of_its_own() {
    if !machines_or_skip() {
        return;
    }
    block_on(async {
        let mut sandbox = Sandbox::start_as(machine).await;
        let info = sandbox.guest.info();
        assert!(info.init && info.machine && info.pid == 1, "{info:?}");
        assert_eq!(info.hostname, "test-box");
        // The kernel's share of the boot, and ours.
        assert!(info.kernel_us.is_some_and(|kernel_us| kernel_us > 0), "{info:?}");
        assert!(info.ready_us > 0 && info.ready_cpu_us > 0, "{info:?}");
        let failed: Vec<_> = info.boot.iter().filter(|step| step.problem.is_some()).collect();
        let skipped = ["run-and-tmp-in-place", "workspace", "hide", "network"];
        assert!(failed.iter().all(|step| skipped.contains(&&*step.name)), "{failed:?}");
        for wanted in ["cpu", "memory", "pids", "io"] {
            assert!(info.controllers.iter().any(|name| name == wanted), "{info:?}");
        }
        assert_eq!(text(&sandbox.run(&["cat", "/proc/1/comm"]).await), "init");
        // A kernel of its own: it has its own count of boots, and its own processes alone.
        let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("an id");
        let there = text(&sandbox.run(&["cat", "/proc/sys/kernel/random/boot_id"]).await);
        assert_ne!(here.trim(), there);
        // The clock is the host's, as sent at the boot.
        let now: i64 = text(&sandbox.run(&["date", "+%s"]).await).parse().expect("seconds");
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        assert!((since.expect("after 1970").as_secs() as i64 - now).abs() <= 2, "{now}");
        // Signals that would end any other process do nothing to an init.
        assert_eq!(
            code(&sandbox.run(&["sh", "-c", "kill -9 1; kill -SEGV 1; true"]).await.finished),
            0
        );
        assert!(sandbox.guest.refresh_info().await.is_ok());
        sandbox.end().await;
    });
}

#[test]
fn orphans_are_collected_and_none_escapes_a_kill() {
    if !machines_or_skip() {
        return;
    }
    block_on(async {
        let mut sandbox = Sandbox::start_as(machine).await;
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.1 & exec true) & done; wait; sleep 1; \
                      ps -e -o stat= | grep -c '^Z'";
        assert_eq!(text(&sandbox.run(&["sh", "-c", script]).await), "0");
        let mut ask = sandbox.command(&[
            "sh",
            "-c",
            "setsid sleep 1000 & (setsid sleep 1001 &) & sleep 1002",
        ]);
        ask.deadline_ms = Some(1_000);
        let ran = sandbox.run_start(&ask, &[]).await;
        assert!(
            matches!(ran.finished.record.cause, Cause::TimedOut { limit_ms: 1_000 }),
            "{:?}",
            ran.finished
        );
        let left = sandbox.run(&["sh", "-c", "ps -e -o args= | grep -c '[s]leep 100'"]).await;
        assert_eq!(text(&left), "0");
        sandbox.end().await;
    });
}

/// Takes memory until it is stopped.
const EATER: &str = "x = []\nwhile True: x.append(bytearray(1 << 20))";

#[test]
fn a_session_that_runs_out_of_memory_is_reported_so_and_the_rest_lives() {
    if !machines_or_skip() {
        return;
    }
    block_on(async {
        let mut sandbox = Sandbox::start_as(machine).await;
        let bystander = sandbox.command(&["sleep", "1000"]);
        sandbox.guest.start(&bystander).await.expect("it starts");
        // Its own limit first, then the machine's.
        let limit = 48 << 20;
        let mut ask = sandbox.command(&["python3", "-c", EATER]);
        ask.limits = GroupLimits { memory_bytes: Some(limit), ..GroupLimits::default() };
        let record = sandbox.run_start(&ask, &[]).await.finished.record;
        assert_eq!(record.cause, Cause::OutOfMemory { limit_bytes: Some(limit) }, "{record:?}");
        assert!(record.usage.memory_bytes_peak.is_some_and(|peak| peak <= limit), "{record:?}");
        let record = sandbox.run(&["python3", "-c", EATER]).await.finished.record;
        let Cause::OutOfMemory { limit_bytes: Some(all) } = record.cause else {
            panic!("{record:?}")
        };
        assert_eq!(all, sandbox.guest.info().memory_bytes, "all that the machine has");
        let alive = sandbox.run(&["sh", "-c", "ps -e -o args= | grep -c '^sleep 1000'"]).await;
        assert_eq!(text(&alive), "1");
        // What only looks like a death does not count.
        let killed = sandbox.run(&["sh", "-c", "kill -9 $$"]).await.finished.record;
        assert!(matches!(killed.cause, Cause::Signaled { signal: 9, .. }), "{killed:?}");
        sandbox.end().await;
    });
}

#[test]
fn a_full_disk_costs_programs_their_writes_and_the_agent_nothing() {
    if !machines_or_skip() {
        return;
    }
    block_on(async {
        let mut sandbox = Sandbox::start_as(|spec| {
            machine(spec);
            // On a disk of its own, because it does not fit half of the memory.
            spec.scratch_bytes = Some(300 << 20);
        })
        .await;
        let kind = sandbox.run(&["sh", "-c", "stat -f -c %T /dev/shm"]).await;
        assert_eq!(text(&kind), "ext2/ext3");
        let filled =
            sandbox.run(&["sh", "-c", "dd if=/dev/zero of=/var/fill bs=1M 2>&1 | tail -n 4"]).await;
        assert!(text(&filled).contains("No space left"), "{}", text(&filled));
        // Everything that needs no disk goes on.
        assert_eq!(text(&sandbox.run(&["sh", "-c", "seq 1 10000 | tail -n 1"]).await), "10000");
        assert_eq!(code(&sandbox.run(&["rm", "/var/fill"]).await.finished), 0);
        assert_eq!(
            code(&sandbox.run(&["sh", "-c", "echo fits > /var/small && sync"]).await.finished),
            0
        );
        sandbox.end().await;
    });
}

#[test]
fn the_processors_and_the_memory_are_those_asked_for() {
    if !machines_or_skip() {
        return;
    }
    block_on(async {
        let mut sandbox = Sandbox::start_as(|spec| {
            machine(spec);
            spec.memory_mib = Some(160);
        })
        .await;
        let info = sandbox.guest.info();
        assert_eq!(info.cpus, 1);
        assert!((100 << 20..160 << 20).contains(&info.memory_bytes), "{info:?}");
        assert_eq!(text(&sandbox.run(&["nproc"]).await), "1");
        // Python runs in so little; more than half of it is not lost to the writable layer.
        assert_eq!(text(&sandbox.run(&["python3", "-c", "print(6 * 7)"]).await), "42");
        sandbox.end().await;
    });
}
