//! What sandboxes and namespaces have cost.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query, Reply};
use crate::forms::ranges::{NUMBER_MAX, check_range};
use crate::forms::sandboxes::NAME;
use host::instant::now_ms;
use sandbox::Name;
use sandbox::costs::Cost;
use sandbox::refusal::Refusal;

pub fn operations() -> Vec<Operation> {
    [
        operation(Method::GET, "/v1/usage", "get_usage", "Show what namespaces have used.", get)
            .about(
                "The sums of all sandboxes of a namespace, removed ones included, over whole hours of UTC: of \
                 every hour that has a part between `from` and `to`. Without them, all that is kept: 400 days. \
                 The newest ten seconds may be missing. In a fleet, this node's part.",
            ),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/usage",
            "get_sandbox_usage",
            "Show what a sandbox has used since it was created.",
            of_sandbox,
        ),
    ]
    .map(|operation| operation.tag("metrics"))
    .to_vec()
}

/// Whose use to show, and of which time.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageQuery {
    /// The namespace; by default all that the key covers.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// Milliseconds since 1970.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub from: Option<u64>,
    /// Milliseconds since 1970; by default now.
    #[serde(default)]
    #[schemars(with = "u64", range(max = NUMBER_MAX))]
    pub to: Option<u64>,
}

/// What namespaces have used.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageReport {
    /// By name. Those that are too many for one day are together in `(others)`.
    pub namespaces: Vec<NamespaceUsage>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceUsage {
    pub namespace: String,
    pub usage: Usage,
}

/// An amount of use.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// How long sandboxes were there, one after the other.
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Used memory times time.
    pub gib_seconds: f64,
    /// From block devices.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// To the outside.
    pub egress_sent_bytes: u64,
    pub egress_received_bytes: u64,
}

async fn get(
    call: Call,
    Query(query): Query<UsageQuery>,
    _: Nothing,
) -> Result<Reply<UsageReport>, Refusal> {
    let namespace = call.one_namespace(query.namespace)?;
    for (field, value) in [("from", query.from), ("to", query.to)] {
        check_range(field, value, 0, NUMBER_MAX)?;
    }
    let (from_ms, to_ms) = (query.from.unwrap_or(0), query.to.unwrap_or_else(now_ms));
    if from_ms >= to_ms {
        let message = format!("from ({from_ms}) must be before to ({to_ms})");
        return Err(Refusal::invalid(message));
    }
    let costs = call.api.registry().costs(namespace.as_ref(), from_ms, to_ms).await?;
    let row = |(namespace, cost)| NamespaceUsage { namespace, usage: Usage::from(cost) };
    Ok(Reply(UsageReport { namespaces: costs.into_iter().map(row).collect() }))
}

async fn of_sandbox(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Usage>, Refusal> {
    Ok(Reply(call.api.registry().cost(&call.which()?).await?.into()))
}

impl From<Cost> for Usage {
    fn from(cost: Cost) -> Self {
        Self {
            seconds: cost.run_ms as f64 / 1e3,
            cpu_seconds: cost.cpu_seconds(),
            gib_seconds: cost.gib_seconds(),
            read_bytes: cost.read_bytes,
            written_bytes: cost.written_bytes,
            egress_sent_bytes: cost.sent_bytes,
            egress_received_bytes: cost.received_bytes,
        }
    }
}
