//! Hints for a refused caller, without the words of any door.
//!
//! What to do is often a call, and each door has its own calls. So a refusal carries the case, and each
//! door has a table of its own words for the cases that it can do something about. The words here are
//! those that are true at every door.

use host::instant;

/// A hint for a refused caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Words that are true at every door.
    Text(String),
    ListSandboxes,
    ListSnapshots,
    ListTemplates,
    ListNotebooks,
    ListApps,
    ListArtifacts,
    ListForwards,
    /// The name of the sandbox is taken.
    OtherSandboxName,
    OtherSnapshotName,
    OtherAppName,
    /// The port of the host is taken.
    OtherHostPort,
    AnyHostPort,
    /// The sandbox must stop first.
    StopSandbox,
    /// Notebooks of the sandbox could not be saved.
    DropNotebooks,
    /// The sandbox has stopped.
    ReplaceSandbox,
    /// The agent of the sandbox does not answer, or its record is damaged.
    RemoveLost,
    ResumeSandbox,
    NameImage,
    /// A cap would be exceeded.
    UseLess,
    /// What the day allows is spent.
    NextDay,
    ResetNotebook,
    EndApp,
}

impl Hint {
    /// What every door can say that has no better words.
    pub fn words(&self) -> Option<String> {
        let words = match self {
            Self::Text(words) => words,
            Self::OtherSandboxName | Self::OtherSnapshotName | Self::OtherAppName => {
                "choose another name"
            }
            Self::OtherHostPort => "choose another port",
            Self::StopSandbox => "stop it first",
            Self::DropNotebooks => "try again",
            Self::NameImage => "name an image",
            Self::UseLess => "stop or remove a sandbox, or ask for less",
            Self::NextDay => {
                let until = instant::format(instant::day_end_ms(instant::now_ms()));
                return Some(format!("the day ends at {until} (UTC)"));
            }
            Self::ResetNotebook => "reset the notebook, and it starts empty",
            Self::EndApp => "end an app that is not needed",
            Self::ListSandboxes
            | Self::ListSnapshots
            | Self::ListTemplates
            | Self::ListNotebooks
            | Self::ListApps
            | Self::ListArtifacts
            | Self::ListForwards
            | Self::AnyHostPort
            | Self::ReplaceSandbox
            | Self::RemoveLost
            | Self::ResumeSandbox => return None,
        };
        Some(words.to_owned())
    }
}

impl From<String> for Hint {
    fn from(words: String) -> Self {
        Self::Text(words)
    }
}

impl From<&str> for Hint {
    fn from(words: &str) -> Self {
        Self::Text(words.to_owned())
    }
}
