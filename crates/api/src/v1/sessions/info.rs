//! A session as clients see it.

use protocol::message::Channel;

use super::SessionInfo;
use crate::sessions::Session;
use sandbox::RECORDED_HOLDER;

impl From<Session> for SessionInfo {
    fn from(session: Session) -> Self {
        match session {
            Session::Live(info) => Self {
                session: info.session.to_string(),
                command: info.command,
                pid: info.pid,
                terminal: info.terminal,
                started_at_ms: info.started_at_ms,
                running: info.exit.is_none(),
                starting: info.starting,
                exit: info.exit.map(Into::into),
                recorded: info.holders.iter().any(|holder| holder == RECORDED_HOLDER),
                live: true,
                keyboard: info.keyboard,
                warnings: Vec::new(),
            },
            Session::Recorded(recorded) => Self {
                session: recorded.session.to_string(),
                command: recorded.command,
                pid: recorded.run.pid,
                terminal: recorded.outputs.contains_key(&Channel::Terminal),
                started_at_ms: recorded.run.started_at_ms,
                running: false,
                starting: false,
                exit: recorded.exit.map(Into::into),
                recorded: true,
                live: false,
                keyboard: None,
                warnings: Vec::new(),
            },
        }
    }
}
