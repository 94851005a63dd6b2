//! Sandboxes as handles: created, listed, ended.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::snapshots::{self, SnapshotRow, TemplateRow};
use crate::creation::{install, permitted};
use crate::forms::ranges::{CPUS_MAX, cpu_millis};
use crate::forms::sandboxes::{PackageList, PullPolicy, Sandbox};
use crate::mcp::limits::{SANDBOXES_LABELS_BYTES_MAX, SANDBOXES_SHOWN_MAX};
use crate::mcp::tool::{Answer, Effect, Entry, Work, tool};
use crate::placing;
use access::keys::Access;
use image::Pull;
use node::Placed;
use sandbox::fork::ForkReport;
use sandbox::limits::{MEMORY_MIB_MAX, MEMORY_MIB_MIN, STOP_GRACE_DEFAULT, WORKDIR_BYTES_MAX};
use sandbox::refusal::{Code, Refusal};
use sandbox::{ForkRequest, Name, OnIdle, Record, SandboxError, SandboxRef, Spec, TemplateName};
use services::build::packages::Packages;

pub fn entries() -> Vec<Entry> {
    vec![
        tool(
            "sandbox_create",
            "Make a sandbox",
            "Makes a sandbox that stays until it is removed or its time to live is over. Other \
            tools take its name as `sandbox`. Rarely needed: each session has a sandbox of its \
            own.",
            Access::Run,
            Effect::Makes,
            create,
        ),
        tool(
            "sandbox_list",
            "List sandboxes",
            "Lists the sandboxes with their states, and which is this session's own; or what \
            `sandbox_create` makes others of.",
            Access::Read,
            Effect::Reads,
            list,
        ),
        tool(
            "sandbox_stop",
            "Stop a sandbox",
            "Stops a sandbox cleanly. Its processes, variables and files are gone; its record and \
            logs stay, and what `snapshot` saves.",
            Access::Run,
            Effect::Ends,
            stop,
        ),
        tool(
            "sandbox_remove",
            "Remove a sandbox",
            "Ends a sandbox at once if it runs, and removes its record and logs.",
            Access::Run,
            Effect::Ends,
            remove,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// Letters, digits, `_` and `-`; a random name by default.
    #[serde(default)]
    #[schemars(length(max = 63))]
    name: Option<String>,
    /// The name of an image in the server's configuration.
    #[serde(default)]
    image: Option<String>,
    /// When the image is pulled from its registry; at most, and by default, what the server allows.
    #[serde(default)]
    #[schemars(with = "Option<PullPolicy>")]
    pull: Option<Pull>,
    /// The memory limit of all its processes together.
    #[serde(default)]
    #[schemars(range(min = MEMORY_MIB_MIN, max = MEMORY_MIB_MAX))]
    memory_mib: Option<u64>,
    /// CPUs; fractions are allowed.
    #[serde(default)]
    #[schemars(range(min = 0, max = CPUS_MAX))]
    cpus: Option<f64>,
    /// The environment of every program in it.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Secrets in the server's configuration; their values become environment variables.
    #[serde(default)]
    #[schemars(length(max = 32))]
    secrets: Vec<String>,
    /// Hosts that it may reach: `name`, `*.name` for all below it, `name:PORT`, a registry (`@pypi`,
    /// `@npm`, `@crates`, `@debian`), or `public`. Nothing if empty; the server's setting by default.
    #[serde(default)]
    #[schemars(length(max = 256))]
    egress: Option<Vec<String>>,
    /// Packages to install first.
    #[serde(default)]
    #[schemars(with = "Option<PackageList>")]
    packages: Option<Packages>,
    /// A workspace in the server's configuration, at `/workspace`. Changes are copied back.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    workspace: Option<String>,
    /// The default working directory of programs.
    #[serde(default)]
    #[schemars(length(max = WORKDIR_BYTES_MAX))]
    workdir: Option<String>,
    /// The user of its programs: `name`, `name:group`, `uid` or `uid:gid`; the image's by default.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    user: Option<String>,
    /// Labels to find it by.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Seconds until it ends, even if it is busy.
    #[serde(default)]
    #[schemars(range(min = 1))]
    ttl_seconds: Option<u64>,
    /// Seconds of idleness after which it ends or is paused.
    #[serde(default)]
    #[schemars(range(min = 1))]
    idle_ttl_seconds: Option<u64>,
    /// Then it ends (the default), or sleeps in memory or on disk until it is used.
    #[serde(default)]
    #[schemars(with = "Option<IdleEnd>")]
    on_idle: Option<OnIdle>,
    /// A template to make it of, ready by its commands.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    template: Option<TemplateName>,
    /// A snapshot to start it from.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    snapshot: Option<Name>,
    /// A running sandbox to copy, with nothing else but `name` and `ttl_seconds`.
    #[serde(default)]
    fork_of: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Made {
    /// The value for `sandbox` in other tools.
    sandbox: String,
    record: Sandbox,
    /// Of a fork: what of the original it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report: Option<ForkReport>,
}

/// The words of [`OnIdle`]; the field says what they mean.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "the schema's words")]
enum IdleEnd {
    Stop,
    Pause,
    Snapshot,
}

impl Create {
    /// The first option that a fork cannot have of its own.
    fn beside_fork(&self) -> Option<&'static str> {
        let given = [
            ("image", self.image.is_some()),
            ("pull", self.pull.is_some()),
            ("memory_mib", self.memory_mib.is_some()),
            ("cpus", self.cpus.is_some()),
            ("env", !self.env.is_empty()),
            ("secrets", !self.secrets.is_empty()),
            ("egress", self.egress.is_some()),
            ("packages", self.packages.is_some()),
            ("workspace", self.workspace.is_some()),
            ("workdir", self.workdir.is_some()),
            ("user", self.user.is_some()),
            ("labels", !self.labels.is_empty()),
            ("idle_ttl_seconds", self.idle_ttl_seconds.is_some()),
            ("on_idle", self.on_idle.is_some()),
            ("template", self.template.is_some()),
            ("snapshot", self.snapshot.is_some()),
        ];
        given.into_iter().find_map(|(field, is_given)| is_given.then_some(field))
    }
}

/// Makes a copy of a running sandbox.
async fn fork(work: &Work, of: &str, request: &Create) -> Result<Answer<Made>, Refusal> {
    if let Some(field) = request.beside_fork() {
        let message = format!("{field}: a fork has that of its original; leave it out");
        return Err(Refusal::invalid(message));
    }
    let invalid = |error| Refusal::invalid(format!("name: {error}"));
    let name: Option<Name> =
        request.name.as_deref().map(str::parse).transpose().map_err(invalid)?;
    let ask = ForkRequest {
        count: 1,
        names: name.into_iter().collect(),
        key: work.caller.key(),
        ttl_ms: request.ttl_seconds.map(|seconds| seconds.saturating_mul(1000)),
        carries_notebooks: true,
        is_operator: work.is_operator,
        ..ForkRequest::default()
    };
    let mut forked = work.api.registry().fork(&work.named(of)?, ask).await?;
    let record = forked.forks.pop();
    let record = record.ok_or_else(|| Refusal::new(Code::Internal, "no fork was made"))?;
    let (sandbox, report) = (record.which().to_string(), Some(forked.report));
    Ok(Answer::of(Made { sandbox, record: record.into(), report }))
}

async fn create(work: Work, request: Create) -> Result<Answer<Made>, Refusal> {
    if let Some(of) = &request.fork_of {
        return fork(&work, of, &request).await;
    }
    let name = match request.name {
        Some(name) => name.parse().map_err(|error| Refusal::invalid(format!("name: {error}")))?,
        None => Name::generate().map_err(SandboxError::Draw)?,
    };
    let which = SandboxRef { namespace: work.session.namespace(&work.caller), name };
    work.reaches(&which)?;
    let millis = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(1000));
    let spec = Spec {
        // A snapshot sets it.
        machine: work.session.machine().filter(|_| request.snapshot.is_none()),
        image: request.image,
        pull: request.pull,
        memory_mib: request.memory_mib,
        cpu_millis: request.cpus.map(cpu_millis).transpose()?,
        env: request.env.into_iter().collect(),
        secrets: request.secrets,
        egress: request.egress,
        workspace: request.workspace,
        workdir: request.workdir,
        user: request.user,
        labels: request.labels,
        ttl_ms: millis(request.ttl_seconds),
        idle_ttl_ms: millis(request.idle_ttl_seconds),
        on_idle: request.on_idle,
        template: request.template,
        snapshot: request.snapshot,
        ..Spec::new(which.clone())
    };
    let asked = spec.clone();
    let mut spec = permitted(&work.api, &work.caller, spec)?;
    let _packages = install(&work.api, &work.caller, &mut spec, request.packages).await?;
    let record = match placing::place_for(&work.api, &spec, &placing::drawn()?).await? {
        Placed::Here(placed) => {
            work.trail.making(work.api.registry().create_placed(spec, placed)).await?.into()
        }
        Placed::There(to) => {
            work.trail.fact("node", to.node.as_str());
            let sender = (&work.caller, work.is_operator);
            placing::make_there(&work.api, sender, &to, &asked).await?
        }
    };
    let sandbox = which.to_string();
    Ok(Answer::of(Made { sandbox, record, report: None }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Includes stopped sandboxes.
    #[serde(default)]
    all: bool,
    /// Sandboxes by default.
    #[serde(default)]
    kind: Option<Listing>,
}

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Listing {
    Sandboxes,
    Templates,
    Snapshots,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Listed {
    sandboxes: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    templates: Vec<TemplateRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    snapshots: Vec<SnapshotRow>,
    /// This session's own sandbox, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<String>,
    /// Whether the list is cut.
    truncated: bool,
}

/// A sandbox in a list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Row {
    /// The value for `sandbox` in other tools.
    sandbox: String,
    state: String,
    machine: String,
    created_at_ms: u64,
    labels: BTreeMap<String, String>,
}

async fn list(work: Work, request: List) -> Result<Answer<Listed>, Refusal> {
    let own = work.session.own().map(|own| own.to_string());
    let mut nothing = Listed {
        sandboxes: Vec::new(),
        templates: Vec::new(),
        snapshots: Vec::new(),
        own: own.clone(),
        truncated: false,
    };
    match request.kind {
        Some(Listing::Templates) => {
            (nothing.templates, nothing.truncated) = snapshots::templates(&work);
            return Ok(Answer::of(nothing));
        }
        Some(Listing::Snapshots) => {
            (nothing.snapshots, nothing.truncated) = snapshots::listed(&work);
            return Ok(Answer::of(nothing));
        }
        Some(Listing::Sandboxes) | None => {}
    }
    let mut records = work.api.registry().list(None);
    records.retain(|record| {
        work.caller.covers(&record.namespace) && (request.all || !record.state.is_over())
    });
    let mut room = SANDBOXES_LABELS_BYTES_MAX;
    let has_room = |record: &&Record| {
        let labels = record.labels.iter().map(|(key, value)| key.len() + value.len());
        let left = room.checked_sub(labels.sum());
        room = left.unwrap_or(0);
        left.is_some()
    };
    let shown = records.iter().take(SANDBOXES_SHOWN_MAX).take_while(has_room).count();
    let truncated = records.len() > shown;
    let rows = records.into_iter().take(shown).map(|record| Row {
        sandbox: record.which().to_string(),
        state: record.state.name().to_owned(),
        machine: record.machine.to_string(),
        created_at_ms: record.created_at_ms,
        labels: record.labels,
    });
    let sandboxes = rows.collect();
    Ok(Answer::of(Listed { sandboxes, truncated, ..nothing }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stop {
    /// The name of the sandbox.
    sandbox: String,
    /// Saves it under this name first, if its machine can.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    snapshot: Option<Name>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Remove {
    /// The name of the sandbox.
    #[serde(default)]
    sandbox: Option<String>,
    /// The snapshot to remove instead.
    #[serde(default)]
    snapshot: Option<String>,
}

/// A sandbox that was ended, or a snapshot that was removed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Ended {
    sandbox: String,
    /// The sandbox's state.
    state: String,
}

async fn stop(work: Work, request: Stop) -> Result<Answer<Ended>, Refusal> {
    let which = work.which(Some(&request.sandbox))?;
    if let Some(name) = request.snapshot {
        work.api.registry().snapshot(&which, name).await?;
    }
    let stopped = work.api.registry().stop(&which, STOP_GRACE_DEFAULT).await?;
    let state = stopped.state.name().to_owned();
    Ok(Answer::of(Ended { sandbox: which.to_string(), state }))
}

async fn remove(work: Work, request: Remove) -> Result<Answer<Ended>, Refusal> {
    let which = match (&request.sandbox, &request.snapshot) {
        (Some(sandbox), None) => {
            let which = work.which(Some(sandbox))?;
            work.api.registry().remove(&which, true).await?;
            which
        }
        (None, Some(snapshot)) => {
            let which = work.in_namespace(snapshot, "snapshot")?;
            work.api.registry().remove_snapshot(&which).await?;
            which
        }
        _ => return Err(Refusal::invalid("give either `sandbox` or `snapshot`")),
    };
    Ok(Answer::of(Ended { sandbox: which.to_string(), state: "removed".to_owned() }))
}
