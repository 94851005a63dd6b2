//! Follows a session on pipes that another client started: its output is printed and nothing is
//! sent to it. ctrl-c ends the command, since it cannot be sent to the session.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};
use protocol::SessionId;
use protocol::message::Channel;
use protocol::requests::{Origin, Role};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::output::Sink;
use super::screen::SessionExit;
use super::show::{OutputEnd, goal_of, show};
use crate::terminal::{Notice, Notices};
use agent_client::guest::Guest;

/// Follows both outputs of a session to its end, beginning with the newest `tail_bytes` of each.
pub async fn follow(guest: &Guest, session: &SessionId, tail_bytes: u64) -> Result<SessionExit> {
    let mut notices = Notices::watch()?;
    let from = Origin::Tail { bytes: tail_bytes };
    let mut stdout =
        OutputTask::begin(guest, session, Channel::Stdout, from, Sink::stdout()?).await?;
    let stderr = OutputTask::begin(guest, session, Channel::Stderr, from, Sink::stderr()?).await?;
    let mut ending = guest.wait_now(session)?;
    let mut stdout_over = false;
    loop {
        tokio::select! {
            record = &mut ending => {
                let record = record.context("the exit status of the session is unknown")?;
                stdout.goal.send_replace(Some(goal_of(&record, Channel::Stdout)));
                stderr.goal.send_replace(Some(goal_of(&record, Channel::Stderr)));
                if !stdout_over
                    && let OutputEnd::Unread = stdout.task.await.context("the output task failed")??
                {
                    return Ok(SessionExit::Unread);
                }
                // Whether anybody reads the error does not matter here.
                stderr.task.await.context("the output task failed")??;
                return Ok(SessionExit::Exited(record));
            }
            shown = &mut stdout.task, if !stdout_over => {
                match shown.context("the output task failed")?? {
                    OutputEnd::Unread => return Ok(SessionExit::Unread),
                    OutputEnd::Everything => stdout_over = true,
                }
            }
            notice = notices.next() => match notice {
                Notice::End(nix::libc::SIGINT) => return Ok(SessionExit::Detached),
                Notice::End(signal) => return Ok(SessionExit::Signalled(signal)),
                Notice::Resized | Notice::Continued => {}
            },
        }
    }
}

/// A task that writes one output.
struct OutputTask {
    task: JoinHandle<Result<OutputEnd>>,
    /// See [`show`].
    goal: watch::Sender<Option<u64>>,
}

impl OutputTask {
    async fn begin(
        guest: &Guest,
        session: &SessionId,
        channel: Channel,
        from: Origin,
        sink: Sink,
    ) -> Result<Self> {
        let (output, begun) = guest.subscribe(session, channel, from, Role::Observer {}).await?;
        let (goal, goal_seen) = watch::channel(None);
        let has_keyboard = Arc::new(AtomicBool::new(false));
        let show = show(output, begun.from, goal_seen, sink, has_keyboard);
        Ok(Self { task: tokio::spawn(show), goal })
    }
}
