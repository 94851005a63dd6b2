//! Where a session is: with the agent, or in the log alone.

use std::collections::BTreeSet;
use std::path::PathBuf;

use protocol::limits::SESSIONS_MAX;
use protocol::message::{Channel, SessionInfo};
use protocol::{ExitRecord, SessionId};

use super::turns::{turn, turns};
use crate::Api;
use crate::call::Inside;
use agent_client::guest::GuestError;
use sandbox::SandboxRef;
use sandbox::log::{AllSessions, OneSession, RecordedSession, Run};
use sandbox::refusal::Refusal;

/// Sessions that a list names from the log, the newest of them: as many as an agent may have.
const RECORDED_LISTED_MAX: usize = SESSIONS_MAX;

/// A session that is there.
#[derive(Clone, Debug)]
pub enum Session {
    /// The agent has it.
    Live(SessionInfo),
    /// Only the log has it.
    Recorded(RecordedSession),
}

/// A session and the way to it.
pub struct FoundSession {
    pub which: SandboxRef,
    pub session: Session,
    /// There for one that the agent has.
    pub inside: Option<Inside>,
    /// The directory of the sandbox's log.
    pub log: PathBuf,
}

impl Session {
    pub fn id(&self) -> &SessionId {
        match self {
            Self::Live(info) => &info.session,
            Self::Recorded(recorded) => &recorded.session,
        }
    }

    pub fn run(&self) -> Run {
        match self {
            Self::Live(info) => Run { pid: info.pid, started_at_ms: info.started_at_ms },
            Self::Recorded(recorded) => recorded.run,
        }
    }

    pub fn exit(&self) -> Option<&ExitRecord> {
        match self {
            Self::Live(info) => info.exit.as_ref(),
            Self::Recorded(recorded) => recorded.exit.as_ref(),
        }
    }

    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Live(info) => info.terminal,
            Self::Recorded(recorded) => recorded.outputs.contains_key(&Channel::Terminal),
        }
    }

    /// The outputs that it has.
    pub fn channels(&self) -> &'static [Channel] {
        if self.is_terminal() { &[Channel::Terminal] } else { &[Channel::Stdout, Channel::Stderr] }
    }
}

/// Looks for a session.
pub async fn find(
    api: &Api,
    which: &SandboxRef,
    session: &SessionId,
) -> Result<FoundSession, Refusal> {
    let log = api.registry().log_directory(which)?;
    let which = which.clone();
    if let Some((inside, sessions)) = ask(api, &which).await?
        && let Some(info) = sessions.into_iter().find(|info| info.session == *session)
    {
        let session = Session::Live(info);
        return Ok(FoundSession { which, session, inside: Some(inside), log });
    }
    match recorded(log.clone(), session.clone()).await? {
        Some(recorded) => {
            Ok(FoundSession { which, session: Session::Recorded(recorded), inside: None, log })
        }
        None => Err(Refusal::not_found(format!("{which} has no session {session}"))
            .hint("GET …/sessions?recorded=true lists the sessions")),
    }
}

/// The sessions of a sandbox, by their names.
pub async fn list(
    api: &Api,
    which: &SandboxRef,
    with_recorded: bool,
) -> Result<Vec<Session>, Refusal> {
    let log = api.registry().log_directory(which)?;
    let found_sessions = ask(api, which).await?;
    let with_recorded = with_recorded || found_sessions.is_none();
    let mut sessions: Vec<Session> = match found_sessions {
        Some((_, sessions)) => sessions.into_iter().map(Session::Live).collect(),
        None => Vec::new(),
    };
    if with_recorded {
        let live: BTreeSet<SessionId> =
            sessions.iter().map(|session| session.id().clone()).collect();
        let look = turn(move |_| AllSessions::new(&log, RECORDED_LISTED_MAX)).await?;
        let recorded = turns(look, AllSessions::step).await?.into_iter();
        let gone = recorded.filter(|recorded| !live.contains(&recorded.session));
        sessions.extend(gone.map(Session::Recorded));
    }
    sessions.sort_by(|one, other| one.id().cmp(other.id()));
    Ok(sessions)
}

/// The sessions of the agent; `None` where there is no agent to be asked.
async fn ask(api: &Api, which: &SandboxRef) -> Result<Option<(Inside, Vec<SessionInfo>)>, Refusal> {
    // A sandbox that does not run, or whose agent does not answer, still has its log.
    let Ok(inside) = api.inside(which.clone()) else { return Ok(None) };
    match inside.guest.sessions(0).await {
        Ok(list) => Ok(Some((inside, list.sessions))),
        Err(GuestError::Link(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What the log knows of a session.
pub async fn recorded(
    log: PathBuf,
    session: SessionId,
) -> Result<Option<RecordedSession>, Refusal> {
    let look = turn(move |_| OneSession::new(&log, &session)).await?;
    turns(look, OneSession::step).await
}
