//! What sandboxes, namespaces and programs have cost.

use std::collections::BTreeMap;

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::gather;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Query, Reply};
use crate::forms::ranges::{NUMBER_MAX, check_range};
use crate::forms::sandboxes::{NAME, UnansweredNode};
use host::instant::now_ms;
use node::Node;
use sandbox::Name;
use sandbox::costs::{Cost, ProgramKind, ProgramUse};
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    [
        operation(Method::GET, "/v1/usage", "get_usage", "Show what namespaces have used.", get)
            .about(
                "The sums of all sandboxes of a namespace, removed ones included, over whole hours of UTC: of \
                 every hour that has a part between `from` and `to`. Without them, all that is kept: 400 days. \
                 The newest ten seconds may be missing, and the newest minute of sandboxes in which nothing runs. \
                 With `programs` also what the programs, runs and apps have \
                 cost that have ended, each once, over whole days of UTC. In a fleet, this node's part; with `all_nodes`, the sums of \
                 all nodes, and `unanswered` names nodes whose part is not in them.",
            )
            .problems(&[Code::Unsupported, Code::Unavailable]),
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
    /// Also the cost of programs, runs of contexts and apps, by day and name.
    #[serde(default)]
    pub programs: bool,
    /// The sums of all nodes of the fleet, instead of the part of the one that is asked.
    #[serde(default)]
    pub all_nodes: bool,
}

/// What namespaces have used.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageReport {
    /// By name. Those that are too many for one day are together in `(others)`.
    pub namespaces: Vec<NamespaceUsage>,
    /// By day, namespace, kind and name; with `programs` only. Names that are too many for one day are together in `(others)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<ProgramUsage>")]
    pub programs: Option<Vec<ProgramUsage>>,
    /// Nodes of the fleet that did not answer: their part is missing here. Absent if all did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<UnansweredNode>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceUsage {
    pub namespace: String,
    pub usage: Usage,
}

/// What programs, runs or apps of one name have cost that have ended on one day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramUsage {
    /// A date of UTC.
    pub day: String,
    pub namespace: String,
    pub kind: ProgramKind,
    /// The last part of a program's path, a context, or an app.
    pub name: String,
    /// How many.
    pub ends: u64,
    /// From each start to its end, one after the other.
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// The most memory that each has had, times its time: at least what it has used.
    #[serde(default)]
    pub peak_gib_seconds: f64,
    /// From block devices; not known of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub written_bytes: Option<u64>,
}

/// An amount of use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    let here = costs.into_iter().map(|(namespace, cost)| (namespace, Usage::from(cost)));
    let mut sums: BTreeMap<_, _> = here.collect();
    let mut programs = Vec::new();
    if query.programs {
        let here = call.api.registry().program_costs(namespace.as_ref(), from_ms, to_ms).await?;
        programs.extend(here.into_iter().map(ProgramUsage::from));
    }
    let unanswered = match gather::wanted(&call, query.all_nodes)? {
        Some(node) => add_others(&call, node, &mut sums, &mut programs).await?,
        None => Vec::new(),
    };
    let row = |(namespace, usage)| NamespaceUsage { namespace, usage };
    let namespaces = sums.into_iter().map(row).collect();
    let programs = query.programs.then(|| joined(programs));
    Ok(Reply(UsageReport { namespaces, programs, unanswered }))
}

/// Adds what the other nodes have, and returns those that do not say.
async fn add_others(
    call: &Call,
    node: &Node,
    sums: &mut BTreeMap<String, Usage>,
    programs: &mut Vec<ProgramUsage>,
) -> Result<Vec<UnansweredNode>, Refusal> {
    let place = gather::same_question(call);
    let add = |_: &str, report: UsageReport| {
        for NamespaceUsage { namespace, usage } in report.namespaces {
            let sum = sums.remove(&namespace).unwrap_or_default();
            sums.insert(namespace, sum.and(&usage));
        }
        programs.extend(report.programs.into_iter().flatten());
        Ok(())
    };
    gather::gather(call, node, |_| Ok(place.clone()), add).await
}

/// One row for each day, namespace, kind and name, in that order.
fn joined(mut rows: Vec<ProgramUsage>) -> Vec<ProgramUsage> {
    rows.sort_by(|one, other| one.key().cmp(&other.key()));
    rows.dedup_by(|later, first| {
        let is_same = later.key() == first.key();
        if is_same {
            first.add(later);
        }
        is_same
    });
    rows
}

async fn of_sandbox(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Usage>, Refusal> {
    Ok(Reply(call.api.registry().cost(&call.which()?).await?.into()))
}

impl ProgramUsage {
    fn key(&self) -> (&str, &str, ProgramKind, &str) {
        (&self.day, &self.namespace, self.kind, &self.name)
    }

    fn add(&mut self, other: &Self) {
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
        };
        self.ends = self.ends.saturating_add(other.ends);
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.peak_gib_seconds += other.peak_gib_seconds;
        add(&mut self.read_bytes, other.read_bytes);
        add(&mut self.written_bytes, other.written_bytes);
    }
}

impl From<ProgramUse> for ProgramUsage {
    fn from(ProgramUse { of, cost }: ProgramUse) -> Self {
        let bytes = |bytes| of.kind.has_bytes().then_some(bytes);
        Self {
            day: of.date(),
            ends: cost.ends,
            seconds: cost.run_us as f64 / 1e6,
            cpu_seconds: cost.cpu_seconds(),
            peak_gib_seconds: cost.peak_gib_seconds(),
            read_bytes: bytes(cost.read_bytes),
            written_bytes: bytes(cost.written_bytes),
            namespace: of.namespace,
            kind: of.kind,
            name: of.name,
        }
    }
}

impl Usage {
    /// The sum of both.
    fn and(&self, other: &Self) -> Self {
        let bytes = u64::saturating_add;
        Self {
            seconds: self.seconds + other.seconds,
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
            gib_seconds: self.gib_seconds + other.gib_seconds,
            read_bytes: bytes(self.read_bytes, other.read_bytes),
            written_bytes: bytes(self.written_bytes, other.written_bytes),
            egress_sent_bytes: bytes(self.egress_sent_bytes, other.egress_sent_bytes),
            egress_received_bytes: bytes(self.egress_received_bytes, other.egress_received_bytes),
        }
    }
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
