//! Events of a namespace over the control socket: what the bridge of each node reads for the command line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ErrorCode, ErrorReply, Parts, Reply};
use sandbox::Name;
use sandbox::event::Kind;
use services::events::limits::TURN_MAX;
use services::events::{Entry, Filter, From};

/// Which events are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    pub namespace: Name,
    /// For each node the offset to begin with: each counts its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<String, u64>,
    /// For nodes that have none: the time to begin with, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Names or ids; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandboxes: Vec<String>,
    /// Empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
}

/// The next events of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventBatch {
    pub entries: Vec<Entry>,
    /// The offset with which it goes on; absent where nothing has happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Whether there is no more at the moment.
    pub is_at_end: bool,
}

impl EventsQuery {
    /// Reads what this node has.
    pub(super) async fn read(self, parts: Parts<'_>) -> Result<Reply, ErrorReply> {
        let unsupported = |what: &str| ErrorReply::new(ErrorCode::Unsupported, what, None);
        let events = parts.events.ok_or_else(|| unsupported("this bridge records no events"))?;
        let place = parts.node.and_then(|node| self.places.get(node.id().as_str())).copied();
        let end = events.end(&self.namespace).unwrap_or(0);
        if let Some(offset) = place.filter(|offset| *offset > end) {
            let what = format!("the next event of {} gets {end}, not {offset}", self.namespace);
            return Err(ErrorReply::new(ErrorCode::Invalid, what, None));
        }
        let from = match (place, self.since_ms) {
            (Some(offset), _) => From::Offset(offset),
            (None, Some(ms)) => From::Time(ms),
            (None, None) => From::Oldest,
        };
        let filter = Filter { sandboxes: self.sandboxes, kinds: self.kinds };
        let mut reader = events.reader(&self.namespace, from);
        let reading = tokio::task::spawn_blocking(move || {
            let batch = reader.read(&filter, TURN_MAX)?;
            Ok(EventBatch {
                entries: batch.entries,
                next: reader.next(),
                is_at_end: batch.is_at_end,
            })
        });
        let read: Result<EventBatch, std::io::Error> =
            reading.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        read.map(Reply::Events).map_err(|error| {
            ErrorReply::new(ErrorCode::Io, format!("events cannot be read: {error}"), None)
        })
    }
}
