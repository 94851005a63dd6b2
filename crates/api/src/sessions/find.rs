//! Where a session is: with the agent, or in the log alone.

use std::collections::BTreeSet;
use std::path::PathBuf;

use protocol::limits::SESSIONS_MAX;
use protocol::message::{Channel, SessionInfo};
use protocol::{ExitRecord, SessionId};

use super::turns::{turn, turns};
use crate::Api;
use crate::call::{Call, Inside};
use agent_client::guest::{Guest, GuestError};
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
    /// There for one that the agent has and that was found for use.
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

/// Finds a session for use. A sandbox that is asleep is woken.
pub async fn find(
    call: &Call,
    which: &SandboxRef,
    session: &SessionId,
) -> Result<FoundSession, Refusal> {
    // A sandbox that does not run, or whose agent does not answer, still has its log.
    let inside = call.enter(which.clone()).await.ok();
    let guest = inside.as_ref().map(|inside| inside.guest.clone());
    let found = among(&call.api, which, session, guest).await?;
    let inside = inside.filter(|_| matches!(found.session, Session::Live(_)));
    Ok(FoundSession { inside, ..found })
}

/// Finds a session to look at alone: that wakes nobody.
pub async fn look_at(
    api: &Api,
    which: &SandboxRef,
    session: &SessionId,
) -> Result<FoundSession, Refusal> {
    among(api, which, session, api.registry().guest(which).ok()).await
}

/// Finds a session with the agent, or else in the log.
async fn among(
    api: &Api,
    which: &SandboxRef,
    session: &SessionId,
    guest: Option<Guest>,
) -> Result<FoundSession, Refusal> {
    let log = api.registry().log_directory(which)?;
    let which = which.clone();
    let live = match guest {
        Some(guest) => ask(&guest).await?,
        None => None,
    };
    let is_it = |info: &SessionInfo| info.session == *session;
    if let Some(info) = live.and_then(|sessions| sessions.into_iter().find(is_it)) {
        return Ok(FoundSession { which, session: Session::Live(info), inside: None, log });
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
    // A list only looks, and wakes nobody.
    let found_sessions = match api.registry().guest(which) {
        Ok(guest) => ask(&guest).await?,
        Err(_) => None,
    };
    let with_recorded = with_recorded || found_sessions.is_none();
    let mut sessions: Vec<Session> = match found_sessions {
        Some(sessions) => sessions.into_iter().map(Session::Live).collect(),
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

/// The sessions of the agent; `None` where it does not answer.
async fn ask(guest: &Guest) -> Result<Option<Vec<SessionInfo>>, Refusal> {
    match guest.sessions(0).await {
        Ok(list) => Ok(Some(list.sessions)),
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
