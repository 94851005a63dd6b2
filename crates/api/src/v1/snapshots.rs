//! Pausing and resuming sandboxes, and snapshots: taken, listed, shown, removed. `POST
//! /v1/sandboxes` with `snapshot` makes a sandbox from one. How they travel is in [`archive`].

mod archive;

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Json, Nothing, Query, Reply};
use crate::forms::machine::Machine;
use crate::forms::sandboxes::{Ancestor, NAME, Sandbox};
use sandbox::refusal::{Code, Refusal};
use sandbox::{ListedSnapshot, Name, Removal};

pub fn operations() -> Vec<Operation> {
    let one = "/v1/snapshots/{namespace}/{name}";
    [
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/pause",
            "pause_sandbox",
            "Pause a sandbox.",
            pause,
        )
        .run()
        .about(
            "Stops all its programs until it is resumed. Its absolute time to live continues, \
        its idle time does not.",
        )
        .problems(&[Code::Conflict, Code::Unsupported]),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/resume",
            "resume_sandbox",
            "Resume a paused sandbox and correct its clock.",
            resume,
        )
        .run()
        .problems(&[Code::Conflict, Code::Unsupported, Code::GuestUnreachable]),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/snapshots",
            "take_snapshot",
            "Take a snapshot of a running sandbox.",
            take,
        )
        .run()
        .about(
            "Answers when the snapshot is on disk; the sandbox keeps running. The snapshot \
        contains the memory of its programs, with any secrets in it.",
        )
        .problems(&[Code::Conflict, Code::Unsupported, Code::LimitReached]),
        operation(Method::GET, "/v1/snapshots", "list_snapshots", "List the snapshots.", list)
            .about("Ordered by namespace and name, each with what the policy of the server does with it."),
        operation(Method::GET, one, "get_snapshot", "One snapshot.", get),
        operation(Method::DELETE, one, "remove_snapshot", "Remove a snapshot.", remove)
            .run()
            .about("Sandboxes made from it do not need it."),
    ]
    .into_iter()
    .chain(archive::operations())
    .map(|operation| operation.tag("snapshots"))
    .collect()
}

/// A snapshot to take.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeSnapshot {
    /// What it is called, in the namespace of the sandbox.
    #[schemars(with = "String", regex(pattern = NAME))]
    pub name: Name,
}

/// A saved machine, with all that ran in it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    pub namespace: String,
    pub name: String,
    /// The sandbox that it was taken of, and its id.
    pub sandbox: String,
    pub id: String,
    pub machine: Machine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_mib: Option<u64>,
    pub scratch_bytes: u64,
    pub created_at_ms: u64,
    /// When it was imported from another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub imported_at_ms: Option<u64>,
    /// What its sandbox was forked from, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<Ancestor>,
    /// What it takes of the disk.
    pub bytes: u64,
    /// In a list: when the policy of the server removes it, and why. Absent for one that it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Removal")]
    pub removal: Option<Removal>,
}

/// All snapshots that a key reaches.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotList {
    pub snapshots: Vec<Snapshot>,
}

/// Which snapshots.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotsQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
}

impl From<sandbox::Snapshot> for Snapshot {
    fn from(snapshot: sandbox::Snapshot) -> Self {
        Self {
            namespace: snapshot.namespace.to_string(),
            name: snapshot.name.to_string(),
            sandbox: snapshot.sandbox.to_string(),
            id: snapshot.id.to_string(),
            machine: snapshot.machine.into(),
            image: snapshot.image,
            memory_mib: snapshot.memory_mib,
            scratch_bytes: snapshot.scratch_bytes,
            created_at_ms: snapshot.created_at_ms,
            imported_at_ms: snapshot.imported_at_ms,
            ancestors: snapshot.ancestors.into_iter().map(Ancestor::from).collect(),
            bytes: snapshot.bytes,
            removal: None,
        }
    }
}

impl From<ListedSnapshot> for Snapshot {
    fn from(ListedSnapshot { snapshot, removal }: ListedSnapshot) -> Self {
        Self { removal, ..snapshot.into() }
    }
}

async fn pause(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Sandbox>, Refusal> {
    Ok(Reply(call.api.registry().pause(&call.which()?).await?.into()))
}

async fn resume(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Sandbox>, Refusal> {
    Ok(Reply(call.api.registry().resume(&call.which()?).await?.into()))
}

async fn take(
    call: Call,
    _: Nothing,
    Json(request): Json<TakeSnapshot>,
) -> Result<Created<Snapshot>, Refusal> {
    let taken = call.api.registry().snapshot(&call.which()?, request.name).await?;
    Ok(Created(taken.into()))
}

async fn list(
    call: Call,
    Query(query): Query<SnapshotsQuery>,
    _: Nothing,
) -> Result<Reply<SnapshotList>, Refusal> {
    let namespace = call.one_namespace(query.namespace)?;
    let snapshots = call.api.registry().listed_snapshots(namespace.as_ref());
    Ok(Reply(SnapshotList { snapshots: snapshots.into_iter().map(Snapshot::from).collect() }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Snapshot>, Refusal> {
    Ok(Reply(call.api.registry().get_snapshot(&call.which()?)?.into()))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Snapshot>, Refusal> {
    Ok(Reply(call.api.registry().remove_snapshot(&call.which()?).await?.into()))
}
