//! How each request is recorded in the audit log, how long its answer may take, and for whom.

use std::time::Duration;

use super::{LogQuery, PlayQuery, Request};
use crate::apps::AppOrder;
use crate::limits::{CONTROL_REPLY_DEADLINE, SNAPSHOT_TRAVEL_MAX};
use access::audit::Entry;
use machine::limits::{SNAPSHOT_WRITE_DEADLINE, VIRTUAL_RESTORE_DEADLINE};
use sandbox::limits::STOP_GRACE_DEFAULT;
use sandbox::{Registry, SandboxRef};
use services::app::limits::READY_TIMEOUT_MAX;
use workspace::limits::{LAST_SYNC_DEADLINE, SYNC_DEADLINE};

/// What the audit log says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The operation, in the words of the native API.
    pub operation: &'static str,
    /// Whether it only reads.
    pub looks: bool,
    pub sandbox: Option<SandboxRef>,
}

impl About {
    fn change(operation: &'static str, sandbox: Option<&SandboxRef>) -> Self {
        Self { operation, looks: false, sandbox: sandbox.cloned() }
    }

    fn look(operation: &'static str, sandbox: Option<&SandboxRef>) -> Self {
        Self { operation, looks: true, sandbox: sandbox.cloned() }
    }
}

impl Request {
    pub fn about(&self) -> About {
        match self {
            Self::Start(spec) => About::change("create_sandbox", Some(&spec.which())),
            // The daemon does not see what is done through the agent's own socket, but it records that
            // a client asked for it and the purpose that the client gave.
            Self::Dial { sandbox, .. } => About::change("dial_sandbox", Some(sandbox)),
            Self::Stop { sandbox, .. } => About::change("stop_sandbox", Some(sandbox)),
            Self::Restart { sandbox, .. } => About::change("restart_sandbox", Some(sandbox)),
            Self::Kill { sandbox } => About::change("kill_sandbox", Some(sandbox)),
            Self::Remove { sandbox, .. } => About::change("remove_sandbox", Some(sandbox)),
            Self::Pause { sandbox } => About::change("pause_sandbox", Some(sandbox)),
            Self::Resume { sandbox } => About::change("resume_sandbox", Some(sandbox)),
            Self::Update { sandbox, .. } => About::change("extend_sandbox", Some(sandbox)),
            Self::Snapshot { sandbox, .. } => About::change("take_snapshot", Some(sandbox)),
            Self::Sync { sandbox } => About::change("sync_workspace", Some(sandbox)),
            Self::Fork { sandbox, .. } => About::change("fork_sandbox", Some(sandbox)),
            Self::Changes { sandbox } => About::look("list_changes", Some(sandbox)),
            Self::Commit { sandbox, .. } => About::change("commit_sandbox", Some(sandbox)),
            Self::RemoveSnapshot { .. } => About::change("remove_snapshot", None),
            Self::Snapshots {} | Self::PruneSnapshots { dry_run: true } => {
                About::look("list_snapshots", None)
            }
            Self::PruneSnapshots { .. } => About::change("prune_snapshots", None),
            Self::ExportSnapshot { .. } => About::change("export_snapshot", None),
            Self::ImportSnapshot { .. } => About::change("import_snapshot", None),
            Self::PutTemplate { .. } => About::change("put_template", None),
            Self::RemoveTemplate { .. } => About::change("remove_template", None),
            Self::RemoveArtifact { .. } => About::change("remove_artifact", None),
            Self::CreatePreview { sandbox, .. } => About::change("create_preview", Some(sandbox)),
            Self::RemovePreview { sandbox, .. } => About::change("remove_preview", Some(sandbox)),
            Self::Previews { sandbox } => About::look("list_previews", Some(sandbox)),
            Self::Mcp(_) => About::change("mcp_session", None),
            Self::End { .. } => About::change("end_daemon", None),
            Self::App(order) => {
                let (operation, sandbox) = order.operation();
                About { operation, looks: order.looks(), sandbox: sandbox.cloned() }
            }
            Self::Version {} => About::look("version", None),
            Self::AllNodes(request) => request.about(),
            Self::Events(_) => About::look("list_events", None),
            Self::List(_) => About::look("list_sandboxes", None),
            Self::Wait { sandbox } => About::look("wait_sandbox", Some(sandbox)),
            Self::Inspect { sandbox } | Self::Work { sandbox } => {
                About::look("get_sandbox", Some(sandbox))
            }
            Self::Verify { sandbox, .. } => About::look("verify_output", Some(sandbox)),
            Self::Receipt { sandbox, .. } => About::look("get_receipt", Some(sandbox)),
            Self::RunReceipt { sandbox, .. } => About::look("get_run_receipt", Some(sandbox)),
            Self::Play(PlayQuery { sandbox, .. }) => About::look("read_timeline", Some(sandbox)),
            Self::ReadLost { sandbox, .. }
            | Self::LogSessions { sandbox }
            | Self::ReadLog(LogQuery { sandbox, .. }) => About::look("read_log", Some(sandbox)),
            Self::Templates {} => About::look("list_templates", None),
            Self::GetTemplate { .. } => About::look("get_template", None),
            Self::Pool {} => About::look("get_pool", None),
            Self::Nodes {} => About::look("list_nodes", None),
            Self::MarkNode { .. } => About::change("mark_node", None),
            Self::Caps { .. } => About::look("get_caps", None),
            Self::Usage { .. } | Self::ProgramUsage { .. } => About::look("get_usage", None),
        }
    }

    /// What an entry of the audit log says of it beside the operation and the sandbox. `arguments` says
    /// whether the arguments of programs are recorded.
    pub fn facts(&self, mut entry: Entry, arguments: bool) -> Entry {
        match self {
            Self::Start(spec) => {
                entry.image.clone_from(&spec.image);
                entry.secrets.clone_from(&spec.secrets);
                entry.labels.clone_from(&spec.labels);
                entry.facts(spec.requested())
            }
            Self::Dial { purpose: Some(purpose), .. } => {
                entry.program.clone_from(&purpose.program);
                if arguments {
                    entry.arguments.clone_from(&purpose.arguments);
                }
                entry.fact("for", purpose.verb.as_str())
            }
            Self::Update { ttl_ms, idle_ttl_ms, egress, .. } => {
                let times = [("ttl_ms", ttl_ms), ("idle_ttl_ms", idle_ttl_ms)];
                let times = times.into_iter().filter_map(|(name, ms)| Some((name, (*ms)?)));
                let entry = times.fold(entry, |entry, (name, ms)| entry.fact(name, ms));
                egress.iter().fold(entry, |entry, rules| entry.fact("egress", rules.clone()))
            }
            Self::Snapshot { name, .. } => entry.fact("snapshot", name.as_str()),
            Self::RemoveSnapshot { snapshot } => entry.fact("snapshot", snapshot.to_string()),
            Self::ExportSnapshot { snapshot, to } => {
                let entry = entry.fact("snapshot", snapshot.to_string());
                to.iter().fold(entry, |entry, to| entry.fact("to", to.as_str()))
            }
            Self::ImportSnapshot { snapshot, from } => {
                let named = snapshot.as_ref().map(SandboxRef::to_string);
                let entry =
                    named.into_iter().fold(entry, |entry, name| entry.fact("snapshot", name));
                from.iter().fold(entry, |entry, from| entry.fact("from", from.as_str()))
            }
            Self::PutTemplate { template, options } => {
                entry.image.clone_from(&options.image);
                entry.fact("template", template.to_string())
            }
            Self::RemoveTemplate { template } => entry.fact("template", template.to_string()),
            Self::RemoveArtifact { id } => entry.fact("artifact", id.as_str()),
            Self::MarkNode { node, readiness } => {
                entry.fact("node", node.as_str()).fact("readiness", readiness.as_str())
            }
            Self::CreatePreview { port, .. } => entry.fact("port", port.get()),
            Self::RemovePreview { id, .. } => entry.fact("preview", id.as_str()),
            _ => entry,
        }
    }

    /// The sandbox that is there already, which the record describes in the audit log.
    pub fn subject(&self) -> Option<SandboxRef> {
        match self {
            // One of that name is another.
            Self::Start(_) => None,
            _ => self.about().sandbox,
        }
    }

    /// Takes an id for the sandbox that has it, where no sandbox has that name.
    pub fn resolve(&mut self, registry: &Registry) {
        let (Self::Inspect { sandbox }
        | Self::Dial { sandbox, .. }
        | Self::Work { sandbox }
        | Self::Stop { sandbox, .. }
        | Self::Restart { sandbox, .. }
        | Self::Wait { sandbox }
        | Self::Kill { sandbox }
        | Self::Remove { sandbox, .. }
        | Self::Pause { sandbox }
        | Self::Resume { sandbox }
        | Self::Update { sandbox, .. }
        | Self::Snapshot { sandbox, .. }
        | Self::Fork { sandbox, .. }
        | Self::Changes { sandbox }
        | Self::Commit { sandbox, .. }
        | Self::ReadLog(LogQuery { sandbox, .. })
        | Self::LogSessions { sandbox }
        | Self::Verify { sandbox, .. }
        | Self::Receipt { sandbox, .. }
        | Self::RunReceipt { sandbox, .. }
        | Self::Play(PlayQuery { sandbox, .. })
        | Self::Sync { sandbox }
        | Self::CreatePreview { sandbox, .. }
        | Self::Previews { sandbox }
        | Self::RemovePreview { sandbox, .. }) = self
        else {
            return;
        };
        *sandbox = registry.resolve(sandbox.clone());
    }

    /// Whether it is given up when its client is gone before the answer.
    pub fn needs_client(&self) -> bool {
        matches!(self, Self::App(AppOrder::Start(_)))
    }

    /// The time that a client waits for the answer.
    pub(crate) fn deadline(&self) -> Duration {
        let more = match self {
            Self::Stop { grace_ms, .. } | Self::Restart { grace_ms, .. } => {
                // Its workspace may come back before.
                LAST_SYNC_DEADLINE + grace_ms.map_or(STOP_GRACE_DEFAULT, Duration::from_millis)
            }
            // Digests are computed before the answer.
            Self::Snapshot { .. } | Self::ExportSnapshot { to: None, .. } => {
                SNAPSHOT_WRITE_DEADLINE
            }
            Self::ExportSnapshot { .. } | Self::ImportSnapshot { .. } => SNAPSHOT_TRAVEL_MAX,
            Self::Sync { .. } => SYNC_DEADLINE,
            // It may take so long to answer.
            Self::App(AppOrder::Start(_)) => READY_TIMEOUT_MAX,
            Self::Start(spec) if spec.template.is_some() => sandbox::limits::READY_TIMEOUT_MAX,
            Self::Start(spec) if spec.snapshot.is_some() => VIRTUAL_RESTORE_DEADLINE,
            _ => Duration::ZERO,
        };
        CONTROL_REPLY_DEADLINE.saturating_add(more)
    }
}
