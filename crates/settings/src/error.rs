//! Errors in a configuration, with their positions.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::Origin;
use super::value::{InvalidValue, did_you_mean};

/// A position in a file as editors count: from one, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePosition {
    pub file: PathBuf,
    pub line: usize,
    pub column: usize,
}

impl FilePosition {
    /// The position of the byte `offset` of `text`.
    pub(super) fn of(file: &std::path::Path, text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[start..].chars().count() + 1;
        Self { file: file.to_owned(), line, column }
    }
}

impl fmt::Display for FilePosition {
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

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("cannot read the configuration {path:?}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the configuration {path:?} is larger than {bytes_max} bytes")]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("{place}: {message}, in the line {line:?}")]
    Syntax { place: FilePosition, message: String, line: String },
    #[error("{place}: there is no section [{section}]{}", did_you_mean(*meant))]
    UnknownSection { place: FilePosition, section: String, meant: Option<&'static str> },
    #[error("{place}: {section:?} is a section: write [{section}] on a line of its own")]
    NotASection { place: FilePosition, section: &'static str },
    #[error("{place}: [{section}] has no key {key:?}{}", did_you_mean(meant.as_deref()))]
    UnknownKey { place: FilePosition, section: &'static str, key: String, meant: Option<String> },
    #[error("{place}: {key:?} belongs in the section [{section}]")]
    WrongSection { place: FilePosition, key: String, section: &'static str },
    #[error("{origin}: there is no option {name:?}{}", did_you_mean(*meant))]
    UnknownOption { origin: Origin, name: String, meant: Option<&'static str> },
    #[error("{flag} {text:?}: write SECTION.KEY=VALUE, as in server.runs_max=16")]
    NotAnAssignment { flag: &'static str, text: String },
    #[error("{variable} is not text")]
    NotText { variable: String },
    #[error("{origin}: {name}: {wrong}")]
    Value { origin: Origin, name: String, wrong: Box<InvalidValue> },
    #[error("{origin}: {has} needs {lacks}")]
    Half { origin: Origin, has: &'static str, lacks: &'static str },
    #[error(
        "{origin}: server.dev gives access without a key, but {address} can be reached from other hosts; \
         listen on a loopback address, or use keys"
    )]
    OpenDoor { origin: Origin, address: String },
}
