//! What carries out each request.

mod apps;
mod log;
mod lost;
mod previews;
mod proofs;

use std::time::Duration;

use tokio::time::timeout;

use super::elsewhere::{self, Elsewhere};
use super::{
    CapUsage, CapUsageRow, Dialled, ErrorCode, ErrorReply, InputRecord, List, NamespaceCost, Reply,
    Request,
};
use crate::limits::CONTROL_WAIT_MAX;
use ::image::ImageError;
use access::audit::Audit;
use access::preview::Previews;
use machine::limits::STOP_GRACE_MAX;
use node::Node;
use sandbox::caps::{CapUse, Caps};
use sandbox::limits::STOP_GRACE_DEFAULT;
use sandbox::{ForkRequest, Name, Record, Registry, SandboxError, Until, Update};
use services::app::Apps;
use services::artifact::{ArtifactId, Artifacts, InvalidArtifactId};
use services::events::Events;
use services::store::artifacts::ArtifactFilter;
use workspace::s3::{InvalidObjectUrl, ObjectUrl};

/// The parts of a bridge that requests are carried out by.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    pub registry: &'a Registry,
    pub apps: &'a Apps,
    /// Absent in a bridge that keeps none.
    pub artifacts: Option<&'a Artifacts>,
    /// Absent in a bridge of its own.
    pub node: Option<&'a Node>,
    /// The life that another node has taken the name of a new sandbox for.
    pub placed: Option<&'a str>,
    pub previews: &'a Previews,
    pub audit: &'a Audit,
    /// Absent in a bridge that records none.
    pub events: Option<&'a Events>,
}

impl Request {
    /// What is about a sandbox of another node is carried out there, if others are reached.
    pub async fn carry_out(
        self,
        parts: Parts<'_>,
        others: Option<&dyn Elsewhere>,
    ) -> Result<Reply, ErrorReply> {
        let Some(others) = others else { return self.carry(parts).await };
        if let Self::AllNodes(request) = self {
            return Box::pin(elsewhere::all(*request, parts, others)).await;
        }
        if let (Self::Start(spec), Some(node)) = (&self, parts.node) {
            return Box::pin(elsewhere::place(spec, node, parts, others)).await;
        }
        match Box::pin(self.carry_elsewhere(parts, others)).await? {
            Some(reply) => Ok(reply),
            None => self.carry(parts).await,
        }
    }

    pub(super) async fn carry(self, parts: Parts<'_>) -> Result<Reply, ErrorReply> {
        let registry = parts.registry;
        let record = match self {
            Self::Start(spec) => {
                registry.create_for_operator(*spec, parts.placed.map(str::to_owned)).await?
            }
            Self::Inspect { sandbox } | Self::Work { sandbox } => registry.get(&sandbox)?,
            Self::Stop { sandbox, grace_ms } => registry.stop(&sandbox, grace(grace_ms)).await?,
            Self::Restart { sandbox, grace_ms, env } => {
                registry.restart_for_operator(&sandbox, grace(grace_ms), env).await?
            }
            Self::Wait { sandbox } => {
                let waiting = registry.wait(&sandbox, Until::Stopped);
                match timeout(CONTROL_WAIT_MAX, waiting).await {
                    Ok(record) => record?,
                    Err(_) => registry.get(&sandbox)?,
                }
            }
            Self::Pause { sandbox } => registry.pause(&sandbox).await?,
            Self::Resume { sandbox } => registry.resume(&sandbox).await?,
            Self::Update { sandbox, ttl_ms, idle_ttl_ms, egress } => {
                let update = Update { ttl_ms, idle_ttl_ms, egress };
                registry.update(&sandbox, update).await?
            }
            Self::Kill { sandbox } => registry.kill(&sandbox).await?,
            Self::Remove { sandbox, force, moves } => {
                let moving = parts.node.filter(|_| moves).zip(registry.get(&sandbox).ok());
                let moving = moving.filter(|(node, record)| node.moves(record));
                let removed = registry.remove(&sandbox, force).await;
                if let (Err(_), Some((node, record))) = (&removed, moving) {
                    node.stays(&record);
                }
                removed?
            }
            Self::List(list) => return Ok(Reply::Sandboxes(listed(&list, registry))),
            Self::Events(query) => return query.read(parts).await,
            Self::Dial { sandbox, purpose } => {
                let looks = purpose.is_some_and(|purpose| purpose.looks);
                let woke_in = if looks { None } else { registry.wake(&sandbox).await? };
                let (address, record) = registry.dial(&sandbox)?;
                let Record { user, workdir, state, durability, record: policy, .. } = record;
                let log = registry.log_directory(&sandbox)?;
                let input = if policy.has_input() {
                    InputRecord::Log(log.clone())
                } else {
                    InputRecord::Nowhere
                };
                let woke_ms = woke_in.map(|woke_in| woke_in.as_millis() as u64);
                return Ok(Reply::Dialled(Dialled {
                    address,
                    user,
                    workdir,
                    state,
                    woke_ms,
                    durability,
                    input,
                    provenance: Some(log),
                }));
            }
            Self::Snapshot { sandbox, name } => {
                return Ok(Reply::Snapshot(Box::new(registry.snapshot(&sandbox, name).await?)));
            }
            Self::ReadLost { sandbox, after } => {
                return Box::pin(lost::read(parts.node, &sandbox, after)).await.map(Reply::LostLog);
            }
            Self::ReadLog(query) => {
                return Box::pin(log::read(parts, &query)).await.map(Reply::Log);
            }
            Self::LogSessions { sandbox } => {
                return Box::pin(log::sessions(parts, &sandbox)).await.map(Reply::LogSessions);
            }
            Self::Verify { sandbox, session } => {
                return proofs::verified(parts, &sandbox, session).await.map(Reply::Verified);
            }
            Self::Receipt { sandbox, session } => {
                let receipt = proofs::receipt(parts, &sandbox, session).await?;
                return Ok(Reply::Receipt(Box::new(receipt)));
            }
            Self::RunReceipt { sandbox, context, run } => {
                let receipt = proofs::receipt_of_run(parts, &sandbox, context, run).await?;
                return Ok(Reply::Receipt(Box::new(receipt)));
            }
            Self::Play(query) => {
                return Box::pin(proofs::played(parts, query)).await.map(Reply::Played);
            }
            Self::Snapshots {} => return Ok(Reply::Snapshots(registry.listed_snapshots(None))),
            Self::PruneSnapshots { dry_run } => {
                return Ok(Reply::Snapshots(registry.prune_snapshots(dry_run).await?));
            }
            Self::ExportSnapshot { snapshot, to: Some(to) } => {
                let bytes = registry.export_to_bucket(&snapshot, &object(&to)?).await?;
                return Ok(Reply::Exported { bytes });
            }
            Self::ImportSnapshot { snapshot, from: Some(from) } => {
                let own = snapshot.as_ref().map(|snapshot| snapshot.namespace.clone());
                let namespace = own.unwrap_or_else(Name::default_namespace);
                let from = object(&from)?;
                let imported = registry.import_from_bucket(snapshot, &namespace, None, &from);
                return Ok(Reply::Snapshot(Box::new(imported.await?)));
            }
            Self::PutTemplate { template, options } => {
                let kept = registry.put_template(template, *options).await?;
                return Ok(Reply::Template(Box::new(kept)));
            }
            Self::Templates {} => return Ok(Reply::Templates(registry.templates(None))),
            Self::GetTemplate { template } => {
                return Ok(Reply::Template(Box::new(registry.get_template(&template)?)));
            }
            Self::RemoveTemplate { template } => {
                let removed = registry.remove_template(&template).await?;
                return Ok(Reply::Template(Box::new(removed)));
            }
            Self::RemoveSnapshot { snapshot } => {
                let removed = registry.remove_snapshot(&snapshot).await?;
                return Ok(Reply::Snapshot(Box::new(removed)));
            }
            Self::Fork { sandbox, count, names, is_trial } => {
                let request = ForkRequest {
                    count,
                    names,
                    carries_notebooks: !is_trial,
                    keeps_index: is_trial,
                    is_operator: true,
                    ..ForkRequest::default()
                };
                return Ok(Reply::Forked(Box::new(registry.fork(&sandbox, request).await?)));
            }
            Self::Changes { sandbox } => {
                return Ok(Reply::Changes(Box::new(registry.changes(&sandbox).await?)));
            }
            Self::Commit { sandbox, image } => {
                let name = image.parse().map_err(ImageError::Name);
                let name = name.map_err(SandboxError::Image)?;
                let digest = registry.commit(&sandbox, name).await?.digest;
                return Ok(Reply::Committed { digest });
            }
            Self::Sync { sandbox } => {
                return Ok(Reply::Synced(Box::new(registry.sync(&sandbox).await?)));
            }
            Self::Pool {} => return Ok(Reply::Pool(registry.pool())),
            Self::Nodes {} => {
                return Ok(Reply::Nodes(parts.node.ok_or_else(no_fleet)?.rows().await));
            }
            Self::MarkNode { node, readiness } => {
                let fleet = parts.node.ok_or_else(no_fleet)?;
                fleet.set_readiness(&node, readiness).await?;
                return Ok(Reply::Nodes(fleet.rows().await));
            }
            Self::Caps { namespace, key } => {
                return Ok(Reply::Caps(caps(registry, &namespace, key.as_deref())?));
            }
            Self::Usage { namespace, from_ms, to_ms } => {
                let costs = registry.costs(namespace.as_ref(), from_ms, to_ms).await?;
                let row = |(namespace, cost)| NamespaceCost { namespace, cost };
                return Ok(Reply::Usage(costs.into_iter().map(row).collect()));
            }
            Self::ProgramUsage { namespace, from_ms, to_ms } => {
                let rows = registry.program_costs(namespace.as_ref(), from_ms, to_ms).await?;
                return Ok(Reply::ProgramUsage(rows));
            }
            Self::RemoveArtifact { id } => return remove_artifact(&id, parts.artifacts).await,
            Self::CreatePreview { sandbox, port, ttl_ms } => {
                return previews::make(&sandbox, port, ttl_ms, parts);
            }
            Self::Previews { sandbox } => {
                return Ok(Reply::Previews(parts.previews.links(registry, &sandbox)?));
            }
            Self::RemovePreview { sandbox, id } => {
                let removed = parts.previews.remove_link(registry, &sandbox, &id)?;
                return Ok(Reply::Preview(Box::new(removed)));
            }
            Self::App(order) => return apps::carry_out(order, parts).await,
            // The daemon answers these: they are about itself, the connection, or other nodes.
            Self::Version {}
            | Self::AllNodes(_)
            | Self::End { .. }
            | Self::Mcp(_)
            | Self::ExportSnapshot { to: None, .. }
            | Self::ImportSnapshot { from: None, .. } => {
                let message = "this bridge does not answer this request";
                return Err(ErrorReply::new(ErrorCode::Unsupported, message, None));
            }
        };
        Ok(Reply::Sandbox(Box::new(record)))
    }
}

async fn remove_artifact(id: &str, artifacts: Option<&Artifacts>) -> Result<Reply, ErrorReply> {
    let artifacts = artifacts.ok_or_else(no_artifacts)?;
    let id: ArtifactId = id.parse().map_err(|error: InvalidArtifactId| {
        ErrorReply::new(ErrorCode::Invalid, error.to_string(), None)
    })?;
    let row = artifacts.get(&id).await?;
    let filter = ArtifactFilter { id: Some(row.id.clone()), ..ArtifactFilter::default() };
    artifacts.remove(filter).await?;
    Ok(Reply::Artifact(Box::new(row)))
}

fn object(text: &str) -> Result<ObjectUrl, ErrorReply> {
    let read = text.parse();
    read.map_err(|error: InvalidObjectUrl| {
        ErrorReply::new(ErrorCode::Invalid, error.to_string(), None)
    })
}

fn no_fleet() -> ErrorReply {
    let message = "this bridge is in no fleet";
    let hint = "start it with --fleet, or set fleet.servers in its configuration";
    ErrorReply::new(ErrorCode::Unsupported, message, Some(hint))
}

fn no_artifacts() -> ErrorReply {
    ErrorReply::new(ErrorCode::Unsupported, "this bridge keeps no artifacts", None)
}

fn grace(grace_ms: Option<u64>) -> Duration {
    grace_ms.map_or(STOP_GRACE_DEFAULT, Duration::from_millis).min(STOP_GRACE_MAX)
}

fn listed(list: &List, registry: &Registry) -> Vec<Record> {
    let mut records = registry.list(list.namespace.as_ref());
    records.retain(|record| {
        (list.all || !record.state.is_over())
            && list.labels.iter().all(|selector| selector.matches(&record.labels))
    });
    records
}

/// The caps and usage of a namespace and a key.
fn caps(
    registry: &Registry,
    namespace: &Name,
    key: Option<&str>,
) -> Result<Vec<CapUsage>, SandboxError> {
    let row = |CapUse { cap, used, allowed }| CapUsageRow { cap: cap.to_owned(), used, allowed };
    let scopes = Caps::scopes(namespace.as_str(), key).into_iter().map(|scope| {
        let (used, cap) = registry.caps(&scope)?;
        let caps = used.rows(&cap).into_iter().map(row).collect();
        Ok(CapUsage { scope, caps })
    });
    scopes.collect()
}
