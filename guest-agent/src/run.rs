//! The life of an agent that is set up: it serves, handles signals, and stops in order.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::limits::STOP_GRACE_GUEST;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use crate::agent::Agent;
use crate::boot::privileges::PROGRAMS_MAY_HAVE;
use crate::cgroup::CgroupSupport;
use crate::config::Config;
use crate::doors::Doors;
use crate::limits::{FILE_THREAD_KEPT, FILE_THREADS_MAX, GOODBYE_FLUSH_MAX};
use crate::pid1::reaper::{Reaper, Remaining};
use crate::pid1::shutdown::{self, Scope};
use crate::pid1::signals::{Blocked, Notice, Signals};
use crate::session::HOUSEKEEPING;
use crate::sys::{capability, lookup};
use crate::task;
use crate::{hotplug, metrics};

/// What ended an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A request, a signal, or the loss of the only link.
    Stopped,
    /// The process that is PID 1, which ends everything else too.
    Dismissed,
}

/// Runs the agent to its end.
pub fn run(
    config: Config,
    groups: CgroupSupport,
    doors: Doors,
    blocked: &Blocked,
) -> io::Result<End> {
    // Before there is a program that could put something in its place.
    lookup::proc();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_io()
        .enable_time()
        .max_blocking_threads(FILE_THREADS_MAX)
        .thread_keep_alive(FILE_THREAD_KEPT);
    if config.init && !config.machine {
        lessen_file_threads(&mut builder);
    }
    let began = Instant::now();
    let runtime = builder.build()?;
    let local = LocalSet::new();
    let result = local.block_on(&runtime, live(config, groups, doors, blocked, began));
    // A thread that hangs in a file system must not keep the agent from ending.
    runtime.shutdown_background();
    result
}

/// In a sandbox that shares the host's kernel, the threads that work on files for clients have only
/// the capabilities of the sandbox's programs. The event loop's thread is not one of them and keeps
/// its own.
fn lessen_file_threads(builder: &mut tokio::runtime::Builder) {
    builder.on_thread_start(|| {
        if capability::act_with(PROGRAMS_MAY_HAVE).is_err() {
            // Nothing of a client's may be done with the agent's rights, and no thread can refuse.
            std::process::abort();
        }
    });
}

async fn live(
    config: Config,
    groups: CgroupSupport,
    doors: Doors,
    blocked: &Blocked,
    began: Instant,
) -> io::Result<End> {
    let signals = Signals::listen(blocked)?;
    let reaper = Reaper::new()?;
    let ends_with_link = config.ends_with_link;
    let agent = Agent::new(config, reaper, groups)?;
    agent.ground.refill_groups();
    let dismissed = Rc::new(Cell::new(false));
    task::spawn(handle_signals(agent.clone(), signals, dismissed.clone()));
    task::spawn(keep_house(agent.clone(), began));
    doors.open(&agent)?;
    if agent.ground.config.machine {
        task::spawn(hotplug::watch(agent.ground.clone()));
    }
    // After the link, so that the first sample delays nobody.
    task::spawn(metrics::run(agent.metrics.clone(), began));
    let grace = tokio::select! {
        grace = agent.ground.stop_requested() => grace,
        () = agent.peers.none_linked(), if ends_with_link => Duration::ZERO,
    };
    stop(&agent, grace).await;
    Ok(if dismissed.get() { End::Dismissed } else { End::Stopped })
}

/// Ends every process (TERM, grace, KILL), sends the clients everything that they do not have yet, and
/// ends the links.
async fn stop(agent: &Rc<Agent>, grace: Duration) {
    agent.stop(grace);
    agent.ground.stop_requested().await;
    let mut own = OwnSessions(agent.clone());
    let scope = match (agent.ground.config.init, agent.ground.config.machine) {
        (true, true) => Scope::Machine,
        (true, false) => Scope::Namespace,
        (false, _) => Scope::Sessions(&mut own),
    };
    shutdown::end_processes(&agent.ground.reaper, scope, grace).await;
    // A goodbye overtakes data, as every control frame does, so it is queued last.
    let flushed = async {
        while !(agent.sessions.are_settled() && agent.contexts.are_settled()) {
            tokio::task::yield_now().await;
        }
        agent.peers.flush().await;
    };
    tokio::time::timeout(GOODBYE_FLUSH_MAX, flushed).await.ok();
    agent.peers.goodbye("the sandbox is stopping", GOODBYE_FLUSH_MAX).await;
}

/// The sessions of an agent that shares its machine.
struct OwnSessions(Rc<Agent>);

impl shutdown::Sessions for OwnSessions {
    fn signal(&mut self, signal: Signal) {
        for session in self.0.sessions.all() {
            session.signal_tree(signal);
        }
        self.0.contexts.signal(signal);
    }

    fn are_gone(&mut self) -> bool {
        let sessions = self.0.sessions.all();
        sessions.iter().all(|session| session.is_gone()) && self.0.contexts.are_gone()
    }
}

/// `dismissed` is set when the process that is PID 1 has asked the agent to end.
async fn handle_signals(agent: Rc<Agent>, mut signals: Signals, dismissed: Rc<Cell<bool>>) {
    // Without its signals the agent could neither reap nor stop, so it ends.
    while let Ok(notice) = signals.next().await {
        match notice {
            Notice::Child => {
                while agent.ground.reaper.reap() == Remaining::Dead {
                    tokio::task::yield_now().await;
                }
            }
            Notice::Stop { by_init } => {
                dismissed.set(by_init);
                agent.stop(STOP_GRACE_GUEST);
            }
        }
    }
    agent.stop(Duration::ZERO);
}

/// Removes stale records, and control groups that were busy before, once a minute.
async fn keep_house(agent: Rc<Agent>, began: Instant) {
    loop {
        sleep_until(task::due_in_one_wake(began, HOUSEKEEPING)).await;
        agent.sessions.forget_stale();
        agent.ground.sweep_groups();
    }
}
