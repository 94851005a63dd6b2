//! What is wrong with a configuration, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::Origin;
use super::value::{Wrong, did_you_mean};

/// A place in a file, as editors count: from one, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    pub line: usize,
    pub column: usize,
}

impl Place {
    /// Where the byte `offset` of `text` is.
    pub(super) fn of(file: &std::path::Path, text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[start..].chars().count() + 1;
        Self { file: file.to_owned(), line, column }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) => place.fmt(f),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { flag } => f.write_str(flag),
        }
    }
}

/// Why a bridge cannot be configured so.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("could not read the configuration {path:?}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the configuration {path:?} has more than {bytes_max} bytes")]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("{place}: {message}, in the line {line:?}")]
    Syntax { place: Place, message: String, line: String },
    #[error("{place}: there is no section [{section}]{}", did_you_mean(*meant))]
    UnknownSection { place: Place, section: String, meant: Option<&'static str> },
    #[error("{place}: {section:?} is a section: write [{section}] on a line of its own")]
    NotASection { place: Place, section: &'static str },
    #[error("{place}: [{section}] has no key {key:?}{}", did_you_mean(meant.as_deref()))]
    UnknownKey { place: Place, section: &'static str, key: String, meant: Option<String> },
    #[error("{place}: {key:?} belongs into the section [{section}]")]
    WrongSection { place: Place, key: String, section: &'static str },
    #[error("{origin}: there is no option {name:?}{}", did_you_mean(*meant))]
    UnknownOption { origin: Origin, name: String, meant: Option<&'static str> },
    #[error("{flag} {text:?}: write SECTION.KEY=VALUE, as in server.runs_max=16")]
    NotAnAssignment { flag: &'static str, text: String },
    #[error("{variable} is not text")]
    NotText { variable: String },
    #[error("{origin}: {name}: {wrong}")]
    Value { origin: Origin, name: String, wrong: Box<Wrong> },
    #[error("{origin}: {has} needs {lacks} beside it")]
    Half { origin: Origin, has: &'static str, lacks: &'static str },
    #[error(
        "{origin}: server.dev lets everybody in who reaches the server, and {address} can be reached \
         from outside this host; listen on a loopback address, or use keys"
    )]
    OpenDoor { origin: Origin, address: String },
}
