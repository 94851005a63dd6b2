//! Requests about a sandbox of another node of the fleet, and about all nodes: sent there and answered from there.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{
    Answer, Dialled, ErrorCode, ErrorReply, FleetList, List, NodeSandboxes, Parts, Reply, Request,
    UnansweredNode,
};
use agent_client::link::Address;
use machine::BoxFuture;
use node::Placement;
use sandbox::refusal::Refusal;
use sandbox::{Record, SandboxRef};

/// How long one node is waited for in a list of all.
const LIST_MAX: Duration = Duration::from_secs(5);

/// The other nodes, as the daemon reaches them.
pub trait Elsewhere: Send + Sync {
    /// Has the bridge of a node carry a request out, and gives its answer.
    fn order<'a>(
        &'a self,
        to: &'a Placement,
        request: Vec<u8>,
    ) -> BoxFuture<'a, Result<Vec<u8>, Refusal>>;

    /// Opens a socket of this host that leads to the agent of a sandbox there.
    fn relay(&self, to: Placement, which: SandboxRef) -> io::Result<PathBuf>;

    /// Where this bridge itself is reached.
    fn address(&self) -> String;
}

impl Request {
    /// Whether the operator of another node may ask it: it is about a sandbox that is there, or looks.
    pub fn may_come_from_another(&self) -> bool {
        self.subject().is_some() || matches!(self, Self::List(_))
    }

    /// The node that has the sandbox of the request, if it is not here.
    pub(super) async fn node(&self, parts: Parts<'_>) -> Option<(Placement, SandboxRef)> {
        let (node, which) = (parts.node?, self.subject()?);
        if parts.registry.get(&which).is_ok() {
            return None;
        }
        Some((node.elsewhere(&which).await?, which))
    }

    /// Has that node carry it out. A sandbox there is dialled through a relay here.
    pub(super) async fn carry_elsewhere(
        &self,
        (to, which): (Placement, SandboxRef),
        others: &dyn Elsewhere,
    ) -> Result<Reply, ErrorReply> {
        let inspect = Self::Inspect { sandbox: which.clone() };
        // Who is at work there comes through a relay, which keeps the sandbox awake.
        let request = if matches!(self, Self::Work { .. }) { &inspect } else { self };
        match ask(request, &to, others).await? {
            Reply::Dialled(dialled) => {
                let opened = others.relay(to, which);
                let path = opened.map_err(|error| unopened(&error))?;
                Ok(Reply::Dialled(Dialled { address: Address::Unix { path }, ..dialled }))
            }
            reply => Ok(reply),
        }
    }
}

async fn ask(
    request: &Request,
    to: &Placement,
    others: &dyn Elsewhere,
) -> Result<Reply, ErrorReply> {
    let text = serde_json::to_vec(request).map_err(|error| malformed(&error))?;
    let answer = others.order(to, text).await?;
    match serde_json::from_slice(&answer).map_err(|error| malformed(&error))? {
        Answer::Ok(reply) => Ok(reply),
        Answer::Error(refusal) => Err(refusal),
    }
}

/// The sandboxes of all nodes. One that does not answer is named, and its sandboxes are missing.
pub(super) async fn list(
    list: List,
    here: Vec<Record>,
    parts: Parts<'_>,
    others: &dyn Elsewhere,
) -> Result<Reply, ErrorReply> {
    let Some(node) = parts.node else {
        let message = "this bridge is in no fleet";
        return Err(ErrorReply::new(
            ErrorCode::Unsupported,
            message,
            Some("leave --all-nodes out"),
        ));
    };
    let known = node.others().await.map_err(|why| ErrorReply::new(ErrorCode::Busy, why, None))?;
    let request = Request::List(list);
    let asked = known.iter().map(|to| timeout(LIST_MAX, ask(&request, to, others)));
    let answers = join_all(asked).await;
    let (name, address) = (node.id().to_string(), others.address());
    let mut all = FleetList {
        nodes: vec![NodeSandboxes { node: name, address, sandboxes: here }],
        unanswered: Vec::new(),
    };
    for (Placement { node, address, .. }, answer) in known.into_iter().zip(answers) {
        let node = node.to_string();
        let why = match answer {
            Ok(Ok(Reply::Sandboxes(sandboxes))) => {
                all.nodes.push(NodeSandboxes { node, address, sandboxes });
                continue;
            }
            Ok(Ok(other)) => format!("it says {:?}", other.name()),
            Ok(Err(refusal)) => refusal.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        all.unanswered.push(UnansweredNode { node, why });
    }
    all.nodes.sort_by(|one, other| one.node.cmp(&other.node));
    Ok(Reply::Fleet(all))
}

fn malformed(error: &serde_json::Error) -> ErrorReply {
    let message = format!("the other node's bridge speaks otherwise: {error}");
    ErrorReply::new(ErrorCode::Unsupported, message, Some("run one release on all nodes"))
}

fn unopened(error: &io::Error) -> ErrorReply {
    ErrorReply::new(ErrorCode::Io, format!("cannot open a relay to the other node: {error}"), None)
}
