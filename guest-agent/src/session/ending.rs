//! From the death of a session's leader to its exit record.
//!
//! The record is made when the leader has been reaped, not when its pipes reach their end: a
//! grandchild may hold them for ever. It says how much had been written by then, so that a client
//! knows when it has read everything.

use std::rc::Rc;
use std::time::Duration;

use protocol::exit::{Cause, ExitRecord, OutputTotal, Usage};
use protocol::message::Channel;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::program::Session;
use super::pump::Gauge;
use super::registry::Sessions;
use crate::cgroup::SessionGroup;
use crate::ground::Ground;
use crate::pid1::reaper::{Exit, Status};
use crate::sys::clock;

/// How long a killed tree may take to be gone before its rest counts as left behind.
const BURIAL_MAX: Duration = Duration::from_millis(500);
const BURIAL_POLL: Duration = Duration::from_millis(2);

/// What a session's end needs besides the session.
pub struct Ending {
    pub exit: oneshot::Receiver<Exit>,
    pub gauges: Vec<(Channel, Gauge)>,
    pub deadline_ms: Option<u64>,
}

/// Waits for the end of the leader, enforces the deadline, and sets the record.
pub async fn run(sessions: Rc<Sessions>, session: Rc<Session>, mut ending: Ending) {
    let exit = match ending.deadline_ms {
        None => (&mut ending.exit).await,
        Some(limit_ms) => tokio::select! {
            exit = &mut ending.exit => exit,
            () = sleep(Duration::from_millis(limit_ms)) => {
                session.timed_out.set(Some(limit_ms));
                session.kill_tree();
                (&mut ending.exit).await
            }
        },
    };
    // The reaper outlives every session; without it there is nothing that could be recorded.
    let Ok(exit) = exit else { return };
    session.leader_reaped.set(true);
    let ended_us = clock::monotonic_us();
    if session.tree_killed.get() {
        // What was started between the kill and the leader's death must not survive it, and what
        // is only still being buried is not left behind.
        session.kill_tree();
        timeout(BURIAL_MAX, until_gone(&sessions.ground, &session)).await.ok();
    }
    session.keyboard.close("the program has ended");
    if session.terminal.is_some() {
        for (_, gauge) in &ending.gauges {
            gauge.clone().settle_terminal().await;
        }
    }
    let record = record(&sessions.ground, &session, &ending, exit, ended_us);
    session.exit.send_replace(Some(Rc::new(record)));
    sessions.changed();
    sessions.forget_if_let_go(&session);
    sessions.forget_stale();
}

async fn until_gone(ground: &Ground, session: &Session) {
    let mut deaths = ground.reaper.watch();
    while !session.is_gone() {
        // Grandchildren need not be ours to reap, so there may be nothing that wakes us.
        timeout(BURIAL_POLL, deaths.changed()).await.ok();
    }
}

fn record(
    ground: &Ground,
    session: &Session,
    ending: &Ending,
    exit: Exit,
    ended_us: u64,
) -> ExitRecord {
    let left = session.members();
    let outputs = ending.gauges.iter().map(|(channel, gauge)| OutputTotal {
        channel: *channel,
        written: gauge.written(),
        dropped: session.outlet(*channel).map_or(0, crate::flow::Outlet::dropped),
    });
    let peak = session.group.borrow().as_ref().and_then(SessionGroup::memory_bytes_peak);
    ExitRecord {
        cause: cause(ground, session, exit.status),
        started_at_ms: session.started_at_ms,
        ended_at_ms: clock::wall_ms(),
        duration_us: ended_us - session.started_us,
        usage: Usage { memory_bytes_peak: peak, ..exit.usage },
        outputs: outputs.collect(),
        left_behind: left.listed,
        left_behind_count: left.count,
    }
}

/// Tells the cause from what is known, never from the number alone.
fn cause(ground: &Ground, session: &Session, status: Status) -> Cause {
    if let Some(limit_ms) = session.timed_out.get() {
        return Cause::TimedOut { limit_ms };
    }
    let Status::Signaled { signal, .. } = status else { return status.into() };
    let oom_kills = session.group.borrow().as_ref().and_then(SessionGroup::oom_kills);
    if signal == libc::SIGKILL && oom_kills.is_some_and(|kills| kills > 0) {
        return Cause::OutOfMemory { limit_bytes: session.memory_limit };
    }
    if let Some(by) = session.killed_by.borrow().get(&signal) {
        return Cause::Killed { signal, by: by.clone() };
    }
    // These are what a stop sends; a program that dies of another has done so by itself.
    if ground.is_stopping() && matches!(signal, libc::SIGTERM | libc::SIGKILL) {
        return Cause::AgentStopping;
    }
    status.into()
}
