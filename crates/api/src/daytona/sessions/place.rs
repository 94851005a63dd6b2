//! The names of sessions and commands, and where their files are in a sandbox. Pure.

use std::str::FromStr;

use protocol::SessionId;

use crate::daytona::limits::SESSION_ID_CHARS_MAX;
use host::id::RandomId;
use sandbox::refusal::Refusal;

/// Where the files of all sessions are.
pub const DIRECTORY: &str = "/tmp/.daytona";

/// A session by the name that its client has given to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPlace(String);

/// A command, by the name that this server has given to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandId(RandomId);

/// Whether a text may be part of a name of a session of the agent, and of a path.
pub fn is_id(text: &str) -> bool {
    let begins_well = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    begins_well && is_plain && text.len() <= SESSION_ID_CHARS_MAX
}

/// Refuses what is no id.
pub fn check_id(text: &str) -> Result<(), Refusal> {
    if is_id(text) {
        return Ok(());
    }
    let text: String = text.chars().take(SESSION_ID_CHARS_MAX).collect();
    Err(Refusal::invalid(format!(
        "{text:?} cannot be an id here: use 1 to {SESSION_ID_CHARS_MAX} letters, digits, '_' and \
        '-', beginning with a letter or digit"
    )))
}

impl FromStr for SessionPlace {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        check_id(text)?;
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for CommandId {
    type Err = host::id::InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl CommandId {
    pub fn of(drawn: &RandomId) -> Self {
        Self(drawn.clone())
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl SessionPlace {
    pub fn id(&self) -> &str {
        &self.0
    }

    pub fn directory(&self) -> String {
        format!("{DIRECTORY}/{}", self.0)
    }

    /// The file with the text of a command.
    pub fn command(&self, id: &CommandId) -> String {
        format!("{DIRECTORY}/{}/{}", self.0, id.as_str())
    }

    /// The session of the agent that a command is.
    pub fn session(&self, id: &CommandId) -> SessionId {
        let name = format!("{}.{}", self.0, id.as_str());
        name.parse().expect("an id, a dot and hexadecimal digits are a name")
    }

    /// Whether a session of the agent is one of its commands.
    pub fn owns(&self, session: &SessionId) -> bool {
        let command = session.as_str().split_once('.').filter(|(own, _)| *own == self.0);
        command.is_some_and(|(_, command)| command.parse::<CommandId>().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_part_of_a_path_and_of_a_name_and_no_other_path() {
        let longest = "a".repeat(SESSION_ID_CHARS_MAX);
        for good in ["a", "my-session_1", "0f8fad5b-d9cb-469f-a165-70867728950e", &longest] {
            let place: SessionPlace = good.parse().unwrap();
            let id: CommandId = "0123456789ab".parse().unwrap();
            assert_eq!(place.command(&id), format!("/tmp/.daytona/{good}/0123456789ab"));
            assert!(place.owns(&place.session(&id)));
        }
        let long = "a".repeat(SESSION_ID_CHARS_MAX + 1);
        for bad in ["", ".", "..", "a/b", "-a", "a.b", "a b", "a'", "é", &long] {
            assert!(bad.parse::<SessionPlace>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_session_owns_its_commands_alone() {
        let place: SessionPlace = "a".parse().unwrap();
        for other in ["a", "a.pty", "b.0123456789ab", "a.0123456789abc", "aa.0123456789ab"] {
            assert!(!place.owns(&other.parse().unwrap()), "{other}");
        }
    }
}
