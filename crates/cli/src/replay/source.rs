//! Where a replay has its entries from: the files of this host; or all at once the bridge of another node, or the fleet's log
//! of a sandbox that is gone with its node.

use std::sync::Arc;

use anyhow::Result;
use protocol::SessionId;
use protocol::message::Channel;

use crate::context::Context;
use crate::logs::LostLog;
use control::message::{PlayPage, PlayQuery};
use control::{Client, Request};
use sandbox::log::{Event, LogError, ReadBudget, RecordedSession};
use services::timeline::{Moment, Step, Timeline, What};

/// The entries of a replay, one after the other.
pub(super) enum Moments {
    Here(Box<Timeline>),
    Fetched {
        all: Arc<[Moment]>,
        /// How many were given.
        at: usize,
        /// How many there are up to the last one of the log of sessions.
        of_log: usize,
    },
}

impl Moments {
    pub fn fetched(all: &Arc<[Moment]>) -> Self {
        let of_log = all.iter().rposition(|moment| moment.kind().is_of_log());
        Self::Fetched { all: Arc::clone(all), at: 0, of_log: of_log.map_or(0, |last| last + 1) }
    }

    pub fn next(&mut self) -> Result<Option<Box<Moment>>, LogError> {
        match self {
            Self::Here(timeline) => {
                let mut room = ReadBudget::ENDLESS;
                Ok(match timeline.step(&mut room)? {
                    Step::Moment(moment) => Some(moment),
                    Step::Paused | Step::AtEnd => None,
                })
            }
            Self::Fetched { all, at, .. } => {
                let next = all.get(*at).cloned().map(Box::new);
                *at += usize::from(next.is_some());
                Ok(next)
            }
        }
    }

    /// Whether no more of the log of sessions comes.
    pub fn is_log_over(&self) -> bool {
        match self {
            Self::Here(timeline) => timeline.is_log_over(),
            Self::Fetched { at, of_log, .. } => at >= of_log,
        }
    }
}

/// A session that can be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Played {
    pub session: SessionId,
    pub command: String,
    pub started_at_ms: u64,
    pub is_terminal: bool,
}

impl From<&RecordedSession> for Played {
    fn from(recorded: &RecordedSession) -> Self {
        Self {
            session: recorded.session.clone(),
            command: recorded.command.clone(),
            started_at_ms: recorded.run.started_at_ms,
            is_terminal: recorded.outputs.contains_key(&Channel::Terminal),
        }
    }
}

/// The sessions that entries are about, as far as these say it.
pub(super) fn sessions(moments: &[Moment]) -> Vec<Played> {
    let mut known: Vec<Played> = Vec::new();
    for moment in moments {
        let What::Log(event) = &moment.what else { continue };
        let Some(session) = event.session() else { continue };
        let at = known.iter().position(|one| one.session == *session).unwrap_or_else(|| {
            let (session, command) = (session.clone(), String::new());
            let started_at_ms = moment.at_ms;
            known.push(Played { session, command, started_at_ms, is_terminal: false });
            known.len() - 1
        });
        match event {
            Event::Started { command, started_at_ms, .. } => {
                known[at].command.clone_from(command);
                known[at].started_at_ms = *started_at_ms;
            }
            Event::Output { channel: Channel::Terminal, .. } => known[at].is_terminal = true,
            _ => {}
        }
    }
    known
}

/// Everything that a sandbox of another node did, as its node plays it. A log has a limit, and so has this.
pub(super) async fn fetch(
    context: &Context,
    daemon: &mut Client,
    mut query: PlayQuery,
) -> Result<Arc<[Moment]>> {
    let which = query.sandbox.clone();
    let mut all = Vec::new();
    loop {
        let request = Request::Play(query.clone());
        let page: PlayPage = context.ask(daemon, &which, &request).await?;
        all.extend(page.moments);
        if page.next.is_none() {
            return Ok(all.into());
        }
        query.after = page.next;
    }
}

/// What the fleet's log has of a sandbox that is gone with its node.
pub(super) async fn read_lost(lost: &mut LostLog) -> Result<Vec<Moment>> {
    let mut all = Vec::new();
    while let Some(entries) = lost.next().await? {
        let moments = entries.into_iter();
        all.extend(
            moments.map(|entry| Moment { at_ms: entry.time_ms, what: What::Log(entry.event) }),
        );
    }
    Ok(all)
}
