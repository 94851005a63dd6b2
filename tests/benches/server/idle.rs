//! What sandboxes cost in which nothing happens: a sample a second, and the bridge's looking after
//! them.

use std::thread::sleep;
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use tests::children;
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
    report.bound("an idle agent's CPU time for each sample", sample * 1e6, "us", 1000.0);
    for number in 1..BOXES {
        make(&client, &format!("box-{number}"));
    }
    let (agents, own) = spent(bridge, TOGETHER);
    let percent = |time: Duration| time.as_secs_f64() / TOGETHER.as_secs_f64() * 100.0;
    report.bound("50 idle sandboxes, their agents, of one CPU", percent(agents), "%", 5.0);
    report.bound("50 idle sandboxes, the bridge, of one CPU", percent(own), "%", 1.0);
}

/// The CPU time that the descendants of the bridge take in this time, and the bridge itself.
fn spent(bridge: Pid, within: Duration) -> (Duration, Duration) {
    sleep(SETTLING);
    let agents = descendants(bridge);
    let used = || (agents.iter().copied().map(used).sum::<Duration>(), used(bridge));
    let before = used();
    sleep(within);
    let after = used();
    (after.0 - before.0, after.1 - before.1)
}

fn descendants(pid: Pid) -> Vec<Pid> {
    let own = children(pid);
    let theirs = own.iter().flat_map(|pid| descendants(*pid)).collect::<Vec<_>>();
    [own, theirs].concat()
}

/// What a process has taken, threads that are gone included. The clock of a process counts
/// nanoseconds, where `/proc/PID/stat` knows hundredths of a second.
fn used(pid: Pid) -> Duration {
    let clock = clock_getcpuclockid(pid).expect("it runs");
    clock.now().expect("it runs").into()
}
