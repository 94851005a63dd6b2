//! The nodes of a fleet, for callers who may do everything.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Json, Nothing, Reply};
use access::keys::Access;
use node::{NodeRow, Readiness};
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    let one = "/v1/nodes/{node}";
    [
        operation(Method::GET, "/v1/nodes", "list_nodes", "List the nodes of the fleet.", list)
            .about("Ordered by name. Refused by a bridge that is in no fleet."),
        operation(Method::GET, one, "get_node", "One node of the fleet.", get),
        operation(Method::PATCH, one, "mark_node", "Say whether a node takes sandboxes.", mark)
            .about("Sandboxes that the node has stay there."),
    ]
    .map(|operation| {
        operation
            .access(Some(Access::Admin))
            .tag("nodes")
            .problems(&[Code::Unsupported, Code::Unavailable])
    })
    .to_vec()
}

/// Whether a node takes new sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeReadiness {
    Ready,
    /// Takes no new sandboxes; those it has stay.
    Cordoned,
    /// The same, and it is about to go.
    Draining,
}

/// All nodes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeList {
    pub nodes: Vec<NodeInfo>,
}

/// A node, as it describes itself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeInfo {
    pub name: String,
    /// Whether it is the one that answers.
    pub here: bool,
    /// Where its bridge is reached.
    pub address: String,
    pub version: String,
    pub readiness: NodeReadiness,
    /// What sandboxes may be promised there together.
    pub sandboxes: u32,
    pub memory_mib: u64,
    pub cpu_millis: u64,
    pub labels: BTreeMap<String, String>,
    /// Kinds of machines.
    pub machines: BTreeSet<String>,
    /// Why it is not in the fleet at the moment; only of the one that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub trouble: Option<String>,
}

/// What to change of a node.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkNode {
    pub readiness: NodeReadiness,
}

impl From<NodeReadiness> for Readiness {
    fn from(readiness: NodeReadiness) -> Self {
        match readiness {
            NodeReadiness::Ready => Self::Ready,
            NodeReadiness::Cordoned => Self::Cordoned,
            NodeReadiness::Draining => Self::Draining,
        }
    }
}

impl From<NodeRow> for NodeInfo {
    fn from(row: NodeRow) -> Self {
        Self {
            name: row.name,
            here: row.here,
            address: row.address,
            version: row.version,
            readiness: match row.readiness {
                Readiness::Ready => NodeReadiness::Ready,
                Readiness::Cordoned => NodeReadiness::Cordoned,
                Readiness::Draining => NodeReadiness::Draining,
            },
            sandboxes: row.sandboxes,
            memory_mib: row.memory_mib,
            cpu_millis: row.cpu_millis,
            labels: row.labels,
            machines: row.machines,
            trouble: row.trouble,
        }
    }
}

/// How a bridge comes into a fleet.
const JOIN: &str = "start it with --fleet, or set fleet.servers in its configuration";

/// The node that this bridge is, for a question about the one of a name.
fn fleet<'a>(call: &'a Call, name: &str) -> Result<&'a node::Node, Refusal> {
    call.api.node().ok_or_else(|| {
        let message = format!("there is no node {name:?}: this bridge is in no fleet");
        Refusal::not_found(message).hint(JOIN)
    })
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Reply<NodeList>, Refusal> {
    let node = call
        .api
        .node()
        .ok_or_else(|| Refusal::new(Code::Unsupported, "this bridge is in no fleet").hint(JOIN))?;
    let rows = node.rows().await;
    Ok(Reply(NodeList { nodes: rows.into_iter().map(NodeInfo::from).collect() }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<NodeInfo>, Refusal> {
    found(&call).await.map(Reply)
}

async fn mark(
    call: Call,
    _: Nothing,
    Json(request): Json<MarkNode>,
) -> Result<Reply<NodeInfo>, Refusal> {
    let name: String = call.parameter("node")?;
    call.trail.fact("node", name.as_str());
    fleet(&call, &name)?.set_readiness(&name, request.readiness.into()).await?;
    let mut marked = found(&call).await?;
    // How it describes itself arrives a moment later.
    marked.readiness = request.readiness;
    Ok(Reply(marked))
}

async fn found(call: &Call) -> Result<NodeInfo, Refusal> {
    let name: String = call.parameter("node")?;
    let rows = fleet(call, &name)?.rows().await;
    let row = rows.into_iter().find(|row| row.name == name);
    let none = || Refusal::not_found(format!("there is no node {name:?} in this fleet"));
    row.map(NodeInfo::from).ok_or_else(|| none().hint("GET /v1/nodes lists them"))
}
