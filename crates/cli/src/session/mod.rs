//! Sessions on the host's side: the options that describe one, and the two ways to attach to one,
//! on pipes and on a terminal. `run`, `exec` and `attach` use it.

mod arguments;
pub mod follow;
mod keyboard;
mod keyboard_input;
pub mod pipes;
mod recorded;
pub mod screen;
mod show;

use std::io::{IsTerminal, stdin};

use protocol::SessionId;
use protocol::limits::NAME_BYTES_MAX;
use protocol::message::SessionInfo;
use protocol::requests::{Origin, Role};

use super::failure::CliError;
use crate::terminal::Keys;
use screen::{Keyboard, ViewerOptions};

pub use arguments::{
    ProcessArguments, program_name, read_environment, terminal_size, terminal_variable,
};
pub use recorded::{find_recorded, recorded_sessions, why_not_there};

/// The holder name of the daemon's recorder: the agent keeps output until the recorder has written it.
pub const LOG_HOLDER: &str = "log";

/// Generates a session id.
pub fn draw_id() -> anyhow::Result<SessionId> {
    Ok(agent_client::program::draw_session()?)
}

/// Our holder name for a session that we start.
pub fn own_holder(session: &SessionId) -> String {
    format!("cli-{session}").chars().take(NAME_BYTES_MAX).collect()
}

/// The options for a session that we just started: no output is missed, and every key goes to the program.
pub fn own_viewer(session: SessionId, holder: String, keyboard: Keyboard) -> ViewerOptions {
    let (origin, role) = (Origin::Offset { offset: 0 }, Role::Holder { name: holder });
    ViewerOptions { session, origin, role, keys: Keys::none(), keyboard, sizes: true }
}

/// Refuses `-it` without a terminal before anything is started.
pub fn check_terminal(process: &ProcessArguments) -> Result<(), CliError> {
    if process.tty && process.interactive && !stdin().is_terminal() {
        return Err(CliError::StdinNotATerminal);
    }
    Ok(())
}

/// Finds a session by its id or by an unambiguous prefix.
pub fn find<'a>(sessions: &'a [SessionInfo], wanted: &str) -> Result<&'a SessionInfo, CliError> {
    find_by(sessions, wanted, |info| &info.session)
}

/// The same for anything with a session's id.
pub fn find_by<'a, T>(
    sessions: &'a [T],
    wanted: &str,
    id: impl Fn(&T) -> &SessionId,
) -> Result<&'a T, CliError> {
    if let Some(exact) = sessions.iter().find(|session| id(session).as_str() == wanted) {
        return Ok(exact);
    }
    let matches: Vec<&T> =
        sessions.iter().filter(|session| id(session).as_str().starts_with(wanted)).collect();
    let names = |sessions: &[&T]| {
        sessions.iter().take(NAMES_SHOWN_MAX).map(|session| id(session).to_string()).collect()
    };
    match matches.as_slice() {
        [one] => Ok(one),
        [] => Err(CliError::UnknownSession {
            wanted: wanted.to_owned(),
            sessions: names(&sessions.iter().collect::<Vec<_>>()),
        }),
        several => {
            Err(CliError::AmbiguousSession { wanted: wanted.to_owned(), matches: names(several) })
        }
    }
}

/// The maximum number of sessions in an error.
const NAMES_SHOWN_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionInfo {
        SessionInfo {
            session: id.parse().expect("a session id"),
            pid: 1,
            command: String::new(),
            terminal: false,
            started_at_ms: 0,
            exit: None,
            holders: vec![],
            viewers: 0,
            keyboard: None,
            starting: false,
            size: None,
        }
    }

    #[test]
    fn a_session_may_be_named_by_its_beginning() {
        let sessions = [session("abc"), session("abcd"), session("xyz")];
        let found = |wanted| find(&sessions, wanted).map(|session| session.session.to_string());
        assert_eq!(found("x").ok().as_deref(), Some("xyz"));
        assert_eq!(found("abc").ok().as_deref(), Some("abc"), "a whole id wins");
        assert!(
            matches!(found("ab"), Err(CliError::AmbiguousSession { matches, .. }) if matches.len() == 2)
        );
        assert!(
            matches!(found("q"), Err(CliError::UnknownSession { sessions, .. }) if sessions.len() == 3)
        );
    }

    #[test]
    fn drawn_ids_differ() {
        assert_ne!(draw_id().expect("an id"), draw_id().expect("an id"));
    }
}
