//! What sandboxes cost in which nothing happens: a sample a second, and the bridge's looking after
//! them.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use tests::http::Client;
use tests::server::Server;

use super::super::Report;
use super::make;

/// How long one sandbox is looked at: as many samples as seconds.
const ALONE: Duration = Duration::from_secs(20);
/// The sandboxes beside each other, and how long they are looked at.
const BOXES: usize = 50;
const TOGETHER: Duration = Duration::from_secs(10);
/// What a start leaves to do is over after this.
const SETTLING: Duration = Duration::from_secs(2);

pub fn figures(report: &mut Report) {
    let server = Server::dev();
    let client = Client::new(server.url());
    let bridge = server.daemon_pid();
    make(&client, "box-0");
    let (agents, _) = spent(bridge, ALONE);
    let sample = agents.as_secs_f64() / ALONE.as_secs_f64();
    report.bound("an idle agent's CPU time for each sample", sample * 1e6, "us", 500.0);
    for number in 1..BOXES {
        make(&client, &format!("box-{number}"));
    }
    let (agents, own) = spent(bridge, TOGETHER);
    let percent = |time: Duration| time.as_secs_f64() / TOGETHER.as_secs_f64() * 100.0;
    report.bound("50 idle sandboxes, their agents, of one CPU", percent(agents), "%", 3.0);
    report.bound("50 idle sandboxes, the bridge, of one CPU", percent(own), "%", 0.5);
}

/// The CPU time that the descendants of the bridge take in this time, and the bridge itself.
fn spent(bridge: Pid, within: Duration) -> (Duration, Duration) {
    // What the last starts left to do is done by then.
    sleep(SETTLING);
    let agents = descendants(bridge);
    assert!(!agents.is_empty(), "no agent of the bridge is to be seen");
    let used = || (agents.iter().copied().map(used).sum::<Duration>(), used(bridge));
    let before = used();
    // The time that is measured.
    sleep(within);
    let after = used();
    (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1))
}

/// All that a process and what it has started have started; each is known to the thread that did.
fn descendants(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let listed = lists.collect::<Vec<_>>().join(" ");
    let own = listed.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw);
    own.flat_map(|pid| [vec![pid], descendants(pid)].concat()).collect()
}

/// What a process has taken, threads that are gone included. The clock of a process counts
/// nanoseconds, where `/proc/PID/stat` knows hundredths of a second.
fn used(pid: Pid) -> Duration {
    let clock = clock_getcpuclockid(pid).and_then(ClockId::now);
    // One that is gone takes no more.
    clock.map_or(Duration::ZERO, Into::into)
}
