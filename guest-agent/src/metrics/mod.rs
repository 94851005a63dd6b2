//! What the box uses: samples of all of it, once a second, and the usage of one session or context
//! when somebody asks.
//!
//! `run` starts [`run`], the only task that takes samples; `router` asks. Nothing here changes
//! anything, and nothing that a program does, to itself or to its name, can make it fail: what cannot
//! be read is absent.

mod census;
mod limits;
mod ring;
mod sampler;

use std::cell::RefCell;
use std::rc::Rc;

use protocol::Fault;
use protocol::message::Reply;
use protocol::metrics::{AskMetrics, MetricsPage, Scope, TreeUsage};
use tokio::sync::watch;

use crate::agent::Agent;
use crate::cgroup::SessionGroup;
use crate::process::procfs::{self, Used};
use crate::process::tree::Tree;
use crate::sys::resource;

use limits::{INTERVAL, INTERVAL_FIRST, PROCESSES_READ_MAX};
use ring::Ring;
use sampler::{Sampler, TICK_US};

/// The samples of an agent.
pub struct Metrics {
    ring: RefCell<Ring>,
    /// The number of the next sample.
    next: watch::Sender<u64>,
    /// What they are of.
    scope: Scope,
}

impl Metrics {
    /// Of an agent that is the init of its machine or namespace, or is not.
    pub fn new(init: bool) -> Self {
        let scope = sampler::scope(init);
        Self { ring: RefCell::default(), next: watch::Sender::new(1), scope }
    }
}

/// Takes samples for as long as the agent lives.
pub async fn run(agent: Rc<Agent>) {
    let mut sampler = Sampler::new(&agent);
    let mut pause = INTERVAL_FIRST;
    loop {
        let sample = sampler.sample(&agent).await;
        agent.metrics.ring.borrow_mut().push(&sample);
        agent.metrics.next.send_modify(|next| *next += 1);
        tokio::time::sleep(pause).await;
        pause = INTERVAL;
    }
}

/// Samples behind one, or the newest, at once or as soon as there are any.
pub async fn answer(agent: Rc<Agent>, ask: AskMetrics) -> Result<Reply, Fault> {
    let metrics = &agent.metrics;
    let first = ask.since.unwrap_or(0);
    if ask.wait && metrics.ring.borrow().next() > first {
        let mut next = metrics.next.subscribe();
        // The sender lives in the agent, so waiting cannot fail.
        while metrics.ring.borrow().next() <= first.saturating_add(1)
            && next.changed().await.is_ok()
        {}
    }
    let ring = metrics.ring.borrow();
    Ok(Reply::Metrics(MetricsPage {
        samples: ring.page(ask.since)?,
        oldest: ring.oldest(),
        next: ring.next(),
        cpus: agent.cpus(),
        scope: metrics.scope,
    }))
}

/// What the processes of a session or an interpreter use at the moment.
pub fn usage(tree: &Tree<'_>) -> TreeUsage {
    let pids = tree.pids();
    let account = tree.group.map(SessionGroup::account).unwrap_or_default();
    let mut usage = TreeUsage {
        grouped: account.cpu_us.is_some(),
        processes: pids.len() as u32,
        memory_bytes_peak: account.memory_bytes_peak,
        ..TreeUsage::default()
    };
    // What the kernel does not account is a sum over those that live.
    let mut sum = Used::default();
    for used in pids.into_iter().take(PROCESSES_READ_MAX).filter_map(procfs::used) {
        sum.times.own += used.times.own + used.times.waited;
        sum.private_pages += used.private_pages;
        sum.read_bytes += used.read_bytes;
        sum.written_bytes += used.written_bytes;
    }
    usage.cpu_us = account.cpu_us.unwrap_or(sum.times.own * TICK_US);
    usage.memory_bytes =
        account.memory_bytes.unwrap_or_else(|| sum.private_pages * resource::page_bytes());
    usage.read_bytes = account.read_bytes.or(Some(sum.read_bytes));
    usage.written_bytes = account.written_bytes.or(Some(sum.written_bytes));
    usage
}
