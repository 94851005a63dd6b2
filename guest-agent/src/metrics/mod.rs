//! What the sandbox uses: samples of all of it, once a second while anything happens, and the usage of one
//! session or context on request.
//!
//! `run` starts [`run`], the only task that takes samples; `router` asks. Nothing here changes anything, and
//! no program can make it fail, whatever it does or calls itself: what cannot be read is absent.

mod census;
mod limits;
mod ring;
mod sampler;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use nix::unistd::Pid;
use protocol::Fault;
use protocol::message::Reply;
use protocol::metrics::{AskMetrics, MetricsPage, Sample, Scope, TreeUsage};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::cgroup::{Account, SessionGroup};
use crate::ground::Ground;
use crate::process::procfs::{self, Used};
use crate::process::tree::{Tree, is_alive};
use crate::sys::resource;
use crate::task::due_in_one_wake;

use limits::{
    FOLLOWED, IDLE_CPU_HUNDREDTHS_MAX, INTERVAL, INTERVAL_FIRST, INTERVAL_IDLE, PROCESSES_PER_TURN,
    PROCESSES_READ_MAX, STIRRED_PAUSE,
};
use ring::Ring;
use sampler::{Sampler, TICK_US};

/// The samples of an agent.
pub struct Metrics {
    ground: Rc<Ground>,
    ring: RefCell<Ring>,
    /// The number of the next sample.
    next: watch::Sender<u64>,
    /// What the samples measure.
    scope: Scope,
    /// When a client last waited for a sample.
    followed_at: Cell<Option<Instant>>,
}

impl Metrics {
    pub fn new(ground: Rc<Ground>) -> Rc<Self> {
        let scope = sampler::scope(ground.config.init || ground.config.machine);
        let (ring, next) = (RefCell::default(), watch::Sender::new(1));
        Rc::new(Self { ground, ring, next, scope, followed_at: Cell::default() })
    }
}

impl Metrics {
    /// Whether the next sample can wait: nothing runs, and nobody follows the samples.
    fn may_rest(&self, newest: &Sample) -> bool {
        let is_quiet = newest.cpu_hundredths.is_some_and(|used| used <= IDLE_CPU_HUNDREDTHS_MAX);
        let is_followed = self.followed_at.get().is_some_and(|at| at.elapsed() < FOLLOWED);
        is_quiet && !is_followed && !self.ground.activities.is_any()
    }
}

/// Takes samples for as long as the agent lives, whose runtime began right after `began`.
pub async fn run(metrics: Rc<Metrics>, began: Instant) {
    let mut sampler = Sampler::new(&metrics.ground, metrics.scope);
    let mut pause = INTERVAL_FIRST;
    loop {
        metrics.ground.reaper.settle_births();
        let sample = sampler.sample(&metrics.ground).await;
        metrics.ring.borrow_mut().push(&sample);
        metrics.next.send_modify(|next| *next += 1);
        let taken = Instant::now();
        if pause == INTERVAL && metrics.may_rest(&sample) {
            let activities = &metrics.ground.activities;
            let due = due_in_one_wake(began, INTERVAL_IDLE);
            if timeout_at(due, activities.begun()).await.is_ok() {
                let soon = Instant::now() + STIRRED_PAUSE;
                sleep_until(soon.max(taken + INTERVAL)).await;
            }
        } else {
            sleep_until(due_in_one_wake(began, pause)).await;
            pause = INTERVAL;
        }
    }
}

/// Samples after one, or the newest, at once or as soon as there are any.
pub async fn answer(metrics: Rc<Metrics>, ask: AskMetrics) -> Result<Reply, Fault> {
    let first = ask.since.unwrap_or(0);
    if ask.wait && metrics.ring.borrow().next() > first {
        metrics.followed_at.set(Some(Instant::now()));
        metrics.ground.activities.stir();
        let mut next = metrics.next.subscribe();
        // The sender lives in `metrics`, so waiting cannot fail.
        while metrics.ring.borrow().next() <= first.saturating_add(1)
            && next.changed().await.is_ok()
        {}
    }
    let ring = metrics.ring.borrow();
    Ok(Reply::Metrics(MetricsPage {
        samples: ring.page(ask.since)?,
        oldest: ring.oldest(),
        next: ring.next(),
        cpus: metrics.ground.cpus(),
        scope: metrics.scope,
    }))
}

/// Whose usage is requested: a session's processes, or an interpreter's, at that moment.
#[derive(Default)]
pub struct UsageSnapshot {
    pids: Vec<Pid>,
    account: Account,
}

impl UsageSnapshot {
    pub fn of(tree: &Tree<'_>) -> Self {
        let account = tree.group.map(SessionGroup::account).unwrap_or_default();
        Self { pids: tree.listed(), account }
    }
}

/// Their usage. Reads some of them at a time and yields in between.
pub async fn usage(snapshot: UsageSnapshot) -> Result<Reply, Fault> {
    let UsageSnapshot { pids, account } = snapshot;
    // Those that are not read count as alive.
    let mut processes = pids.len().saturating_sub(PROCESSES_READ_MAX);
    // What the kernel does not account is a sum over living processes.
    let (mut sum, mut ticks) = (Used::default(), 0_u64);
    for (at, pid) in pids.into_iter().take(PROCESSES_READ_MAX).enumerate() {
        if at % PROCESSES_PER_TURN == PROCESSES_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
        if !is_alive(pid) {
            continue;
        }
        processes += 1;
        let Some(used) = procfs::used(pid) else { continue };
        ticks += used.times.sum();
        sum.private_pages += used.private_pages;
        sum.read_bytes += used.read_bytes;
        sum.written_bytes += used.written_bytes;
    }
    Ok(Reply::Usage(TreeUsage {
        grouped: account.cpu_us.is_some(),
        processes: processes as u32,
        cpu_us: account.cpu_us.unwrap_or(ticks * TICK_US),
        memory_bytes: account
            .memory_bytes
            .unwrap_or_else(|| sum.private_pages * resource::page_bytes()),
        memory_bytes_peak: account.memory_bytes_peak,
        read_bytes: account.read_bytes.or(Some(sum.read_bytes)),
        written_bytes: account.written_bytes.or(Some(sum.written_bytes)),
    }))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn the_usage_of_many_processes_lets_others_have_their_turn() {
        let pids = vec![Pid::this(); PROCESSES_READ_MAX + 10];
        let mut work = Box::pin(usage(UsageSnapshot { pids, account: Account::default() }));
        let mut context = Context::from_waker(Waker::noop());
        let mut turns = 1;
        let reply = loop {
            match work.as_mut().poll(&mut context) {
                Poll::Pending => turns += 1,
                Poll::Ready(reply) => break reply,
            }
        };
        let Ok(Reply::Usage(usage)) = reply else { panic!("no usage: {reply:?}") };
        assert_eq!(usage.processes as usize, PROCESSES_READ_MAX + 10);
        assert!(usage.memory_bytes > 0);
        assert!(turns > PROCESSES_READ_MAX / PROCESSES_PER_TURN, "{turns} turns");
    }
}
