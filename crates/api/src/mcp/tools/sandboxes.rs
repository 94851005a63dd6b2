//! Sandboxes as handles: created, listed, ended.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::creation::{install, permitted};
use crate::forms::ranges::{CPUS_MAX, cpu_millis};
use crate::forms::sandboxes::{PackageList, PullPolicy, Sandbox};
use crate::mcp::limits::{SANDBOXES_LABELS_BYTES_MAX, SANDBOXES_SHOWN_MAX};
use crate::mcp::tool::{Answer, Effect, Entry, Work, tool};
use access::keys::Access;
use image::Pull;
use sandbox::limits::{MEMORY_MIB_MAX, MEMORY_MIB_MIN, STOP_GRACE_DEFAULT, WORKDIR_BYTES_MAX};
use sandbox::refusal::Refusal;
use sandbox::{Name, OnIdle, Record, SandboxError, SandboxRef, Spec};
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
            "Lists the sandboxes with their states, and which is this session's own.",
            Access::Read,
            Effect::Reads,
            list,
        ),
        tool(
            "sandbox_stop",
            "Stop a sandbox",
            "Stops a sandbox cleanly. Its processes, variables and files are gone; its record and \
            logs stay.",
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
    /// What happens then: it ends by default, or is paused until it is used again.
    #[serde(default)]
    on_idle: Option<OnIdle>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Made {
    /// The value for `sandbox` in other tools.
    sandbox: String,
    record: Sandbox,
}

async fn create(work: Work, request: Create) -> Result<Answer<Made>, Refusal> {
    let name = match request.name {
        Some(name) => name.parse().map_err(|error| Refusal::invalid(format!("name: {error}")))?,
        None => Name::generate().map_err(SandboxError::Draw)?,
    };
    let which = SandboxRef { namespace: work.session.namespace(&work.caller), name };
    work.reaches(&which)?;
    let millis = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(1000));
    let spec = Spec {
        machine: work.session.machine(),
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
        ..Spec::new(which.clone())
    };
    let mut spec = permitted(&work.api, &work.caller, spec)?;
    let _packages = install(&work.api, &work.caller, &mut spec, request.packages).await?;
    let record = work.trail.making(work.api.registry().create(spec)).await?;
    Ok(Answer::of(Made { sandbox: which.to_string(), record: record.into() }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Includes stopped sandboxes.
    #[serde(default)]
    all: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Listed {
    sandboxes: Vec<Row>,
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
    let own = work.session.own();
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
    Ok(Answer::of(Listed { sandboxes, own: own.map(|own| own.to_string()), truncated }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// The name of the sandbox.
    sandbox: String,
}

/// A sandbox that was ended.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Ended {
    sandbox: String,
    /// The sandbox's state.
    state: String,
}

async fn stop(work: Work, request: Which) -> Result<Answer<Ended>, Refusal> {
    let which = work.which(Some(&request.sandbox))?;
    let stopped = work.api.registry().stop(&which, STOP_GRACE_DEFAULT).await?;
    let state = stopped.state.name().to_owned();
    Ok(Answer::of(Ended { sandbox: which.to_string(), state }))
}

async fn remove(work: Work, request: Which) -> Result<Answer<Ended>, Refusal> {
    let which = work.which(Some(&request.sandbox))?;
    work.api.registry().remove(&which, true).await?;
    Ok(Answer::of(Ended { sandbox: which.to_string(), state: "removed".to_owned() }))
}
