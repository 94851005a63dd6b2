//! What a sandbox says that it uses, under loads that are known.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use agent_client::guest::metrics::{Consumer, Samples};
use agent_client::guest::{Address, Guest, Options};
use host::instant::now_ms;
use protocol::FaultCode;
use protocol::metrics::{Sample, Scope};
use protocol::requests::{Release, Signal, Start, Target};
use tempfile::TempDir;
use tests::contexts::{context, run};
use tests::sandbox::{Sandbox, start};
use tests::{PATIENCE, agent_path, eventually, have_or_skip, skip};

const MIB: u64 = 1024 * 1024;

/// Uses a CPU until it is killed.
const BUSY: &[&str] = &["sh", "-c", "while :; do :; done"];

/// The most that one busy loop reads, the agent's own work included.
const ONE_CPU_PERCENT: f64 = 130.0;

async fn newest(guest: &Guest) -> Sample {
    *guest.newest_metrics(true).await.expect("samples").newest().expect("it was waited for")
}

/// The next `count` samples, whose first may still be of what was before.
async fn next(guest: &Guest, count: usize) -> Vec<Sample> {
    let mut seen = newest(guest).await.number;
    let mut all = Vec::new();
    while all.len() < count {
        let page = guest.metrics(seen, true).await.expect("samples");
        seen = page.seen();
        all.extend(page.samples);
    }
    all
}

/// Waits for a sample with the expected values.
async fn until(guest: &Guest, what: &str, is_it: impl Fn(&Sample) -> bool) -> Sample {
    let deadline = Instant::now() + PATIENCE;
    let mut seen = newest(guest).await;
    while !is_it(&seen) {
        assert!(Instant::now() < deadline, "{what}: {seen:?}");
        let page = guest.metrics(seen.number, true).await.expect("samples");
        seen = *page.newest().expect("it was waited for");
    }
    seen
}

/// The share of one CPU that was used, from well after a load began.
async fn percent(guest: &Guest) -> f64 {
    let samples = next(guest, 4).await;
    let (first, last) = (samples[0], samples[3]);
    let used_us = (last.cpu_us - first.cpu_us) as f64;
    let percent = used_us / (last.uptime_ms - first.uptime_ms) as f64 / 10.0;
    // The samples say of each interval what they say of all together.
    let answer: f64 = samples[1..].iter().filter_map(Sample::cpu_percent).sum::<f64>() / 3.0;
    assert!((answer - percent).abs() < 15.0, "{answer} and {percent}");
    percent
}

/// Waits until the sandbox reads what its one busy session uses: all of a CPU, or what others on this
/// machine leave of one.
async fn assert_busy(guest: &Guest, busy: &Start) {
    let used_us = async || {
        let usage = guest.usage(Consumer::Session(busy.session.clone())).await;
        usage.expect("its usage").cpu_us as f64
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (began, before_us) = (Instant::now(), used_us().await);
        let answer = percent(guest).await;
        let really = (used_us().await - before_us) / began.elapsed().as_secs_f64() / 10_000.0;
        assert!(answer < ONE_CPU_PERCENT, "{answer} %");
        if really > 10.0 && (0.7 * really..1.3 * really + 10.0).contains(&answer) {
            return;
        }
        assert!(Instant::now() < deadline, "{answer} % are told of {really} %");
    }
}

async fn begin(guest: &Guest, session: &str, argv: &[&str]) -> Start {
    let ask = start(session, argv);
    guest.start(&ask).await.expect("it starts");
    ask
}

async fn kill(guest: &Guest, ask: &Start) {
    let kill = Signal { session: ask.session.clone(), signal: 9, target: Target::Tree };
    guest.signal(kill).await.expect("it is killed");
    guest.wait(&ask.session).await.expect("it ends");
}

#[tokio::test]
async fn the_cpu_is_known_within_the_first_second_and_right_under_load() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let page = guest.newest_metrics(true).await.expect("samples");
    assert_eq!(page.scope, Scope::Namespace);
    assert!(page.cpus >= 1);
    let began = Instant::now();
    while newest(guest).await.cpu_hundredths.is_none() {
        assert!(began.elapsed() < Duration::from_secs(1), "still no figure of the CPU");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let idle = percent(guest).await;
    assert!(idle < 30.0, "{idle} % of nothing");
    let busy = begin(guest, "busy", BUSY).await;
    assert_busy(guest, &busy).await;
    let before = newest(guest).await.cpu_us;
    kill(guest, &busy).await;
    let after = next(guest, 2).await[1].cpu_us;
    assert!(after >= before, "what it has used stays used: {before}, {after}");
    sandbox.end().await;
}

#[tokio::test]
async fn memory_files_and_processes_show_and_go_away_again() {
    if !have_or_skip("python3") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let idle = newest(guest).await;
    let hold = "import time; held = b'x' * (100 << 20); time.sleep(1000)";
    let held = begin(guest, "held", &["python3", "-c", hold]).await;
    let with_memory = |sample: &Sample| sample.memory_bytes >= idle.memory_bytes + 100 * MIB;
    let full = until(guest, "100 MiB are allocated", with_memory).await;
    assert!(full.memory_bytes < idle.memory_bytes + 150 * MIB, "{full:?}");
    assert_eq!(full.processes, idle.processes + 1);
    kill(guest, &held).await;
    let gone = |sample: &Sample| sample.memory_bytes < idle.memory_bytes + 20 * MIB;
    until(guest, "they are given back", gone).await;

    let disk = |sample: &Sample| sample.disk_bytes.expect("there is a disk");
    let script = "head -c 52428800 /dev/zero >/written";
    begin(guest, "write", &["sh", "-c", script]).await;
    let written = |sample: &Sample| disk(sample) >= disk(&idle) + 50 * MIB;
    let full = until(guest, "50 MiB are written", written).await;
    assert!(disk(&full) < disk(&idle) + 55 * MIB, "{full:?}");
    assert!(disk(&full) <= full.disk_bytes_max.expect("it has a bound"));
    // What is written in a process machine is in memory, and the record says so.
    assert!(full.memory_bytes >= idle.memory_bytes + 50 * MIB, "{full:?}");

    let script = "for i in 1 2 3 4 5 6; do sleep 1000 & done; wait";
    let many = begin(guest, "many", &["sh", "-c", script]).await;
    let wanted = idle.processes + 7;
    until(guest, "seven more processes", |sample| sample.processes == wanted).await;
    kill(guest, &many).await;
    until(guest, "they are gone", |sample| sample.processes == idle.processes).await;
    sandbox.end().await;
}

#[tokio::test]
async fn two_sandboxes_do_not_see_each_others_load() {
    let (one, other) = (Sandbox::start().await, Sandbox::start().await);
    begin(&one.guest, "busy", BUSY).await;
    let script = "head -c 52428800 /dev/zero >/written; sleep 1000";
    begin(&one.guest, "write", &["sh", "-c", script]).await;
    let before = newest(&other.guest).await;
    let (used, unused) = tokio::join!(percent(&one.guest), percent(&other.guest));
    assert!(used > 15.0, "{used} %");
    assert!(unused < 30.0, "{unused} % of a neighbour's load");
    let after = newest(&other.guest).await;
    assert!(after.memory_bytes < before.memory_bytes + 20 * MIB);
    assert_eq!(after.disk_bytes, before.disk_bytes);
    assert_eq!(after.processes, before.processes);
    one.end().await;
    other.end().await;
}

#[tokio::test]
async fn samples_are_read_on_and_what_is_of_another_guest_is_refused() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let samples = next(guest, 3).await;
    let all = guest.metrics(0, false).await.expect("samples");
    assert_eq!((all.samples[0].number, all.missing, all.oldest), (1, 0, 1));
    assert!(all.samples.windows(2).all(|pair| pair[1].number == pair[0].number + 1));
    assert!(all.seen() >= samples[2].number);
    let rest = guest.metrics(2, false).await.expect("samples");
    assert_eq!(rest.samples[0].number, 3);
    let refused = guest.metrics(1_000_000, true).await.expect_err("it never took so many");
    assert_eq!(refused.fault_code(), Some(FaultCode::Invalid));
    sandbox.end().await;
}

/// The agent uses the control groups of ended sessions again, where it may.
#[tokio::test]
async fn the_usage_of_a_session_begins_at_zero_after_any_other() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for number in 0..20 {
        let name = format!("spent-{number}");
        let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
        let spent = begin(guest, &name, &["sh", "-c", script]).await;
        guest.wait(&spent.session).await.expect("it ends");
        // A group whose survivors must be killed differs from one that is left alone.
        let kill_survivors = number % 2 == 0;
        let done = Release { session: spent.session, holder: None, kill_survivors };
        guest.release(done).await.expect("released");
    }
    let fresh = begin(guest, "fresh", &["sleep", "1000"]).await;
    let usage = guest.usage(Consumer::Session(fresh.session.clone())).await.expect("its usage");
    assert!(usage.cpu_us < 20_000, "it has only begun to sleep: {usage:?}");
    assert_eq!(usage.processes, 1, "nobody else is in its group: {usage:?}");
    sandbox.end().await;
}

/// An agent at rest takes a sample each twelve seconds. What happens in between must not be missing,
/// and what begins must show as soon as ever.
#[tokio::test]
async fn a_sandbox_at_rest_is_looked_at_seldom_and_at_once_when_something_begins() {
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let look = async || *guest.newest_metrics(false).await.expect("samples").newest().expect("one");
    guest.newest_metrics(true).await.expect("the first sample");
    let deadline = Instant::now() + PATIENCE;
    let (mut before, mut at_rest) = (look().await, look().await);
    while at_rest.uptime_ms < before.uptime_ms + 4000 {
        assert!(Instant::now() < deadline, "it never comes to rest: {before:?}, {at_rest:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let newest = look().await;
        if newest.number != at_rest.number {
            (before, at_rest) = (at_rest, newest);
        }
    }
    assert!(at_rest.cpu_percent().expect("not the first") < 5.0, "{at_rest:?}");

    let began = Instant::now();
    let busy = begin(guest, "busy", BUSY).await;
    eventually_new(guest, at_rest.number, began).await;
    // The load has a sample or two of its own by then.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let working = look().await;
    let usage = guest.usage(Consumer::Session(busy.session.clone())).await.expect("its usage");
    let counted_us = working.cpu_us - at_rest.cpu_us;
    assert!(counted_us > 0 && counted_us < usage.cpu_us + 500_000, "{working:?}, {usage:?}");
    kill(guest, &busy).await;
    let ended = look().await.number;
    let last = eventually_new(guest, ended, Instant::now()).await;
    let counted_us = last.cpu_us - at_rest.cpu_us;
    assert!(counted_us + 100_000 > usage.cpu_us, "nothing is missing: {last:?}, {usage:?}");
    sandbox.end().await;
}

/// The next sample, which comes within two seconds without anybody's waiting for it.
async fn eventually_new(guest: &Guest, number: u64, began: Instant) -> Sample {
    loop {
        let newest = *guest.newest_metrics(false).await.expect("samples").newest().expect("one");
        if newest.number > number {
            return newest;
        }
        assert!(began.elapsed() < Duration::from_secs(2), "still {newest:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_session_and_a_context_say_what_they_use() {
    if !have_or_skip("python3") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let script = "while :; do :; done & sleep 1000";
    let busy = begin(guest, "busy", &["sh", "-c", script]).await;
    let idle = begin(guest, "idle", &["sleep", "1000"]).await;
    run(guest, "python", "held = b'x' * (60 << 20)").await;
    let usage = async |of| guest.usage(of).await.expect("its usage");
    let deadline = Instant::now() + PATIENCE;
    while usage(Consumer::Session(busy.session.clone())).await.cpu_us < 300_000 {
        assert!(Instant::now() < deadline, "a busy loop shows");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(usage(Consumer::Session(busy.session.clone())).await.processes, 3);
    let little = usage(Consumer::Session(idle.session.clone())).await;
    assert!(little.cpu_us < 100_000 && little.memory_bytes < 20 * MIB, "{little:?}");
    assert_eq!(little.processes, 1);
    let name = context("python").context;
    let held = usage(Consumer::Context(name)).await;
    assert!((60 * MIB..150 * MIB).contains(&held.memory_bytes), "{held:?}");
    let refused = guest.usage(Consumer::Session("none".parse().expect("an id"))).await;
    assert_eq!(refused.expect_err("there is none").fault_code(), Some(FaultCode::NotFound));
    sandbox.end().await;
}

#[tokio::test]
async fn a_context_says_that_its_limits_are_not_enforced() {
    if !have_or_skip("python3") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let plain = guest.open_context(&context("plain:python")).await.expect("it opens");
    let mut ask = context("limited:python");
    ask.limits.memory_bytes = Some(512 * MIB);
    let limited = guest.open_context(&ask).await.expect("it opens");
    if guest.info().controllers.iter().any(|name| name == "memory") {
        skip("memory can be limited here, so there is nothing to warn of");
    } else {
        assert_eq!(limited.warnings.len(), 1, "{:?}", limited.warnings);
        let listed = guest.contexts().await.expect("the contexts");
        assert!(listed.iter().any(|info| info.warnings == limited.warnings), "{listed:?}");
    }
    // A sandbox that requested nothing lacks nothing, unless groups cannot be made at all.
    assert!(plain.warnings.is_empty(), "{:?}", plain.warnings);
    sandbox.end().await;
}

/// An agent that runs as an ordinary process, so that it looks at each of its descendants.
struct Agent {
    child: Child,
    socket: PathBuf,
    dir: TempDir,
}

impl Agent {
    fn start() -> Self {
        Self::start_by(&mut Command::new(agent_path()))
    }

    /// Through another program, which is given the agent's arguments.
    fn start_by(command: &mut Command) -> Self {
        let dir = TempDir::with_prefix("burrow-").expect("a directory");
        let socket = dir.path().join("agent.sock");
        let child = command
            .args([Path::new("serve"), Path::new("--listen"), &socket])
            .spawn()
            .expect("the agent starts");
        eventually("the agent listens", || UnixStream::connect(&socket).is_ok());
        Self { child, socket, dir }
    }

    async fn connect(&self, by: &Path) -> Guest {
        let address = Address::Unix { path: by.to_owned() };
        Guest::connect(address, Options::default()).await.expect("the agent answers")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It ends its sessions when it is asked to end.
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).ok();
        // What has started it may be deaf to that, and takes it along when it is killed.
        let deadline = Instant::now() + Duration::from_secs(3);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test]
async fn an_agent_among_others_counts_what_it_has_started() {
    let agent = Agent::start();
    let guest = agent.connect(&agent.socket).await;
    assert_eq!(guest.newest_metrics(true).await.expect("samples").scope, Scope::Agent);
    assert_eq!(newest(&guest).await.processes, 1, "only the agent, whatever else runs here");
    // Names are the programs' own to choose, as is how they leave: by a second fork.
    let script = "printf ') R 1 1 (\\n' >/proc/self/comm; (while :; do :; done) & exit 0";
    let busy = begin(&guest, "busy", &["sh", "-c", script]).await;
    assert_busy(&guest, &busy).await;
    assert_eq!(newest(&guest).await.processes, 2);
    kill(&guest, &busy).await;
    // Nobody lives long enough to be seen at work.
    begin(&guest, "brief", &["sh", "-c", "while :; do /bin/true; done"]).await;
    next(&guest, 2).await;
    let used = percent(&guest).await;
    assert!((10.0..250.0).contains(&used), "{used} %");
    guest.close().await;
}

#[tokio::test]
async fn an_init_without_a_group_of_its_own_counts_its_namespace_alone() {
    if !nix::unistd::geteuid().is_root() || !have_or_skip("unshare") || !have_or_skip("python3") {
        return skip("a PID namespace is made by root with unshare here");
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(agent_path());
    let agent = Agent::start_by(&mut command);
    let mut neighbour = Command::new(BUSY[0]).args(&BUSY[1..]).spawn().expect("a neighbour");
    let guest = agent.connect(&agent.socket).await;
    assert_eq!(guest.newest_metrics(true).await.expect("samples").scope, Scope::Namespace);
    let unused = percent(&guest).await;
    neighbour.kill().expect("it is ours");
    neighbour.wait().expect("it was ours");
    assert!(unused < 30.0, "{unused} % of a neighbour's load");
    assert_eq!(newest(&guest).await.processes, 1);
    let busy = begin(&guest, "busy", BUSY).await;
    assert_busy(&guest, &busy).await;
    kill(&guest, &busy).await;
    // More than a sample looks into are counted anyway, and nobody waits for it.
    let script =
        "import os, signal\nfor _ in range(1100):\n if os.fork() == 0: break\nsignal.pause()";
    let crowd = begin(&guest, "crowd", &["python3", "-c", script]).await;
    let full = until(&guest, "the crowd is there", |sample| sample.processes == 1102).await;
    assert!(full.partial, "{full:?}");
    kill(&guest, &crowd).await;
    let gone = until(&guest, "the crowd is gone", |sample| sample.processes == 1).await;
    assert!(!gone.partial, "{gone:?}");
    guest.close().await;
}

/// The CPU time of one process without its children, from its `stat`.
fn own_cpu_us(pid: &str) -> u64 {
    const TICK_US: u64 = 10_000;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let behind_the_name = stat.rsplit_once(") ").expect("a name").1;
    let ticks = behind_the_name.split(' ').skip(11).take(2).map(str::parse::<u64>);
    ticks.map(|ticks| ticks.expect("a number")).sum::<u64>() * TICK_US
}

#[tokio::test]
async fn children_that_nobody_waits_for_hide_no_load() {
    /// What the parent must have used between two samples for these to be judged: on a busy machine
    /// it may not run for a second.
    const AT_WORK_US: u64 = 200_000;
    /// How often its time is read.
    const READ_EVERY: Duration = Duration::from_millis(5);
    if !have_or_skip("python3") {
        return;
    }
    let agent = Agent::start();
    let guest = agent.connect(&agent.socket).await;
    let output = agent.dir.path().join("pid");
    let script = "
import os, signal, sys, time
with open(sys.argv[1] + '.new', 'w') as output: output.write(str(os.getpid()))
os.rename(output.name, sys.argv[1])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.7
        while time.process_time() < end: pass
        os._exit(0)
    end = time.process_time() + 1.5
    while time.process_time() < end: pass
";
    let path = output.to_str().expect("UTF-8");
    begin(&guest, "careless", &["python3", "-c", script, path]).await;
    eventually("the parent is at work", || output.exists());
    let parent = std::fs::read_to_string(&output).expect("its number");
    // A sample is seen late on a busy machine, so the parent's time is read all along, by the clock that samples have.
    let readings = Arc::new(Mutex::new(Vec::new()));
    let (kept, of) = (Arc::clone(&readings), parent.clone());
    let reader = tokio::task::spawn_blocking(move || {
        while Arc::strong_count(&kept) > 1 {
            let begun_ms = now_ms();
            let used_us = own_cpu_us(&of);
            kept.lock().expect("no panic").push((begun_ms, now_ms(), used_us));
            // This often is enough.
            thread::sleep(READ_EVERY);
        }
    });
    // What the parent used between two samples at least: from the first reading behind one to the last before the other.
    let used_us = |from_ms: u64, to_ms: u64| {
        let readings = readings.lock().expect("no panic");
        let first = readings.iter().find(|(begun_ms, ..)| *begun_ms >= from_ms);
        let last = readings.iter().rfind(|(_, ended_ms, _)| *ended_ms <= to_ms);
        first.zip(last).map_or(0, |(first, last)| last.2.saturating_sub(first.2))
    };
    let deadline = Instant::now() + PATIENCE;
    let mut before = newest(&guest).await;
    let mut judged = 0;
    while judged < 6 {
        assert!(Instant::now() < deadline, "the parent stalls: {judged} samples judged");
        let page = guest.metrics(before.number, true).await.expect("samples");
        let now = *page.newest().expect("it was waited for");
        let told_us = now.cpu_us.checked_sub(before.cpu_us).expect("time that was used stays used");
        let used_us = used_us(before.time_ms, now.time_ms);
        if used_us > AT_WORK_US {
            assert!(told_us > used_us / 10, "{told_us} µs are told, the parent used {used_us}");
            judged += 1;
        }
        before = now;
    }
    drop(readings);
    reader.await.expect("it reads to the end");
    guest.close().await;
}

#[tokio::test]
async fn samples_taken_during_a_cut_arrive_later() {
    let agent = Agent::start();
    let front = agent.dir.path().join("front.sock");
    let listener = tokio::net::UnixListener::bind(&front).expect("a socket");
    let back = agent.socket.clone();
    let relay = async move |listener: &tokio::net::UnixListener| {
        let (mut near, _) = listener.accept().await.expect("the host dials");
        let mut far = tokio::net::UnixStream::connect(&back).await.expect("the agent listens");
        tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
    };
    let (cut, mut cuts) = tokio::sync::mpsc::channel::<Duration>(1);
    let relaying = tokio::spawn(async move {
        loop {
            tokio::select! {
                () = relay(&listener) => {}
                // Dropping the relay closes both of its ends. For so long nobody is let through.
                Some(pause) = cuts.recv() => tokio::time::sleep(pause).await,
            }
        }
    });
    let guest = agent.connect(&front).await;
    let before = newest(&guest).await.number;
    let waiting = guest.clone();
    let waited = tokio::spawn(async move { waiting.metrics(before + 2, true).await });
    cut.send(Duration::from_secs(4)).await.expect("the relay lives");
    // The agent takes a sample each second meanwhile.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let Samples { samples, missing, .. } = guest.metrics(before, true).await.expect("samples");
    assert_eq!((samples[0].number, missing), (before + 1, 0));
    assert!(samples.len() >= 3, "the samples of four seconds: {samples:?}");
    let answer = waited.await.expect("no panic").expect("samples");
    assert_eq!(answer.samples[0].number, before + 3, "a question outlives its link");
    guest.close().await;
    relaying.abort();
}
