//! One call as a handler sees it: the caller, the operation, the deadline, and the form of the answer.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, HeaderMap, HeaderName};
use hyper::http::uri::PathAndQuery;
use hyper::upgrade::OnUpgrade;
use protocol::{ContextName, SessionId};
use tokio::time::Instant;

use super::Api;
use super::admission::RunPermit;
use super::body::{Hold, Received};
use super::budget::Share;
use super::caller::Caller;
use super::creation::namespace_of;
use super::entrance::Entrance;
use super::limits::DEADLINE_MARGIN;
use super::lost;
use super::origin::host_of;
use super::parameters::Parameters;
pub use super::peer::Peer;
use super::trail::Trail;
use access::keys::Access;
use agent_client::guest::Guest;
use node::Node;
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Reason, Refusal};
use sandbox::{Activity, Name, Record, SandboxError, SandboxId, SandboxRef};
use workspace::volume::{Volume, VolumeError};

/// The id of the sandbox that a client means: another one that has the name now is refused.
pub const SANDBOX_ID: HeaderName = HeaderName::from_static("burrow-sandbox-id");

/// When a call's answer is of no use any more, according to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDeadline {
    pub at: Instant,
    /// The whole time that the client gave the call.
    pub requested: Duration,
}

/// How long something that a call runs may take, and the deadline that its end reports: always one that
/// the client has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimit {
    pub time: Duration,
    pub reported: Duration,
}

impl CallDeadline {
    pub fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// When a run that has not started in time is given up: later than its limit would end it, and early
    /// enough that the answer still says so.
    pub fn gives_up_at(self) -> Instant {
        self.at - margin(self.left()) / 2
    }
}

/// The answer, if there is one within the deadline of the call.
pub async fn within<T>(
    deadline: Option<CallDeadline>,
    answering: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let Some(deadline) = deadline else { return answering.await };
    tokio::time::timeout_at(deadline.at, answering).await.unwrap_or_else(|_| {
        let requested = deadline.requested.as_millis();
        let message = format!("the call took longer than its deadline of {requested} ms");
        Err(Refusal::new(Code::DeadlineExceeded, message)
            .hint("the call may still have taken effect; check before you repeat it"))
    })
}

impl RunLimit {
    /// The run's own limit where the call's leaves time to say how it ended, or a little less than what is
    /// left of the call's.
    pub fn of(requested: Option<Duration>, call: Option<CallDeadline>) -> Option<Self> {
        let own = requested.map(|time| Self { time, reported: time });
        let calls = call.map(|call| Self { time: run_time(call.left()), reported: call.requested });
        match (own, calls) {
            (Some(own), Some(calls)) if own.time <= calls.time => Some(own),
            (own, calls) => calls.or(own),
        }
    }

    pub fn time_ms(self) -> u64 {
        self.time.as_millis() as u64
    }

    pub fn reported_ms(self) -> u64 {
        self.reported.as_millis() as u64
    }
}

/// How much of a call's time what it runs may take: a little less than all, so that the answer can say
/// how the run ended. The guest counts milliseconds, and without any there would be no limit.
fn run_time(left: Duration) -> Duration {
    let time = left.saturating_sub(margin(left));
    Duration::from_millis(time.as_millis().max(1) as u64)
}

/// The part of a call's remaining time that is for its answer.
fn margin(left: Duration) -> Duration {
    DEADLINE_MARGIN.min(left / 4)
}

/// The number of a request, for logs and for those who ask about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(pub Arc<str>);

/// What of a request another one is made from, beside its headers and its body.
#[derive(Clone, Debug)]
pub struct Target {
    pub method: Method,
    /// With the query, as the client has sent it.
    pub place: PathAndQuery,
}

/// What another node says of the call that it sends on.
#[derive(Clone, Debug)]
pub struct SentFor {
    pub gateway: String,
    /// The life of the sandbox that it means.
    pub incarnation: Option<String>,
}

impl SentFor {
    /// Refuses a call for a life that this node no longer has. The gateway that has sent it looks again then.
    pub fn is_for(&self, node: &Node, what: &dyn fmt::Display) -> Result<(), Refusal> {
        if self.incarnation.as_deref().is_none_or(|life| node.has(life)) {
            return Ok(());
        }
        let message = format!("{what} is no longer at this node");
        let refusal = Refusal::new(Code::Unavailable, message).because(Reason::Moved);
        Err(refusal.retry_after(BUSY_PAUSE))
    }
}

/// A sandbox that is gone with its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostLife {
    pub node: String,
    pub incarnation: String,
}

/// See the module's description.
pub struct Call {
    pub api: Api,
    pub caller: Caller,
    pub request_id: RequestId,
    /// What the client has asked for, as it would be asked of another node.
    pub target: Target,
    /// The life of the sandbox that another node has sent this call for.
    pub sent_for: Option<SentFor>,
    /// The sandbox is gone with its node, and the operation reads what the fleet's log has of it.
    pub lost: Option<Box<LostLife>>,
    /// Whether only the node of its sandbox can say who may send it.
    pub is_judged_there: bool,
    pub entrance: Entrance,
    pub parameters: Parameters,
    /// The query string, without its question mark.
    pub query: String,
    pub headers: HeaderMap,
    pub body: Received,
    /// A body that was read whole, where it may have to go to another node.
    pub was_read: Option<Bytes>,
    pub deadline: Option<CallDeadline>,
    /// Its place among the concurrent runs, for as long as it is held.
    pub permit: Option<RunPermit>,
    /// What it holds in memory: of its body, and of what is gathered for its answer.
    pub memory: Share,
    /// Kept by the code that uses the connection after the answer.
    pub held: Option<Hold>,
    /// Its way into the audit log.
    pub trail: Trail,
    /// Present when the client asks for another protocol on this connection.
    pub upgrade: Option<OnUpgrade>,
}

/// A sandbox that is called into. As long as this is held, the sandbox does not count as idle.
pub struct Inside {
    pub which: SandboxRef,
    /// Its machine.
    pub id: SandboxId,
    /// Where programs begin that name no directory.
    pub workdir: Option<String>,
    /// The user of programs that name none.
    pub user: Option<String>,
    pub guest: Guest,
    pub activity: Option<Activity>,
    /// How long the call waited for it, if it was asleep.
    pub woke_in: Option<Duration>,
}

impl Inside {
    /// What is started there is a part of the operation of this trail, which knows how long it waited.
    #[must_use]
    pub fn on(mut self, trail: &Trail) -> Self {
        trail.woke(self.woke_in);
        self.guest = self.guest.within(trail.scope_in(&self.which));
        self
    }
}

impl Call {
    /// The volume whose id the path has, if the key reaches it. Of others it says nothing.
    pub fn volume(&self) -> Result<Arc<Volume>, Refusal> {
        let id: String = self.parameter("volume")?;
        self.trail.fact("volume", id.clone());
        let volume = self.api.registry().volumes().get(&id).map_err(SandboxError::from)?;
        let namespace = volume.namespace.parse();
        if namespace.is_ok_and(|namespace| self.caller.covers(&namespace)) {
            return Ok(volume);
        }
        Err(SandboxError::from(VolumeError::UnknownId { id }).into())
    }

    /// The sandbox that the path names, or whose id it has, if the key reaches it.
    pub fn which(&self) -> Result<SandboxRef, Refusal> {
        let namespace: Name = self.parameter("namespace")?;
        let name: Name = self.parameter("name")?;
        self.reaches(&namespace)?;
        let which = self.api.registry().resolve(SandboxRef { namespace, name });
        match self.headers.get(&SANDBOX_ID) {
            Some(id) => lost::is_still(&self.api, which, id.to_str().unwrap_or_default()),
            None => Ok(which),
        }
    }

    /// The sandbox that this parameter names, by its id or by its name in the namespace of the key, if it is there to the
    /// clients and the key reaches it. Of others it says nothing.
    pub fn found(
        &self,
        parameter: &str,
        is_there: impl Fn(&Record) -> bool,
    ) -> Result<Record, Refusal> {
        let text: String = self.parameter(parameter)?;
        let missing = || Refusal::not_found(format!("sandbox {text:?} was not found"));
        let registry = self.api.registry();
        let id = text.parse::<SandboxId>().ok();
        let by_id = id.and_then(|id| registry.find(&id));
        let by_name = || {
            let name: Name = text.parse().ok()?;
            Some(SandboxRef { namespace: namespace_of(&self.caller, None), name })
        };
        let which = by_id.filter(|which| self.caller.covers(&which.namespace)).or_else(by_name);
        let which = which.ok_or_else(missing)?;
        let record = registry.get(&which).ok().filter(is_there).ok_or_else(missing)?;
        self.trail.sandbox(&which);
        Ok(record)
    }

    /// Refuses a namespace that is not the key's.
    pub fn reaches(&self, namespace: &Name) -> Result<(), Refusal> {
        if self.caller.covers(namespace) {
            return Ok(());
        }
        let message = format!("this key does not cover the namespace {namespace}");
        Err(Refusal::new(Code::Forbidden, message).hint("use a key for that namespace"))
    }

    /// The one namespace that is asked for; `None` for all of a key that reaches all.
    pub fn one_namespace(&self, requested: Option<Name>) -> Result<Option<Name>, Refusal> {
        match (requested, self.caller.only_namespace()) {
            (Some(namespace), _) => {
                self.reaches(&namespace)?;
                Ok(Some(namespace))
            }
            (None, own) => Ok(own.cloned()),
        }
    }

    /// The running sandbox that the path names. One that is asleep is woken, and the answer says so.
    pub async fn inside(&self) -> Result<Inside, Refusal> {
        self.enter(self.which()?).await
    }

    /// The same, for a sandbox that something else names.
    pub async fn enter(&self, which: SandboxRef) -> Result<Inside, Refusal> {
        Ok(self.api.inside(which).await?.on(&self.trail))
    }

    pub fn session(&self) -> Result<SessionId, Refusal> {
        self.parameter("session")
    }

    pub fn context(&self) -> Result<ContextName, Refusal> {
        self.parameter("context")
    }

    /// A part of the path.
    pub fn parameter<T: FromStr<Err: fmt::Display>>(&self, name: &str) -> Result<T, Refusal> {
        let text = self.parameters.get(name).unwrap_or_default();
        text.parse().map_err(|error| Refusal::invalid(format!("{name} in the path: {error}")))
    }

    /// The whole body, if it is no larger than bodies may be and there is memory for it.
    pub async fn read_body(&mut self) -> Result<Bytes, Refusal> {
        let read = self.body.read(self.api.limits().body_bytes_max, &self.memory).await?;
        if self.api.node().is_some() {
            self.was_read = Some(read.clone());
        }
        Ok(read)
    }

    /// The origin of this server, as the client knows it.
    pub fn origin(&self) -> String {
        format!("{}://{}", self.entrance.scheme(), host_of(&self.headers))
    }

    /// Whether the client would rather have `kind` than JSON.
    pub fn prefers(&self, kind: &str) -> bool {
        prefers(&self.headers, kind)
    }

    /// The deadline of the call, if it has one.
    pub fn ends_at(&self) -> Option<Instant> {
        self.deadline.map(|deadline| deadline.at)
    }

    /// The same to look at alone: looking is no work in a sandbox, and it may still expire.
    pub fn look(&self) -> Result<Guest, Refusal> {
        Ok(self.api.registry().guest(&self.which()?)?)
    }

    /// Refuses a key without this right.
    pub fn may(&self, access: Access) -> Result<(), Refusal> {
        if self.caller.may(access) {
            return Ok(());
        }
        let message = format!("this key lacks the scope {access}");
        let hint = "make a key that has it: host-bridge keygen --scope";
        Err(Refusal::new(Code::Forbidden, message).hint(hint))
    }
}

/// Whether headers say that an answer of a kind is accepted, by its name.
pub fn prefers(headers: &HeaderMap, kind: &str) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|one| one.split(';').next().is_some_and(|one| one.trim().eq_ignore_ascii_case(kind)))
}

/// Resolves when a deadline has passed; never without one.
pub async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_limit_leaves_its_call_time_to_answer_and_reports_what_the_client_named() {
        let ms = Duration::from_millis;
        let cases = [
            (Some(500), None, Some((500, 500))),
            (Some(500), Some((10_000, 10_000)), Some((500, 500))),
            (Some(10_000), Some((5000, 5000)), Some((4750, 5000))),
            (None, Some((5000, 5000)), Some((4750, 5000))),
            (Some(10_000), Some((400, 5000)), Some((300, 5000))),
            (Some(10_000), Some((0, 5000)), Some((1, 5000))),
            (None, None, None),
        ];
        for (requested, call, expected) in cases {
            let call = call.map(|(left, whole)| CallDeadline {
                at: Instant::now() + ms(left),
                requested: ms(whole),
            });
            let limit = RunLimit::of(requested.map(ms), call);
            let found = limit.map(|limit| (limit.time_ms(), limit.reported_ms()));
            assert_eq!(found, expected, "{requested:?} within {call:?}");
        }
    }
}
