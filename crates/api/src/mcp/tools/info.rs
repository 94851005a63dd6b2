//! Information about the session and its sandbox, and what it uses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forms::contexts::OpenedContext;
use crate::forms::metrics::MetricsPage;
use crate::forms::sandboxes::Sandbox;
use crate::mcp::results::KEPT_FOR;
use crate::mcp::tool::{Answer, Effect, Entry, Work, tool};
use access::keys::Access;
use agent_client::guest::contexts::language;
use sandbox::refusal::Refusal;

pub fn entries() -> Vec<Entry> {
    vec![
        tool(
            "get_execution_info",
            "Look at the environment",
            "Describes this session, its sandbox or another one with its interpreters, and which \
            cut results are kept.",
            Access::Read,
            Effect::Reads,
            info,
        ),
        tool(
            "metrics",
            "Look at what a sandbox uses",
            "Shows the CPU time, memory, disk and processes of a sandbox: the newest sample, or \
            all since a given one. There is one each second, for 15 minutes.",
            Access::Read,
            Effect::Reads,
            metrics,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InfoOptions {
    /// The name of the sandbox; this session's own by default, if it has one yet.
    #[serde(default)]
    sandbox: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Info {
    /// The server's release.
    release: String,
    /// The namespace of sandboxes named without one.
    namespace: String,
    /// What `execute` takes as `language`.
    languages: Vec<String>,
    /// This session's own sandbox, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own_sandbox: Option<String>,
    /// The requested sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sandbox: Option<Sandbox>,
    /// Its interpreters.
    contexts: Vec<OpenedContext>,
    /// The CPUs that its agent sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpus: Option<u32>,
    /// The time limit of a run without `timeout`.
    timeout_default_seconds: f64,
    /// The `run` of each cut result that can still be read.
    kept_runs: Vec<String>,
    /// How long they are kept.
    kept_for: String,
}

async fn info(work: Work, request: InfoOptions) -> Result<Answer<Info>, Refusal> {
    let own = work.session.own();
    let which = match &request.sandbox {
        Some(name) => Some(work.which(Some(name))?),
        None => own.clone(),
    };
    let (mut sandbox, mut contexts, mut cpus) = (None, Vec::new(), None);
    if let Some(which) = which {
        let registry = work.api.registry();
        sandbox = Some(registry.get(&which)?.into());
        // One that does not run has no interpreters; its record says why.
        if let Ok(guest) = registry.guest(&which) {
            contexts = guest.contexts().await?.into_iter().map(OpenedContext::from).collect();
            cpus = Some(guest.info().cpus);
        }
    }
    let kept_runs = work.session.results().runs();
    Ok(Answer::of(Info {
        release: env!("CARGO_PKG_VERSION").to_owned(),
        namespace: work.session.namespace(&work.caller).to_string(),
        languages: language::names().map(str::to_owned).collect(),
        own_sandbox: own.map(|own| own.to_string()),
        sandbox,
        contexts,
        cpus,
        timeout_default_seconds: work.api.limits().rpc_run_deadline.as_secs_f64(),
        kept_runs,
        kept_for: KEPT_FOR.to_owned(),
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MetricsOptions {
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
    /// The number of the last known sample, 0 for none; only the newest sample by default.
    #[serde(default)]
    since: Option<u64>,
}

/// Looking is no work in a sandbox, and it may still expire.
async fn metrics(work: Work, request: MetricsOptions) -> Result<Answer<MetricsPage>, Refusal> {
    let which = work.which(request.sandbox.as_deref())?;
    let guest = work.api.registry().guest(&which)?;
    let samples = match request.since {
        Some(since) => guest.metrics(since, false).await?,
        None => guest.newest_metrics(false).await?,
    };
    Ok(Answer::of(samples.into()))
}
