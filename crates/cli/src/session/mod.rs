//! A session seen from the host's side: how one is described on a command line, and the two ways
//! to sit in front of it. `run`, `exec` and `attach` use it.

mod arguments;
pub mod follow;
mod keyboard;
pub mod pipes;
pub mod screen;
mod show;
mod typist;

use std::io::{IsTerminal, stdin};

use protocol::SessionId;
use protocol::limits::NAME_BYTES_MAX;
use protocol::message::SessionInfo;
use protocol::requests::{Origin, Role};

use super::failure::CliError;
use crate::terminal::Keys;
use screen::{Keyboard, Seat};

pub use arguments::{ProcessArguments, program_name, terminal_size, terminal_variable};

/// The holder that the daemon's recorder is: what it has not yet written to disk is kept.
pub const LOG_HOLDER: &str = "log";

/// A fresh session's name.
pub fn draw_id() -> anyhow::Result<SessionId> {
    let id = host::id::RandomId::draw()?.to_string();
    Ok(id.parse::<SessionId>().map_err(|error| CliError::SessionName(id, error))?)
}

/// What we call ourselves among the holders of a session that we start.
pub fn own_holder(session: &SessionId) -> String {
    format!("cli-{session}").chars().take(NAME_BYTES_MAX).collect()
}

/// In front of a session that we have just started: nothing missed, every key for the program.
pub fn own_seat(session: SessionId, holder: String, keyboard: Keyboard) -> Seat {
    let (origin, role) = (Origin::Offset { offset: 0 }, Role::Holder { name: holder });
    Seat { session, origin, role, keys: Keys::none(), keyboard, sizes: true }
}

/// Refuses `-it` in front of nothing, before anything is started for it.
pub fn check_terminal(process: &ProcessArguments) -> Result<(), CliError> {
    if process.tty && process.interactive && !stdin().is_terminal() {
        return Err(CliError::StdinNotATerminal);
    }
    Ok(())
}

/// The one session that `wanted` means: its whole id, or the beginning of only one.
pub fn find<'a>(sessions: &'a [SessionInfo], wanted: &str) -> Result<&'a SessionInfo, CliError> {
    if let Some(exact) = sessions.iter().find(|session| session.session.as_str() == wanted) {
        return Ok(exact);
    }
    let matches: Vec<&SessionInfo> =
        sessions.iter().filter(|session| session.session.as_str().starts_with(wanted)).collect();
    let names = |sessions: &[&SessionInfo]| {
        sessions.iter().take(NAMES_SHOWN_MAX).map(|session| session.session.to_string()).collect()
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

/// Sessions that an error names.
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
