//! What the operator at another node has this one do: requests of its control socket about a sandbox that is here, and
//! bytes to and from the agent of one, which the holders of keys have over SSH too. Only nodes of the fleet reach this, with
//! a mark that says so.

use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::http::uri::PathAndQuery;
use hyper::upgrade::Upgraded;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::Api;
use super::body::Outgoing;
use super::call::{Call, SentFor, Target};
use super::caller::Caller;
use super::forward::{self, Sender};
use super::limits::AGENT_DIAL_MAX;
use super::response::{JSON, respond};
use super::route::{Asked, Operation, operation};
use super::shape::{Nothing, Raw};
use super::whereabouts::{self, Subject};
use crate::forms::sandboxes::Sandbox;
use access::keys::Grant;
use agent_client::guest::{Guest, Provenance};
use agent_client::link;
use machine::BoxFuture;
use node::{Placement, Through};
use sandbox::log::ProvenanceLog;
use sandbox::refusal::{Code, Reason, Refusal};
use sandbox::{SandboxRef, Visit};

const CONTROL: &str = "/.fleet/control";
const AGENT: &str = "/.fleet/agent/{namespace}/{name}";

/// Carries a request of a control socket out, which another node has sent on, and gives its answer.
pub type Operator =
    fn(Api, Vec<u8>, Option<SentFor>) -> BoxFuture<'static, Result<Vec<u8>, Refusal>>;

pub fn operations() -> Vec<Operation> {
    [
        operation(Method::POST, CONTROL, "fleet_control", "For other nodes.", control)
            .known_by(operator)
            .carrier(),
        operation(Method::GET, AGENT, "fleet_agent", "For other nodes.", agent)
            .known_by(operator_or_holder),
    ]
    .map(|operation| operation.tag("fleet").undocumented().run())
    .to_vec()
}

/// To everybody else there is nothing here.
pub(crate) fn operator(_: &Api, asked: &Asked<'_>) -> Result<Caller, Refusal> {
    match asked.through {
        Some(Through::Operator) => Ok(Caller::Local),
        _ => Err(Refusal::not_found(format!("there is nothing at {}", asked.path))),
    }
}

/// The same, and a holder of a key who reached another node over SSH.
fn operator_or_holder(api: &Api, asked: &Asked<'_>) -> Result<Caller, Refusal> {
    match asked.through {
        Some(Through::Holder(grant)) => Ok(Caller::Holder((**grant).clone())),
        _ => operator(api, asked),
    }
}

async fn control(mut call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let request = call.read_body().await?;
    let operator = call.api.operator().ok_or_else(|| {
        Refusal::new(Code::Unsupported, "this bridge has no control socket")
            .hint("`serve` opens one")
    })?;
    let answer = operator(call.api.clone(), request.to_vec(), call.sent_for.clone()).await?;
    Ok(Raw(respond(StatusCode::OK, JSON, Outgoing::whole(answer))))
}

/// The sandbox is not idle while the connection stands. What the client does there is not recorded, and that is.
async fn agent(mut call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let which = call.which()?;
    let upgrade =
        call.upgrade.take().ok_or_else(|| Refusal::invalid("the request upgrades nothing"))?;
    let registry = call.api.registry();
    let activity = registry.keep_awake(&which).await?;
    let (address, _) = registry.dial(&which)?;
    let away = |why: String| {
        Refusal::new(
            Code::GuestUnreachable,
            format!("the agent of {which} cannot be reached: {why}"),
        )
    };
    let dialled = timeout(AGENT_DIAL_MAX, link::dial(&address)).await;
    let socket = dialled.map_err(|_| away("it does not answer".to_owned()))?;
    let socket = socket.map_err(|error| away(error.to_string()))?;
    let stream = UnixStream::from_std(StdStream::from(socket.release()));
    let mut stream = stream.map_err(|error| away(error.to_string()))?;
    let recorded =
        ProvenanceLog::new(&registry.log_directory(&which)?).append(Provenance::Unseen {});
    recorded.map_err(|error| Refusal::new(Code::Io, error.to_string()))?;
    let held = call.held.take();
    tokio::spawn(async move {
        let _kept = (held, activity);
        if let Ok(client) = upgrade.await {
            // Either end closes both.
            let _ = copy_bidirectional(&mut TokioIo::new(client), &mut stream).await;
        }
    });
    let mut response = hyper::Response::new(Outgoing::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("burrow-agent"));
    Ok(Raw(response))
}

fn place(text: String) -> Result<PathAndQuery, Refusal> {
    PathAndQuery::try_from(text).map_err(|error| Refusal::of(Code::Internal, &error))
}

impl Api {
    /// Sets what carries out requests of control sockets.
    pub fn operate_with(&self, operator: Operator) {
        // One process has one control socket.
        let _ = self.0.operator.set(operator);
    }

    fn operator(&self) -> Option<Operator> {
        self.0.operator.get().copied()
    }

    /// Has another node carry a request of the control socket out.
    pub async fn order(&self, to: &Placement, request: Bytes) -> Result<Bytes, Refusal> {
        let target = Target { method: Method::POST, place: PathAndQuery::from_static(CONTROL) };
        let sender = Sender { api: self, caller: Caller::Local, is_operator: true };
        forward::post(sender, to, target, HeaderMap::new(), request).await
    }

    /// Has the node that has a sandbox carry a request out, and gives its answer. `None`: no other node has it. As with calls of
    /// clients, it is sent to where the sandbox was a moment ago, and from there nothing was done if it is there no more.
    pub async fn order_at(
        &self,
        which: &SandboxRef,
        request: Bytes,
    ) -> Result<Option<(Placement, Bytes)>, Refusal> {
        let Some(node) = self.node() else { return Ok(None) };
        if let Some(to) = node.recall(which) {
            match self.order(&to, request.clone()).await {
                Ok(answer) => return Ok(Some((to, answer))),
                Err(refusal) => {
                    node.forget_route(which);
                    if refusal.reason != Some(Reason::Moved) {
                        return Err(refusal);
                    }
                }
            }
        }
        let found = whereabouts::find(self, &Subject::Sandbox(which.clone())).await?;
        let Some(to) = found else { return Ok(None) };
        let answer = self.order(&to, request).await?;
        Ok(Some((to, answer)))
    }

    /// Has a sandbox that was lost not be made again, and says so in the refusal of its removal.
    pub async fn give_up(&self, which: &SandboxRef, refusal: Refusal) -> Refusal {
        whereabouts::given_up(self, &Subject::Sandbox(which.clone()), refusal).await
    }

    /// A connection to the agent of a sandbox of another node, for the holder of a grant or the operator.
    pub async fn reach_agent(
        &self,
        to: &Placement,
        which: &SandboxRef,
        grant: Option<&Grant>,
    ) -> Result<TokioIo<Upgraded>, Refusal> {
        let SandboxRef { namespace, name } = which;
        let place = place(format!("/.fleet/agent/{namespace}/{name}"))?;
        let through =
            grant.map_or(Through::Operator, |grant| Through::Holder(grant.clone().into()));
        Ok(TokioIo::new(forward::tunnel(self, to, place, through).await?))
    }

    /// Enters a sandbox of another node for the holder of a grant, which that node judges again; with the node's name.
    /// `None`: no other node has it.
    pub async fn visit_elsewhere(
        &self,
        which: &SandboxRef,
        grant: &Grant,
    ) -> Result<Option<(String, Visit)>, Refusal> {
        let subject = Subject::Sandbox(which.clone());
        let Some(to) = whereabouts::find(self, &subject).await? else { return Ok(None) };
        let SandboxRef { namespace, name } = which;
        let place = place(format!("/v1/sandboxes/{namespace}/{name}"))?;
        let target = Target { method: Method::GET, place };
        let caller = Caller::Holder(grant.clone());
        let sender = Sender { api: self, caller, is_operator: false };
        let shown = forward::post(sender, &to, target, HeaderMap::new(), Bytes::new()).await?;
        let foreign = |why: String| {
            Refusal::new(
                Code::Unavailable,
                format!("the node {} answers otherwise: {why}", to.node),
            )
        };
        let shown: Sandbox =
            serde_json::from_slice(&shown).map_err(|error| foreign(error.to_string()))?;
        let id = shown.id.parse().map_err(|_| foreign(format!("{:?} is no id", shown.id)))?;
        let agent = self.reach_agent(&to, which, Some(grant)).await?;
        let guest = self.guest_over(agent, &to).await?;
        let Sandbox { workdir, user, .. } = shown;
        let node = to.node.to_string();
        Ok(Some((node, Visit { id, workdir, user, guest, activity: None, woke_in: None })))
    }

    /// Speaks with an agent over such a connection. Either end, and the end of the node, closes it.
    async fn guest_over(
        &self,
        mut agent: TokioIo<Upgraded>,
        to: &Placement,
    ) -> Result<Guest, Refusal> {
        let failed = |error: std::io::Error| Refusal::of(Code::Internal, &error);
        let (ours, theirs) = StdStream::pair().map_err(failed)?;
        theirs.set_nonblocking(true).map_err(failed)?;
        let mut theirs = UnixStream::from_std(theirs).map_err(failed)?;
        let (api, left) = (self.clone(), to.node.clone());
        tokio::spawn(async move {
            let Some(node) = api.node() else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut theirs, &mut agent) => {}
                () = node.left(&left) => {}
            }
        });
        // Nobody comes back to it: there is no address to dial.
        let (resume_window, dial_deadline) = (Duration::ZERO, Duration::ZERO);
        let options = link::Options { resume_window, dial_deadline, ..link::Options::default() };
        let met = Guest::over(ours, None, options).await;
        met.map_err(|error| {
            let message = format!("the agent at the node {} cannot be reached: {error}", to.node);
            Refusal::new(Code::GuestUnreachable, message)
        })
    }
}
