//! The cost of idle sandboxes: a sample every ten seconds, and the bridge's checks.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use tests::http::Client;
use tests::server::Server;

use super::super::{MIB, Report, beside, median, timed};
use super::make;

/// How long one sandbox is looked at: three samples.
const ALONE: Duration = Duration::from_secs(30);
/// The sandboxes beside each other, and how long they are looked at: three samples and two heartbeats.
const BOXES: usize = 400;
const TOGETHER: Duration = Duration::from_secs(30);
/// Scrapes of which the median is taken.
const SCRAPES: usize = 20;
/// What a start leaves to do is over after this, and agents are at rest: they look at themselves each second
/// for a while.
const SETTLING: Duration = Duration::from_secs(15);

pub fn figures(report: &mut Report) {
    let server = Server::dev();
    let client = Client::new(server.url());
    let bridge = server.daemon_pid();
    make(&client, "box-0");
    let (agents, _) = spent(bridge, ALONE);
    let second = agents.as_secs_f64() / ALONE.as_secs_f64();
    report.bound("an idle agent's CPU time for each second", second * 1e6, "us", 50.0);
    let resident = || tests::resident_bytes(bridge).expect("it runs") as f64 / MIB;
    let before = resident();
    for number in 1..BOXES {
        make(&client, &format!("box-{number}"));
    }
    let scrape = || timed(|| drop(client.get("/metrics").expect(200)));
    // The first asks all agents; from then on they are asked beside the scrapes.
    let first = scrape();
    let later = median((0..SCRAPES).map(|_| scrape()).collect());
    report.bound("`/metrics` with 400 sandboxes", later.as_secs_f64() * 1e3, "ms", 10.0);
    beside("the same beside the first, which asks all", later, first);
    let (agents, own) = spent(bridge, TOGETHER);
    let percent = |time: Duration| time.as_secs_f64() / TOGETHER.as_secs_f64() * 100.0;
    report.bound("400 idle sandboxes, their agents, of one CPU", percent(agents), "%", 2.0);
    report.bound("400 idle sandboxes, the bridge, of one CPU", percent(own), "%", 0.3);
    let each = (resident() - before) / (BOXES - 1) as f64;
    report.bound("  what each takes of the bridge's memory", each, "MiB", 0.1);
}

/// The CPU time that the descendants of the bridge take in this time, and the bridge itself.
pub fn spent(bridge: Pid, within: Duration) -> (Duration, Duration) {
    // The work after the last starts is finished by then.
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

/// All descendants of a process; each is recorded under the thread that started it.
pub fn descendants(pid: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let listed = lists.collect::<Vec<_>>().join(" ");
    let own = listed.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw);
    own.flat_map(|pid| [vec![pid], descendants(pid)].concat()).collect()
}

/// The CPU time of a process, ended threads included. A process's clock counts nanoseconds, but
/// `/proc/PID/stat` only hundredths of a second.
pub fn used(pid: Pid) -> Duration {
    let clock = clock_getcpuclockid(pid).and_then(ClockId::now);
    // A process that is gone uses no more.
    clock.map_or(Duration::ZERO, Into::into)
}
