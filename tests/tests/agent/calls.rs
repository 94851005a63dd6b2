//! How many system calls the agent makes: for a command, and while nothing happens. Every sandbox pays for
//! each of them, so a new one must have a reason.

use std::fs;
use std::time::Duration;

use nix::unistd::Pid;
use protocol::requests::Release;
use tests::sandbox::{Sandbox, start};
use tests::trace::{Threads, Trace};
use tests::{children, have_or_skip};

/// Commands of which the median is taken, and those before them that are not counted.
const COMMANDS: usize = 100;
const FIRST_COMMANDS: usize = 20;
/// Looks until all commands are started by threads that were there before.
const ROUNDS_MAX: usize = 5;
/// The calls of a command, with those of the thread that starts it: 42 to 46, depending on how many events arrive
/// together, and on whether the allocator gives the memory of its outputs back to the kernel in between.
const CALLS_OF_A_COMMAND_MAX: usize = 48;
/// What a command has more where it gets a control group of its own: that is made, looked at and removed.
const CALLS_OF_A_GROUP: usize = 11;
/// How long an idle agent is watched, and its calls in that time: two or three samples of seventeen calls each, the
/// answers to one or two heartbeats, and a wait before each of them.
const IDLE: Duration = Duration::from_secs(25);
const CALLS_OF_IDLENESS_MAX: usize = 75;
/// How often it may wait: once for each of them, and once for what is done each minute.
const WAITS_OF_IDLENESS_MAX: usize = 7;
/// Mappings of memory, each of which costs page faults: none for a sample, and one for an answer.
const MAPS_OF_IDLENESS_MAX: usize = 3;
/// An unused agent is at rest by then.
const SETTLING: Duration = Duration::from_secs(7);

/// All processes below one.
fn below(pid: Pid) -> Vec<Pid> {
    children(pid).into_iter().flat_map(|child| [vec![child], below(child)].concat()).collect()
}

/// The agent of the only sandbox that this process has: the first process of a namespace below ours.
fn agent() -> Pid {
    let is_first = |pid: &Pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or("");
        numbers.split_whitespace().count() > 1 && numbers.trim_end().ends_with("\t1")
    };
    below(Pid::this()).into_iter().find(is_first).expect("the agent is the first of its namespace")
}

async fn command(sandbox: &Sandbox, number: usize) {
    let start = start(&format!("true-{number}"), &["/bin/true"]);
    let started = sandbox.guest.start_now(&start).expect("queued");
    let ended = sandbox.guest.wait_now(&start.session).expect("queued");
    ended.await.expect("it ends");
    started.await.expect("it started");
    let done = Release { session: start.session, holder: None, kill_survivors: false };
    sandbox.guest.release(done).await.expect("released");
}

#[tokio::test]
async fn a_command_costs_the_agent_few_system_calls() {
    if !have_or_skip("strace") {
        return;
    }
    let sandbox = Sandbox::start().await;
    for number in 0..FIRST_COMMANDS {
        command(&sandbox, number).await;
    }
    let (mut calls, mut births) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS_MAX {
        let Some(trace) = Trace::of(agent(), Threads::Own) else { return };
        for number in 0..COMMANDS {
            command(&sandbox, COMMANDS * round + number).await;
        }
        calls = trace.end();
        // From one birth to the next. Some have a sample in between, and the median has none.
        let is_birth = |call: &str| call.contains("clone") && !call.contains("CLONE_THREAD");
        births = (0..calls.len()).filter(|at| is_birth(&calls[*at])).collect();
        // A thread that the agent has begun meanwhile starts the rest of them, and is not traced.
        if births.len() >= COMMANDS {
            break;
        }
    }
    assert_eq!(births.len(), COMMANDS, "each command is a process");
    let mut counts: Vec<usize> = births.windows(2).map(|pair| pair[1] - pair[0]).collect();
    counts.sort_unstable();
    let median = counts[counts.len() / 2];
    let last = calls[births[COMMANDS - 2]..births[COMMANDS - 1]].join("\n");
    let has_groups = calls.iter().any(|call| call.contains("mkdirat("));
    let most = CALLS_OF_A_COMMAND_MAX + if has_groups { CALLS_OF_A_GROUP } else { 0 };
    assert!(median <= most, "{median} calls for a command; the last:\n{last}");
    sandbox.end().await;
}

#[tokio::test]
async fn an_idle_agent_seldom_asks_the_kernel_for_anything() {
    if !have_or_skip("strace") {
        return;
    }
    let sandbox = Sandbox::start().await;
    command(&sandbox, 0).await;
    // Its first samples come fast.
    tokio::time::sleep(SETTLING).await;
    let Some(trace) = Trace::of(agent(), Threads::Own) else { return };
    // The time that is measured.
    tokio::time::sleep(IDLE).await;
    let calls = trace.end();
    assert!(calls.len() <= CALLS_OF_IDLENESS_MAX, "{}:\n{}", calls.len(), calls.join("\n"));
    let waits = calls.iter().filter(|call| call.contains("epoll_pwait")).count();
    assert!(waits <= WAITS_OF_IDLENESS_MAX, "{waits} waits:\n{}", calls.join("\n"));
    let maps = calls.iter().filter(|call| call.contains("mmap(")).count();
    assert!(maps <= MAPS_OF_IDLENESS_MAX, "{maps} mappings:\n{}", calls.join("\n"));
    sandbox.end().await;
}
