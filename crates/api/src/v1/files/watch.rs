//! Changes under a path, sent as they happen.

use protocol::message::{Change, WatchEvent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::super::body::Gone;
use super::super::super::call::{Call, passed};
use super::super::super::shape::{Nothing, Query};
use super::super::super::stream::{Events, Teller};
use super::path::PathQuery;
use crate::forms::files::shown;
use crate::forms::problem::Problem;
use crate::refusal::of_file as refused;
use agent_client::guest::{GuestError, Watcher};
use sandbox::refusal::{Code, Refusal};

/// What to watch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchQuery {
    #[serde(flatten)]
    at: PathQuery,
    /// Also watch everything below it.
    #[serde(default)]
    recursive: bool,
}

/// A change. Paths are relative to the watched path, which itself is the empty path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FileChange {
    Created(ChangedFile),
    /// The file was written; reported when its writer closes it.
    Modified(ChangedFile),
    Attributes(ChangedFile),
    Removed(ChangedFile),
    /// Moved within the watched tree.
    Moved(MovedFile),
    /// Changes were lost: read everything again.
    Overflow,
    /// The watched path was removed; this is the last event.
    Ended,
    /// The watch could not go on.
    Failed {
        problem: Problem,
    },
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedFile {
    /// The path; invalid UTF-8 is shown as U+FFFD.
    pub path: String,
    /// The exact bytes of the path, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub path_base64: Option<String>,
}

/// A move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MovedFile {
    /// The new path.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub path_base64: Option<String>,
    /// The old path.
    pub from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub from_base64: Option<String>,
}

pub async fn watch(
    mut call: Call,
    Query(query): Query<WatchQuery>,
    _: Nothing,
) -> Result<Events<FileChange>, Refusal> {
    let path = query.at.into_text()?;
    let inside = call.inside().await?;
    let watcher = inside.guest.watch(path, query.recursive).await.map_err(refused)?;
    let (activity, deadline) = (inside.activity, call.ends_at());
    let (api, which) = (call.api.clone(), inside.which);
    Events::begin(&mut call, move |teller| async move {
        let last = tokio::select! {
            sent = tell(watcher, &teller) => match sent {
                Ok(None) => FileChange::Ended,
                Ok(Some(problem)) => failed(&api.explained(&which, problem).await),
                Err(Gone) => return,
            },
            () = passed(deadline) => {
                let message = "the deadline of the watch has passed";
                failed(&Refusal::new(Code::DeadlineExceeded, message))
            }
        };
        // A client that is gone by now misses nothing.
        let _ = teller.tell(&last).await;
        drop(activity);
    })
}

/// Tells all changes, and returns with why there are no more, unless the watched is gone.
async fn tell(mut watcher: Watcher, teller: &Teller<FileChange>) -> Result<Option<Refusal>, Gone> {
    loop {
        match watcher.next().await {
            Ok(Some(event)) => match FileChange::try_from(&event) {
                Ok(change) => teller.tell(&change).await?,
                Err(error) => return Ok(Some(error.into())),
            },
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(refused(error))),
        }
    }
}

fn failed(problem: &Refusal) -> FileChange {
    FileChange::Failed { problem: problem.into() }
}

impl TryFrom<&WatchEvent> for FileChange {
    type Error = GuestError;

    fn try_from(event: &WatchEvent) -> Result<Self, GuestError> {
        let (path, path_base64) = shown(&event.path);
        let changed = ChangedFile { path, path_base64 };
        Ok(match event.change {
            Change::Created => Self::Created(changed),
            Change::Modified => Self::Modified(changed),
            Change::Attributes => Self::Attributes(changed),
            Change::Removed => Self::Removed(changed),
            Change::Overflow => Self::Overflow,
            Change::Moved => {
                let Some(from) = &event.from else {
                    return Err(GuestError::Malformed { what: "a move from nowhere" });
                };
                let (from, from_base64) = shown(from);
                let ChangedFile { path, path_base64 } = changed;
                Self::Moved(MovedFile { path, path_base64, from, from_base64 })
            }
        })
    }
}
