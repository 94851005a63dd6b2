//! Requests about a sandbox of another node of the fleet, and about all nodes: sent there and answered from there.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{
    Answer, Dialled, ErrorCode, ErrorReply, NodeReplies, NodeReply, Parts, Reply, Request,
    UnansweredNode,
};
use agent_client::link::Address;
use host::id::RandomId;
use machine::BoxFuture;
use node::{Node, Placed, Placement, Placing};
use sandbox::refusal::{Reason, Refusal};
use sandbox::{SandboxError, SandboxRef, Spec};

/// How long one node is waited for in a list of all.
const LIST_MAX: Duration = Duration::from_secs(5);

/// The node that has a sandbox, and what its bridge answers.
pub type Answered = (Placement, Vec<u8>);

/// The other nodes, as the daemon reaches them.
pub trait Elsewhere: Send + Sync {
    /// Has the bridge of a node carry a request out, and gives its answer.
    fn order<'a>(
        &'a self,
        to: &'a Placement,
        request: Vec<u8>,
    ) -> BoxFuture<'a, Result<Vec<u8>, Refusal>>;

    /// Has the node that has a sandbox carry a request out, and gives its answer. `None`: no other node has it.
    fn order_at<'a>(
        &'a self,
        which: &'a SandboxRef,
        request: Vec<u8>,
    ) -> BoxFuture<'a, Result<Option<Answered>, Refusal>>;

    /// Has a sandbox that was lost not be made again, and says so in the refusal of its removal.
    fn give_up<'a>(&'a self, which: &'a SandboxRef, lost: Refusal) -> BoxFuture<'a, Refusal>;

    /// Opens a socket of this host that leads to the agent of a sandbox there.
    fn relay(&self, to: Placement, which: SandboxRef) -> io::Result<PathBuf>;

    /// Where this bridge itself is reached.
    fn address(&self) -> String;
}

impl Request {
    /// Whether the operator of another node may ask it: it is about a sandbox that is there or was placed there, or looks.
    pub fn may_come_from_another(&self) -> bool {
        self.subject().is_some() || self.is_of_many() || matches!(self, Self::Start(_))
    }

    /// Whether it looks at something that each node has a part of.
    fn is_of_many(&self) -> bool {
        matches!(
            self,
            Self::List(_) | Self::Usage { .. } | Self::ProgramUsage { .. } | Self::Events(_)
        )
    }

    /// Whether it reads what is left of a sandbox that is gone with its node.
    fn reads_the_lost(&self) -> bool {
        matches!(self, Self::ReadLost { .. } | Self::ReadLog(_) | Self::LogSessions { .. })
    }

    /// Has another node carry it out, if that has the sandbox of the request. A sandbox there is dialled through a relay here.
    pub(super) async fn carry_elsewhere(
        &self,
        parts: Parts<'_>,
        others: &dyn Elsewhere,
    ) -> Result<Option<Reply>, ErrorReply> {
        let Some(which) = self.subject().filter(|_| parts.node.is_some()) else { return Ok(None) };
        if parts.registry.get(&which).is_ok() {
            return Ok(None);
        }
        let inspect = Self::Inspect { sandbox: which.clone() };
        // Who is at work there comes through a relay, which keeps the sandbox awake.
        let request = if matches!(self, Self::Work { .. }) { &inspect } else { self };
        let (to, answer) = match others.order_at(&which, written(request)?).await {
            Ok(Some(answered)) => answered,
            Ok(None) => return Ok(None),
            Err(lost) if lost.reason == Some(Reason::Lost) => match self {
                _ if self.reads_the_lost() => return Ok(None),
                Self::Remove { .. } => return Err(others.give_up(&which, lost).await.into()),
                _ => return Err(lost.into()),
            },
            Err(refusal) => return Err(refusal.into()),
        };
        match read(&answer)? {
            Reply::Dialled(dialled) => {
                let opened = others.relay(to, which);
                let path = opened.map_err(|error| unopened(&error))?;
                let (address, input) = (Address::Unix { path }, dialled.input.elsewhere());
                let dialled = Dialled { address, input, provenance: None, ..dialled };
                Ok(Some(Reply::Dialled(dialled)))
            }
            reply => Ok(Some(reply)),
        }
    }
}

/// Makes a sandbox at the node that has room for it.
pub(super) async fn place(
    spec: &Spec,
    node: &Node,
    parts: Parts<'_>,
    others: &dyn Elsewhere,
) -> Result<Reply, ErrorReply> {
    let request = RandomId::draw().map_err(SandboxError::Draw)?;
    let placing = Placing {
        spec,
        defaults: parts.registry.operator_defaults(),
        request: request.as_str(),
        image_is_everywhere: false,
    };
    let start = Request::Start(Box::new(spec.clone()));
    match node.place(placing).await? {
        Placed::Here(life) => start.carry(Parts { placed: life.as_deref(), ..parts }).await,
        Placed::There(to) => ask(&start, &to, others).await,
    }
}

async fn ask(
    request: &Request,
    to: &Placement,
    others: &dyn Elsewhere,
) -> Result<Reply, ErrorReply> {
    read(&others.order(to, written(request)?).await?)
}

fn written(request: &Request) -> Result<Vec<u8>, ErrorReply> {
    serde_json::to_vec(request).map_err(|error| malformed(&error))
}

fn read(answer: &[u8]) -> Result<Reply, ErrorReply> {
    match serde_json::from_slice(answer).map_err(|error| malformed(&error))? {
        Answer::Ok(reply) => Ok(reply),
        Answer::Error(refusal) => Err(refusal),
    }
}

/// Has all nodes carry a request out. One that does not answer is named, and what it has is missing.
pub(super) async fn all(
    request: Request,
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
    if !request.is_of_many() {
        let message = "this request is about one node";
        return Err(ErrorReply::new(ErrorCode::Invalid, message, None));
    }
    let known = node.others().await.map_err(|why| ErrorReply::new(ErrorCode::Busy, why, None))?;
    let asked = known.iter().map(|to| timeout(LIST_MAX, ask(&request, to, others)));
    let (here, answers) = tokio::join!(request.clone().carry(parts), join_all(asked));
    let (node, address) = (node.id().to_string(), others.address());
    let nodes = vec![NodeReply { node, address, reply: here? }];
    let mut all = NodeReplies { nodes, unanswered: Vec::new() };
    for (Placement { node, address, .. }, answer) in known.into_iter().zip(answers) {
        let node = node.to_string();
        match answer {
            Ok(Ok(reply)) => all.nodes.push(NodeReply { node, address, reply }),
            Ok(Err(refusal)) => {
                all.unanswered.push(UnansweredNode { node, why: refusal.to_string() });
            }
            Err(_) => {
                let why = "it does not answer".to_owned();
                all.unanswered.push(UnansweredNode { node, why });
            }
        }
    }
    all.nodes.sort_by(|one, other| one.node.cmp(&other.node));
    Ok(Reply::AllNodes(all))
}

fn malformed(error: &serde_json::Error) -> ErrorReply {
    let message = format!("the other node's bridge speaks otherwise: {error}");
    ErrorReply::new(ErrorCode::Unsupported, message, Some("run one release on all nodes"))
}

fn unopened(error: &io::Error) -> ErrorReply {
    ErrorReply::new(ErrorCode::Io, format!("cannot open a relay to the other node: {error}"), None)
}
