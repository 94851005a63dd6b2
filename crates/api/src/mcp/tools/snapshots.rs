//! What sandboxes are made of besides images, listed: snapshots and templates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mcp::limits::SANDBOXES_SHOWN_MAX;
use crate::mcp::tool::Work;
use sandbox::{ListedSnapshot, Snapshot, TemplateInfo};

/// A snapshot in a list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotRow {
    snapshot: String,
    /// The sandbox that it was taken of.
    sandbox: String,
    machine: String,
    created_at_ms: u64,
    bytes: u64,
}

/// A template in a list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TemplateRow {
    template: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// Whether it says when a sandbox is ready.
    has_ready_command: bool,
    /// How many sandboxes are kept ready.
    warm: u64,
}

/// The snapshots that the caller reaches, and whether there are more than are shown.
pub(super) fn listed(work: &Work) -> (Vec<SnapshotRow>, bool) {
    let all = work.api.registry().listed_snapshots(None).into_iter();
    let row = |ListedSnapshot { snapshot, .. }: ListedSnapshot| {
        let Snapshot { sandbox, machine, created_at_ms, bytes, .. } = &snapshot;
        SnapshotRow {
            snapshot: snapshot.which().to_string(),
            sandbox: sandbox.to_string(),
            machine: machine.to_string(),
            created_at_ms: *created_at_ms,
            bytes: *bytes,
        }
    };
    let own = all.filter(|listed| work.caller.covers(&listed.snapshot.namespace));
    shown(own.map(row))
}

/// The same for templates.
pub(super) fn templates(work: &Work) -> (Vec<TemplateRow>, bool) {
    let all = work.api.registry().templates(None).into_iter();
    let row = |template: TemplateInfo| TemplateRow {
        template: template.which().to_string(),
        has_ready_command: template.options.ready.is_some(),
        warm: template.options.warm as u64,
        image: template.options.image,
    };
    shown(all.filter(|template| work.caller.covers(&template.namespace)).map(row))
}

fn shown<T>(rows: impl Iterator<Item = T>) -> (Vec<T>, bool) {
    let mut rows: Vec<T> = rows.take(SANDBOXES_SHOWN_MAX + 1).collect();
    let is_cut = rows.len() > SANDBOXES_SHOWN_MAX;
    rows.truncate(SANDBOXES_SHOWN_MAX);
    (rows, is_cut)
}
