//! What did not become an artifact, and why. Nothing is skipped silently.

use std::error::Error;

use host::room::lacks_room;
use protocol::Text;
use protocol::message::FileKind;
use serde::{Deserialize, Serialize};

use super::limits::{LEFT_OUT_MAX, PATH_BYTES_MAX, REASON_CHARS_MAX};
use agent_client::guest::GuestError;

/// One thing that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its path in the sandbox, or its name; bytes that are not UTF-8 are shown as U+FFFD.
    pub path: String,
    /// The reason in words.
    pub reason: String,
}

/// Why something did not become an artifact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("it is {what}, and only regular files are kept")]
    Kind { what: &'static str },
    #[error("it has {bytes} bytes, and the limit for an artifact is {bytes_max}")]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error(
        "it has {bytes} bytes, and only {left} of the {bytes_max} that a run may leave are free"
    )]
    RunFull { bytes: u64, left: u64, bytes_max: u64 },
    #[error("a run may leave {count_max} artifacts")]
    TooMany { count_max: usize },
    #[error(
        "the namespace {namespace} has {count} artifacts with {bytes} bytes in total; the limits \
        are {count_max} and {bytes_max}, so remove some"
    )]
    NamespaceFull { namespace: String, count: u64, bytes: u64, count_max: u64, bytes_max: u64 },
    #[error("it changed while it was copied: it had {before} bytes before and {after} after")]
    Changed { before: u64, after: u64 },
    #[error("the sandbox sent something else in its place: {what}")]
    Malformed { what: String },
    #[error("the sandbox did not send it: {message}")]
    Refused { message: String },
    #[error("the host could not keep it: {message}")]
    Host { message: String, lacks_room: bool },
    #[error("no file matches this name")]
    Name,
    #[error("the listing was cut after {entries} entries")]
    ListingFull { entries: usize },
    #[error("it is more than {depth_max} directories deep")]
    TooDeep { depth_max: usize },
    #[error("no new or changed file matches it")]
    NothingMatches,
    #[error("the time was up")]
    NoTime,
    #[error("the displays are more than {bytes_max} bytes, or more than {count_max}")]
    TooMuchShown { bytes_max: usize, count_max: usize },
}

impl Reason {
    pub fn of_kind(kind: FileKind) -> Self {
        let what = match kind {
            FileKind::File => "a file that was replaced",
            FileKind::Directory => "a directory",
            FileKind::Symlink => "a symlink",
            FileKind::Fifo => "a FIFO",
            FileKind::Socket => "a socket",
            FileKind::BlockDevice | FileKind::CharDevice => "a device",
        };
        Self::Kind { what }
    }

    pub fn host(error: &(dyn Error + 'static)) -> Self {
        Self::Host { message: error.to_string(), lacks_room: lacks_room(error) }
    }
}

impl From<GuestError> for Reason {
    fn from(error: GuestError) -> Self {
        Self::Refused { message: error.to_string() }
    }
}

/// Everything that one run could not keep. Further entries are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOuts {
    pub listed: Vec<LeftOut>,
    pub more: u64,
}

impl LeftOuts {
    pub fn add(&mut self, path: &Text, reason: &Reason) {
        self.add_named(&path.to_string_lossy(), reason);
    }

    /// Adds a reason once: both listings of a run are cut at the same place.
    pub fn add_named(&mut self, name: &str, reason: &Reason) {
        let path = clip(name, PATH_BYTES_MAX).to_owned();
        let reason = reason.to_string().chars().take(REASON_CHARS_MAX).collect();
        let left_out = LeftOut { path, reason };
        if self.listed.contains(&left_out) {
            return;
        }
        if self.listed.len() == LEFT_OUT_MAX {
            self.more += 1;
            return;
        }
        self.listed.push(left_out);
    }

    /// The list, with a last entry for the number of further ones.
    pub fn finish(mut self) -> Vec<LeftOut> {
        if self.more > 0 {
            let reason = format!("{} more were left out", self.more);
            self.listed.push(LeftOut { path: "…".to_owned(), reason });
        }
        self.listed
    }
}

/// The beginning of a text, whole characters.
pub fn clip(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
