//! The figures of notebooks, artifacts, apps, egress and workspaces. No client chooses the values
//! of their labels.

use super::{Text, US_PER_S};
use crate::Api;
use host::room::Room;
use node::{FleetFigures, Readiness};
use sandbox::tallies::{EgressTally, Tallies, WorkspaceTally};
use services::app::State;
use services::artifact::ArtifactFigures;
use services::notebook::NotebookFigures;
use workspace::TransferCounter;

const MS_PER_S: f64 = 1e3;

/// What is looked up before the text is written.
pub struct Parts {
    notebooks: Option<NotebookFigures>,
    artifacts: Option<ArtifactFigures>,
    fleet: Option<FleetFigures>,
    room: Option<Room>,
}

impl Parts {
    /// A store that does not answer leaves its figures out of this scrape.
    pub async fn look(api: &Api) -> Self {
        let notebooks = match api.notebooks() {
            Ok(notebooks) => notebooks.figures().await.ok(),
            Err(_) => None,
        };
        let artifacts = match api.artifacts() {
            Ok(artifacts) => artifacts.figures().await.ok(),
            Err(_) => None,
        };
        let fleet = match api.node() {
            Some(node) => Some(node.figures().await),
            None => None,
        };
        Self { notebooks, artifacts, fleet, room: api.registry().room().await }
    }

    pub fn write(&self, text: &mut Text, api: &Api) {
        if let Some(figures) = &self.notebooks {
            notebooks(text, figures);
        }
        if let Some(figures) = &self.artifacts {
            artifacts(text, figures);
        }
        if let Some(figures) = &self.fleet {
            fleet(text, figures, api.peers().tally());
        }
        if let Some(room) = &self.room {
            disk(text, *room);
        }
        if let Some(is_failing) = api.audit().is_failing() {
            let about = "Whether records of the audit log cannot be written.";
            text.single("burrow_audit_failing", "gauge", about, f64::from(u8::from(is_failing)));
        }
        apps(text, api);
        let tallies: &Tallies = api.registry().tallies();
        egress(text, &tallies.egress());
        workspaces(text, &tallies.workspaces(), api.registry().carried());
    }
}

fn disk(text: &mut Text, room: Room) {
    let about = "Size of the file system that has the state of sandboxes.";
    text.single("burrow_state_disk_bytes", "gauge", about, room.all_bytes as f64);
    let about = "Free bytes of the file system that has the state of sandboxes.";
    text.single("burrow_state_disk_free_bytes", "gauge", about, room.free_bytes as f64);
}

fn notebooks(text: &mut Text, it: &NotebookFigures) {
    text.single("burrow_notebooks_open", "gauge", "Notebooks in use.", it.open as f64);
    let name = "burrow_notebook_saves_total";
    text.family(name, "counter", "Saves of variables.");
    text.line(name, &[("outcome", "ok")], it.saves as f64);
    text.line(name, &[("outcome", "failed")], it.failed_saves as f64);
    let name = "burrow_notebook_save_seconds_total";
    text.single(name, "counter", "Duration of successful saves.", it.save_us as f64 / US_PER_S);
    let name = "burrow_notebook_saved_bytes_total";
    text.single(name, "counter", "Bytes written by saves.", it.saved_bytes as f64);
    let name = "burrow_notebook_kept_bytes";
    text.single(
        name,
        "gauge",
        "Bytes of saved variables, over all notebooks.",
        it.kept_bytes as f64,
    );
    let name = "burrow_notebook_reopenings_total";
    text.single(name, "counter", "Interpreters that restored saved variables.", it.reopened as f64);
    let name = "burrow_notebook_lost_runs_total";
    text.single(name, "counter", "Runs whose changes were lost.", it.lost_runs as f64);
}

fn artifacts(text: &mut Text, it: &ArtifactFigures) {
    text.single("burrow_artifacts", "gauge", "Artifacts in the store.", it.count as f64);
    let name = "burrow_artifact_bytes";
    text.single(
        name,
        "gauge",
        "Bytes of artifacts on disk, each distinct content counted once.",
        it.bytes as f64,
    );
    let name = "burrow_artifacts_captured_total";
    text.single(name, "counter", "Artifacts captured from runs.", it.captured as f64);
    let name = "burrow_artifacts_left_out_total";
    text.single(name, "counter", "Outputs of runs that were not kept.", it.left_out as f64);
}

fn fleet(text: &mut Text, it: &FleetFigures, (answered, failed): (u64, u64)) {
    text.family("burrow_fleet_nodes", "gauge", "Nodes of the fleet that this one knows.");
    for (readiness, word) in [
        (Readiness::Ready, "ready"),
        (Readiness::Cordoned, "cordoned"),
        (Readiness::Draining, "draining"),
    ] {
        let count = it.nodes.get(&readiness).copied().unwrap_or_default();
        text.line("burrow_fleet_nodes", &[("readiness", word)], count as f64);
    }
    let about = "Whether this node holds its lease.";
    text.single("burrow_fleet_lease_held", "gauge", about, f64::from(u8::from(it.is_held)));
    let about = "How long this node may go on without renewing its lease.";
    let left = it.lease_left_ms as f64 / MS_PER_S;
    text.single("burrow_fleet_lease_left_seconds", "gauge", about, left);
    let about = "Sandboxes that are paused until this node can renew its lease.";
    text.single("burrow_fleet_held_sandboxes", "gauge", about, it.held_back as f64);
    let about = "How often half of the grace went by without a renewal of this node's lease.";
    text.single("burrow_fleet_holds_total", "counter", about, it.holds as f64);
    let name = "burrow_fleet_creates_total";
    text.family(name, "counter", "Names that were asked of the fleet through this node.");
    text.line(name, &[("outcome", "placed")], it.placed as f64);
    text.line(name, &[("outcome", "refused")], it.refused as f64);
    let about = "Names that this node has declared lost.";
    text.single("burrow_fleet_names_lost_total", "counter", about, it.lost as f64);
    let name = "burrow_fleet_forwarded_total";
    text.family(name, "counter", "Calls that were sent to other nodes.");
    text.line(name, &[("outcome", "answered")], answered as f64);
    text.line(name, &[("outcome", "failed")], failed as f64);
    if it.quotas.is_empty() {
        return;
    }
    let (limits, used) = ("burrow_fleet_quota_sandboxes_max", "burrow_fleet_quota_sandboxes");
    text.family(limits, "gauge", "Sandboxes that a namespace may have in the fleet.");
    for quota in &it.quotas {
        text.line(limits, &[("namespace", &quota.namespace)], f64::from(quota.limit));
    }
    text.family(used, "gauge", "Sandboxes that a namespace with a quota has in the fleet.");
    for quota in &it.quotas {
        if let Some(count) = quota.used {
            text.line(used, &[("namespace", &quota.namespace)], count as f64);
        }
    }
}

fn apps(text: &mut Text, api: &Api) {
    let apps = api.apps().matching(|_| true);
    text.family("burrow_apps", "gauge", "Apps by state.");
    for (state, word) in [
        (State::Starting, "starting"),
        (State::Running, "running"),
        (State::Exited, "exited"),
        (State::Failed, "failed"),
    ] {
        let count = apps.iter().filter(|app| app.state == state).count();
        text.line("burrow_apps", &[("state", word)], count as f64);
    }
    let (ok, failed) = api.apps().starts();
    let name = "burrow_app_starts_total";
    text.family(name, "counter", "Apps requested.");
    text.line(name, &[("outcome", "ok")], ok as f64);
    text.line(name, &[("outcome", "failed")], failed as f64);
}

fn egress(text: &mut Text, it: &EgressTally) {
    let name = "burrow_egress_decisions_total";
    text.family(
        name,
        "counter",
        "Egress connections that sandboxes tried, as far as events were counted.",
    );
    for (what, verdict, count) in [
        ("name", "allowed", it.names_allowed),
        ("name", "refused", it.names_refused),
        ("connection", "allowed", it.connections_allowed),
        ("connection", "refused", it.connections_refused),
    ] {
        text.line(name, &[("what", what), ("verdict", verdict)], count as f64);
    }
    let name = "burrow_egress_untold_total";
    text.single(
        name,
        "counter",
        "Egress events dropped because there were too many.",
        it.untold as f64,
    );
    let name = "burrow_egress_bytes_total";
    text.family(name, "counter", "Bytes carried by closed connections.");
    text.line(name, &[("way", "sent")], it.sent_bytes as f64);
    text.line(name, &[("way", "received")], it.received_bytes as f64);
}

fn workspaces(text: &mut Text, it: &WorkspaceTally, carried: &TransferCounter) {
    let name = "burrow_workspace_exchanges_total";
    text.single(
        name,
        "counter",
        "Workspace exchanges that changed something.",
        it.exchanges as f64,
    );
    let name = "burrow_workspace_paths_total";
    text.family(name, "counter", "Changed paths by result.");
    for (outcome, count) in [
        ("written", it.written),
        ("deleted", it.deleted),
        ("conflict", it.conflicts),
        ("refused", it.refused),
        ("untold", it.untold),
    ] {
        text.line(name, &[("outcome", outcome)], count as f64);
    }
    let name = "burrow_workspace_bytes_total";
    text.family(name, "counter", "Bytes of files carried.");
    text.line(name, &[("way", "in")], carried.sent_bytes() as f64);
    text.line(name, &[("way", "back")], carried.taken_bytes() as f64);
}
