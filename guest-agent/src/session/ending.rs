//! From the death of a session's leader to its exit record.
//!
//! The record is made when the leader has been reaped, not when its pipes reach their end: a
//! grandchild may hold them forever. It states how much had been written by then, so that a client
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

/// How long a killed tree may take to end before its rest counts as left behind.
const BURIAL_MAX: Duration = Duration::from_millis(500);
const BURIAL_POLL: Duration = Duration::from_millis(2);
/// A shell's exit code for a killed command.
const SHELL_KILLED: i32 = 128 + libc::SIGKILL;

/// What a session's end needs besides the session.
pub struct Ending {
    pub exit: oneshot::Receiver<Exit>,
    pub gauges: Vec<(Channel, Gauge)>,
    pub deadline_ms: Option<u64>,
}

/// Waits for the end of the leader, enforces the deadline, and sets the record.
pub async fn run(sessions: Rc<Sessions>, session: Rc<Session>, mut ending: Ending) {
    let _activity = sessions.ground.activities.begin();
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
    // The answer to the start comes first. A start that has failed has its record.
    session.begun().await;
    let Ok(exit) = exit else { return };
    if session.record().is_some() {
        return;
    }
    session.leader_reaped.set(true);
    let ended_us = clock::monotonic_us();
    if session.tree_killed.get() {
        // Processes that were started between the kill and the leader's death must not survive it,
        // and those that are still being torn down are not left behind.
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
    sessions.changed(&session);
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
    let outputs = ending.gauges.iter().map(|(channel, gauge)| {
        let written = gauge.written();
        let outlet = session.outlet(*channel);
        // The end of a terminal that nobody uses any longer is the end of its stream.
        if let (Ok(outlet), true) = (&outlet, session.terminal.is_none() || left.count > 0) {
            outlet.end_digest_at(written);
        }
        let dropped = outlet.map_or(0, crate::flow::Outlet::dropped);
        OutputTotal { channel: *channel, written, dropped, digested: None, sha256: None }
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

/// Determines the cause from what is known, never from the number alone.
fn cause(ground: &Ground, session: &Session, status: Status) -> Cause {
    if let Some(limit_ms) = session.timed_out.get() {
        return Cause::TimedOut { limit_ms };
    }
    let signal = match status {
        Status::Signaled { signal, .. } => signal,
        Status::Exited { code } if code == SHELL_KILLED => libc::SIGKILL,
        Status::Exited { .. } => return status.into(),
    };
    let out_of_memory =
        || Cause::OutOfMemory { limit_bytes: ground.memory_limit(session.memory_limit) };
    let oom_kills = session.group.borrow().as_ref().and_then(SessionGroup::oom_kills);
    if signal == libc::SIGKILL && oom_kills.is_some_and(|kills| kills > 0) {
        return out_of_memory();
    }
    if let Status::Signaled { .. } = status {
        if let Some(by) = session.killed_by.borrow().get(&signal) {
            return Cause::Killed { signal, by: by.clone() };
        }
        // A stop sends these; a program that dies of another signal has done so by itself.
        if ground.is_stopping() && matches!(signal, libc::SIGTERM | libc::SIGKILL) {
            return Cause::AgentStopping;
        }
    }
    // It may have come from another session's process, so everything that is known takes
    // precedence.
    if signal == libc::SIGKILL && ground.sandbox_oom_kills() > session.sandbox_oom_kills {
        return out_of_memory();
    }
    status.into()
}
