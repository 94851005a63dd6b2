//! The cost of idle sandboxes, a sample every twelve seconds and the bridge's checks, beside as many processes that
//! are woken as often and read as many files of the kernel: on a busy host, or one that is a machine itself, that costs
//! a multiple of what it costs elsewhere.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use tests::http::Client;
use tests::server::Server;

use super::super::{Floor, MIB, Report, beside, median, timed};
use super::make;

/// How long one sandbox is looked at: three samples.
const ALONE: Duration = Duration::from_secs(30);
/// The sandboxes beside each other, and how long they are looked at: five samples, four heartbeats, and a question of
/// the bridge for samples.
const BOXES: usize = 400;
const TOGETHER: Duration = Duration::from_secs(60);
/// What idle sandboxes cost beside as many processes that are woken as often and only read as much.
const AGENTS_RATIO_MAX: f64 = 8.0;
const BRIDGE_RATIO_MAX: f64 = 3.0;
/// What they may cost of one CPU on a quiet host.
const AGENTS_PERCENT_MAX: f64 = 2.0;
const BRIDGE_PERCENT_MAX: f64 = 0.3;
/// For a sample, a heartbeat, and a question of the bridge.
const WAKES_MAX: f64 = 0.25;
/// All threads of the bridge.
const BRIDGE_WAITS_MAX: f64 = 120.0;
/// Scrapes of which the median is taken.
const SCRAPES: usize = 20;
/// What a start leaves to do is over after this, and agents are at rest: they look at themselves each second
/// for a while.
pub const SETTLING: Duration = Duration::from_secs(15);
/// After this the bridge knows, too, that they are at rest, and asks them less often.
const RESTING: Duration = Duration::from_secs(45);

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
    let mut floors: Vec<Floor> = (0..BOXES).map(|_| Floor::start()).collect();
    for floor in &mut floors {
        floor.ask(b's');
    }
    let sleepers: Vec<Pid> = floors.iter().map(Floor::pid).collect();
    // What their starts have left to do.
    sleep(RESTING);
    let agents = descendants(bridge);
    let [idle, own, floor] = costs(TOGETHER, [&agents, &[bridge], &sleepers]);
    let second = |count: u64| count as f64 / TOGETHER.as_secs_f64();
    let percent = |time: Duration| time.as_secs_f64() / TOGETHER.as_secs_f64() * 100.0;
    report.ratio("400 idle sandboxes, their agents", idle.cpu, floor.cpu, AGENTS_RATIO_MAX);
    let each = second(idle.waits) / BOXES as f64;
    report.bound("  how often one is woken in a second", each, "", WAKES_MAX);
    report.bound("  which is, of one CPU", percent(idle.cpu), "%", AGENTS_PERCENT_MAX);
    report.ratio("400 idle sandboxes, the bridge", own.cpu, floor.cpu, BRIDGE_RATIO_MAX);
    report.bound("  how often it waits in a second", second(own.waits), "", BRIDGE_WAITS_MAX);
    report.bound("  which is, of one CPU", percent(own.cpu), "%", BRIDGE_PERCENT_MAX);
    println!("{:<52} {:>10.2} %", "  and the floor", percent(floor.cpu));
    let each = (resident() - before) / (BOXES - 1) as f64;
    report.bound("  what each takes of the bridge's memory", each, "MiB", 0.1);
    // From the first scrape on the bridge asks the agents, so the cost of doing nothing is measured before.
    let scrape = || timed(|| drop(client.get("/metrics").expect(200)));
    // The first asks all agents; from then on they are asked beside the scrapes.
    let first = scrape();
    let later = median((0..SCRAPES).map(|_| scrape()).collect());
    report.bound("`/metrics` with 400 sandboxes", later.as_secs_f64() * 1e3, "ms", 10.0);
    beside("the same beside the first, which asks all", later, first);
    let [agents, own] = costs(TOGETHER, [&agents, &[bridge]]);
    println!("{:<52} {:>10.2} %", "  scraped, their agents, of one CPU", percent(agents.cpu));
    println!("{:<52} {:>10.2} %", "  scraped, the bridge, of one CPU", percent(own.cpu));
}

/// The CPU time that the descendants of the bridge take in this time, and the bridge itself.
pub fn spent(bridge: Pid, within: Duration) -> (Duration, Duration) {
    // The work after the last starts is finished by then.
    sleep(SETTLING);
    let agents = descendants(bridge);
    assert!(!agents.is_empty(), "no agent of the bridge is to be seen");
    let [agents, own] = costs(within, [&agents, &[bridge]]);
    (agents.cpu, own.cpu)
}

/// What processes have cost so far, or in a time.
#[derive(Clone, Copy, Default)]
pub struct Costs {
    pub cpu: Duration,
    /// How often their threads have waited.
    waits: u64,
}

/// What several groups of processes cost in the same time.
pub fn costs<const N: usize>(within: Duration, groups: [&[Pid]; N]) -> [Costs; N] {
    let of = |pids: &[Pid]| Costs {
        cpu: pids.iter().copied().map(used).sum(),
        waits: pids.iter().copied().map(waits).sum(),
    };
    let before = groups.map(of);
    // The time that is measured.
    sleep(within);
    let after = groups.map(of);
    std::array::from_fn(|at| Costs {
        cpu: after[at].cpu.saturating_sub(before[at].cpu),
        waits: after[at].waits.saturating_sub(before[at].waits),
    })
}

/// How often the threads of a process have waited so far.
pub fn waits(pid: Pid) -> u64 {
    // A process that is gone waits no more.
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let statuses = threads.filter_map(|it| fs::read_to_string(it.path().join("status")).ok());
    let count = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok())
    };
    statuses.filter_map(count).sum()
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
